"""The references of chapter 5's exercises against the chapter's module."""
import math

import torch

from course_lib import cuda
from course_lib.exercises.declare import find
from course_lib.sparse_attention import (BlockMask, block_sparse_attention, document_rule, documents,
                                         gather_attention, mask_of, receptive_field, sink_mask,
                                         sliding_window_mask, topk_attention)
from references import rand, reference


def test_masks_are_the_chapters():
    for n, window in ((1, 1), (7, 3), (5, 9)):
        assert torch.equal(reference("5.1")(n, window), sliding_window_mask(n, window))
    lengths = [4, 1, 6]
    assert torch.equal(reference("5.10")(torch.tensor([0, 4, 5]), 11),
                       mask_of(document_rule(documents(lengths)), 11))


def test_blocks_are_the_chapters():
    mask = sink_mask(37, 9, 2)
    blocks, kinds = BlockMask.from_mask(mask, 8), reference("5.3")(mask, 8)
    for kind, name in enumerate(("empty", "partial", "full")):
        assert torch.equal(kinds == kind, getattr(blocks, name))


def test_top_k_is_the_chapters():
    q, k, v = rand(1, 1, 6, 4), rand(1, 1, 9, 4, seed=1), rand(1, 1, 9, 3, seed=2)
    weights = reference("5.9")(q[0, 0] @ k[0, 0].T / 2, 3)
    torch.testing.assert_close(weights @ v[0, 0], topk_attention(q, k, v, 3)[0, 0])


def test_attention_over_chosen_tokens_is_the_chapters():
    q, k, v = rand(1, 1, 6, 4), rand(1, 1, 9, 4, seed=1), rand(1, 1, 9, 3, seed=2)
    chosen = torch.tensor([[0, 3, -1], [-1, -1, -1], [8, 1, 2], [5, -1, -1], [4, 7, 0], [1, 0, 6]])
    torch.testing.assert_close(reference("5.11")(q[0, 0], k[0, 0], v[0, 0], chosen),
                               gather_attention(q, k, torch.cat([v, v[..., :1]], -1),
                                                chosen[None].int())[0, 0, :, :3])


def test_numbers():
    assert reference("5.2") == receptive_field(sliding_window_mask(40, 4), 3)[-1].sum()
    # one row of blocks, far from the beginning
    far = mask_of(lambda b, h, i, j: (i + 64 - j >= 0) & (i + 64 - j < 64), 64, 128)
    assert BlockMask.from_mask(far, 64).useful_fraction == reference("5.4")


def test_kernels():
    blocks = BlockMask.from_mask(sink_mask(8, 3,
                                           1).repeat_interleave(32, 0).repeat_interleave(32, 1)[:230, :230],
                                 32)
    start, column, _ = blocks.lists()
    zero, v, out, exercise = torch.zeros(1, 1, 230, 4), rand(1, 1, 230, 16), torch.empty(8, 16), find("5.6")
    getattr(cuda.compile(exercise.solution), exercise.name)[8, 32](v[0, 0], start, column, out, 230, 16)
    torch.testing.assert_close(out, block_sparse_attention(zero, zero, v, blocks)[0, 0, ::32])
    visits, exercise = torch.zeros(8, 8, dtype=torch.int32), find("5.7")
    getattr(cuda.compile(exercise.solution), exercise.name)[1, 32](visits, 8, 3, 1)
    assert torch.equal(visits, blocks.visited().int())


def attention_over(q, k, v, visits, block):
    """Masked softmax in float64 over the visited keys alone."""
    rows = []
    for i, query in enumerate(q.double()):
        keys = [j for c in visits[i // block] for j in range(c * block, min((c + 1) * block, len(k)))]
        p = torch.softmax(k.double()[keys] @ query / math.sqrt(q.shape[1]), 0)
        rows.append(p @ v.double()[keys] if keys else torch.zeros(v.shape[1], dtype=torch.float64))
    return torch.stack(rows)


def test_attention_over_a_list_of_blocks():
    attend, exercise = reference("5.5"), find("5.5")
    for case in exercise.cases(torch.Generator().manual_seed(3)):
        got = attend(*case.args)
        torch.testing.assert_close(got.double(), attention_over(*case.args), atol=1e-4, rtol=1e-4)
