"""RoPE for texts longer than those of the training: rules that change the frequencies.

Each takes the frequencies (head_dim / 2 of them, radians per position, largest first), returns new ones."""
import math

import torch
from torch import Tensor

from course_lib.checks.rope import check_scaling


def interpolate(frequencies: Tensor, factor: float) -> Tensor:
    """Position interpolation (arXiv:2306.15595): every pair turns `factor` times slower."""
    return frequencies / factor


def ntk_aware(frequencies: Tensor, factor: float) -> Tensor:
    """A larger base: the fastest pair turns as before, the slowest `factor` times slower."""
    pairs = len(frequencies)
    if pairs == 1:
        return frequencies
    steps = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device) / (pairs - 1)
    return frequencies * factor**-steps


def ntk_base(base: float, factor: float, head_dim: int) -> float:
    """The base whose frequencies are those of `ntk_aware`: base^(-2i/d) slows pair i by factor^(2i/(d-2))."""
    return base * factor ** (head_dim / (head_dim - 2))


def yarn(frequencies: Tensor, factor: float, original_length: int, base: float = 10000.0, fast: float = 32.0,
         slow: float = 1.0) -> Tensor:
    """YaRN (arXiv:2309.00071), as in the released code. Pairs that turned more than `fast` times in
    training stay, those that turned less than `slow` times are interpolated, and a ramp is between."""
    pairs = len(frequencies)

    def pair_that_turns(times):
        return pairs * math.log(original_length / (times * 2 * math.pi)) / math.log(base)

    low = min(max(math.floor(pair_that_turns(fast)), 0), 2 * pairs - 1)
    high = min(max(math.ceil(pair_that_turns(slow)), 0), 2 * pairs - 1)
    numbers = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
    slowed = ((numbers - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies * (1 - slowed) + frequencies / factor * slowed


def yarn_magnitude(factor: float) -> float:
    """YaRN also sharpens the softmax: it multiplies queries and keys by this factor."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def llama3(frequencies: Tensor, factor: float, original_length: int, low: float = 1.0,
           high: float = 4.0) -> Tensor:
    """Llama 3.1's rule (arXiv:2407.21783): pairs that turned more than `high` times in training stay, those
    below `low` times are interpolated. YaRN's paper has the ramp over turns too, its code over pairs."""
    turns = original_length * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * kept + frequencies / factor * (1 - kept)


RULES = {"linear": ("factor",), "ntk": ("factor",), "yarn": ("factor", "original_length", "fast", "slow"),
         "llama3": ("factor", "original_length", "low", "high")}


def rescale(frequencies: Tensor, scaling: dict, base: float) -> tuple[Tensor, float]:
    """Apply a rule: {"kind": "yarn", "factor": 4, "original_length": 2048}: (frequencies, magnitude)."""
    options = check_scaling(scaling, RULES, base)
    kind = options.pop("kind")
    if kind == "linear":
        return interpolate(frequencies, **options), 1.0
    if kind == "ntk":
        return ntk_aware(frequencies, **options), 1.0
    if kind == "llama3":
        return llama3(frequencies, **options), 1.0
    return yarn(frequencies, base=base, **options), yarn_magnitude(options["factor"])
