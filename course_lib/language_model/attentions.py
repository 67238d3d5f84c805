"""The attentions of the earlier chapters as layers of the language model, chosen by name.

Each takes ModelAttention's steps and changes some: what a token projects to, the output, the cache.

    softmax   chapter 1
    gqa       chapter 3, fewer heads of keys and values
    latent    chapter 3, one small vector per token
    linear    chapter 4, elu + 1, a state
    delta     chapter 4, the gated delta rule, a state
    sliding   chapter 5, the last `window` keys
    flash     chapter 6, softmax in tiles
    w2        chapter 9, tokens are Gaussians"""
import torch
from einops import einsum, rearrange
from torch import nn
from torch.nn import functional as F

from course_lib.checks.language_model import check_state, check_state_cache, check_whole_state
from course_lib.flash_attention import flash_attention, flash_backward_tiles, flash_forward_tiles
from course_lib.gqa import LatentAttention
from course_lib.kv_cache import RollingCache
from course_lib.linear_attention import delta_rule, linear_attention
from course_lib.rope import apply_rope
from course_lib.sparse_attention import sliding_window_mask
from course_lib.w2_attention import W2Attention, augment
from .layers import ModelAttention, SelfAttention, softmax_attention


class Grouped(SelfAttention):
    def __init__(self, config):
        super().__init__(config, config.n_kv_heads)


