"""Chapter 5 against masked dense attention and against FlexAttention; its kernels and its indexer."""
import math

import pytest
import torch

from course_lib import language_model
from course_lib.attention import scaled_dot_product_attention
from course_lib.gpu.cases import F32, case_of
from course_lib.gpu.cases.sparse_attention import gathered
from course_lib.gqa import grouped_query_attention
from course_lib.sparse_attention import (BlockMask, Indexer, bigbird_mask, bigbird_rule,
                                         block_sparse_attention, causal_rule, choose, chosen_mask,
                                         dilated_mask, dilated_rule, distillation_loss, documents, fixed_mask,
                                         fixed_rule, gather_attention, gather_attention_kernel, index_scores,
                                         longformer_mask, longformer_rule, mask_of, receptive_field,
                                         select_blocks, sink_mask, sink_rule, sliding_window_mask,
                                         strided_mask, strided_rule, tensor_core as sparse_tensor_core,
                                         topk_attention, window_rule)
from course_lib.sparse_attention.kernels import block_sparse_kernel, dense_masked_kernel, window_sink_kernel
from references import launches_of, names_the_argument, rand, rand64, same_numbers


def rows(mask):
    return ["".join("x" if seen else "." for seen in row) for row in mask.tolist()]


def test_masks_drawn_by_hand():
    assert rows(sliding_window_mask(4, 2)) == ["x...", "xx..", ".xx.", "..xx"]
    assert rows(sliding_window_mask(4, 2, causal=False)) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert rows(dilated_mask(5, 2, 2)) == ["x....", ".x...", "x.x..", ".x.x.", "..x.x"]
    assert rows(longformer_mask(4, 1, [0])) == ["xxxx", "xx..", "x.x.", "x..x"]
    assert rows(sink_mask(5, 2, 1)) == ["x....", "xx...", "xxx..", "x.xx.", "x..xx"]
    assert rows(strided_mask(5, 2)) == ["x....", "xx...", "xxx..", ".xxx.", "x.xxx"]
    assert rows(fixed_mask(5, 2)) == ["x....", "xx...", ".xx..", ".xxx.", ".x.xx"]
    assert torch.equal(sliding_window_mask(6, 99), torch.ones(6, 6).tril().bool())
    assert torch.equal(longformer_mask(6, 2, [1], causal=True),
                       longformer_mask(6, 2, [1], causal=True).tril())


def test_bigbird_counts_and_seed():
    mask = bigbird_mask(64, 8, 3, 1, 2, torch.Generator().manual_seed(0))
    assert torch.equal(mask, bigbird_mask(64, 8, 3, 1, 2, torch.Generator().manual_seed(0)))
    blocks = mask.view(8, 8, 8, 8).transpose(1, 2).flatten(2).float().mean(-1)
    assert set(blocks.flatten().tolist()) == {0.0, 1.0}
    assert blocks[4].sum() == 1 + 3 + 2 and blocks[0].sum() == 8 and (blocks[:, 0] == 1).all()
    assert receptive_field(mask, 2).all()  # two steps through the global block reach everything
    assert bigbird_mask(13, 8, 1, 0, 0).shape == (13, 13)


MASKS = {"window": sliding_window_mask(50, 7), "sink": sink_mask(50, 5, 2),
         "longformer": longformer_mask(50, 3, [0, 20]),
         "bigbird": bigbird_mask(50, 8, 3, 1, 1, torch.Generator().manual_seed(0)),
         "nothing": torch.zeros(50, 50, dtype=torch.bool),
         "ragged": torch.rand(50, 50, generator=torch.Generator().manual_seed(1)) > 0.8}


@pytest.mark.parametrize("name, block", [(name, block) for name in MASKS for block in (8, 16, 64)]
                         + [("ragged", 3)])
