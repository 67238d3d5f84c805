"""Packed texts in one launch, each by itself; learned sinks as one more column of scores: in float64."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.flash_attention import flash_attention, flash_attention_packed, flash_attention_with_sinks
from course_lib.gpu.cases.flash_attention import sinks_in_float64, text_by_text
from references import launches_of, names_the_argument, rand


def given(lengths, heads, kv_heads, d, v_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    return [torch.randn(1, h, total, w, generator=generator)
            for h, w in ((heads, d), (kv_heads, d), (kv_heads, v_dim), (heads, v_dim))], ends


def test_one_launch_has_the_bits_of_one_per_text():
    (q, k, v, _), ends = given((30, 0, 47, 23), 4, 2, 16, 16)
    with cuda.profile() as report:
        got = flash_attention_packed(q, k, v, ends, causal=True)
    assert [launch.kernel.partition("<")[0] for launch in report.launches] == ["flash_packed"]
    want = [flash_attention(*(x[:, :, a:b] for x in (q, k, v)), causal=True) for a, b in zip(ends, ends[1:])]
    assert torch.equal(got, torch.cat(want, 2))
    assert flash_attention_packed(*(x[:, :, :0] for x in (q, k, v)), [0, 0]).shape == (1, 4, 0, 16)


def test_no_text_sees_another():
    (q, k, v, _), ends = given((20, 40, 9), 2, 1, 8, 8)
    before = flash_attention_packed(q, k, v, ends)
    k[:, :, 20:60], v[:, :, 20:60] = math.nan, math.nan
    after = flash_attention_packed(q, k, v, ends)
    assert (torch.equal(after[:, :, :20], before[:, :, :20])
            and torch.equal(after[:, :, 60:], before[:, :, 60:]))
    assert after[:, :, 20:60].isnan().all()


def counted(q, k, v, ends):
    return launches_of(lambda: flash_attention_packed(q, k, v, ends))[0].global_load


def test_only_the_keys_of_the_own_text_are_read():
    """Queries once, the two ends by each thread; keys and values once per tile of 64 queries of their text."""
    (q, k, v, _), ends = given((64, 100, 30), 1, 1, 32, 32)
    blocks = 3 * 2
    tiles = {64: 1, 100: 2, 30: 1}
    rows = 194 + sum(2 * n * count for n, count in tiles.items())
    assert counted(q, k, v, ends).bytes == 4 * 32 * rows + blocks * 128 * 2 * 4


test_bad_input_is_named = names_the_argument({
    "cu_seqlens": [lambda q, ends=ends: flash_attention_packed(q, q, q, ends)
                   for ends in ([0, 5], [0, 7, 6, 9], [1, 9], [9], [0, 10])],
    "q and k": [lambda q: flash_attention_packed(*3 * [q.expand(2, -1, -1, -1)], [0, 9])],
    "sinks": [lambda q, sinks=sinks: flash_attention_with_sinks(q, q, q, sinks)
              for sinks in (torch.zeros(3), torch.zeros(1, dtype=torch.float64), torch.zeros(1, 1))]},
    given=lambda: [torch.randn(1, 1, 9, 8)])


def test_a_sink_far_below_changes_nothing_and_one_far_above_silences():
    q, k, v = (rand(1, 2, 9, 8, seed=s) for s in range(3))
    got = flash_attention_with_sinks(q, k, v, torch.tensor([-200.0, 200.0]), causal=True)
    torch.testing.assert_close(got[:, 0], flash_attention(q, k, v, causal=True)[:, 0])
    assert (got[:, 1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_of_both(dtype):
    (*inputs, grad), ends = given((40, 3), 2, 1, 32, 32)
    q, k, v = (x.to(dtype) for x in inputs)
    wide, sinks = [x.double() for x in (q, k, v)], rand(2, seed=3)
    for got, want in (
            (flash_attention_packed(q, k, v, ends, causal=True),
             text_by_text(*wide, torch.tensor(ends), grad.double(), True)),
            (flash_attention_with_sinks(q, k, v, sinks, causal=True),
             sinks_in_float64(*wide, sinks.double(), grad.double(), True))):
        torch.testing.assert_close(got.double(), want[0], atol=2e-2, rtol=2e-2)


def test_the_sinks_cost_one_pass_over_the_output():
    n, d = 128, 64
    q, k, v = (rand(1, 1, n, d, seed=s) for s in range(3))
    launches = launches_of(lambda: flash_attention_with_sinks(q, k, v, torch.zeros(1)))
    give = [launch for launch in launches if "give_to_sinks" in launch.kernel][0]
    assert give.global_load.bytes == n * d * 4 + 32 * n * 8 and give.global_store.bytes == n * d * 4 + n * 4


def test_it_is_the_attention_of_gpt_oss():
    """Chapter 11's layer, whose equality with the published one is tested there."""
    from course_lib.field_guide import recorded
    layer = recorded("gpt_oss").layers()[1, 0]
    q, k, v = rand(1, 4, 12, 8), rand(1, 2, 12, 8, seed=1), rand(1, 2, 12, 8, seed=2)
    seen = torch.ones(12, 12, dtype=torch.bool).tril()[None, None]
    torch.testing.assert_close(flash_attention_with_sinks(q, k, v, layer.sinks.detach(), causal=True),
                               layer.attend(q, k, v, seen).detach(), atol=1e-5, rtol=1e-5)
