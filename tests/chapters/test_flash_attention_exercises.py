"""Chapter 6's exercises: the gallery, the map of the lanes, the traffic of the backward pass."""
import pytest
import torch

from course_lib import cuda, flash_attention as fa
from course_lib.exercises.chapters.flash_attention import gallery
from references import rand, reference


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
