"""Layers that keep a state of a fixed size: delta rule, Mamba-2, lightning attention, convolution.

All of them but the last run one recurrence per head over a state S of (key_dim, value_dim), chapter 4's:

    S <- decay S                            decay: a number per head, or one per key channel, or fixed
    S <- S + k (v - S^T k) beta             with `erases`, the delta rule; without it, S + k v
    out = S^T q"""
from dataclasses import dataclass

import torch
from einops import einsum, rearrange, repeat
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.field_guide.cache import Cache


@dataclass(frozen=True)
class StateRecipe:
    d_model: int
    n_heads: int                        # heads of values and of the state
    n_key_heads: int
    key_dim: int
    value_dim: int
    layer: int = 0
    layers: int = 1                     # of the whole model: a fixed decay depends on the layer's place
    # tokens that a causal convolution of queries, keys and values sees; 0: none
    conv: int = 0
    conv_bias: bool = False
    bias: bool = False
    erases: bool = True                 # the delta rule: what the state says about the key is taken out first
    unit_keys: bool = True              # queries and keys of length 1, queries then divided by sqrt(key_dim)
    decay: str = "head"                 # "head", "channel" or "fixed"
    decay_rank: int | None = None       # the projection to the decay passes through so few numbers
    # the logarithm of the decay is floor * sigmoid(...), not -softplus(...)
    decay_floor: float | None = None
    strength: float = 1.0               # beta is strength * sigmoid(...); 2 lets the state change sign
    # Mamba: one step size per head gives the decay and multiplies the value
    steps: bool = False
    skip: bool = False                  # Mamba: a learned part of the value goes past the state
    gate: str = "silu"                  # of the output: "silu" or "sigmoid"
    gate_rank: int | None = None
    # the output is normalised over a "head", a "group" of heads, or the "width"
    norm: str | None = "head"
    gate_first: bool = False            # Mamba gates before it normalises
    # of gate, values, keys, queries and steps; copied weights take them in
    multipliers: tuple = (1, 1, 1, 1, 1)
    eps: float = 1e-6

    def build(self) -> "StateLayer":
        return StateLayer(self)

    @property
    def channels(self) -> int:
        """Of queries, keys and values together."""
        return 2 * self.n_key_heads * self.key_dim + self.n_heads * self.value_dim

    def kept(self, tokens: int) -> int:
        return self.n_heads * self.key_dim * self.value_dim + self.channels * max(self.conv - 1, 0)

    def read(self, tokens: int) -> int:
        return self.kept(tokens)

    def flops(self, tokens: int) -> int:
        """Decay, write and read of the state; the delta rule reads before it writes. And the convolution."""
        state = self.n_heads * self.key_dim * self.value_dim
        return state * (7 if self.erases else 5) + 2 * self.channels * self.conv


class StateLayer(nn.Module):
    def __init__(self, recipe: StateRecipe):
        super().__init__()
        r = self.recipe = recipe
        keys, values = r.n_key_heads * r.key_dim, r.n_heads * r.value_dim
        self.q_proj = nn.Linear(r.d_model, keys, r.bias)
        self.k_proj = nn.Linear(r.d_model, keys, r.bias)
        self.v_proj = nn.Linear(r.d_model, values, r.bias)
        if r.conv:
            self.conv = nn.Conv1d(r.channels, r.channels, r.conv, groups=r.channels, bias=r.conv_bias)
        if r.erases:
            self.beta_proj = nn.Linear(r.d_model, r.n_heads, bias=False)
        if r.decay != "fixed":
            width = r.n_heads * (r.key_dim if r.decay == "channel" else 1)
            self.decay_proj = projection(r.d_model, width, r.decay_rank, r.bias)
            self.rate, self.decay_bias = nn.Parameter(torch.zeros(r.n_heads)), nn.Parameter(
                torch.zeros(width))
        self.skip = nn.Parameter(torch.ones(r.n_heads)) if r.skip else None
        self.gate_proj = projection(r.d_model, values, r.gate_rank, r.bias)
        if r.norm:
            self.norm = nn.RMSNorm(r.value_dim if r.norm == "head" else values, r.eps)
        self.out_proj = nn.Linear(values, r.d_model, r.bias)

    def forward(self, x: Tensor, positions=None, present: Tensor | None = None, cache: Cache | None = None,
                shared=None) -> Tensor:
        """As of `Attention`; positions play no part, and padding is what the state does not see."""
        r, n = self.recipe, x.shape[1]
        cache = Cache() if cache is None else cache
        real = 1.0 if present is None else present[:, -n:, None].to(x.dtype)
        x = x * real
        qkv = torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], -1)
        qkv = F.silu(convolve(self.conv, qkv, cache) if r.conv else qkv) * real
        keys = r.n_key_heads * r.key_dim
        # the state is added to at every token: at least in float32
        qkv = qkv.to(torch.promote_types(x.dtype, torch.float32))
        q, k, v = qkv.split([keys, keys, r.n_heads * r.value_dim], -1)
        q, k = (repeat(t, "b n (h d) -> b (h g) n d", h=r.n_key_heads, g=r.n_heads // r.n_key_heads)
                for t in (q, k))
        v = rearrange(v, "b n (h d) -> b h n d", h=r.n_heads)
        if r.unit_keys:
            q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6) for t in (q, k))
            q = q * r.key_dim ** -0.5
        log_decay, written = self.decays(x), v
        if r.steps:
            step = F.softplus(self.decay_proj(x).to(v.dtype) + self.decay_bias).transpose(1, 2)[..., None]
            written = v * step
        beta = (r.strength * torch.sigmoid(self.beta_proj(x).to(v.dtype)).transpose(1, 2)[..., None]
                if r.erases else None)
        heads, cache.state["state"] = recurrence(q, k, written, log_decay, beta, cache.state.get("state"))
        cache.length += n
        if r.skip:
            heads = heads + self.skip[:, None, None] * v
        return self.out_proj(self.ending(x, rearrange(heads, "b h n d -> b n (h d)")).to(x.dtype))

    def decays(self, x: Tensor) -> Tensor:
        """The logarithm of the decay, (b, heads, n, 1 or key_dim)."""
        r, wide = self.recipe, torch.promote_types(x.dtype, torch.float32)
        if r.decay == "fixed":
            rates = fixed_rates(r.n_heads, r.layer, r.layers).to(wide)
            return -rates[:, None, None].expand(x.shape[0], -1, x.shape[1], 1)
        raw = rearrange(self.decay_proj(x).to(wide) + self.decay_bias, "b n (h d) -> b h n d", h=r.n_heads)
        rate = self.rate.to(wide).exp()[:, None, None]
        return -rate * F.softplus(raw) if r.decay_floor is None else r.decay_floor * torch.sigmoid(rate * raw)

    def ending(self, x: Tensor, out: Tensor) -> Tensor:
        r = self.recipe
        gate = (F.silu if r.gate == "silu" else torch.sigmoid)(self.gate_proj(x).to(out.dtype))
        if r.norm is None:
            return out * gate
        if r.gate_first:
            out, gate = out * gate, 1.0
        parts = {"head": r.n_heads, "group": r.n_key_heads, "width": 1}[r.norm]
        out = rearrange(out, "b n (p d) -> b n p d", p=parts)
        factors = (
            self.norm.weight if r.norm == "head" else rearrange(self.norm.weight, "(p d) -> p d", p=parts))
        return rearrange(F.rms_norm(out, out.shape[-1:], eps=r.eps) * factors, "b n p d -> b n (p d)") * gate


