"""The kernels of chapter 4: equal to the module, sanitized, counted, and their mutants caught."""

import pytest
import torch

from course_lib import cuda
from course_lib.linear_attention import (delta_rule, delta_rule_kernel, linear_attention,
                                         linear_attention_kernel)
from references import names_the_argument, rand

SHAPES = [(1, 1, 1), (31, 4, 3), (33, 8, 8), (63, 5, 20), (100, 16, 8)]


def qkv(n, d, d_v):
    return rand(2, 2, n, d), rand(2, 2, n, d, seed=1), rand(2, 2, n, d_v, seed=2)


def delta_inputs(n, d, d_v):
    q, k, v = qkv(n, d, d_v)
    k = torch.nn.functional.normalize(k, dim=-1)
    return q, k, v, rand(2, 2, n, seed=3).sigmoid(), 0.5 + rand(2, 2, n, seed=4).sigmoid() / 2


@pytest.mark.parametrize("rung", [1, 2, 3])
@pytest.mark.parametrize("n, d, d_v", SHAPES)
def test_linear_attention_is_the_modules(rung, n, d, d_v):
    q, k, v = qkv(n, d, d_v)
    with cuda.sanitize():
        got, state = linear_attention_kernel(q, k, v, rung=rung, return_state=True)
    want, want_state = linear_attention(q, k, v, causal=True, return_state=True)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(state, want_state, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rung", [1, 2, 3])
def test_other_maps_chunks_and_states(rung):
    q, k, v = qkv(29, 6, 7)
    for name, normalise in (("relu", True), ("elu", False), ("identity", False)):
        pieces, state = [], None
        for part in (slice(0, 11), slice(11, 12), slice(12, 29)):
            piece, state = linear_attention_kernel(q[:, :, part], k[:, :, part], v[:, :, part], name,
                                                   normalise, state, True, rung, 4)
            pieces.append(piece)
        want = linear_attention(q, k, v, name, causal=True, normalise=normalise)
        torch.testing.assert_close(torch.cat(pieces, 2), want, atol=1e-4, rtol=1e-3)
    nothing = linear_attention_kernel(-torch.ones_like(q), k, v, "relu", rung=rung)
    assert torch.equal(nothing, torch.zeros_like(v))


@pytest.mark.parametrize("n, d, d_v", SHAPES)
@pytest.mark.parametrize("with_decay", [False, True])
def test_delta_rule_is_the_modules(n, d, d_v, with_decay):
    *args, decay = delta_inputs(n, d, d_v)
    decay = decay if with_decay else None
    with cuda.sanitize():
        got = delta_rule_kernel(*args, decay, return_state=True)
    torch.testing.assert_close(got, delta_rule(*args, decay, return_state=True), atol=1e-5, rtol=1e-4)


def test_delta_rule_carries_its_state():
    args = delta_inputs(20, 6, 5)
    whole = delta_rule_kernel(*args)
    first, state = delta_rule_kernel(*(x[:, :, :7] for x in args), return_state=True)
    second = delta_rule_kernel(*(x[:, :, 7:] for x in args), state=state)
    torch.testing.assert_close(torch.cat([first, second], 2), whole)


def test_a_state_that_a_kernel_changes_claims_no_gradient():
    (q, k, v), states = qkv(5, 4, 3), [rand(2, 2, 4, 3).requires_grad_(), rand(2, 2, 4).requires_grad_()]
    for rung in (1, 3):
        state = linear_attention_kernel(q, k, v, state=states, return_state=True, rung=rung)[1]
        assert not any(x.requires_grad for x in state)
    assert not delta_rule_kernel(*delta_inputs(5, 4, 3), state=states[0], return_state=True)[1].requires_grad


def asked(run):
    with cuda.profile() as report:
        run()
    return sum(launch.global_load.bytes + launch.global_store.bytes for launch in report.launches)


@pytest.mark.parametrize("n", [32, 64, 70, 96])
def test_traffic_is_linear_in_n_exactly(n):
    d, d_v, chunk = 8, 16, 32
    q, k, v, beta, decay = (x[:1, :1] for x in delta_inputs(n, d, d_v))
    rows, state, chunks = n * 2 * (d + d_v), d * (d_v + 1), -(-n // chunk)
    want = {1: rows + 2 * n * state, 2: rows + 2 * state, 3: rows + n * (d + d_v) + 2 * state + 2 * chunks
            * state}
    for rung, numbers in want.items():
        assert asked(lambda: linear_attention_kernel(q, k, v, rung=rung, chunk_size=chunk)) == 4 * numbers
    assert asked(lambda: delta_rule_kernel(q, k, v, beta, decay)) == 4 * (rows + 2 * n + 2 * d * d_v)


def test_without_tokens():
    q, k, v = qkv(0, 4, 5)
    assert linear_attention_kernel(q, k, v).shape == (2, 2, 0, 5)
    assert delta_rule_kernel(q, k, v, torch.ones(2, 2, 0)).shape == (2, 2, 0, 5)


test_bad_input_to_a_kernel_is_named = names_the_argument({
    "rung": [lambda q: linear_attention_kernel(q, q, q, rung=5)],
    "q": [lambda q: linear_attention_kernel(q, q, q, rung=4),
        lambda q: linear_attention_kernel(q.double(), q.double(), q.double()),
        lambda q: linear_attention_kernel(*(torch.ones(1, 1, 2, 128) for _ in "qkv")),
        lambda q: delta_rule_kernel(q.double(), q.double(), q.double(), torch.ones(1, 1, 2))],
    "feature_map": [lambda q: linear_attention_kernel(q, q, q, "taylor"),
        lambda q: linear_attention_kernel(q, q, q, "identity")],
    "chunk_size": [lambda q: linear_attention_kernel(q, q, q, chunk_size=0)],
    "k": [lambda q: linear_attention_kernel(q, q[:, :, :1], q),
        lambda q: linear_attention_kernel(*(torch.ones(1, 1, n, 64).bfloat16() for n in (9, 3, 9))),
        lambda q: linear_attention_kernel(*(torch.ones(1, h, 9, 64).bfloat16() for h in (2, 1, 1)))],
    "beta": [lambda q: delta_rule_kernel(q, q, q, torch.ones(1, 1, 3))]},
    given=lambda: [torch.ones(1, 1, 2, 2)])