def test_blocks_equal_the_masked_dense_product(name, block):
    q, k, v = (rand64(2, 2, 50, d, seed=s).requires_grad_() for s, d in enumerate((6, 6, 5)))
    blocks = BlockMask.from_mask(MASKS[name], block)
    assert ((blocks.empty.int() + blocks.full.int() + blocks.partial.int()) == 1).all()
    want = scaled_dot_product_attention(q, k, v, mask=MASKS[name])
    got = block_sparse_attention(q, k, v, blocks)
    if name == "nothing":
        assert torch.equal(got, want)           # zeros that depend on nothing: no gradient to compare
    else:
        same_numbers(got, want, (q, k, v))


RULES = {"window": window_rule(7), "sink": sink_rule(5, 2), "longformer": longformer_rule(50, 3, [0, 20]),
         "bigbird": bigbird_rule(50, 8, 3, 1, 1, torch.Generator().manual_seed(0)), "causal": causal_rule,
         "dilated": dilated_rule(4, 3), "dilated, both ways": dilated_rule(4, 3, causal=False),
         "strided": strided_rule(7), "fixed": fixed_rule(8, 2)}
ALL_MASKS = (MASKS | {"causal": torch.ones(50, 50).tril().bool(), "dilated": dilated_mask(50, 4, 3),
                      "strided": strided_mask(50, 7),
                      "dilated, both ways": dilated_mask(50, 4, 3, causal=False),
                      "fixed": fixed_mask(50, 8, 2)})


def test_rules_and_masks_agree_and_lengths_may_differ():
    for name, rule in RULES.items():
        mask = ALL_MASKS[name]
        assert torch.equal(mask_of(rule, 50), mask)
        a, b = BlockMask.from_rule(rule, 50, 50, 16), BlockMask.from_mask(mask, 16)
        assert torch.equal(a.full, b.full) and torch.equal(a.partial, b.partial)
    mask = torch.rand(9, 21, generator=torch.Generator().manual_seed(0)) > 0.3
    q, k, v = rand64(1, 1, 9, 4), rand64(1, 1, 21, 4, seed=1), rand64(1, 1, 21, 4, seed=2)
    torch.testing.assert_close(block_sparse_attention(q, k, v, BlockMask.from_mask(mask, 8)),
                               scaled_dot_product_attention(q, k, v, mask=mask))


@pytest.mark.parametrize("rule", RULES)
def test_equal_to_flex_attention(rule):
    import warnings

    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (rand64(1, 2, 50, 8, seed=s, dtype=torch.float32) for s in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = flex_attention(q, k, v,
                                block_mask=create_block_mask(RULES[rule], None, None, 50, 50, device="cpu"))
    torch.testing.assert_close(block_sparse_attention(q, k, v, BlockMask.from_rule(RULES[rule], 50, 50, 16)),
                               theirs)


def test_topk_keeps_the_largest():
    q, k, v = (rand64(1, 2, 9, 4, seed=s) for s in range(3))
    torch.testing.assert_close(topk_attention(q, k, v, 9), scaled_dot_product_attention(q, k, v))
    one = topk_attention(q, k, v, 1, causal=True)
    best = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf).argmax(-1)
    torch.testing.assert_close(one, v.gather(2, best[..., None].expand(-1, -1, -1, 4)))
    nothing = topk_attention(q, k, v, 2, mask=torch.zeros(9, 9, dtype=torch.bool))
    assert torch.equal(nothing, torch.zeros_like(nothing))


def test_selected_blocks_hold_their_own_and_the_best():
    q, k = torch.zeros(1, 1, 16, 2), torch.zeros(1, 1, 16, 2)
    q[..., 0], k[..., 4:8, 0] = 1, 5  # every query asks for what block 1 of 4 offers
    chosen = select_blocks(q, k, 4, 2)[0, 0]
    assert rows(chosen[12:]) == 4 * [".x.x"] and rows(chosen[:4]) == 4 * ["x..."]


