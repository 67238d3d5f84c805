"""The ideas that the families are made of: where from, what each changes, how to see it in a recipe."""
import json
from dataclasses import dataclass
from typing import Callable

from course_lib.field_guide.base import Recipe
from course_lib.field_guide.compressed import CompressedRecipe
from course_lib.field_guide.indexers import BlockIndexing, PoolIndexing, TokenIndexing
from course_lib.field_guide.latent import LatentRecipe
from course_lib.field_guide.state import ConvRecipe, StateRecipe
from course_lib.files import ROOT

FILE = ROOT / "data" / "ideas.json"


@dataclass(frozen=True)
class Idea:
    name: str
    branch: str                     # the question that it answers
    date: str                       # year and month of its source
    source: str
    says: str
    found: Callable                 # recipe -> bool
    grew_from: str = ""


def softmax(test=lambda r: True):
    return lambda r: isinstance(r, Recipe) and test(r)


def plain(test=lambda r: True):
    return lambda r: type(r) is Recipe and test(r)


def states(test=lambda r: True):
    return lambda r: isinstance(r, StateRecipe) and test(r)


def turns(r):
    return getattr(r, "rotary", None)


def zeros_of(rotary):
    return sum(speed == 0 for speed in rotary.frequencies or ())


FOUND = {
    "one key head": plain(lambda r: r.n_kv_heads == 1 < r.n_heads),
    "grouped heads": plain(lambda r: 1 < r.n_kv_heads < r.n_heads),
    "latent": lambda r: isinstance(r, LatentRecipe),
    "keys and values of an earlier layer": softmax(lambda r: r.reuses is not None),
    "values are keys": lambda r: isinstance(r, CompressedRecipe) or plain(lambda r: r.values_are_keys)(r),
    "compressed text": lambda r: isinstance(r, CompressedRecipe) and bool(r.ratio),
    "window": softmax(lambda r: r.window is not None),
    "chunks": softmax(lambda r: r.chunk is not None),
    "indexer": lambda r: (isinstance(getattr(r, "indexer", None), TokenIndexing) or bool(getattr(r, "index", None))),
    "block indexer": lambda r: isinstance(getattr(r, "indexer", None), (BlockIndexing, PoolIndexing)),
    "an earlier layer's choice": lambda r: getattr(r, "index_from", None) is not None,
    "no positions": softmax(lambda r: turns(r) is None and not r.positions),
    "part of a head turns": plain(lambda r: turns(r) and r.rotary.dim - 2 * zeros_of(r.rotary) < r.head_dim),
    "several axes": softmax(lambda r: turns(r) and bool(r.rotary.axes)),
    "stretched positions": softmax(lambda r: turns(r) and r.rotary.frequencies is not None and not zeros_of(r.rotary)),
    "queries grow": softmax(lambda r: r.temperature is not None or getattr(r, "learned_temperature", False)),
    "QK norm": plain(lambda r: r.qk_norm is not None),
    "softcap": softmax(lambda r: bool(r.softcap)),
    "sink": softmax(lambda r: r.sinks),
    "gate": softmax(lambda r: r.gate is not None),
    "linear attention": states(lambda r: r.decay == "fixed"),
    "state space": states(lambda r: r.steps),
    "delta rule": states(lambda r: r.erases and r.decay == "head"),
    "delta rule, decay per channel": states(lambda r: r.erases and r.decay == "channel"),
    "convolution": lambda r: isinstance(r, ConvRecipe) or states(lambda r: r.conv > 0)(r)}
IDEAS = [Idea(**row, found=FOUND[row["name"]]) for row in json.loads(FILE.read_text(encoding="utf-8"))]
BRANCHES = {"keep": "What is kept?", "see": "What is seen?", "place": "How do positions enter?",
            "weigh": "How is it weighed?", "state": "Or is a state kept?"}


def ideas_of(recipe) -> list[str]:
    """The names of the ideas that a recipe uses."""
    return [idea.name for idea in IDEAS if idea.found(recipe)]
