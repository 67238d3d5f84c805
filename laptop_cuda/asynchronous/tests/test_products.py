"""wgmma against NumPy in every layout and type, and a pipeline of products whose waits, fences and arrivals are taken away
one by one."""
import itertools

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import compiled

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
HEAD = r"""
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_fp16.h>
namespace ptx = cuda::ptx;
__device__ uint64_t described(const void* p, int leading, int stride, uint64_t mode) {
    return (__cvta_generic_to_shared(p) & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | mode << 62;
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
"""


def function(n, d, a, b, more="", from_registers=False, satfinite=""):
    """multiply(sums, a, b, adds): one wgmma."""
    count, kind = n // (4 if d == "f16" else 2), "f" if d == "f32" else "r"
    first = "{%s}" % ", ".join(f"%{count + i}" for i in range(4)) if from_registers else f"%{count}"
    at = count + (4 if from_registers else 1)
    inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' if from_registers else '"l"(a)'
    outputs = ", ".join(f'"+{kind}"(d[{i}])' for i in range(count))
    return (f"__device__ void multiply({'float' if kind == 'f' else 'uint32_t'} (&d)[{count}], "
            f"{'const uint32_t (&a)[4]' if from_registers else 'uint64_t a'}, uint64_t b, int adds) {{\n"
            f'    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{at + 1}, 0; wgmma.mma_async.sync.aligned.m64n{n}k{32 // BYTES[a]}'
            f'.{d}.{a}.{b}{satfinite} {{{", ".join(f"%{i}" for i in range(count))}}}, {first}, %{at}, p{more}; }}"\n'
            f'                 : {outputs} : {inputs}, "l"(b), "r"(adds));\n}}\n')


SOURCE = HEAD + function(64, "f32", "f16", "f16", ", 1, 1, 0, 0") + r"""
__device__ void arrived(uint64_t* bar, int parity) { while (!ptx::mbarrier_try_wait_parity(bar, parity)) {} }

// One warp orders tiles into a ring of two, a warpgroup multiplies them.
__global__ void pipeline(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, float* out, int n,
                         int fault) {
    __shared__ alignas(1024) half a[2][64 * 64], b[2][64 * 64];
    __shared__ uint64_t full[2], empty[2];
    int t = threadIdx.x;
    for (int s = 0; t == 0 && s < 2; ++s) ptx::mbarrier_init(full + s, 1), ptx::mbarrier_init(empty + s, 1);
    __syncthreads();
    for (int i = 0; t == 128 && i < n; ++i) {
        if (i > 1 && fault != 1) arrived(&empty[i % 2], i / 2 - 1 & 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[i % 2], 16384);
        int at[] = {64 * i, 0};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, a[i % 2], &A, at, &full[i % 2]);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, b[i % 2], &B, at, &full[i % 2]);
    }
    if (t >= 128) return;
    float d[32];
    for (int i = 0; i < n; ++i) {
        if (fault != 2) arrived(&full[i % 2], i / 2 & 1);
        if (fault == 3) a[i % 2][t] = a[i % 2][t], __syncwarp();         // a store that the products read
        if (i == 2 && (fault == 4 || fault == 10)) d[5] *= 2;            // sums scaled
        if (i == 0 ? fault != 5 : fault != 4) fence();
        if (fault == 15) asm volatile("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%0}, %1, %1, 1, 1, 1, 0, 0;" : "+f"(d[0]) : "l"(0ull));
        for (int k = 0; k < 64; k += 16)
            multiply(d, described(a[i % 2] + k + 64 * (fault == 11), 16, 1024, 1) | uint64_t(fault == 12) << 60,
                     described(b[i % 2] + k + 8 * (fault == 13 && t == 99), 16, fault == 14 ? 512 : 1024, fault == 14 ? 2 : 1), i + k > 0);
        if (fault != 6) commit();
        if (fault == 9) d[7] = 0;
        if (fault == 7) wait<1>();
        else if (fault != 8) wait<0>();
        if (t == 0) ptx::mbarrier_arrive(&empty[i % 2]);
    }
    for (int i = 0; i < 32; ++i)
        out[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 64 + t % 4 * 2 + i / 4 * 8 + i % 2] = d[i];
}
template <int TO> __device__ void take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(TO)); }
template <int TO> __device__ void give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(TO)); }
__global__ void __launch_bounds__(384, 1) shifted(int* out, int fault) {
    int group = threadIdx.x / 128, part = fault == 3 && threadIdx.x >= 352;
    if (group == 2 && fault == 1) give<32>();
    else if (group == 2 && fault == 2) cuda::ptx::setmaxnreg_dec(cuda::ptx::n32_t<176>());        // more than 168
    else if (group == 2 && !part) give<24>();                                                   // 3 * 168 = 24 + 2 * 240
    else if (group < 2 && fault != 3 && fault != 4) take<240>();
    else if (group < 2 && fault == 4) cuda::ptx::setmaxnreg_inc(cuda::ptx::n32_t<160>());                      // fewer
    if (fault == 5) take<257>();
    if (fault == 6 && group == 0) threadIdx.x < 32 ? give<232>() : give<224>();                 // not alike
    out[threadIdx.x] = 1;
}
"""