def recurrence(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None,
               state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Token by token: outputs (b, heads, n, value_dim) and the last state.
    beta None: nothing is erased."""
    if state is None:
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    out, decay = [], log_decay.exp()
    for t in range(k.shape[2]):
        state = state * decay[:, :, t, :, None]
        new = v[:, :, t]
        if beta is not None:
            new = beta[:, :, t] * (new - einsum(state, k[:, :, t], "b h k v, b h k -> b h v"))
        state = state + einsum(k[:, :, t], new, "b h k, b h v -> b h k v")
        out.append(einsum(state, q[:, :, t], "b h k v, b h k -> b h v"))
    return torch.stack(out, 2), state


def convolve(conv: nn.Conv1d, x: Tensor, cache: Cache) -> Tensor:
    """A causal convolution along the text: x (b, n, channels), with the inputs before it from the cache."""
    x, before = x.transpose(1, 2), cache.state.get("conv")
    before = x.new_zeros(*x.shape[:2], conv.kernel_size[0] - 1) if before is None else before
    x = torch.cat([before, x], -1)
    cache.state["conv"] = x[..., x.shape[-1] - before.shape[-1]:]
    return conv(x).transpose(1, 2)


def projection(width: int, out: int, rank: int | None, bias: bool) -> nn.Module:
    if rank is None:
        return nn.Linear(width, out, bias)
    return nn.Sequential(nn.Linear(width, rank, bias), nn.Linear(rank, out, bias))


def fixed_rates(n_heads: int, layer: int, layers: int) -> Tensor:
    """Lightning attention: each head forgets at a rate of its own, and later layers more slowly."""
    rates = 2.0 ** (-8 / n_heads * (torch.arange(n_heads) + 1))
    return rates * (1 - layer / (layers - 1 + 1e-5) + 1e-5)


@dataclass(frozen=True)
class ConvRecipe:
    """No attention and no state but the last inputs: a gated causal convolution."""
    d_model: int
    conv: int
    layer: int = 0
    bias: bool = False

    def build(self) -> "ShortConvolution":
        return ShortConvolution(self)

    def kept(self, tokens: int) -> int:
        return self.d_model * (self.conv - 1)

    def read(self, tokens: int) -> int:
        return self.kept(tokens)

    def flops(self, tokens: int) -> int:
        return 2 * self.d_model * self.conv


class ShortConvolution(nn.Module):
    def __init__(self, recipe: ConvRecipe):
        super().__init__()
        r = self.recipe = recipe
        self.in_proj = nn.Linear(r.d_model, 3 * r.d_model, r.bias)
        self.conv = nn.Conv1d(r.d_model, r.d_model, r.conv, groups=r.d_model, bias=r.bias)
        self.out_proj = nn.Linear(r.d_model, r.d_model, r.bias)

    def forward(self, x, positions=None, present=None, cache=None, shared=None):
        cache = Cache() if cache is None else cache
        if present is not None:
            x = x * present[:, -x.shape[1]:, None].to(x.dtype)
        before, after, x = self.in_proj(x).chunk(3, -1)
        cache.length += x.shape[1]
        return self.out_proj(after * convolve(self.conv, before * x, cache))
