"""The ideas that the families are made of: where from, what each changes, how to see it in a recipe."""
from dataclasses import dataclass
from typing import Callable

from course_lib.field_guide.base import Recipe
from course_lib.field_guide.compressed import CompressedRecipe
from course_lib.field_guide.indexers import BlockIndexing, PoolIndexing, TokenIndexing
from course_lib.field_guide.latent import LatentRecipe
from course_lib.field_guide.state import ConvRecipe, StateRecipe


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


IDEAS = [
    Idea("one key head", "keep", "2019-11", "arXiv:1911.02150",
         "all query heads share one key and value head",
         found=plain(lambda r: r.n_kv_heads == 1 < r.n_heads)),
    Idea("grouped heads", "keep", "2023-05", "arXiv:2305.13245",
         "a few query heads share one key and value head", grew_from="one key head",
         found=plain(lambda r: 1 < r.n_kv_heads < r.n_heads)),
    Idea("latent", "keep", "2024-05", "arXiv:2405.04434",
         "one narrow vector per token, from which all heads are unfolded", grew_from="grouped heads",
         found=lambda r: isinstance(r, LatentRecipe)),
    Idea("keys and values of an earlier layer", "keep", "2024-05", "arXiv:2405.12981",
         "a layer reads another's cache and keeps none", grew_from="grouped heads",
         found=softmax(lambda r: r.reuses is not None)),
    Idea("values are keys", "keep", "2026-04", "Gemma 4",
         "one projection makes both", grew_from="latent",
         found=lambda r: isinstance(r, CompressedRecipe) or plain(lambda r: r.values_are_keys)(r)),
    Idea("compressed text", "keep", "2026-04", "DeepSeek-V4",
         "beyond a window, one entry for every few tokens", grew_from="latent",
         found=lambda r: isinstance(r, CompressedRecipe) and bool(r.ratio)),
    Idea("window", "see", "2019-04", "arXiv:1904.10509",
         "a query sees the last few hundred or thousand tokens",
         found=softmax(lambda r: r.window is not None)),
    Idea("chunks", "see", "2025-04", "Llama 4",
         "a query sees the part of the text that it is in", grew_from="window",
         found=softmax(lambda r: r.chunk is not None)),
    Idea("indexer", "see", "2025-09", "DeepSeek-V3.2-Exp; arXiv:2512.02556",
         "a small attention chooses the tokens to look at", grew_from="block indexer",
         found=lambda r: (isinstance(getattr(r, "indexer", None), TokenIndexing)
                          or bool(getattr(r, "index", None)))),
    Idea("block indexer", "see", "2025-02", "arXiv:2502.11089",
         "whole blocks are chosen, by their best token or by a pooled key",
         found=lambda r: isinstance(getattr(r, "indexer", None), (BlockIndexing, PoolIndexing))),
    Idea("an earlier layer's choice", "see", "2026-03", "arXiv:2603.12201; GLM-5.2",
         "layers look where an earlier layer's indexer has looked", grew_from="indexer",
         found=lambda r: getattr(r, "index_from", None) is not None),
    Idea("no positions", "place", "2023-05", "arXiv:2305.19466",
         "nothing is rotated; order shows through the mask alone",
         found=softmax(lambda r: turns(r) is None and not r.positions)),
    Idea("part of a head turns", "place", "2021-06", "GPT-J", "the other entries of a head have no position",
         found=plain(lambda r: turns(r) and r.rotary.dim - 2 * zeros_of(r.rotary) < r.head_dim)),
    Idea("several axes", "place", "2024-09", "arXiv:2409.12191",
         "time, height and width each turn some of the pairs", grew_from="part of a head turns",
         found=softmax(lambda r: turns(r) and bool(r.rotary.axes))),
    Idea("stretched positions", "place", "2023-06", "arXiv:2306.15595",
         "slow pairs turn more slowly, for texts beyond the trained length",
         found=softmax(lambda r: turns(r) and r.rotary.frequencies is not None and not zeros_of(r.rotary))),
    Idea("queries grow", "weigh", "2023-09", "arXiv:2309.16609",
         "longer queries far into the text keep the softmax sharp",
         found=softmax(lambda r: r.temperature is not None or getattr(r, "learned_temperature", False))),
    Idea("QK norm", "weigh", "2020-10", "arXiv:2010.04245",
         "queries and keys have a fixed length before they meet",
         found=plain(lambda r: r.qk_norm is not None)),
    Idea("softcap", "weigh", "2024-03", "the code of Grok-1", "no score is larger than a cap",
         found=softmax(lambda r: bool(r.softcap))),
    Idea("sink", "weigh", "2023-09", "arXiv:2309.17453",
         "a learned score takes the weight that no token deserves",
         found=softmax(lambda r: r.sinks)),
    Idea("gate", "weigh", "2025-05", "arXiv:2505.06708", "the output is let through by feature or by head",
         found=softmax(lambda r: r.gate is not None)),
    Idea("linear attention", "state", "2020-06", "arXiv:2006.16236",
         "a sum over the past that each head forgets at a fixed rate",
         found=states(lambda r: r.decay == "fixed")),
    Idea("state space", "state", "2024-05", "arXiv:2405.21060",
         "Mamba-2: what is kept and what is written depend on the token", grew_from="linear attention",
         found=states(lambda r: r.steps)),
    Idea("delta rule", "state", "2021-02", "arXiv:2102.11174; with decay 2412.06464",
         "what the state says about a key is corrected, with decay", grew_from="linear attention",
         found=states(lambda r: r.erases and r.decay == "head")),
    Idea("delta rule, decay per channel", "state", "2025-10", "arXiv:2510.26692",
         "every channel of a key forgets at a speed of its own", grew_from="delta rule",
         found=states(lambda r: r.erases and r.decay == "channel")),
    Idea("convolution", "state", "2022-12", "arXiv:2212.14052", "a mixture of the last few tokens",
         found=lambda r: isinstance(r, ConvRecipe) or states(lambda r: r.conv > 0)(r))]
BRANCHES = {"keep": "What is kept?", "see": "What is seen?", "place": "How do positions enter?",
            "weigh": "How is it weighed?", "state": "Or is a state kept?"}


def ideas_of(recipe) -> list[str]:
    """The names of the ideas that a recipe uses."""
    return [idea.name for idea in IDEAS if idea.found(recipe)]