def multiplied(fault=0, tiles=5):
    mod = compiled(SOURCE)
    random = np.random.default_rng(1)
    a, b = (random.integers(-4, 5, (64, 320)).astype(np.float16) for _ in "ab")
    out = np.zeros((64, 64), np.float32)
    mod.pipeline[1, 160](*(cuda.tensor_map(x, (64, 64), swizzle=128) for x in (a, b)), out, tiles, fault)
    return out, a.astype(float) @ b.astype(float).T


def launched(name, fault):
    if name != "shifted":
        return multiplied(fault, int(name[0]))
    compiled(SOURCE).shifted[1, 384](out := np.zeros(384, np.int32), fault)
    return out, 1


def test_products_and_the_copies_that_feed_them_are_counted():
    with cuda.profile() as report:
        multiplied(0, 5)
    launch = report.launches[0]
    assert (launch.tensor_cores.instructions, launch.tensor_cores.flops) == (20, 2 * 64 * 64 * 320)
    copied = launch.copies_in
    assert (copied.requests, copied.bytes, copied.sectors) == (10, 2 * 64 * 320 * 2, 2560)
    assert "2,621,440 FLOPs" in str(launch) and "81,920" in str(launch)
    line, = [line for line in launch.lines if line.tensor_cores.flops]
    assert "wgmma" in line.text and line.tensor_cores == launch.tensor_cores
    with cuda.sanitize():
        multiplied(10)                   # sums may be scaled before a fence


# values of each type with their bits
BITS = {"f16": {v: int(np.float16(v).view(np.uint16)) for v in (0, 1, -2, 0.5, 3, 2**-24)},
        "bf16": {v: int(np.float32(v).view(np.uint32)) >> 16 for v in (0, 1, -2, 0.5, 3)},
        "tf32": {v: int(np.float32(v).view(np.uint32)) | 0xfff for v in (1, -2, 0.5, 3)},
        "e4m3": {0: 0, 1: 0x38, -2: 0xc0, 1.5: 0x3c, 448: 0x7e, 2**-9: 1}, "e5m2": {0: 0, 1: 0x3c, -2: 0xc0, 1.5: 0x3e, 2**-16: 1},
        "s8": {0: 0, 1: 1, -128: 0x80, 127: 0x7f}, "u8": {0: 0, 1: 1, 255: 0xff}}


