"""Packed texts in one launch: each text by itself, in float64; the same bits as a launch per text."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.flash_attention import flash_attention, flash_attention_packed
from course_lib.gpu.cases.flash_attention import text_by_text


def given(lengths, heads, kv_heads, d, v_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    return [torch.randn(1, h, total, w, generator=generator)
            for h, w in ((heads, d), (kv_heads, d), (kv_heads, v_dim), (heads, v_dim))], ends


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths, heads, kv_heads, d, v_dim", [
    ((1,), 1, 1, 4, 4), ((31, 1, 33), 2, 1, 8, 5), ((0, 63, 0, 2), 4, 2, 33, 16), ((100, 7), 1, 1, 16, 16),
    pytest.param((5, 70), 2, 2, 64, 96, marks=pytest.mark.slow)])
def test_output_and_every_gradient(lengths, heads, kv_heads, d, v_dim, causal):
    (*inputs, grad), ends = given(lengths, heads, kv_heads, d, v_dim)
    inputs = [x.requires_grad_() for x in inputs]
    with cuda.sanitize():
        out = flash_attention_packed(*inputs, ends, causal=causal)
        got = out, *torch.autograd.grad(out, inputs, grad)
    want = text_by_text(*(x.detach().double() for x in inputs), torch.tensor(ends), grad.double(), causal)
    for name, ours, theirs in zip(("out", "dq", "dk", "dv"), got, want):
        torch.testing.assert_close(ours.double(), theirs, atol=2e-5, rtol=1e-4,
                                   msg=lambda text: f"{name}: {text}")


def test_one_launch_has_the_bits_of_one_per_text():
    (q, k, v, _), ends = given((30, 0, 47, 23), 4, 2, 16, 16)
    with cuda.profile() as report:
        got = flash_attention_packed(q, k, v, ends, causal=True)
    assert [launch.kernel.partition("<")[0] for launch in report.launches] == ["flash_packed"]
    want = [flash_attention(*(x[:, :, a:b] for x in (q, k, v)), causal=True) for a, b in zip(ends, ends[1:])]
    assert torch.equal(got, torch.cat(want, 2))


def test_no_text_sees_another():
    (q, k, v, _), ends = given((20, 40, 9), 2, 1, 8, 8)
    before = flash_attention_packed(q, k, v, ends)
    k[:, :, 20:60], v[:, :, 20:60] = math.nan, math.nan
    after = flash_attention_packed(q, k, v, ends)
    assert (torch.equal(after[:, :, :20], before[:, :, :20])
            and torch.equal(after[:, :, 60:], before[:, :, 60:]))
    assert after[:, :, 20:60].isnan().all()


def counted(q, k, v, ends):
    with cuda.profile() as report:
        flash_attention_packed(q, k, v, ends)
    return report.launches[0].global_load


def test_only_the_keys_of_the_own_text_are_read():
    """Queries once, the two ends by each thread, and keys and values once per tile of 64 queries of their
    text."""
    (q, k, v, _), ends = given((64, 100, 30), 1, 1, 32, 32)
    blocks = 3 * 2
    tiles = {64: 1, 100: 2, 30: 1}
    rows = 194 + sum(2 * n * count for n, count in tiles.items())
    assert counted(q, k, v, ends).bytes == 4 * 32 * rows + blocks * 128 * 2 * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    (q, k, v, grad), ends = given((40, 3), 2, 1, 32, 32)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    want, *_ = text_by_text(*(x.double() for x in (q, k, v)), torch.tensor(ends), grad.double(), True)
    torch.testing.assert_close(flash_attention_packed(q, k, v, ends, causal=True).double(), want, atol=2e-2,
                               rtol=2e-2)


def test_no_token_at_all():
    q = torch.randn(1, 2, 0, 8)
    assert flash_attention_packed(q, q, q, [0, 0]).shape == (1, 2, 0, 8)


@pytest.mark.parametrize("ends", [[0, 5], [0, 7, 6, 9], [1, 9], [9], [0, 10]])
def test_a_list_that_does_not_cover_the_row_is_refused(ends):
    q = torch.randn(1, 1, 9, 8)
    with pytest.raises(ValueError, match="cu_seqlens must"):
        flash_attention_packed(q, q, q, ends)
    with pytest.raises(ValueError, match="q and k must be one row of the same tokens, batch 1"):
        flash_attention_packed(q.expand(2, -1, -1, -1), *[q.expand(2, -1, -1, -1)] * 2, [0, 9])
