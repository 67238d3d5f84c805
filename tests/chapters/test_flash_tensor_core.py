"""Tensor cores: the parts of their kernels, and flash attention's rung 7 with its backward, counted."""
import pytest
import torch

from course_lib import cuda, flash_attention as fa
from course_lib.flash_attention import kernels as flash_kernels
from course_lib.gpu.case import BF16, attention, relative
from references import asked, excess, launches_of, rand, wavefronts

def inputs(n_q, n_k, d=64, v_dim=None, heads=1, kv_heads=1, dtype=BF16, device="cpu"):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(1, *shape, generator=g).to(device, dtype) for shape in (
        (heads, n_q, d), (kv_heads, n_k, d), (kv_heads, n_k, v_dim or d))]


@pytest.mark.parametrize("n_q, n_k, d, causal", [(70, 50, 64, True), (130, 200, 64, True),
                                                 pytest.param(130, 70, 128, False, marks=pytest.mark.slow)])
def test_traffic_is_what_was_predicted_and_no_bank_is_asked_twice(n_q, n_k, d, causal):
    """A block reads its 128 queries once and every tile of 64 keys it visits; out and lse are written once."""
    q, k, v = inputs(n_q, n_k, d)
    launches = launches_of(lambda: fa.forward_kernel(q, k, v, causal, rung=7))
    assert asked(launches) == fa.traffic(n_q, d, 128, 64, n_k=n_k, causal=causal, itemsize=2) + 4 * n_q
    assert excess(launches) == 0


def test_wavefronts_are_those_of_the_tiles():
    """A warp and a tile of 64 keys: 16 loads of k and 16 of v, four pieces each. Eight warps, four tiles. Then Q
    in and out, the copies, and out through shared memory both ways: bytes / 128."""
    launches = launches_of(lambda: fa.forward_kernel(*inputs(256, 256), rung=7))
    tiles, block_rows = 8 * 4 * (16 + 16) * 4, 2 * 128 * 64 * 2 // 128
    assert wavefronts(launches) == tiles + 4 * block_rows + 2 * 2 * 256 * 64 * 2 // 128


@pytest.mark.parametrize("n_q, n_k, d, causal",
                         [(70, 50, 64, True), pytest.param(130, 70, 128, False, marks=pytest.mark.slow)])