def offset(row, k, itemsize, width, by_columns):
    """As the manual's canonical layouts have it, and the distances that they leave open."""
    byte, line = (row * itemsize, k) if by_columns else (k * itemsize, row)
    if not width and by_columns:
        return byte // 16 * 256 + byte % 16 + line // 8 * 128 + line % 8 * 16
    if not width:
        return line // 8 * 256 + byte // 16 * 128 + line % 8 * 16 + byte % 16
    at = byte // width * 16 * width + byte % width + line // 8 * 8 * width + line % 8 * width
    return at ^ (at >> 7) % (width // 16) * 16


def image(bits, itemsize, width, by_columns):
    made = np.zeros(16384, np.uint8)
    for (row, k), number in np.ndenumerate(bits):
        at = offset(row, k, itemsize, width, by_columns)
        made[at:at + itemsize] = np.frombuffer(int(number).to_bytes(4, "little"), np.uint8)[:itemsize]
    return made.view(np.uint32)


ONCE = r"""
__global__ void once(const uint32_t* image_a, const uint32_t* image_b, const uint32_t* registers, uint32_t* out, int leading,
                     int stride, int mode, int adds) {
    extern __shared__ __align__(1024) uint32_t tile[];
    for (int i = threadIdx.x; i < 4096; i += 128) tile[i] = image_a[i], tile[4096 + i] = image_b[i];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    SUM d[COUNT];
    for (SUM& x : d) x = ONE;
    uint32_t held[4];
    memcpy(held, registers + 4 * threadIdx.x, 16), fence();
    multiply(d, A, described(tile + 4096, leading, stride, mode), adds);
    if (adds == 2) held[2] = 0;
    commit();
    wait<0>();
    memcpy(out + COUNT * threadIdx.x, d, 4 * COUNT);
}
"""
FORMS = [(n, "f32", "f16", "f16", width, (ta, tb), {}) for n, width, ta, tb in
         itertools.product((24,), (0, 32, 64, 128), (0, 1), (0, 1))]
FORMS += [(8, "f32", "bf16", "bf16", 128, (0, 0), {"negated": (-1, 1)}), (256, "f16", "f16", "f16", 64, (0, 0), {}),
          (16, "f32", "tf32", "tf32", 128, (), {}), (24, "f32", "e4m3", "e5m2", 32, (), {}), (16, "f16", "e5m2", "e4m3", 0, (), {}),
          (48, "s32", "s8", "u8", 128, (), {}), (8, "s32", "u8", "u8", 0, (), {"satfinite": ".satfinite"}),
          (16, "f32", "f16", "f16", 128, (1,), {"from_registers": True}), (16, "f32", "tf32", "tf32", 32, (), {"from_registers": True}),
          (32, "s32", "s8", "s8", 64, (), {"from_registers": True}), (16, "f32", "f16", "f16", 0, (0, 0), {"adds": 0})]
FORMS += [(16, "f32", "f16", "f16", width, turned, {"base": base})
          for width, turned, base in ((128, (0, 0), 3), (64, (0, 1), 1), (128, (1, 0), 7), (32, (0, 0), 1))]


def kernel(number):
    n, d, a, b, _, turned, more = FORMS[number]
    in_registers = more.get("from_registers", False)
    immediates = "".join(f", {v}" for v in ((*more.get("negated", (1, 1)), *turned) if d != "s32" else ()))
    one = {"f32": "1", "f16": "0x3c003c00", "s32": "2147483000"}[d]
    text = function(n, d, a, b, immediates, in_registers, more.get("satfinite", "")) + (
        ONCE.replace("COUNT", str(n // (4 if d == "f16" else 2))).replace("SUM", "float" if d == "f32" else "uint32_t")
        .replace("A, desc", "held, desc" if in_registers else "described(tile, leading, stride, mode), desc"))
    if base := more.get("base"):         # the patterns of the swizzle begin so many lines of 128 bytes further
        text = text.replace("described(tile", f"uint64_t({base}) << 49 | described({32 * base} + tile")
    return text.replace("ONE", one).replace("multiply(", f"multiply{number}(").replace("once(", f"once{number}(")


def test_a_register_of_a_that_changes_before_the_wait_is_an_error():
    source = HEAD + "".join(map(kernel, range(len(FORMS))))
    zeros, number = np.zeros(4096, np.uint32), next(n for n, form in enumerate(FORMS) if form[6].get("from_registers"))
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        getattr(compiled(source), f"once{number}")[1, 128, 32768](*3 * [zeros], zeros.copy(), 2048, 1024, 1, 2)
    assert caught.value.kind == "race" and "changes a register of A" in str(caught.value)
    assert "held[2] = 0" in source.splitlines()[caught.value.line - 1] and "asm volatile" in str(caught.value)


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda n: "-".join(map(str, FORMS[n][:6])))
def test_a_product_in_every_layout_and_type(number):
    n, d, a, b, width, turned, more = FORMS[number]
    in_registers, negated, adds = more.get("from_registers", False), more.get("negated", (1, 1)), more.get("adds", 1)
    source = HEAD + "".join(map(kernel, range(len(FORMS))))
    random, depth, itemsize = np.random.default_rng(n), 32 // BYTES[a], BYTES[a]
    values, images = [], []
    by_columns = ((0,) * in_registers + turned + (0, 0))[:2]
    for type_, rows, turn in ((a, 64, by_columns[0]), (b, n, by_columns[1])):
        known = BITS[type_]
        drawn = random.choice(list(known), (rows, depth))
        values.append(drawn.astype(float))
        bits = np.vectorize(lambda v: known[v])(drawn)
        images.append(np.roll(image(bits, itemsize, width, turn), 32 * more.get("base", 0)))
        if type_ is a and rows == 64:
            each = 4 // itemsize
            t, r, j = np.ogrid[:128, :4, :each]
            parts = bits[t // 32 * 16 + t % 32 // 4 + 8 * (r % 2), t % 4 * each + r // 2 * 4 * each + j]
            registers = (parts << 8 * itemsize * np.arange(each)).sum(2).astype(np.uint32)
    distances = (16 * width, 8 * width) if width else (128, 256)
    count = n // (4 if d == "f16" else 2)
    out = np.zeros((128, count), np.uint32)
    with cuda.profile(sanitized=True) as report:
        getattr(compiled(source), f"once{number}")[1, 128, 32768](*images, registers, out, *distances,
            {0: 0, 128: 1, 64: 2, 32: 3}[width], adds)
    assert report.launches[0].tensor_cores.wavefronts == n // 4 + 16 * (not in_registers)
    halves = 2 if d == "f16" else 1
    found = out.view(np.float16 if d == "f16" else np.float32 if d == "f32" else np.int32)
    t, i = np.ogrid[:128, :count * halves]
    right = (negated[0] * values[0]) @ (negated[1] * values[1]).T + adds * {"f32": 1, "f16": 1, "s32": 2147483000}[d]
    if d == "s32":
        right = right.clip(-2**31, 2**31 - 1) if more.get("satfinite") else (right + 2**31) % 2**32 - 2**31
    right = right[t // 32 * 16 + t % 32 // 4 + 8 * (i // 2 % 2), i // 4 * 8 + t % 4 * 2 + i % 2]
    assert np.allclose(found, right, *((2**-10, 2**-7) if d == "f16" else (1e-7, 0)))
