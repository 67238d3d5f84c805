"""What the published layers gave, recorded: equality can be checked where the library is not installed.

`data/field_guide/recorded.safetensors` holds, for each family, every fourth number of the outputs that the
library's layers gave for made-up inputs and weights, and what is needed to make those again: the
configuration and the weights' sizes. Written by `python -m course_lib field-guide --record`."""
import json
from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from course_lib.field_guide.cache import Cache
from course_lib.field_guide.reading import Reading, layer_recipes
from course_lib.field_guide.weights import copy_weights, made_up, made_up_weights
from course_lib.files import ROOT

FILE = ROOT / "data" / "field_guide" / "recorded.safetensors"
BATCH, LENGTH, PADDING, PREFILL, EVERY = 2, 23, 5, 9, 4
WHOLE = [(0, LENGTH)]
STEPS = [(0, PREFILL), *((i, i + 1) for i in range(PREFILL, LENGTH))]


@dataclass
class Recorded:
    """One family: {(layer, part): outline}, and {way: {(layer, part): every fourth number of the output}}."""
    model_type: str
    library: str
    config: dict
    outlines: dict
    outputs: dict

    def layers(self) -> dict:
        """{(layer, part): our layer with the weights of the recording}."""
        reading, built = Reading(self.config), {}
        for (layer, part), sizes in self.outlines.items():
            ours = built[layer, part] = layer_recipes(reading, layer, self.model_type)[part].build().eval()
            copy_weights(ours, made_up_weights(f"{self.model_type}.{layer}.{part}", sizes), self.model_type)
        return built


def about_families(file, model_type: str | None) -> dict:
    """What an open recording says of its families; one that it does not hold is refused."""
    about = json.loads(file.metadata()["about"])
    if model_type is not None and model_type not in about["families"]:
        raise ValueError(f"model_type {model_type!r} has not been recorded; these have: "
                         f"{', '.join(sorted(about['families']))}")
    return about


def recorded(model_type: str | None = None) -> list[str] | Recorded:
    """The recording of one family; without a name, the names of all that are recorded."""
    with safe_open(str(FILE), "pt") as file:
        about = about_families(file, model_type)
        if model_type is None:
            return sorted(about["families"])
        family, outputs = about["families"][model_type], {}
        for name in file.keys():
            owner, way, layer, part = name.split("/")
            if owner == model_type:
                outputs.setdefault(way, {})[int(layer), int(part)] = file.get_tensor(name)
    outlines = {tuple(map(int, place.split("."))): sizes for place, sizes in family["outlines"].items()}
    outlines = {place: outlines[tuple(sizes)] if isinstance(sizes, list) else sizes
                for place, sizes in outlines.items()}
    return Recorded(model_type, about["library"], family["config"], outlines, outputs)


def inputs(model_type: str, place: tuple, d_model: int) -> Tensor:
    return made_up(f"{model_type}.{place[0]}.{place[1]}.x", (BATCH, LENGTH, d_model))


def padding() -> Tensor:
    """The second text begins after some padding."""
    present = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    present[1, :PADDING] = False
    return present


def three_axes() -> Tensor:
    """Positions by time, height and width, as a video has them."""
    n = torch.arange(LENGTH)
    return torch.stack([n // 4, n % 4, n % 3 + 1])[:, None].expand(3, BATCH, LENGTH)


def ways(config: dict):
    """How a family is run: name, pieces of the text, padding, positions."""
    yield "whole", WHOLE, None, None
    yield "step by step", STEPS, None, None
    yield "padded", WHOLE, padding(), None
    yield "padded, step by step", STEPS, padding(), None
    if (config.get("rope_parameters") or {}).get("mrope_section"):
        yield "three axes", WHOLE, None, three_axes()
        yield "three axes, step by step", STEPS, None, three_axes()


@torch.no_grad()
def run_layers(layers: dict, model_type: str, pieces, present=None, positions=None, caches=None) -> dict:
    """{(layer, part): outputs}, each layer on made-up inputs of its own, the text given in pieces."""
    caches = {place: Cache() for place in layers} if caches is None else caches
    outputs = {place: [] for place in layers}
    for start, end in pieces:
        shared = {}
        for place, module in layers.items():
            x = inputs(model_type, place, module.recipe.d_model)[:, start:end]
            outputs[place].append(module(x, None if positions is None else positions[..., start:end],
                                         None if present is None else present[:, :end], caches[place],
                                         shared))
    return {place: torch.cat(parts, 1) for place, parts in outputs.items()}