def test_a_later_character_changes_nothing_before_it():
    """Each query chooses for itself, so the whole model stays causal, inside a block too."""
    model, _ = language_model.pretrained()

    def attend(q, k, v):
        mask = select_blocks(q, k, 16, 2).repeat_interleave(16, -1)[..., :k.shape[2]]
        return scaled_dot_product_attention(q, k, v, mask=mask, causal=True)

    model.set_attention(attend)
    tokens = torch.randint(model.config.vocab_size, (1, 120), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, 103] = (tokens[0, 103] + 1) % model.config.vocab_size  # the eighth of its block of 16
    with torch.no_grad():
        one, two = model(tokens), model(other)
    torch.testing.assert_close(one[:, :103], two[:, :103], rtol=0, atol=1e-4)
    assert (one[:, 103:] - two[:, 103:]).abs().amax(-1).min() > 1e-3


Q = rand64(1, 1, 6, 4)


test_bad_input_names_the_argument = names_the_argument({
    "window": [lambda: sliding_window_mask(4, 0)], "n": [lambda: sliding_window_mask(-1, 2)],
    "dilation": [lambda: dilated_mask(4, 2, 0)], "global_tokens": [lambda: longformer_mask(4, 1, [4]),
        lambda: longformer_mask(4, 1, torch.tensor([True, False, False, False]))],
    "block": [lambda: bigbird_mask(8, 0, 1, 0, 0), lambda: BlockMask.from_mask(torch.ones(4, 4).bool(), 0)],
    "stride": [lambda: strided_mask(4, 0)], "n_sink": [lambda: sink_mask(4, 1, -1)],
    "top": [lambda: topk_attention(Q, Q, Q, 0)], "lengths": [lambda: documents([1.5])],
    "mask": [lambda: BlockMask.from_mask(torch.zeros(4, 4), 2),
        lambda: receptive_field(torch.ones(3, 5).bool(), 2)],
    "q": [lambda: block_sparse_attention(Q[:, :, :5], Q, Q, BlockMask.from_mask(torch.ones(6, 6).bool(), 2))],
    "k": [lambda: block_sparse_attention(Q, Q[:, :, :5], Q, BlockMask.from_mask(torch.ones(6, 6).bool(), 2)),
        lambda: select_blocks(Q, Q[:, :, :5], 2, 1)],
    "v": [lambda: block_sparse_attention(Q, Q, Q[:, :, :5], BlockMask.from_mask(torch.ones(6, 6).bool(), 2))],
    "block_mask": [lambda: block_sparse_attention(Q, Q, Q, torch.ones(6, 6).bool())]})


def test_nothing_visited_is_zero():
    q, k, nothing = rand(1, 1, 40, 8), rand(1, 1, 70, 8, seed=1), torch.zeros(40, 70, dtype=torch.bool)
    assert block_sparse_kernel(q, k, k, BlockMask.from_mask(nothing, 32)).abs().sum() == 0


def test_traffic_is_the_visited_blocks_and_nothing_else():
    n, d = 256, 32
    q, k, v = (rand(1, 1, n, d, seed=s) for s in range(3))
    counted = {}
    for window in (32, 64, 128):
        blocks = BlockMask.from_rule(window_rule(window), n, n, 32)
        launch = launches_of(lambda: window_sink_kernel(q, k, v, window))[0]
        visited = int(blocks.visited().sum())
        # each visited block: 32 keys and 32 values of d floats; each block of queries once
        assert launch.global_load.bytes == visited * 2 * 32 * d * 4 + n * d * 4
        assert launch.global_store.bytes == n * d * 4
        counted[window] = visited
    assert counted == {32: 15, 64: 21, 128: 30}
    launches = launches_of(lambda: dense_masked_kernel(q, k, v, sliding_window_mask(n, 32)))
    assert launches[0].global_load.bytes == 64 * 2 * 32 * d * 4 + n * d * 4 + n * n


X, H, C = rand(1, 1, 8, 4), rand(1, 1, 8, 16).half(), torch.zeros(1, 8, 2, dtype=torch.int32)