def test_traffic_of_the_backward_is_what_was_predicted(n_q, n_k, d, causal):
    """In rows of both operands, q and dO or k and v: the own ones once, the passing ones once per block."""
    q, k, v = inputs(n_q, n_k, d)
    out, lse = fa.forward_kernel(q, k, v, causal, rung=7)
    deltas, keys, queries = launches_of(lambda: fa.backward_kernels(out, q, k, v, out, lse, causal, rung=7))
    row, keys_a_block = 2 * 2 * d, 128 if d == 64 else 64
    pass_keys = sum(n_q - max(0, k0 - (n_k - n_q) if causal else 0) for k0 in range(0, n_k, keys_a_block))
    pass_queries = sum(fa.keys_seen(min(q0 + 128, n_q) - 1, n_q, n_k, causal) for q0 in range(0, n_q, 128))
    assert asked([deltas]) == n_q * (row + 4)
    assert asked([keys]) == 2 * n_k * row + pass_keys * (row + 8)  # k, v in, dk, dv out; lse and D
    # four lanes ask for lse and D
    assert asked([queries]) == n_q * (row + row // 2) + pass_queries * row + 4 * 8 * n_q
    assert excess([deltas, keys, queries]) == 0


@pytest.mark.parametrize("change, scale, words", [
    (dict(dtype=torch.float32), None, "rung must be 1 to 6, or 7 for float16"),
    *((change, None, "widths that are multiples of 8") for change in (dict(d=60), dict(v_dim=20))),
    ({}, -1.0, "a scale above 0; got 7")])
def test_what_the_tensor_cores_do_not_take(change, scale, words):
    q, k, v = inputs(3, 3, **change)
    with pytest.raises(ValueError, match=words):
        fa.forward_kernel(q, k, v, scale=scale, rung=7)
    assert flash_kernels.best_rung(q, v, 0.1 if scale is None else scale) == 6


@pytest.mark.gpu
def test_autograd_takes_the_tensor_cores_on_the_card():
    leaves = [x.requires_grad_() for x in inputs(300, 300, heads=4, kv_heads=2, device="cuda")]
    out = fa.flash_attention(*leaves, causal=True)
    assert torch.equal(out, fa.forward_kernel(*leaves, True, rung=7)[0])
    wide = [x.detach().double().requires_grad_() for x in leaves]
    pairs = zip(torch.autograd.grad(out.sum(), leaves),
                torch.autograd.grad(attention(*wide, True)[0].sum(), wide))
    assert all(relative(got, want) < 1.6e-2 for got, want in pairs)


SOURCE = r"""
#include "tensor_core.cuh"
using namespace tensor_core;

__global__ void pieces(const unsigned short* in, unsigned* out, int transposed) {
    __shared__ __align__(16) unsigned short s[32 * 8];
    for (int i = 0; i < 8; ++i) s[threadIdx.x * 8 + i] = in[threadIdx.x * 8 + i];
    __syncthreads();
    uint32_t r[4];
    if (transposed) load_matrix_x4_transposed(r, &s[threadIdx.x * 8]);
    else load_matrix_x4(r, &s[threadIdx.x * 8]);
    for (int i = 0; i < 4; ++i) out[i * 32 + threadIdx.x] = r[i];
}
// C = A B for 64 x 64 tiles of bfloat16, four warps of 16 rows each, A and B through shared memory by cp.async.
template <bool SWIZZLE, bool WAIT>
__global__ void product64(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int rows) {
    __shared__ __align__(128) __nv_bfloat16 as[64 * 64], bs[64 * 64];
    auto at = [](int row, int column) { return SWIZZLE ? swizzled<64>(row, column) : row * 64 + column; };
    for (int i = threadIdx.x; i < 64 * 8; i += blockDim.x) {
        int row = i / 8, column = i % 8 * 8;
        copy_async16(&as[at(row, column)], &a[row * 64 + column], row < rows);
        copy_async16(&bs[at(row, column)], &b[row * 64 + column]);
    }
    commit();
    if (WAIT) wait<0>();
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float d[8][4] = {};
    for (int k = 0; k < 64; k += 16) {
        uint32_t ra[4];
        load_matrix_x4(ra, &as[at(warp * 16 + lane % 16, k + lane / 16 * 8)]);
        for (int n = 0; n < 8; ++n) {
            uint32_t rb[2];
            load_matrix_x2_transposed(rb, &bs[at(k + lane % 16, n * 8)]);
            multiply_add(d[n], ra, rb, __nv_bfloat16());
        }
    }
    for (int n = 0; n < 8; ++n)
        for (int i = 0; i < 4; ++i) {
            int row = warp * 16 + g + i / 2 * 8;
            if (row < rows) c[row * 64 + n * 8 + 2 * t + i % 2] = d[n][i];
        }
}
__global__ void half_a_warp(float* y) {
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if (threadIdx.x < 16) return;
    multiply_add(d, a, b, __half());
    y[threadIdx.x] = d[0];
}
"""


@pytest.fixture(scope="module")
def mod(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor_core")
    (folder / "tensor_core.cuh").write_text((cuda.KERNELS / "common/tensor_core.cuh").read_text())
    (folder / "test.cu").write_text(SOURCE)
    return cuda.load(folder / "test.cu")


@pytest.mark.parametrize("transposed", [0, 1])
def test_lane_maps_of_load_matrix(mod, transposed):
    x = torch.arange(32 * 8, dtype=torch.int32).to(torch.uint16).view(4, 8, 8)
    out = torch.zeros(4, 8, 4, 2, dtype=torch.uint16)        # register, group, place, low and high half
    mod.pieces[1, 32](x, out.view(torch.uint32), transposed)
    want = x.to(torch.int32).transpose(1, 2) if transposed else x.to(torch.int32)
    assert torch.equal(out.to(torch.int32).view(4, 8, 8), want)


@pytest.mark.parametrize("swizzle", [True, False])
@pytest.mark.parametrize("rows", [64, 49])
def test_a_tile_through_shared_memory(mod, swizzle, rows):
    a, b, c = rand(rows, 64, seed=1).bfloat16(), rand(64, 64, seed=2).bfloat16(), torch.zeros(rows, 64)
    with cuda.sanitize():
        mod[f"product64<{str(swizzle).lower()}, true>"][1, 128](a, b, c, rows)
    torch.testing.assert_close(c, (a.double() @ b.double()).float(), atol=1e-5, rtol=1e-5)


def test_the_swizzle_removes_every_conflict(mod):
    """load_matrix reads 8 rows of 16 bytes at once: 128 bytes, one wavefront without conflict.
    Four warps, four k: 16 loads of four pieces (4 wavefronts) and 128 of two (2). Unswizzled, 8 rows lie in the same
    4 banks: 8 wavefronts for each piece."""
    excess = {}
    for swizzle in ("true", "false"):
        a, b, c = rand(64, 64, seed=1).bfloat16(), rand(64, 64, seed=2).bfloat16(), torch.zeros(64, 64)
        load = launches_of(lambda: mod[f"product64<{swizzle}, true>"][1, 128](a, b, c, 64))[0].shared_load
        excess[swizzle] = load.excess
        assert load.requests == 16 + 128
    assert excess == {"true": 0, "false": 7 * (16 * 4 + 128 * 2)}


def test_a_missing_wait_is_an_error(mod):
    a, b, c = rand(64, 64, seed=1).bfloat16(), rand(64, 64, seed=2).bfloat16(), torch.zeros(64, 64)
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        mod["product64<true, false>"][1, 128](a, b, c, 64)
    assert caught.value.kind in ("race", "uninitialized"), caught.value.message
    (line,) = [n for n, text in enumerate(SOURCE.split("\n"), 1) if "load_matrix_x4(ra, &as" in text]
    assert caught.value.line == line, caught.value.message


def test_half_a_warp_is_an_error(mod):
    with pytest.raises(cuda.KernelError):
        mod.half_a_warp[1, 32](torch.zeros(32))
