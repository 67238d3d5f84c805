"""Rotary positions as today's models have them: some entries of a head, several axes, stretched.

Chapter 2's rotation, for positions that may differ by sequence and by axis. positions is (n,), (batch, n) or,
where the rotation has several axes, (axes, batch, n)."""
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """Which entries of a head are turned, how fast, and by which position."""
    dim: int                            # entries that turn; the others have no position
    base: float = 10000.0
    layout: str = "half"                # a pair is (i, i + dim / 2), or with "interleaved" (2 i, 2 i + 1)
    at: str = "front"                   # the turned entries are the first of a head, or with "back" the last
    frequencies: tuple | None = None    # radians per position of each pair; None: base ** (-2 i / dim)
    magnitude: float = 1.0              # YaRN also lengthens queries and keys
    axes: tuple = ()                    # pairs per axis, as (time, height, width)
    interleaved_axes: bool = False      # axes take turns pair by pair, instead of one block of pairs each

    @lru_cache
    def speeds(self) -> Tensor:
        if self.frequencies is not None:
            return torch.tensor(self.frequencies)
        return plain_frequencies(self.dim, self.base)

    def axis_of_pair(self) -> Tensor:
        """(dim / 2,): the axis whose position turns each pair."""
        pairs = torch.arange(self.dim // 2)
        if not self.interleaved_axes:
            return torch.repeat_interleave(torch.arange(len(self.axes)), torch.tensor(self.axes))
        axis = pairs % len(self.axes)
        limit = torch.tensor(self.axes)[axis] * len(self.axes)
        # what an axis has no room for goes to the first
        return torch.where(pairs < limit, axis, 0)


def plain_frequencies(dim: int, base: float) -> Tensor:
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float) / dim)


def rotate(x: Tensor, rotary: Rotary | None, positions: Tensor, known: dict | None = None,
           backwards: bool = False) -> Tensor:
    """x (batch, heads, n, head_dim) turned by its positions. `known`: cosines and sines of earlier calls,
    which hold for the same tensor of positions."""
    if rotary is None:
        return x
    known = {} if known is None else known
    if rotary not in known or known[rotary][0] is not positions:
        cos, sin = cos_and_sin(rotary, positions, x.device)
        known[rotary] = positions, _pairs(cos, cos, rotary.layout), _pairs(-sin, sin, rotary.layout)
    _, cos, sin = known[rotary]
    sin, rest = -sin if backwards else sin, x.shape[-1] - rotary.dim
    if not rest:
        return _turn(x, cos, sin, rotary.layout)
    still, x = (
        x.split([rest, rotary.dim], -1) if rotary.at == "back" else x.split([rotary.dim, rest], -1)[::-1])
    x = _turn(x, cos, sin, rotary.layout)
    return torch.cat([still, x] if rotary.at == "back" else [x, still], -1)


def cos_and_sin(rotary: Rotary, positions: Tensor, device) -> tuple[Tensor, Tensor]:
    angles = positions[..., None].float() * rotary.speeds().to(device)
    if rotary.axes:
        if angles.dim() < 4:                                    # text: every axis has the same position
            angles = angles.expand(len(rotary.axes), *angles.shape)
        which = rotary.axis_of_pair().to(device).expand(1, *angles.shape[1:])
        angles = angles.gather(0, which)[0]
    if angles.dim() == 3:
        angles = angles[:, None]                                # the same for every head
    return angles.cos() * rotary.magnitude, angles.sin() * rotary.magnitude


def _turn(x, cos, sin, layout):
    """(a, b) of each pair becomes (a cos - b sin, b cos + a sin): cos holds cos twice, sin holds -sin and sin."""
    other = x.roll(x.shape[-1] // 2, -1) if layout == "half" else x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (x * cos + other * sin).to(x.dtype)


def _pairs(a, b, layout):
    return torch.cat([a, b], -1) if layout == "half" else torch.stack([a, b], -1).flatten(-2)


def read_rotary(options: dict, head_dim: int, layout: str = "half", at: str = "front") -> Rotary:
    """A Rotary from the `rope_parameters` of a configuration; head_dim is the width they refer to."""
    kind = options.get("rope_type", options.get("type", "default"))
    base, factor = float(options.get("rope_theta", 10000.0)), options.get("factor", 1.0)
    share = options.get("partial_rotary_factor", 1.0)
    axes, interleaved = tuple(options.get("mrope_section", ())), bool(options.get("mrope_interleaved", False))
    if kind == "proportional":          # the first pairs of a whole head turn, at the speeds of a whole head
        speeds = plain_frequencies(head_dim, base) / factor
        speeds[int(share * head_dim // 2):] = 0
        return Rotary(head_dim, base, layout, at, tuple(speeds.tolist()))
    dim = int(head_dim * share)
    if kind in ("default", "mrope"):
        return Rotary(dim, base, layout, at, axes=axes, interleaved_axes=interleaved)
    if kind not in STRETCHES:
        raise ValueError(f"rope_type {kind!r} is not one the field guide knows: default, mrope, "
                         f"proportional, {', '.join(STRETCHES)}")
    speeds, magnitude = STRETCHES[kind](plain_frequencies(dim, base), base, options)
    return Rotary(dim, base, layout, at, tuple(speeds.tolist()), magnitude, axes, interleaved)


def _llama3(speeds, base, options):
    low, high = options["low_freq_factor"], options["high_freq_factor"]
    turns = options["original_max_position_embeddings"] * speeds / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return speeds * kept + speeds / options["factor"] * (1 - kept), 1.0


def _yarn(speeds, base, options):
    """YaRN, as in chapter 2; some models leave the ends of the ramp unrounded, or choose the magnitude."""
    dim, factor = 2 * len(speeds), options["factor"]

    def pair_that_turns(times):
        return (dim * math.log(options["original_max_position_embeddings"] / (times * 2 * math.pi))
                / (2 * math.log(base)))

    low, high = pair_that_turns(options.get("beta_fast") or 32), pair_that_turns(
        options.get("beta_slow") or 1)
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    slowed = ((torch.arange(len(speeds)) - low) / ((high - low) or 0.001)).clamp(0, 1)
    magnitude = options.get("attention_factor")
    if magnitude is None:
        ours, theirs = options.get("mscale"), options.get("mscale_all_dim")
        magnitude = (yarn_magnitude(factor, ours) / yarn_magnitude(factor, theirs) if ours and theirs
                     else yarn_magnitude(factor))
    return speeds / factor * slowed + speeds * (1 - slowed), magnitude


def _longrope(speeds, base, options):
    """A measured factor for each pair; the ones for short texts, which is what is compared here."""
    length, factor = options["original_max_position_embeddings"], options.get("factor") or 1.0
    magnitude = options.get("attention_factor")
    if magnitude is None:
        magnitude = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
    return speeds / torch.tensor(options["short_factor"]), magnitude


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _dynamic(speeds, base, options):
    """The base grows once the text is longer than trained, not before. Hunyuan's alpha: it has grown."""
    alpha, dim = options.get("alpha"), 2 * len(speeds)
    return plain_frequencies(dim, base * alpha ** (dim / (dim - 2))) if alpha else speeds, 1.0


STRETCHES = {"linear": lambda speeds, base, options: (speeds / options["factor"], 1.0),
             "llama3": _llama3, "yarn": _yarn, "longrope": _longrope,
             "dynamic": _dynamic, "su": _longrope}          # su: what Phi-3's first files call longrope
