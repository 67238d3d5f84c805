"""A decay for every channel: the chunked function and the kernels against the recurrence, one matrix at a
time."""
import pytest
import torch

from course_lib import cuda
from course_lib.field_guide import recurrence
from course_lib.linear_attention import delta_rule, delta_rule_kernel, gated_linear_attention
from references import rand64 as rand

FORMS = ["recurrent", "chunked"]


def given(n, d, d_v, weakest=0.5, heads=2):
    """q, k of length 1, v, beta, decay per channel from `weakest` to 1."""
    k = torch.nn.functional.normalize(rand(2, heads, n, d, seed=1), dim=-1)
    decay = weakest ** rand(2, heads, n, d, seed=4).sigmoid()
    return rand(2, heads, n, d), k, rand(2, heads, n, d_v, seed=2), rand(2, heads, n, seed=3).sigmoid(), decay


def oracle(q, k, v, beta, decay):
    out = torch.empty_like(v)
    for b, h in torch.cartesian_prod(torch.arange(2), torch.arange(q.shape[1])):
        s = q.new_zeros(q.shape[-1], v.shape[-1])
        for t in range(q.shape[2]):
            s = torch.diag(decay[b, h, t]) @ s
            s = s + beta[b, h, t] * torch.outer(k[b, h, t], v[b, h, t] - s.T @ k[b, h, t])
            out[b, h, t] = s.T @ q[b, h, t]
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n, d, d_v, chunk_size",
                         [(1, 1, 1, 4), (33, 6, 5, 8), (63, 3, 4, 64), (50, 6, 5, 40)])
def test_the_delta_rule_against_one_matrix_at_a_time(form, n, d, d_v, chunk_size):
    args = given(n, d, d_v)
    want = oracle(*args)
    torch.testing.assert_close(delta_rule(*args, form, chunk_size), want, atol=1e-10, rtol=1e-8)
    torch.testing.assert_close(delta_rule(*(x.float() for x in args), form, chunk_size).double(), want,
                               atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weakest", [1e-2, 1e-12, 1e-30])
def test_chunks_keep_their_digits_where_the_quotient_would_overflow(weakest):
    """The product of 64 such decays is far below the smallest float: 1 / A_s would be infinite."""
    q, k, v, beta, decay = given(100, 8, 5, weakest)
    single = [x.float() for x in (q, k, v, beta, decay)]
    for strength, got in ((beta[..., None], delta_rule(*single, "chunked")),
                          (None, gated_linear_attention(*single[:3], single[4], "chunked"))):
        want = recurrence(q, k, v, decay.log(), strength)[0]
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-4)


def test_equal_decays_in_all_channels_are_one_decay_per_token():
    q, k, v, beta, decay = given(41, 6, 5)
    for form in FORMS:
        torch.testing.assert_close(delta_rule(q, k, v, beta, decay[..., :1].expand_as(k), form, 16),
                                   delta_rule(q, k, v, beta, decay[..., 0], form, 16))


