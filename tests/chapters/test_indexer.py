"""The indexer: its torch functions against masks and loops, its kernels against those, its training."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.attention import scaled_dot_product_attention
from course_lib.gqa import grouped_query_attention
from course_lib.sparse_attention import (Indexer, choose, chosen_mask, distillation_loss, gather_attention,
                                         gather_attention_kernel, index_scores, index_scores_kernel)
from references import rand


def index_inputs(b, h, n, m, d):
    return rand(b, h, n, d), rand(b, m, d, seed=1), rand(b, n, h, seed=2)


def test_scores_by_the_formula():
    q, k, w = index_inputs(1, 2, 3, 3, 4)
    got = index_scores(q, k, w)
    for i in range(3):
        for j in range(i + 1):
            want = sum(w[0, i, h] * max(0.0, float(q[0, h, i] @ k[0, j])) for h in range(2))
            assert float(got[0, i, j]) == pytest.approx(float(want), abs=1e-5)
        assert (got[0, i, i + 1:] == -math.inf).all()


def test_choose_takes_the_largest_and_says_where_there_are_too_few():
    scores = torch.tensor([[[3.0, -math.inf, -math.inf], [1.0, 5.0, -math.inf], [0.0, 2.0, 1.0]]])
    assert choose(scores, 2).tolist() == [[[0, -1], [1, 0], [1, 2]]]
    assert choose(scores, 4)[0, 2].tolist() == [1, 2, 0, -1]
    assert chosen_mask(choose(scores, 2), 3)[0].int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("b, h, n, m, d",
                         [(1, 1, 1, 1, 1), (2, 4, 31, 31, 16), (1, 3, 33, 63, 5), (1, 2, 100, 100, 8)])
@pytest.mark.parametrize("causal", [True, False])
def test_the_kernel_scores_alike(b, h, n, m, d, causal):
    given = index_inputs(b, h, n, m, d)
    with cuda.sanitize():
        got = index_scores_kernel(*given, causal)
    torch.testing.assert_close(got, index_scores(*given, causal), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("b, heads, kv_heads, n, m, d, top_k",
                         [(1, 1, 1, 1, 1, 4, 1), (2, 4, 2, 31, 31, 16, 5), (1, 4, 1, 33, 63, 33, 40),
                          (1, 2, 2, 7, 100, 100, 64), (1, 8, 1, 5, 9, 128, 20)])
def test_a_gather_is_attention_under_the_mask_of_what_was_chosen(b, heads, kv_heads, n, m, d, top_k):
    q, k, v = rand(b, heads, n, d), rand(b, kv_heads, m, d, seed=1), rand(b, kv_heads, m, d, seed=2)
    hidden = torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)
    chosen = choose(rand(b, n, m, seed=3).masked_fill(hidden, -math.inf), top_k)
    chosen[0, 0] = -1                                                       # a query that looks nowhere
    want = grouped_query_attention(q, k, v, mask=chosen_mask(chosen, m)[:, None])
    torch.testing.assert_close(gather_attention(q, k, v, chosen), want, atol=1e-5, rtol=1e-5)
    with cuda.sanitize():
        got = gather_attention_kernel(q, k, v, chosen)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert (got[0, :, 0] == 0).all()


def test_with_every_token_chosen_it_is_dense_attention():
    q, k, v = (rand(1, 2, 40, 16, seed=s) for s in range(3))
    every = choose(index_scores(*index_inputs(1, 2, 40, 40, 8)), 40)
    torch.testing.assert_close(gather_attention_kernel(q, k, v, every),
                               scaled_dot_product_attention(q, k, v, causal=True), atol=1e-5, rtol=1e-5)


def test_the_order_of_the_chosen_does_not_matter():
    q, k, v = (rand(1, 1, 6, 8, seed=s) for s in range(3))
    chosen = choose(rand(1, 6, 6, seed=3), 4)
    torch.testing.assert_close(gather_attention_kernel(q, k, v, chosen),
                               gather_attention_kernel(q, k, v, chosen.flip(-1)))


def test_traffic_is_the_chosen_rows_once_per_group():
    n, d, top_k = 64, 32, 32
    q, k, v = rand(1, 4, n, d), rand(1, 1, 256, d, seed=1), rand(1, 1, 256, d, seed=2)
    chosen = choose(rand(1, n, 256, seed=3), top_k)
    with cuda.profile() as report:
        gather_attention_kernel(q, k, v, chosen)
    launch = report.launches[0]
    assert launch.global_load.bytes == n * (2 * top_k * d * 4 + top_k * 4) + 4 * n * d * 4
    assert launch.global_store.bytes == 4 * n * d * 4


def test_distillation_is_zero_for_the_same_distribution_and_trains():
    torch.manual_seed(0)
    x, hidden = rand(4, 24, 16), torch.ones(24, 24, dtype=torch.bool).triu(1)
    weights = (2 * x @ x.mT / 4).masked_fill(hidden, -math.inf).softmax(-1)[:, None]
    same = weights[:, 0].log().masked_fill(hidden, -math.inf)
    assert float(distillation_loss(same, weights)) == pytest.approx(0, abs=1e-5)
    indexer = Indexer(16, 4, 8)
    optimizer = torch.optim.Adam(indexer.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        loss = distillation_loss(indexer(x), weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0] and all(p.grad.abs().sum() > 0 for p in indexer.parameters())


@pytest.mark.parametrize("call, said", [
    (lambda q, k, v, c: gather_attention(q, k, v, c + 100), "chosen"),
    (lambda q, k, v, c: gather_attention(q, k, v, c.float()), "chosen"),
    (lambda q, k, v, c: gather_attention_kernel(q.double(), k.double(), v.double(), c), "float32"),
    (lambda q, k, v, c: choose(torch.zeros(1, 2, 3), 0), "top_k must be"),
    (lambda q, k, v, c: index_scores(q, k, v), "k must be"),
])
def test_bad_input_is_named(call, said):
    q, k, v = (rand(1, 2, 4, 8, seed=s) for s in range(3))
    with pytest.raises(ValueError, match=said):
        call(q, k, v, torch.zeros(1, 4, 2, dtype=torch.int32))
