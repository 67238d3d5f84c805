"""Flash attention with learned sinks: forward and gradients against one more column of scores, in float64."""
import pytest
import torch

from course_lib import cuda
from course_lib.flash_attention import flash_attention, flash_attention_with_sinks
from course_lib.gpu.cases.flash_attention import sinks_in_float64
from references import rand


@pytest.mark.parametrize("n, m, d, v_dim, kv_heads, causal",
                         [(1, 1, 4, 4, 2, False), (31, 31, 8, 8, 1, True), (33, 63, 16, 5, 2, True),
                          (40, 7, 33, 16, 1, True), (5, 100, 64, 64, 2, False)])
def test_forward_and_every_gradient(n, m, d, v_dim, kv_heads, causal):
    given = [rand(2, 2, n, d), rand(2, kv_heads, m, d, seed=1), rand(2, kv_heads, m, v_dim, seed=2),
             rand(2, seed=3)]
    grad = rand(2, 2, n, v_dim, seed=4)
    ours = [x.requires_grad_() for x in given]
    with cuda.sanitize():
        out = flash_attention_with_sinks(*ours, causal=causal)
        out.backward(grad)
    want = sinks_in_float64(*(x.detach().double() for x in given), grad.double(), causal)
    for name, got, right in zip(("out", "q", "k", "v", "sinks"), (out, *(x.grad for x in ours)), want):
        torch.testing.assert_close(got.double(), right, atol=2e-5, rtol=1e-4,
                                   msg=lambda text: f"{name}: {text}")


def test_a_sink_far_below_changes_nothing_and_one_far_above_silences():
    q, k, v = (rand(1, 2, 9, 8, seed=s) for s in range(3))
    got = flash_attention_with_sinks(q, k, v, torch.tensor([-200.0, 200.0]), causal=True)
    torch.testing.assert_close(got[:, 0], flash_attention(q, k, v, causal=True)[:, 0])
    assert (got[:, 1] == 0).all()


def test_a_row_that_sees_nothing_gives_zero():
    q, k, v = rand(1, 1, 5, 4), rand(1, 1, 2, 4, seed=1), rand(1, 1, 2, 4, seed=2)
    sinks = torch.zeros(1, requires_grad=True)
    out = flash_attention_with_sinks(q, k, v, sinks, causal=True)
    assert (out[0, 0, :3] == 0).all() and (out[0, 0, 3:] != 0).all()
    out.sum().backward()
    assert sinks.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    q, k, v = (rand(1, 2, 40, 32, seed=s).to(dtype) for s in range(3))
    sinks = rand(2, seed=3)
    got = flash_attention_with_sinks(q, k, v, sinks, causal=True)
    want, *_ = sinks_in_float64(*(x.double() for x in (q, k, v, sinks, torch.zeros_like(q))), True)
    torch.testing.assert_close(got.double(), want, atol=2e-2, rtol=2e-2)


def test_gradients_have_the_same_bits_in_every_run():
    def once():
        given = [rand(2, 2, 50, 8), rand(2, 2, 50, 8, seed=1), rand(2, 2, 50, 8, seed=2),
                 rand(2, seed=3).requires_grad_()]
        flash_attention_with_sinks(*given, causal=True).square().sum().backward()
        return given[3].grad
    assert torch.equal(once(), once())


def test_the_sinks_cost_one_pass_over_the_output():
    n, d = 128, 64
    q, k, v = (rand(1, 1, n, d, seed=s) for s in range(3))
    with cuda.profile() as report:
        flash_attention_with_sinks(q, k, v, torch.zeros(1))
    give = [launch for launch in report.launches if "give_to_sinks" in launch.kernel][0]
    assert give.global_load.bytes == n * d * 4 + 32 * n * 8 and give.global_store.bytes == n * d * 4 + n * 4


@pytest.mark.parametrize("sinks", [torch.zeros(3), torch.zeros(2, dtype=torch.float64), torch.zeros(2, 1)])
def test_sinks_of_another_shape_are_refused(sinks):
    q = rand(1, 2, 4, 8)
    with pytest.raises(ValueError, match=r"sinks must be float32 of shape \(2,\) on cpu; got"):
        flash_attention_with_sinks(q, q, q, sinks)


def test_it_is_the_attention_of_gpt_oss():
    """Chapter 11's layer, whose equality with the published one is tested there."""
    from course_lib.field_guide import recorded
    layer = recorded("gpt_oss").layers()[1, 0]
    q, k, v = rand(1, 4, 12, 8), rand(1, 2, 12, 8, seed=1), rand(1, 2, 12, 8, seed=2)
    seen = torch.ones(12, 12, dtype=torch.bool).tril()[None, None]
    torch.testing.assert_close(flash_attention_with_sinks(q, k, v, layer.sinks.detach(), causal=True),
                               layer.attend(q, k, v, seen).detach(), atol=1e-5, rtol=1e-5)
