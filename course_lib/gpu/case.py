"""A case: inputs, a launch, the answer in float64, and how far off it may be. The cases are in gpu/cases/.

A case draws fresh inputs, and its outputs start as NaN: an entry that is not written is found."""
import math
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from course_lib.launching import runs_hopper, runs_tensor_cores, shared_limit

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# ||answer - float64|| / ||float64||. Half precision rounds inputs of products, weights and outputs.
TOLERANCE = {F32: 1e-4, F16: 3e-3, BF16: 2e-2}


@dataclass(frozen=True, kw_only=True)
class Case:
    chapter: str
    kernels: tuple[str, ...]                # launched by `run`
    inputs: Callable                        # (draw, **shape) -> the arguments; draw(*size) is random
    run: Callable                           # (*arguments) -> the answer, a tensor or a tuple of them
    oracle: Callable                        # the same, from arguments in float64 on the CPU
    small: tuple[dict, ...]                 # shapes for the engine and the card, ragged ones among them
    large: tuple[dict, ...] = ()            # shapes for the card alone
    dtype: torch.dtype = F32
    note: str = ""                          # tells cases of one kernel apart
    tensor_cores: bool = False              # asks for a kernel that needs sm_80
    hopper: bool = False                    # or one for sm_90 alone
    shared_bytes: Callable = lambda **shape: 0      # that a block of it needs, if more than every card has
    counted: bool = False                   # no redundant accesses: its counts may be compared with ncu's

    @property
    def name(self) -> str:
        return ", ".join([*self.kernels, str(self.dtype).removeprefix("torch."),
                          *([self.note] if self.note else [])])

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def unfit(self, shape: dict, device) -> str | None:
        """Why this card cannot run it, or None."""
        if self.tensor_cores and not runs_tensor_cores(device):
            return "not run: it needs tensor cores with bfloat16, sm_80 or later"
        if self.hopper and not runs_hopper(device):
            return "not run: it needs sm_90, a Hopper"
        need, limit = self.shared_bytes(**shape), shared_limit(device)
        return (f"not run: it needs {need:,} bytes of shared memory per block; here {limit:,}"
                if need > limit else None)

    def arguments(self, shape: dict, device="cpu", seed: int = 0) -> tuple:
        generator = torch.Generator(device).manual_seed(seed)

        def draw(*size, dtype=None):
            return torch.randn(size, generator=generator, device=device).to(dtype or self.dtype)
        return tuple(to_device(x, device) for x in self.inputs(draw, **shape))

    def error(self, shape: dict, device="cpu", seed: int = 0) -> float:
        """Largest ||answer - float64|| / ||float64|| of its tensors; NaN if an entry was not written."""
        arguments = self.arguments(shape, device, seed)
        with poisoned():
            got = as_tuple(self.run(*arguments))
        want = as_tuple(self.oracle(*(in_float64(x) for x in arguments)))
        assert len(got) == len(want)
        return max((relative(g, w) for g, w in zip(got, want)),
                   key=lambda e: math.inf if math.isnan(e) else e)


def as_tuple(x) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else tuple(t for t in x if t is not None)


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.double().cpu(), want.double().cpu()
    hidden = want.isinf()                   # a row without keys has a log-sum-exp of -inf
    if got.shape != want.shape or not torch.equal(got[hidden], want[hidden]):
        return math.nan
    got, want = got[~hidden], want[~hidden]
    return ((got - want).norm() / want.norm().clamp(min=1e-30)).item()


def in_float64(x):
    if not isinstance(x, Tensor):
        return x
    return x.double().cpu() if x.is_floating_point() else x.cpu()


def to_device(x, device):
    if isinstance(x, SimpleNamespace):
        return SimpleNamespace(**{name: to_device(value, device) for name, value in vars(x).items()})
    return x.to(device) if isinstance(x, Tensor) else x


@contextmanager
def poisoned():
    """`torch.empty` gives NaN: torch fills new memory if it must promise repeatable results."""
    before = (torch.are_deterministic_algorithms_enabled(),
              torch.is_deterministic_algorithms_warn_only_enabled())
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def attention(q, k, v, causal=False, scale=None, key_bias=None, mask=None):
    """(out, log-sum-exp) by the formula, grouped; the last query sees the last key; no visible key: 0."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    s = q @ k.mT * (q.shape[-1]**-0.5 if scale is None else scale)
    s = s if key_bias is None else s + key_bias.repeat_interleave(groups, 1)[:, :, None]
    visible = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
    visible = visible.tril(s.shape[-1] - s.shape[-2]) if causal else visible
    s = s.masked_fill(~(visible if mask is None else visible & mask), -math.inf)
    lse = s.logsumexp(-1)
    return (s - lse.where(lse > -math.inf, 0.0)[..., None]).exp() @ v, lse


def attention_output(*arguments, **named):
    return attention(*arguments, **named)[0]


def masked_attention(q, k, v, mask):
    return attention(q, k, v, mask=mask)[0]


def qkv(draw, b, heads, kv_heads, n, m, d, causal=False, v_dim=None):
    return draw(b, heads, n, d), draw(b, kv_heads, m, d), draw(b, kv_heads, m, v_dim or d), causal


def three(draw, n, d, heads=2):
    """q, k, v of one batch entry, all of one length."""
    return tuple(draw(1, heads, n, d) for _ in "qkv")


def gradients(forward):
    """Oracle of the gradients of the tensors before the incoming gradient, the last argument but `causal`."""
    def oracle(*arguments):
        *inputs, grad, causal = arguments
        inputs = [x.requires_grad_() for x in inputs]
        return torch.autograd.grad(forward(*inputs, causal), inputs, grad)
    return oracle


# Shapes that several chapters share: grouped heads, caches, and their large ones.
GROUPED = ({"b": 1, "heads": 4, "kv_heads": 2, "n": 33, "m": 50, "d": 32, "causal": True},
           {"b": 2, "heads": 1, "kv_heads": 1, "n": 20, "m": 31, "d": 64})
GROUPED_LARGE = ({"b": 2, "heads": 8, "kv_heads": 2, "n": 1000, "m": 1031, "d": 128, "causal": True},)
CACHES = ({"lengths": (33, 64), "heads": 4, "kv_heads": 2, "d": 64},
          {"lengths": (5,), "heads": 8, "kv_heads": 1, "d": 128})
HALF_CACHES = (*CACHES, {"lengths": (100, 0, 33), "heads": 8, "kv_heads": 1, "d": 64},
               {"lengths": (63, 130), "heads": 6, "kv_heads": 2, "d": 128})
CACHES_LARGE = ({"lengths": (4001, 1, 2500), "heads": 16, "kv_heads": 4, "d": 128},)