def test_gradients_and_states_agree_between_forms():
    leaves = [x[:1, :, :19].requires_grad_() for x in given(19, 4, 3)]
    results = [delta_rule(*leaves, form, 5, return_state=True) for form in FORMS]
    torch.testing.assert_close(results[0], results[1])
    grads = [torch.autograd.grad(out, leaves, torch.ones_like(out)) for out, _ in results]
    torch.testing.assert_close(grads[0], grads[1])
    first, state = delta_rule(*(x[:, :, :8] for x in leaves), "chunked", 5, return_state=True)
    second = delta_rule(*(x[:, :, 8:] for x in leaves), "recurrent", state=state)
    torch.testing.assert_close(torch.cat([first, second], 2), results[0][0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n, d, d_v, weakest",
                         [(1, 1, 1, 0.5), (31, 4, 3, 1e-12), (33, 8, 33, 0.5), (16, 5, 64, 0.1)])
def test_the_kernel_is_the_function(form, n, d, d_v, weakest):
    args = given(n, d, d_v, weakest)
    want = delta_rule(*args, return_state=True)
    with cuda.sanitize():
        got = delta_rule_kernel(*(x.float() for x in args), return_state=True, form=form)
    torch.testing.assert_close(tuple(x.double() for x in got), want, atol=1e-5, rtol=1e-4)


def test_the_chunked_kernel_takes_other_decays_and_carries_its_state():
    q, k, v, beta, decay = (x.float() for x in given(21, 6, 5))
    for a in (None, decay[..., 0]):
        torch.testing.assert_close(delta_rule_kernel(q, k, v, beta, a, form="chunked"),
                                   delta_rule(q, k, v, beta, a))
    parts, state = [], None
    for part in (slice(0, 7), slice(7, 21)):
        piece, state = delta_rule_kernel(*(x[:, :, part] for x in (q, k, v, beta, decay)), state, True,
                                         "chunked")
        parts.append(piece)
    torch.testing.assert_close(torch.cat(parts, 2), delta_rule(q, k, v, beta, decay), atol=1e-5, rtol=1e-4)
    assert (delta_rule_kernel(*(x[:, :, :0] for x in (q, k, v, beta, decay)), form="chunked").shape
            == (2, 2, 0, 5))


def gradients(rule, args, grads, **how):
    """Of q, k, v, beta, decay and the first state, through the outputs and the last state."""
    leaves = [x.clone().requires_grad_() for x in args]
    out = rule(*leaves[:5], state=leaves[5], return_state=True, **how)
    return torch.autograd.grad(out, leaves, grads)


def given_gradients(n, d, d_v, weakest=0.5, heads=2):
    args = *given(n, d, d_v, weakest, heads), rand(2, heads, d, d_v, seed=5)
    return args, (rand(2, heads, n, d_v, seed=6), rand(2, heads, d, d_v, seed=7))


@pytest.mark.parametrize("n, d, d_v, weakest",
                         [(1, 1, 1, 0.5), (31, 4, 3, 1e-30), (33, 8, 33, 0.5), (16, 5, 40, 0.1)])
def test_every_gradient_of_the_chunked_kernel(n, d, d_v, weakest):
    args, grads = given_gradients(n, d, d_v, weakest)
    want = gradients(delta_rule, args, grads)
    with cuda.sanitize():
        got = gradients(delta_rule_kernel, [x.float() for x in args], [x.float() for x in grads],
                        form="chunked")
    for name, ours, right in zip(("q", "k", "v", "beta", "decay", "state"), got, want):
        torch.testing.assert_close(ours.double(), right, atol=2e-5, rtol=1e-4,
                                   msg=lambda text: f"{name}: {text}")


def test_gradients_of_other_decays_of_no_tokens_and_in_every_run():
    args, (grad, _) = given_gradients(21, 6, 20)
    q, k, v, beta, decay, _ = (x.float() for x in args)
    for a in (decay[..., 0], None):
        leaves = [x.clone().requires_grad_() for x in ((q, k, v, beta) if a is None else (q, k, v, beta, a))]
        pairs = [torch.autograd.grad(rule(*leaves, form="chunked"), leaves, grad.float())
                 for rule in (delta_rule, delta_rule_kernel, delta_rule_kernel)]
        torch.testing.assert_close(pairs[1], pairs[0], atol=1e-5, rtol=1e-4)
        assert all(torch.equal(x, y) for x, y in zip(*pairs[1:]))
    empty = v[:, :, :0].clone().requires_grad_()
    out, last = delta_rule_kernel(*(x[:, :, :0] for x in (q, k)), empty, beta[:, :, :0], form="chunked",
                                  return_state=True)
    (out.sum() + last.sum()).backward()
    assert empty.grad.shape == empty.shape and (last == 0).all()


def test_traffic_and_barriers_of_the_backward():
    n, d, d_v, blocks, chunks = 33, 8, 40, 3, 3
    args, grads = given_gradients(n, d, d_v, heads=1)
    with cuda.profile() as report:
        gradients(delta_rule_kernel, [x[:1].float() for x in args], [x[:1].float() for x in grads],
                  form="chunked")
    plain, again, backward = report.launches
    asked = [(x.global_load.bytes + x.global_store.bytes) // 4 for x in report.launches]
    assert [x.kernel for x in (again, backward)] == ["delta_chunks", "delta_backward"]
    assert asked[1] - asked[0] == chunks * d * d_v + n * d_v and again.barriers == plain.barriers
    assert asked[2] == 2 * blocks * n * (3 * d + 1) + 3 * n * d_v + (chunks + 2) * d * d_v
    assert backward.barriers == blocks * 6 * chunks


@pytest.mark.parametrize("n, d_v", [(16, 32), (33, 40), (64, 70)])
def test_traffic_and_barriers_of_the_header(n, d_v):
    d, blocks, chunks = 8, -(-d_v // 32), -(-n // 16)
    args = [x[:1].float() for x in given(n, d, d_v, heads=1)]
    counted = {}
    for form in FORMS:
        with cuda.profile() as report:
            delta_rule_kernel(*args, form=form)
        launch, = report.launches
        counted[form] = (launch.global_load.bytes + launch.global_store.bytes) // 4, launch.barriers
    rows = 2 * n * d_v + 2 * d * d_v
    assert counted == {"recurrent": (n * (3 * d + 1) + rows, 2 * n),
                       "chunked": (blocks * n * (3 * d + 1) + rows, blocks * 6 * chunks)}


@pytest.mark.parametrize("argument, change", [
    ("decay", {"decay": rand(1, 1, 3, 5).sigmoid()}), ("decay", {"decay": torch.zeros(1, 1, 3, 4)}),
    ("decay", {"decay": torch.full((1, 1, 3, 4), 1.5)}), ("form", {"form": "parallel"})])
def test_bad_decays_are_named(argument, change):
    q = torch.full((1, 1, 3, 4), 0.5)
    options = {"decay": torch.ones(1, 1, 3, 4), **change}
    for run in (delta_rule, delta_rule_kernel):
        with pytest.raises(ValueError, match=f"^{argument} must "):
            run(q, q, q, torch.ones(1, 1, 3), **options)


def test_a_state_too_wide_for_the_chunked_kernel_is_refused():
    wide = torch.full((1, 1, 2, 140), 0.01)
    with pytest.raises(ValueError, match="^q needs too much shared memory"):
        delta_rule_kernel(wide, wide, wide, torch.ones(1, 1, 2), form="chunked")