class Sliding(SelfAttention):
    def __init__(self, config):
        super().__init__(config, window=config.window)

    def attend(self, q, k, v):
        mask = sliding_window_mask(q.shape[2], self.window).to(q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def make_cache(self):
        return RollingCache(self.window)


class Tiles(torch.autograd.Function):
    """Chapter 6's tiles in PyTorch, forward and backward: nothing of size n x n is stored in between."""

    @staticmethod
    def forward(ctx, q, k, v):
        out, lse = flash_forward_tiles(q, k, v, causal=True, tile_q=64, tile_k=64)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v, out, lse = ctx.saved_tensors
        return flash_backward_tiles(q, k, v, out, lse, grad_out, causal=True, tile_q=64, tile_k=64)[:3]


class Flash(SelfAttention):
    """The kernels on a GPU. On a CPU the same tiles in PyTorch: the engine is too slow to train with."""

    def attend(self, q, k, v):
        return flash_attention(q, k, v, causal=True) if q.is_cuda else Tiles.apply(q, k, v)


class PartlyRotated(ModelAttention):
    """RoPE rotates only the first rotary_dim entries of queries and keys."""

    def rotate(self, x, rope, positions=None):
        if rope is None:
            return x
        cos, sin = (table[:, :self.rotary_dim // 2] for table in rope)
        return apply_rope(x, cos, sin, positions, rotary_dim=self.rotary_dim)

    def attend(self, q, k, v):
        return softmax_attention(q, k, v, self.scale)


class Latent(PartlyRotated, LatentAttention):
    """Chapter 3's layer, always absorbed: one key [rope key; latent] serves all heads, and its latent part is
    also the value. Nothing else is cached."""

    def __init__(self, config):
        super().__init__(config.d_model, config.n_heads, config.head_dim, config.latent_dim, config.rope_dim)
        self.n_kv_heads, self.rotary_dim = 1, config.rope_dim
        self.key_width, self.value_width = config.rope_dim + config.latent_dim, 0

    def project(self, x):
        q = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        q, q_rope = q.split([self.head_dim, self.rotary_dim], -1)
        q = torch.cat([q_rope, q @ self.k_up], -1)                  # q . (W c) = (W^T q) . c
        k = torch.cat([self.rope_proj(x), self.latent_norm(self.down_proj(x))], -1)[:, None]
        return q, k, k[..., :0]

    def values(self, k, v):
        return k[..., self.rotary_dim:]

    def finish(self, heads):
        return super().finish(einsum(heads, self.v_up, "b h n c, h d c -> b h n d"))


class W2(PartlyRotated, W2Attention):
    """Chapter 9's layer. Its Gaussians become queries and keys whose dot products are their W2 scores up to a
    constant per row (`augment`), so that they can be cached like any others."""
    scale = 1.0

    def __init__(self, config):
        super().__init__(config.d_model, config.n_heads)
        self.n_kv_heads, self.rotary_dim = config.n_heads, config.head_dim
        self.key_width, self.value_width = 2 * config.head_dim + 2, config.head_dim

    def project(self, x):
        queries, keys, v = self.gaussians(x)
        # A rotation preserves lengths, so augment may take the lengths of the means before they are rotated.
        return *augment(*queries, *keys, self.tau), v


class StateCache:
    """The cache of a layer with a state: its size does not depend on how many tokens were read."""

    def __init__(self):
        self.length, self.state = 0, None

    def reorder(self, index):
        check_state(self)
        self.state = [x[index] for x in self.state]

    def truncate(self, n):
        check_whole_state(n, self.length)

    @property
    def bytes(self):
        return sum(x.numel() * x.element_size() for x in self.state or [])


class Recurrent(SelfAttention):
    """Layers whose past is a state: `run(q, k, v, *more, state=...)` returns outputs and the next state."""
    recurrent = True        # chapter 8's engine refuses such layers: pages hold keys and values

    def make_cache(self):
        return StateCache()

    def forward(self, x, rope, cache=None):
        q, k, v, *more = self.project(x)
        positions = None
        if cache is not None:
            check_state_cache(cache, StateCache)
            positions = torch.arange(cache.length, cache.length + x.shape[1], device=x.device)
        q, k = self.rotate(q, rope, positions), self.rotate(k, rope, positions)
        if cache is None:
            return self.finish(self.attend(q, k, v, *more))
        heads, cache.state = self.run(q, k, v, *more, state=cache.state)
        cache.length += x.shape[1]
        return self.finish(heads)

    def attend(self, q, k, v, *more):
        return self.run(q, k, v, *more)[0]

    def weights(self, x, rope):
        """The output is linear in the values: with the unit matrix as values it is the matrix of weights."""
        q, k, v, *more = self.project(x)
        unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(*v.shape[:3], -1)
        return self.attend(self.rotate(q, rope), self.rotate(k, rope), unit, *more)


class Linear(Recurrent):
    def run(self, q, k, v, state=None):
        heads, state = linear_attention(q, k, v, causal=True, form="chunked", state=state, return_state=True)
        return heads, list(state)


class Delta(Recurrent):
    """The gated delta rule: keys of length 1, a strength beta and a decay in (0, 1) per token and head."""

    def __init__(self, config):
        super().__init__(config)
        self.beta_proj = nn.Linear(config.d_model, config.n_heads, bias=False)
        self.decay_proj = nn.Linear(config.d_model, config.n_heads)
        nn.init.constant_(self.decay_proj.bias, 4.0)            # the start: 98 % of the state is kept
        self.norm = nn.RMSNorm(config.head_dim)                 # the delta rule does not normalize its output

    def project(self, x):
        q, k, v = super().project(x)
        beta, decay = (rearrange(torch.sigmoid(projection(x)), "b n h -> b h n")
                       for projection in (self.beta_proj, self.decay_proj))
        q, k = (F.normalize(x, dim=-1).to(v.dtype) for x in (q, k))         # a GPU's autocast leaves float32
        return q, k, v, beta, decay

    def run(self, q, k, v, beta, decay, state=None):
        state = None if state is None else state[0]
        heads, state = delta_rule(q, k, v, beta, decay, "chunked", 32, state=state, return_state=True)
        return heads, [state]

    def finish(self, heads):
        return super().finish(self.norm(heads))


LAYERS = {"softmax": SelfAttention, "gqa": Grouped, "latent": Latent, "linear": Linear, "delta": Delta,
          "sliding": Sliding, "flash": Flash, "w2": W2}
