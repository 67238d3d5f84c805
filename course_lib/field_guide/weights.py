"""Published weights in our layers, and weights that anybody can make again from a name."""
import math
import zlib

import torch
from torch import Tensor, nn

from course_lib.field_guide.families import FAMILIES


def copy_weights(layer: nn.Module, published: dict[str, Tensor], model_type: str):
    """Fill a layer with a published layer's weights, named and ordered by its family; none may be left."""
    weights = as_ours({name: x.detach().clone() for name, x in published.items()}, layer.recipe, model_type)
    ours = dict(layer.state_dict())
    missing, extra = sorted(ours.keys() - weights.keys()), sorted(weights.keys() - ours.keys())
    if missing or extra:
        raise ValueError(f"{model_type}, layer {layer.recipe.layer}: no published weight for "
                         f"{', '.join(missing) or 'none'}; no place for {', '.join(extra) or 'none'}")
    layer.load_state_dict({name: x.reshape(ours[name].shape) for name, x in weights.items()})


def as_ours(published: dict[str, Tensor], recipe, model_type: str) -> dict[str, Tensor]:
    """A layer's weights under our names, in our order; from a module of the library or from a file."""
    family, weights = FAMILIES[model_type], dict(published)
    for name in family.plus_one:
        if name in weights:
            weights[name] = weights[name].float() + 1
    if "q_conv1d.weight" in weights:            # in files, queries, keys and values have a convolution each
        weights["conv1d.weight"] = torch.cat([weights.pop(f"{x}_conv1d.weight") for x in "qkv"])
    if family.split:
        weights = family.split(weights, recipe)
    return {renamed(name, family.names): x for name, x in weights.items()}


def renamed(name: str, names: dict) -> str:
    """The longest beginning that is in `names` is replaced, whole parts only."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        start = ".".join(parts[:end])
        if start in names:
            return ".".join([names[start], *parts[end:]])
    return name


def made_up(name: str, shape, std: float = 1.0, mean: float = 0.0) -> Tensor:
    """Float32 numbers that depend on a name and a shape alone, by integer arithmetic: everywhere the same."""
    mask = (1 << 32) - 1
    count = math.prod(shape)
    x = (torch.arange(count) * 0x9E3779B1 + zlib.crc32(name.encode())) & mask
    for shift, factor in ((16, 0x45D9F3B), (15, 0x2C1B3C6D), (16, 1)):
        x = ((x ^ (x >> shift)) * factor) & mask
    return (mean + std * 12**0.5 * (x.double() / 2**32 - 0.5)).float().reshape(shape)


def made_up_weights(name: str, outline: dict[str, list]) -> dict[str, Tensor]:
    """Weights of a layer from their sizes; 1-dimensional ones end in the mean they are drawn around."""
    weights = {}
    for part, sizes in outline.items():
        if len(sizes) == 2 and isinstance(sizes[1], float):
            weights[part] = made_up(f"{name}.{part}", sizes[:1], std=0.3, mean=sizes[1])
        else:
            weights[part] = made_up(f"{name}.{part}", sizes, std=math.prod(sizes[1:]) ** -0.5)
    return weights


def outline(module: nn.Module) -> dict[str, list]:
    """What `made_up_weights` needs of a module: factors of norms are drawn around their start."""
    sizes = {}
    for part, x in module.named_parameters():
        start = float("norm" in part and bool(x.mean() > 0.5))
        sizes[part] = [*x.shape, start] if x.dim() == 1 else [*x.shape]
    return sizes
