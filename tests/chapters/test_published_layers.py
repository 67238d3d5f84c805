"""Layers in the conventions of published ones: with weights copied over, ours give the same numbers."""
import math

import pytest
import torch
from torch import nn

from course_lib.attention import causal_mask
from course_lib.gqa import GroupedQueryAttention
from course_lib.rope import RoPEAttention, interleaved_to_half, rope_table
from references import rand64, same_numbers


class LlamaStyleAttention(nn.Module):
    """Split halves, cos and sin of the whole head width, repeated key heads, an additive causal mask."""

    def __init__(self, hidden_size, num_heads, num_key_value_heads, theta=10000.0):
        super().__init__()
        self.head_dim, self.n_rep = hidden_size // num_heads, num_heads // num_key_value_heads
        self.theta = theta
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias=False)

    def rotate(self, x):
        inv_freq = 1.0 / self.theta ** (torch.arange(0, self.head_dim, 2, dtype=x.dtype) / self.head_dim)
        angles = torch.outer(torch.arange(x.shape[2], dtype=x.dtype), inv_freq)
        angles = torch.cat((angles, angles), -1)
        first, second = x[..., :self.head_dim // 2], x[..., self.head_dim // 2:]
        return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()

    def forward(self, hidden):
        b, n, _ = hidden.shape
        q, k, v = (projection(hidden).view(b, n, -1, self.head_dim).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (t.repeat_interleave(self.n_rep, dim=1) for t in (k, v))
        hidden_keys = torch.full((n, n), -math.inf, dtype=q.dtype).triu(1)
        weights = (q @ k.transpose(2, 3) / math.sqrt(self.head_dim) + hidden_keys).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, n, -1))


class RoFormerStyleAttention(nn.Module):
    """Neighbouring entries are one complex number, turned by a power of e^(i position)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(dim, dim) for _ in range(4))

    def turn(self, x):                                            # x (b, n, h, d)
        n, d = x.shape[1], x.shape[3]
        angles = torch.arange(n)[:, None] * 10000.0 ** (-2 * torch.arange(d // 2, dtype=x.dtype) / d)
        turns = torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)

    def forward(self, x, source, hidden=None):
        q, k, v = (p(t).unflatten(-1, (self.heads, -1)) for p, t in
                   ((self.query, x), (self.key, source), (self.value, source)))
        scores = torch.einsum("bnhd,bmhd->bhnm", self.turn(q), self.turn(k)) / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        return self.dense(torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v).flatten(-2))


def copy_weights(theirs, ours):
    """theirs: the four published projections, in the order query, key, value, output."""
    for source, target in zip(theirs, (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)):
        target.load_state_dict(source.state_dict())


def rand(*shape, seed=0):
    return rand64(*shape, seed=seed).requires_grad_()


@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_llama_style(n_kv_heads, layout):
    torch.manual_seed(0)
    theirs = LlamaStyleAttention(48, 6, n_kv_heads, theta=500000.0).double()
    ours = GroupedQueryAttention(48, 6, n_kv_heads, rope_layout=layout).double()
    copy_weights((theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj), ours)
    if layout == "interleaved":         # the rows are theirs: put them in the order that this layout expects
        for projection, heads in ((ours.q_proj, 6), (ours.k_proj, n_kv_heads)):
            order = interleaved_to_half(torch.arange(projection.out_features), heads).argsort()
            projection.weight.data = projection.weight.data[order]
    x, rope = rand(2, 33, 48), rope_table(33, 8, base=500000.0, dtype=torch.float64)
    same_numbers(theirs(x), ours(x, rope), [x])


@pytest.mark.parametrize("n, m", [(9, 9), (5, 12), (1, 7)])
def test_roformer_style(n, m):
    torch.manual_seed(0)
    theirs, ours = RoFormerStyleAttention(40, 4).double(), RoPEAttention(40, 4).double()
    copy_weights((theirs.query, theirs.key, theirs.value, theirs.dense), ours)
    x, source, rope = rand(2, n, 40), rand(2, m, 40, seed=1), rope_table(12, 10, dtype=torch.float64)
    same_numbers(theirs(x, source), ours(x, source, source, rope), [x, source])
    mask = causal_mask(n, m)
    same_numbers(theirs(x, source, ~mask), ours(x, source, source, rope, mask), [x, source])
