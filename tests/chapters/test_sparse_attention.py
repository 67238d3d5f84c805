"""Chapter 5's module against masked dense attention and against FlexAttention."""
import math

import pytest
import torch

from course_lib import language_model
from course_lib.attention import scaled_dot_product_attention
from course_lib.sparse_attention import (BlockMask, bigbird_mask, bigbird_rule, block_sparse_attention,
                                         causal_rule, dilated_mask, dilated_rule, document_rule, documents,
                                         fixed_mask, fixed_rule, longformer_mask, longformer_rule, mask_of,
                                         receptive_field, select_blocks, sink_mask, sink_rule,
                                         sliding_window_mask, strided_mask, strided_rule, topk_attention,
                                         window_rule)
from references import names_the_argument, rand64 as rand


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


def test_receptive_field_of_a_window_grows_by_a_window_a_layer():
    reach = receptive_field(sliding_window_mask(40, 4), 3)
    assert reach[-1].nonzero().flatten().min() == 39 - 3 * 3


MASKS = {"window": sliding_window_mask(50, 7), "sink": sink_mask(50, 5, 2),
         "longformer": longformer_mask(50, 3, [0, 20]),
         "bigbird": bigbird_mask(50, 8, 3, 1, 1, torch.Generator().manual_seed(0)),
         "nothing": torch.zeros(50, 50, dtype=torch.bool),
         "ragged": torch.rand(50, 50, generator=torch.Generator().manual_seed(1)) > 0.8}


@pytest.mark.parametrize("name, block", [(name, block) for name in MASKS for block in (8, 16, 64)]
                         + [("ragged", 3)])
def test_blocks_equal_the_masked_dense_product(name, block):
    q, k, v = (rand(2, 2, 50, d, seed=s).requires_grad_() for s, d in enumerate((6, 6, 5)))
    blocks = BlockMask.from_mask(MASKS[name], block)
    assert ((blocks.empty.int() + blocks.full.int() + blocks.partial.int()) == 1).all()
    want = scaled_dot_product_attention(q, k, v, mask=MASKS[name])
    got = block_sparse_attention(q, k, v, blocks)
    torch.testing.assert_close(got, want)
    if name == "nothing":
        return  # zeros that depend on nothing: no gradient to compare
    upstream = rand(*want.shape, seed=9)
    for mine, other in zip(torch.autograd.grad(got, (q, k, v), upstream),
                           torch.autograd.grad(want, (q, k, v), upstream)):
        torch.testing.assert_close(mine, other)


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
    q, k, v = rand(1, 1, 9, 4), rand(1, 1, 21, 4, seed=1), rand(1, 1, 21, 4, seed=2)
    torch.testing.assert_close(block_sparse_attention(q, k, v, BlockMask.from_mask(mask, 8)),
                               scaled_dot_product_attention(q, k, v, mask=mask))


@pytest.mark.parametrize("window, useful, fewer",
                         [(256, 80, 25.9), (512, 89, 14.5), (1024, 94, 7.8), (4096, 98, 2.3)])
def test_published_shares_of_useful_work(window, useful, fewer):
    n, block = 16384, 64
    tiles = n // block
    i, j = torch.arange(tiles)[:, None], torch.arange(tiles)[None]
    # A tile is visited when its nearest pair is inside the window: closed form, too large for from_mask.
    visited = (j <= i) & ((i - j) * block - (block - 1) < window)
    pairs = sum(min(t + 1, window) for t in range(n))
    assert round(100 * pairs / (visited.sum().item() * block**2)) == useful
    assert round((i >= j).sum().item() / visited.sum().item(), 1) == fewer


def test_useful_fraction_counts_what_the_closed_form_counts():
    blocks = BlockMask.from_rule(window_rule(16), 256, 256, 8)
    pairs = sum(min(t + 1, 16) for t in range(256))
    assert blocks.useful_fraction == pairs / (blocks.visited().sum().item() * 64)
    assert BlockMask.from_mask(MASKS["nothing"], 8).useful_fraction == 1.0


def test_lists_for_the_kernel():
    start, column, kind = BlockMask.from_mask(sliding_window_mask(6, 2), 2).lists()
    assert (start.tolist() == [0, 1, 3, 5] and column.tolist() == [0, 0, 1, 1, 2]
            and kind.tolist() == [1, 1, 1, 1, 1])


@pytest.mark.parametrize("rule", RULES)
def test_equal_to_flex_attention(rule):
    import warnings

    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (rand(1, 2, 50, 8, seed=s, dtype=torch.float32) for s in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = flex_attention(q, k, v,
                                block_mask=create_block_mask(RULES[rule], None, None, 50, 50, device="cpu"))
    torch.testing.assert_close(block_sparse_attention(q, k, v, BlockMask.from_rule(RULES[rule], 50, 50, 16)),
                               theirs)


def test_documents_do_not_see_each_other():
    document = documents([5, 9, 2])
    assert document.tolist() == [0] * 5 + [1] * 9 + [2] * 2
    blocks = BlockMask.from_rule(document_rule(document), 16, 16, 4)
    q, k, v = (rand(1, 1, 16, 4, seed=s) for s in range(3))
    before = block_sparse_attention(q, k, v, blocks)
    k, v = k.clone(), v.clone()
    k[:, :, 5:14], v[:, :, 5:14] = 7.0, math.nan
    after = block_sparse_attention(q, k, v, blocks)
    same = torch.isclose(before, after).all(-1)[0, 0]
    assert same[:5].all() and same[14:].all() and not same[5:14].any()


def test_topk_keeps_the_largest():
    q, k, v = (rand(1, 2, 9, 4, seed=s) for s in range(3))
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


Q = rand(1, 1, 6, 4)


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
