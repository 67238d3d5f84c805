"""RoPE beyond the length a model was trained at: rules that change the frequencies, each a few lines.

Each takes the frequencies (head_dim / 2 of them, in radians a position, falling) and returns the new ones.
"""
import math

import torch
from torch import Tensor


def interpolate(frequencies: Tensor, factor: float) -> Tensor:
    """Position interpolation (arXiv:2306.15595): every pair `factor` times slower, as if positions were squeezed."""
    return frequencies / factor


def ntk_aware(frequencies: Tensor, factor: float) -> Tensor:
    """A larger base: the fastest pair turns as before, the slowest `factor` times slower, those between by degrees."""
    pairs = len(frequencies)
    if pairs == 1:
        return frequencies
    steps = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device) / (pairs - 1)
    return frequencies * factor**-steps


def yarn(frequencies: Tensor, factor: float, original_length: int, base: float = 10000.0, fast: float = 32.0,
         slow: float = 1.0) -> Tensor:
    """YaRN (arXiv:2309.00071): pairs that turned more than `fast` times in training stay, those that turned less than
    `slow` times are interpolated, and a ramp over the pairs' numbers joins the two, as in the released code."""
    pairs = len(frequencies)

    def pair_that_turns(times):
        return pairs * math.log(original_length / (times * 2 * math.pi)) / math.log(base)

    low = min(max(math.floor(pair_that_turns(fast)), 0), 2 * pairs - 1)
    high = min(max(math.ceil(pair_that_turns(slow)), 0), 2 * pairs - 1)
    numbers = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
    slowed = ((numbers - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies * (1 - slowed) + frequencies / factor * slowed


def yarn_magnitude(factor: float) -> float:
    """YaRN also sharpens the softmax: queries and keys are both longer by this factor."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def llama3(frequencies: Tensor, factor: float, original_length: int, low: float = 1.0, high: float = 4.0) -> Tensor:
    """Llama 3.1's rule (arXiv:2407.21783): the same idea, with a ramp over how often a pair turned in training."""
    turns = original_length * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * kept + frequencies / factor * (1 - kept)


RULES = {"linear": ("factor",), "ntk": ("factor",), "yarn": ("factor", "original_length", "fast", "slow"),
         "llama3": ("factor", "original_length", "low", "high")}


def rescale(frequencies: Tensor, scaling: dict, base: float) -> tuple[Tensor, float]:
    """Apply a rule such as {"kind": "yarn", "factor": 4, "original_length": 2048}: (frequencies, magnitude)."""
    options = _checked(scaling)
    kind = options.pop("kind")
    if kind == "yarn" and not base > 1:
        raise ValueError(f"base must be above 1 for scaling of kind 'yarn'; got {base!r}")
    if kind == "linear":
        return interpolate(frequencies, **options), 1.0
    if kind == "ntk":
        return ntk_aware(frequencies, **options), 1.0
    if kind == "llama3":
        return llama3(frequencies, **options), 1.0
    return yarn(frequencies, base=base, **options), yarn_magnitude(options["factor"])


def _checked(scaling) -> dict:
    if not isinstance(scaling, dict) or scaling.get("kind") not in RULES:
        raise ValueError(f"scaling must be None or a dict with a kind of {', '.join(RULES)}; got {scaling!r}")
    allowed = RULES[scaling["kind"]]
    unknown = set(scaling) - {"kind", *allowed}
    needed = {"factor", "original_length"} & set(allowed)
    missing = needed - set(scaling)
    if unknown or missing:
        wrong = f"{', '.join(map(repr, sorted(unknown)))} too" if unknown else f"no {' and no '.join(sorted(missing))}"
        raise ValueError(f"scaling of kind {scaling['kind']!r} must have {', '.join(allowed)}; got {wrong}")
    for name in set(allowed) & set(scaling):
        if not isinstance(scaling[name], (int, float)) or not 0 < scaling[name] < math.inf:
            raise ValueError(f"scaling must have a positive, finite {name}; got {scaling[name]!r}")
    for few, many, defaults in (("slow", "fast", (1.0, 32.0)), ("low", "high", (1.0, 4.0))):
        if many in allowed and not scaling.get(few, defaults[0]) < scaling.get(many, defaults[1]):
            raise ValueError(f"scaling must have {few} below {many}; got {scaling!r}")
    return dict(scaling)