test_bad_input_to_a_kernel_is_named = names_the_argument({
    "mask": [lambda: dense_masked_kernel(X, X, X, torch.ones(8, 7).bool())],
    "window": [lambda: window_sink_kernel(X, X, X, 0), lambda: window_sink_kernel(X, X, X, True)],
    "n_sink": [lambda: window_sink_kernel(X, X, X, 2, -1)],
    "k": [lambda: window_sink_kernel(X, X[:, :, :4], X[:, :, :4], 2),
        lambda: window_sink_kernel(H, H[..., :8], H, 2),
        lambda: window_sink_kernel(H.expand(3, -1, -1, -1), H, H, 2), lambda: index_scores(X, X, X)],
    "block_mask": [lambda: block_sparse_kernel(X, X, X, BlockMask.from_mask(torch.ones(8, 8).bool(), 16)),
        lambda: block_sparse_kernel(X, X, X, BlockMask.from_mask(torch.ones(9, 8).bool(), 32)),
        lambda: block_sparse_kernel(X, X, X, torch.ones(8, 8).bool()),
        lambda: block_sparse_kernel(H, H, H, BlockMask.from_mask(torch.ones(8, 8).bool(), 32))],
    "q": [lambda: window_sink_kernel(X.double(), X.double(), X.double(), 2),
        lambda: window_sink_kernel(H, H.expand(-1, 3, -1, -1), H.expand(-1, 3, -1, -1), 2),
        lambda: sparse_tensor_core.window(H[..., :12], H[..., :12], H[..., :12], 3),
        lambda: gather_attention_kernel(X.double(), X.double(), X.double(), C)],
    "chosen": [lambda: gather_attention(X, X, X, C + 100), lambda: gather_attention(X, X, X, C.float())],
    "top_k": [lambda: choose(torch.zeros(1, 2, 3), 0)],
    "v": [lambda: window_sink_kernel(X, X, rand(1, 1, 8, 5), 2),
        lambda: window_sink_kernel(X, X, X[:, :, :4], 2), lambda: window_sink_kernel(H, H, H[:, :, :4], 2)]})


def test_only_visited_tiles_are_asked_for():
    """A block of 128 queries sees tiles of 64 keys, from its window's first to its own last."""
    n, d, window, n_sink = 512, 64, 64, 3
    q, k, v = (rand(1, 1, n, d, seed=s).bfloat16() for s in range(3))
    tiles = 0
    for q0 in range(0, n, 128):
        oldest = max(0, q0 - window + 1) // 64
        tiles += min(oldest, 1) + (q0 + 127) // 64 - oldest + 1
    assert tiles == 2 + 4 + 4 + 4  # one of sinks and three of the window's own, after the first block
    launch, = launches_of(lambda: window_sink_kernel(q, k, v, window, n_sink))
    assert launch.global_load.bytes == 2 * d * (n + 2 * 64 * tiles)
    assert launch.global_store.bytes == launch.global_store.moved == 2 * d * n
    assert launch.shared_load.excess == launch.shared_store.excess == 0


def test_scores_by_the_formula():
    q, k, w = rand(1, 2, 3, 4), rand(1, 3, 4, seed=1), rand(1, 3, 2, seed=2)
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


def test_a_gather_is_attention_under_the_mask_of_what_was_chosen():
    for shape in case_of("gather_tokens", F32).small:
        q, k, v, chosen = gathered(lambda *size, dtype=None: rand(*size, seed=sum(size)), **shape)
        want = grouped_query_attention(q, k, v, mask=chosen_mask(chosen, k.shape[2])[:, None])
        torch.testing.assert_close(gather_attention(q, k, v, chosen), want, atol=1e-5, rtol=1e-5)
        assert (want[:, :, 0] == 0).all()                                   # a query that looks nowhere


def test_traffic_is_the_chosen_rows_once_per_group():
    n, d, top_k = 64, 32, 32
    q, k, v = rand(1, 4, n, d), rand(1, 1, 256, d, seed=1), rand(1, 1, 256, d, seed=2)
    chosen = choose(rand(1, n, 256, seed=3), top_k)
    launch = launches_of(lambda: gather_attention_kernel(q, k, v, chosen))[0]
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
