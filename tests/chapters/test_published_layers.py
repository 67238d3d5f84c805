"""Layers in the conventions of published ones: with weights copied over, ours give the same numbers."""
import math

import pytest
import torch
from torch import nn

from course_lib.attention import causal_mask
from course_lib.field_guide import Recipe, Rotary
from course_lib.gqa import GroupedQueryAttention
from course_lib.rope import RoPEAttention, interleaved_to_half, rope_table
from references import rand64, same_numbers


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


def rand(*shape, seed=0):
    return rand64(*shape, seed=seed).requires_grad_()


@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_llama_style(n_kv_heads, layout):
    """Chapter 11's layer of this kind, which is held to the published ones there."""
    torch.manual_seed(0)
    theirs = Recipe(48, 6, n_kv_heads, 8, rotary=Rotary(8, 500000.0)).build().double()
    ours = GroupedQueryAttention(48, 6, n_kv_heads, rope_layout=layout).double()
    ours.load_state_dict(theirs.state_dict())
    if layout == "interleaved":         # the rows are theirs: put them in the order that this layout expects
        for projection, heads in ((ours.q_proj, 6), (ours.k_proj, n_kv_heads)):
            order = interleaved_to_half(torch.arange(projection.out_features), heads).argsort()
            projection.weight.data = projection.weight.data[order]
    x, rope = rand(2, 33, 48), rope_table(33, 8, base=500000.0, dtype=torch.float64)
    same_numbers(theirs(x), ours(x, rope), [x], 1e-5, 1e-5)


@pytest.mark.parametrize("n, m", [(9, 9), (5, 12), (1, 7)])
def test_roformer_style(n, m):
    torch.manual_seed(0)
    theirs, ours = RoFormerStyleAttention(40, 4).double(), RoPEAttention(40, 4).double()
    for source, target in zip((theirs.query, theirs.key, theirs.value, theirs.dense),
                              (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)):
        target.load_state_dict(source.state_dict())
    x, source, rope = rand(2, n, 40), rand(2, m, 40, seed=1), rope_table(12, 10, dtype=torch.float64)
    same_numbers(theirs(x, source), ours(x, source, source, rope), [x, source])
    mask = causal_mask(n, m)
    same_numbers(theirs(x, source, ~mask), ours(x, source, source, rope, mask), [x, source])
