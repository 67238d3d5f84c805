"""The references of chapter 6's exercises against the chapter's module."""
import math

import pytest
import torch

from course_lib import cuda, flash_attention as fa
from course_lib.exercises.declare import find
from course_lib.exercises.judge import evaluate
from course_lib.exercises.chapters.flash_attention import gallery
from references import rand, reference


def test_one_pass_and_the_tile_loop():
    q, k, v = rand(5, 8), rand(33, 8, seed=1), rand(33, 4, seed=2)
    out, lse = fa.flash_forward_tiles(*(x[None, None] for x in (q, k, v)), causal=True, scale=0.7)
    got = reference("6.4")(q, k, v, 0.7, 16, True)
    torch.testing.assert_close(got, (out[0, 0], lse[0, 0]))
    once = reference("6.2")(q[-1], zip(k, v), 0.7)          # the last query sees all keys
    torch.testing.assert_close(once, out[0, 0, -1])


def test_merge():
    scores, v = rand(6, 20), rand(20, 3, seed=1)
    scores[2, :8], scores[4] = -math.inf, -math.inf
    a, b = fa.state_of(scores[:, :8], v[:8]), fa.state_of(scores[:, 8:], v[8:])
    torch.testing.assert_close(reference("6.3")(a, b), tuple(fa.merge(a, b)))


@pytest.mark.parametrize("order", ["standard", "query-outer", "key-outer"])
def test_traffic(order):
    for n, d, tile in ((64, 16, 16), (1024, 64, 256)):
        assert reference("6.5")(n, d, tile, order) == fa.traffic(n, d, tile, tile, order, itemsize=1)


def test_tile_counts():
    for sizes in ((100, 164, 16, 16), (7, 5, 2, 3), (33, 33, 8, 16)):
        kinds = fa.tile_kinds(*sizes)
        assert reference("6.6")(*sizes) == tuple(int((kinds == kind).sum()) for kind in range(3))


def test_backward():
    q, k, v, grad_out = rand(5, 8), rand(9, 8, seed=1), rand(9, 4, seed=2), rand(5, 4, seed=3)
    out, lse = fa.flash_forward_tiles(*(x[None, None] for x in (q, k, v)), scale=0.7)
    bias = torch.zeros(1, 1, 9)
    grads = fa.flash_backward_tiles(*(x[None, None] for x in (q, k, v)), out, lse, grad_out[None, None],
                                    scale=0.7, key_bias=bias)
    torch.testing.assert_close(reference("6.12")(q, k, grad_out, lse[0, 0], 0.7), grads[2][0, 0])
    p = torch.exp(0.7 * q @ k.T - lse[0, 0][:, None])
    ds = reference("6.13")(p, v, out[0, 0], grad_out)
    torch.testing.assert_close(0.7 * ds @ k, grads[0][0, 0])
    torch.testing.assert_close(ds.sum(0), grads[3][0, 0])


def test_numbers():
    n, d = 4096, 64
    tiles = dict(a=(32, 64), b=(64, 32), c=(64, 64), d=(128, 16), e=(192, 16))
    budget = 0.3 * fa.traffic(n, d, 1, 1, "standard")
    fit = [letter for letter, (q, k) in tiles.items()
           if 4 * (q * d + 2 * k * d + q * k) <= 48 * 1024 and fa.traffic(n, d, q, k) <= budget]
    assert fit == [find("6.10").answer]


def test_the_backward_model_counts_what_the_kernels_ask_for():
    """Without the statistics, and with dQ by atomics, which the engine counts apart."""
    n, d = 160, 32
    q, k, v, grad_out = (rand(1, 1, n, d, seed=i) for i in range(4))
    out, lse = fa.forward_kernel(q, k, v)
    with cuda.profile() as report:
        fa.backward_kernels(grad_out, q, k, v, out, lse, atomic=True)
    first, loops = (x.global_load.bytes + x.global_store.bytes for x in report.launches[-2:])
    rounds = n // 32
    model = 4 * reference("6.14")(n, d, 32)
    assert first == 4 * (2 * n * d + n)
    statistics = 4 * rounds * 2 * n  # each is asked for by the eight threads of its row
    assert model == first + loops - 7 * statistics + 4 * rounds * 2 * n * d


@pytest.mark.parametrize("number, expected", [
    (0, "right"), (1, "wrong"), (2, "wrong"), (3, "race"), (4, "nan"), (5, "uninitialized")])
def test_the_gallery_shows_what_the_chapter_says(number, expected):
    q, k, v, out = rand(48, 8), rand(48, 8, seed=1), rand(48, 8, seed=2), torch.empty(48, 8)
    try:
        with cuda.sanitize():
            cuda.compile(gallery(number)).flash[3, 16](q, k, v, out, 48, 0.35)
    except cuda.KernelError as error:
        assert error.kind == expected
        return
    want = fa.flash_forward_tiles(*(x[None, None] for x in (q, k, v)), causal=True, scale=0.35)[0][0, 0]
    verdict = "nan" if out.isnan().any() else "right" if torch.allclose(out, want, atol=1e-5) else "wrong"
    assert verdict == expected


def test_two_of_the_gallery_are_right_on_some_inputs():
    """Which is why a test that happens to use them would have passed them."""
    q, k, v, out = rand(48, 8), rand(48, 8, seed=1), rand(48, 8, seed=2), torch.empty(48, 8)
    want = fa.flash_forward_tiles(*(x[None, None] for x in (q, k, v)), causal=True, scale=1.0)[0][0, 0]
    cuda.compile(gallery(1)).flash[3, 16](q, k, v, out, 48, 1.0)            # the scale, applied twice
    torch.testing.assert_close(out, want)
    q, k = torch.full((48, 8), 2.0), (-torch.arange(48.0) / 4)[:, None].repeat(1, 8)
    want = fa.flash_forward_tiles(*(x[None, None] for x in (q, k, v)), causal=True, scale=0.35)[0][0, 0]
    cuda.compile(gallery(2)).flash[3, 16](q, k, v, out, 48, 0.35)  # not rescaled, the largest score first
    torch.testing.assert_close(out, want)


def test_the_map_of_the_lanes_is_that_of_the_tensor_cores():
    """6.11 against both instructions: what load_matrix deals out, and what one product makes of it."""
    element, kernels = reference("6.11"), cuda.load("flash_attention/fragments")
    assert sorted(element(lane, r, half) for lane in range(32) for r in range(4) for half in range(2)) == [
        (row, column) for row in range(16) for column in range(16)]
    x, registers = rand(16, 64).bfloat16(), torch.zeros(4, 32, 4, 2, dtype=torch.bfloat16)
    for swizzle in (0, 1):
        with cuda.sanitize():
            kernels.read_tile[1, 32](x, registers, swizzle)
        for lane, r, half in ((0, 0, 0), (5, 1, 1), (22, 2, 0), (31, 3, 1)):
            row, column = element(lane, r, half)
            assert torch.equal(registers[:, lane, r, half], x[row, column::16])
    a, b, sums = registers[0], rand(32, 2, 2, seed=1).bfloat16(), torch.zeros(32, 4)
    kernels.one_product[1, 32](a.contiguous(), b, sums)
    right = b.view(8, 4, 2, 2).permute(2, 1, 3, 0).reshape(16, 8)
    want = x[:, :16].float() @ right.float()
    for lane in (0, 7, 30):
        for i in range(4):
            assert abs(sums[lane, i] - want[lane // 4 + i // 2 * 8, 2 * (lane % 4) + i % 2]) < 1e-4


@pytest.mark.parametrize("body, status", [
    ("s = scale * q @ k.T\n    if causal:\n"
     "        s = s.masked_fill(torch.ones_like(s).triu(1 + len(k) - len(q)).bool(), -torch.inf)\n"
     "    lse = s.logsumexp(1)\n    return torch.exp(s - lse[:, None]) @ v, lse", "wrong"),           # no tiles
    ("lse, out = torch.full((len(q),), -torch.inf), torch.zeros(len(q), v.shape[1])\n"
     "    for k0 in range(0, len(k), tile_k):\n        s = scale * q @ k[k0:k0 + tile_k].T\n"
     "        if causal:\n            hidden = torch.arange(k0, k0 + s.shape[1]) > torch.arange(len(q))[:, None] + len(k) - len(q)\n"
     "            s = s.masked_fill(hidden, -torch.inf)\n"
     "        new = torch.logaddexp(lse, s.logsumexp(1))\n"
     "        out = torch.exp(lse - new)[:, None] * out + torch.exp(s - new[:, None]) @ v[k0:k0 + tile_k]\n"
     "        lse = new\n    return out, lse", "passed")])                                             # merged by lse
def test_the_tile_loop_may_use_logsumexp_of_a_tile_but_not_of_a_row(body, status):
    assert (evaluate(find("6.4"), f"def flash_rows(q, k, v, scale, tile_k, causal):\n    {body}\n").status
            == status)
