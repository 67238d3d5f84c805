"""Textures and surfaces: fetches against the programming guide's formulas in NumPy, copies, what is refused and found."""
from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from engine_kit import COMPILERS, use_compiler
from laptop_cuda.program import run

FETCHES = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
template <class T> __global__ void sample(cudaTextureObject_t t, int kind, int n, const float* at, const int* layer, T* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float u = at[3 * i], v = at[3 * i + 1], w = at[3 * i + 2];
    switch (kind) {
        case 1: y[i] = tex1D<T>(t, u); break;
        case 2: tex2D(&y[i], t, u, v); break;
        case 3: y[i] = tex3D<T>(t, u, v, w); break;
        case 4: y[i] = tex1DLayered<T>(t, u, layer[i]); break;
        case 5: y[i] = tex2DLayeredLod<T>(t, u, v, layer[i], 0); break;
        case 6: y[i] = texCubemap<T>(t, u, v, w); break;
        case 7: texCubemapLayered(&y[i], t, u, v, w, layer[i]); break;
        case 8: y[i] = tex1Dfetch<T>(t, (int)u); break;
        case 9: y[i] = tex2DGrad<T>(t, u, v, float2(1, 0), float2(0, 1)); break;
        case 10: y[i] = tex2Dgather<T>(t, u, v, layer[i] & 3); break;
    }
}
static unsigned drawn = 12345;
static unsigned draw() { return (drawn = drawn * 1664525 + 1013904223) >> 8; }
static const float EDGES[] = {0, -0.0f, 0.5f, 1, -1e-9f, 0.999999f, -1, 1.5f, -2.25f, 1e20f, -1e20f, 0.0f / 0.0f, 1 / 0.0f,
                              3, 4, 4.5f, 7, 6.999f, 2.4980469f};
constexpr int N = 96;
static FILE* file;
static void put(const void* p, size_t bytes) { fwrite(p, 1, bytes, file); }

// kind: which function. The texels are random; so is how they are read.
static cudaTextureDesc drawn_settings(int kind, cudaTextureReadMode mode, bool numbers) {
    cudaTextureDesc t = {};
    t.readMode = mode;
    t.normalizedCoords = kind == 6 || kind == 7 || draw() % 2;
    t.filterMode = numbers && draw() % 3 && kind != 8 ? cudaFilterModeLinear : cudaFilterModePoint;
    for (auto& a : t.addressMode) a = (cudaTextureAddressMode)(draw() % 4);
    for (int c = 0; c < 4; ++c) t.borderColor[c] = c + 0.25f;
    return t;
}
static std::vector<char> drawn_texels(size_t n, const cudaChannelFormatDesc& d) {
    std::vector<char> texels(n);
    for (char& c : texels) c = (char)draw();
    for (size_t i = 0; d.f == cudaChannelFormatKindFloat && i < n / (d.x / 8); ++i) {
        if (d.x == 32) ((float*)texels.data())[i] = (int)(draw() % 2000) / 64.0f - 15;
        else ((unsigned short*)texels.data())[i] = (unsigned short)(draw() % 0x7c00 | draw() % 2 << 15);
    }
    return texels;
}
struct Memory { void* plain; cudaArray_t array; };
static cudaResourceDesc filled(Memory& m, int kind, cudaChannelFormatDesc d, size_t texel, cudaExtent e, char* texels) {
    cudaResourceDesc r = {};
    size_t row = e.width * texel, rows = e.height ? e.height : 1, slices = e.depth ? e.depth : 1, pitch = 0;
    m = {};
    if (kind == 8) {
        r.resType = cudaResourceTypeLinear;
        cudaMalloc(&m.plain, row);
        cudaMemcpy(m.plain, texels, row, cudaMemcpyHostToDevice);
        r.res.linear.devPtr = m.plain, r.res.linear.desc = d, r.res.linear.sizeInBytes = row;
    } else if (kind == 9) {
        r.resType = cudaResourceTypePitch2D;
        cudaMallocPitch(&m.plain, &pitch, row, rows);
        cudaMemcpy2D(m.plain, pitch, texels, row, row, rows, cudaMemcpyHostToDevice);
        r.res.pitch2D.devPtr = m.plain, r.res.pitch2D.desc = d, r.res.pitch2D.pitchInBytes = pitch;
        r.res.pitch2D.width = e.width, r.res.pitch2D.height = rows;
    } else {
        bool layered = kind == 4 || kind == 5 || kind == 7;
        unsigned flags = (kind == 6 || kind == 7 ? cudaArrayCubemap : 0) | (layered ? cudaArrayLayered : 0);
        if (cudaMalloc3DArray(&m.array, &d, e, flags)) exit(3);
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(texels, row, e.width, rows);
        copy.dstArray = m.array, copy.extent = make_cudaExtent(e.width, rows, slices), copy.kind = cudaMemcpyHostToDevice;
        if (cudaMemcpy3D(&copy)) exit(4);
        r.res.array.array = m.array;
    }
    return r;
}
template <class T> void one(cudaChannelFormatDesc d, int kind, cudaTextureReadMode mode, bool numbers) {
    bool cube = kind == 6 || kind == 7;
    int channels = 1 + (d.y > 0) + 2 * (d.w > 0), texel = channels * d.x / 8;
    int w = kind == 8 ? 40 : kind == 9 ? 16 : 1 + draw() % 9;
    int h = kind == 1 || kind == 4 || kind == 8 ? 0 : cube ? w : 1 + draw() % 7;
    int depth = kind == 3 ? 1 + draw() % 5 : kind == 4 || kind == 5 ? 3 : cube ? 6 * (kind - 5) : 0;
    size_t n = (size_t)w * (h ? h : 1) * (depth ? depth : 1) * texel;
    std::vector<char> texels = drawn_texels(n, d);
    cudaTextureDesc t = drawn_settings(kind, mode, numbers);
    Memory memory;
    cudaResourceDesc r = filled(memory, kind, d, texel, make_cudaExtent(w, h, depth), texels.data());
    cudaTextureObject_t object;
    if (cudaCreateTextureObject(&object, &r, &t, nullptr)) exit(5);
    float at[3 * N], *d_at;
    int layer[N], *d_layer;
    T y[N], *d_y;
    for (float& x : at) {
        x = draw() % 3 ? (draw() % 4096 / 1024.0f - 1.5f) * (t.normalizedCoords ? 1 : 9) : EDGES[draw() % (sizeof EDGES / 4)];
        if (cube) x = draw() % 512 / 256.0f - 1 + (draw() % 2 ? 0.001f : -0.001f);
        if (kind == 8) x = (int)(draw() % 60) - 10;
    }
    for (int& l : layer) l = (int)(draw() % 5) - 1;
    cudaMalloc(&d_at, sizeof at), cudaMalloc(&d_layer, sizeof layer), cudaMalloc(&d_y, sizeof y);
    cudaMemcpy(d_at, at, sizeof at, cudaMemcpyHostToDevice);
    cudaMemcpy(d_layer, layer, sizeof layer, cudaMemcpyHostToDevice);
    sample<T><<<3, 32>>>(object, kind, N, d_at, d_layer, d_y);
    if (cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost)) exit(6);
    int head[] = {kind, w, h, depth, d.x, channels, d.f, mode, t.filterMode, t.normalizedCoords,
                  t.addressMode[0], t.addressMode[1], t.addressMode[2], (int)sizeof(T)};
    put(head, sizeof head), put(texels.data(), n), put(at, sizeof at), put(layer, sizeof layer), put(y, sizeof y);
    cudaDestroyTextureObject(object), cudaFree(memory.plain), cudaFreeArray(memory.array);
    cudaFree(d_at), cudaFree(d_layer), cudaFree(d_y);
}
template <class T> void all(cudaTextureReadMode mode, bool numbers, cudaChannelFormatDesc d = cudaCreateChannelDesc<T>()) {
    for (int kind = 1; kind <= 10; ++kind)
        for (int times = 0; times < 6; ++times) one<T>(d, kind, mode, numbers);
}
int main(int, char** argv) {
    file = fopen(argv[1], "wb");
    all<unsigned char>(cudaReadModeElementType, false);
    all<short2>(cudaReadModeElementType, false);
    all<int4>(cudaReadModeNormalizedFloat, false);                   // stay integers
    all<float>(cudaReadModeElementType, true);
    all<float2>(cudaReadModeElementType, true);
    all<float2>(cudaReadModeElementType, true, cudaCreateChannelDescHalf2());
    all<float4>(cudaReadModeNormalizedFloat, true, cudaCreateChannelDesc<uchar4>());
    all<float>(cudaReadModeNormalizedFloat, true, cudaCreateChannelDesc<signed char>());
    all<float>(cudaReadModeNormalizedFloat, true, cudaCreateChannelDesc<unsigned short>());
    all<float4>(cudaReadModeNormalizedFloat, true, cudaCreateChannelDesc<short4>());
    return fclose(file);
}
"""
WRAP, CLAMP, MIRROR, BORDER = range(4)
TYPES = {(8, 0): np.int8, (8, 1): np.uint8, (16, 0): np.int16, (16, 1): np.uint16, (16, 2): np.float16,
         (32, 0): np.int32, (32, 1): np.uint32, (32, 2): np.float32}


def texels_along(x: np.ndarray, size: int, mode: int, normalized: bool, linear: bool):
    """For each coordinate the texels that it takes (-1: the border), with their weights."""
    if not normalized and mode in (WRAP, MIRROR):
        mode = CLAMP
    with np.errstate(invalid="ignore"):
        if normalized:
            slack = np.where((np.abs(x) < 1e9) & (not linear), np.abs(x.astype(np.float64)) * 2**-22, 0)
            fraction = x - np.floor(x)
            if mode == WRAP:
                x = fraction
            if mode == MIRROR:
                x = np.where(np.floor(x) % 2 == 0, fraction, 1 - fraction)
            x = ((x.astype(np.float64) + slack) * size).astype(np.float32)
        x = np.where(np.isnan(x), np.float32(0), x)
        if not linear:
            found = [(np.floor(x), np.ones(len(x)))]
        else:
            x = (x - np.float32(0.5)).astype(np.float32)
            weight = np.floor((x - np.floor(x)).astype(np.float64) * 256 + 0.5) / 256
            weight = np.where(np.isinf(x), 0, weight)
            found = [(np.floor(x), 1 - weight), (np.floor(x) + 1, weight)]
    outside = [(i < 0) | (i >= size) for i, _ in found]
    if mode == WRAP:
        whole = [i % size for i, _ in found]
    else:
        whole = [np.clip(i, 0, size - 1) for i, _ in found]
    return [(np.where(o, -1, w).astype(int) if mode == BORDER else w.astype(int), weight)
            for o, w, (_, weight) in zip(outside, whole, found)]


def on_cube(at: np.ndarray):
    """Face, and the place on it, that a direction meets: the guide's table."""
    x, y, z = at.T
    table = [(x, -z, -y), (-x, z, -y), (y, x, z), (-y, x, -z), (z, x, -y), (-z, -x, -y)]
    size = np.abs(at)
    axis = np.where((size[:, 0] >= size[:, 1]) & (size[:, 0] >= size[:, 2]), 0, np.where(size[:, 1] >= size[:, 2], 1, 2))
    face = 2 * axis + (np.take_along_axis(at, axis[:, None], 1)[:, 0] < 0)
    m, s, t = (np.choose(face, [row[k] for row in table]) for k in range(3))
    half = np.float32(2)
    return face, np.stack([(s / m + np.float32(1)) / half, (t / m + np.float32(1)) / half], 1).astype(np.float32)


def gathered(texels, axes, border, channel):
    """One channel of the four neighbours, from the lower left one on against the clock, cut to what a fetch returns."""
    (i, _), (i1, _) = axes[0]
    (j, _), (j1, _) = axes[1]
    four = []
    for x, y in ((i, j1), (i1, j1), (i1, j), (i, j)):
        texel = np.where(((x < 0) | (y < 0))[:, None], border, texels[0, y, x])
        full = np.concatenate([texel, np.zeros((len(x), 4 - texel.shape[1]), texel.dtype)], 1)
        four.append(np.take_along_axis(full, channel[:, None], 1)[:, 0])
    return np.stack(four, 1)[:, :texels.shape[-1]]


def expected(kind, sizes, texels, at, layer, mode, linear, normalized, address):
    """`texels`: slices, rows, columns, channels, as what a fetch gives of each."""
    dims = {1: 1, 3: 3, 4: 1, 8: 1}.get(kind, 2)
    linear = linear or kind == 10
    if kind == 8:
        i = at[:, 0].astype(int)
        inside = (i >= 0) & (i < sizes[0])
        return np.where(inside[:, None], texels[0, 0, np.where(inside, i, 0)], 0)
    face = 0
    if kind in (6, 7):
        face, at = on_cube(at)
        layer = np.maximum(layer, 0) * 6 + face if kind == 7 else face
    axes = [texels_along(at[:, d], max(sizes[d], 1), address[d], normalized, linear) for d in range(dims)]
    axes += [[(np.zeros(len(at), int), np.ones(len(at)))]] * (3 - dims)
    border = np.array([c + 0.25 for c in range(texels.shape[-1])], np.float32)
    border = border.view(np.uint32).astype(texels.dtype) if texels.dtype.kind in "iu" else border
    if kind == 10:
        return gathered(texels, axes, border, layer & 3)
    total = np.zeros((len(at), texels.shape[-1]), np.float64 if linear else texels.dtype)
    for (k, wk), (j, wj), (i, wi) in itertools.product(*reversed(axes)):
        z = k if kind == 3 else np.clip(layer, 0, len(texels) - 1) if kind in (4, 5, 6, 7) else 0 * k
        outside = (i < 0) | (j < 0) | (k < 0)
        texel = np.where(outside[:, None], border, texels[z, j, i])
        if not linear:
            return texel
        weight = (wk * wj * wi)[:, None]
        total += np.where(weight == 0, 0, weight * texel.astype(np.float64))
    return total.astype(np.float32)


def as_given(texels: np.ndarray, mode: int) -> np.ndarray:
    """Texels as a fetch gives them: integers, or floats."""
    if texels.dtype.kind == "f" or mode == 0 or texels.dtype.itemsize == 4:
        return texels.astype(np.float32) if texels.dtype.kind == "f" else texels
    most = np.float32(np.iinfo(texels.dtype).max)
    return np.maximum(texels.astype(np.float32) / most, np.float32(-1))


def check_all(data: bytes) -> dict[tuple[int, int], int]:
    """Compare every case that the program has written; how many there were of each function and filter."""
    at, seen = 0, {}

    def take(dtype, n):
        nonlocal at
        found = np.frombuffer(data, dtype, n, at)
        at += found.nbytes
        return found

    while at < len(data):
        kind, w, h, depth, bits, channels, of, mode, linear, normalized, *address, given = take(np.int32, 14)
        shape = (max(depth, 1), max(h, 1), w, channels)
        texels = as_given(take(TYPES[int(bits), int(of)], int(np.prod(shape))).reshape(shape), mode)
        coordinates, layer = take(np.float32, 288).reshape(96, 3), take(np.int32, 96)
        got = take(texels.dtype, 96 * given // texels.dtype.itemsize).reshape(96, -1)
        right = expected(kind, (w, h, depth), texels, coordinates, layer, mode, linear, normalized, address)
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right, f"{kind=} {w=} {h=} {depth=} {bits=} {of=} {mode=} {linear=} {address=}")
        seen[int(kind), int(linear)] = seen.get((int(kind), int(linear)), 0) + 1
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("compiler, mode", [("g++", "plain"), ("g++", "sanitize"), ("clang++", "sanitize")])
def test_fetches_are_those_of_the_guide(monkeypatch, tmp_path: Path, compiler, mode):
    use_compiler(monkeypatch, compiler)
    (tmp_path / "fetches.cu").write_text(FETCHES)
    ran = run(tmp_path / "fetches.cu", arguments=[str(tmp_path / "out")], mode=mode)
    assert ran.status == 0, (ran.stderr, ran.errors)
    seen = check_all((tmp_path / "out").read_bytes())
    assert {kind for kind, _ in seen} == set(range(1, 11)) and sum(seen.values()) == 10 * 10 * 6
    assert all(seen[kind, 1] > 20 for kind in range(1, 11) if kind != 8)


SURFACES = r"""
#include <cstdio>
template <int KIND> __global__ void write(cudaSurfaceObject_t s, cudaSurfaceBoundaryMode mode) {
    int x = (int)threadIdx.x - 2, y = (int)threadIdx.y - 1, z = (int)blockIdx.x - 1;
    short2 v(100 * (z + 1) + 10 * (y + 1) + x + 2, -x);
    if (KIND == 1 && y == 0 && z == 0) surf1Dwrite(v, s, x * 4, mode);
    if (KIND == 2 && z == 0) surf2Dwrite(v, s, x * 4, y, mode);
    if (KIND == 3) surf3Dwrite(v, s, x * 4, y, z, mode);
    if (KIND == 4 && y == 0) surf1DLayeredwrite(v, s, x * 4, z, mode);
    if (KIND == 5) surf2DLayeredwrite(v, s, x * 4, y, z, mode);
    if (KIND == 6) surfCubemapwrite(v, s, x * 4, y, z, mode);
    if (KIND == 7) surfCubemapLayeredwrite(v, s, x * 4, y, z, mode);
}
template <int KIND> __global__ void read(cudaSurfaceObject_t s, short2* to, cudaSurfaceBoundaryMode mode) {
    int x = (int)threadIdx.x - 2, y = (int)threadIdx.y - 1, z = (int)blockIdx.x - 1;
    short2 v(0, 0);
    if (KIND == 1) v = surf1Dread<short2>(s, x * 4, mode);
    if (KIND == 2) v = surf2Dread<short2>(s, x * 4, y, mode);
    if (KIND == 3) surf3Dread(&v, s, x * 4, y, z, mode);
    if (KIND == 4) v = surf1DLayeredread<short2>(s, x * 4, z, mode);
    if (KIND == 5) v = surf2DLayeredread<short2>(s, x * 4, y, z, mode);
    if (KIND == 6) v = surfCubemapread<short2>(s, x * 4, y, z, mode);
    if (KIND == 7) surfCubemapLayeredread(&v, s, x * 4, y, z, mode);
    to[(blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] = v;
}
static int copied_by_a_graph(const cudaMemcpy3DParms& copy) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaGraphNode_t node;
    int wrong = cudaGraphCreate(&graph, 0) + cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy);
    return wrong + cudaGraphInstantiate(&ready, graph, 0) + cudaGraphLaunch(ready, 0);
}
template <int KIND> int all(FILE* file, unsigned flags, int w, int h, int depth) {
    cudaChannelFormatDesc d = cudaCreateChannelDesc<short2>(), same;
    cudaArray_t a, b;
    cudaExtent extent = make_cudaExtent(w, h, depth), found;
    cudaMalloc3DArray(&a, &d, extent, flags | cudaArraySurfaceLoadStore);
    cudaMalloc3DArray(&b, &d, extent, flags);
    cudaResourceDesc r = {}, again;
    r.res.array.array = a;
    cudaSurfaceObject_t s;
    if (cudaCreateSurfaceObject(&s, &r)) return 1;
    int rows = h ? h : 1, slices = depth ? depth : 1, n = w * rows * slices;
    write<KIND><<<slices + 2, dim3(w + 4, rows + 2)>>>(s, cudaBoundaryModeZero);
    short2 texels[2000], *to;
    cudaMemcpy3DParms copy = {};
    copy.srcArray = a, copy.dstArray = b, copy.extent = make_cudaExtent(w, rows, slices), copy.kind = cudaMemcpyDeviceToDevice;
    if (copied_by_a_graph(copy)) return 2;
    copy = {};
    copy.srcArray = b, copy.dstPtr = make_cudaPitchedPtr(texels, w * 4, w, rows);
    copy.extent = make_cudaExtent(w, rows, slices), copy.kind = cudaMemcpyDeviceToHost;
    if (cudaMemcpy3D(&copy)) return 3;
    int head[] = {KIND, w, rows, slices}, threads = (w + 4) * (rows + 2) * (slices + 2);
    fwrite(head, 4, 4, file), fwrite(texels, 4, n, file);
    cudaMalloc(&to, threads * 4);
    for (auto mode : {cudaBoundaryModeZero, cudaBoundaryModeClamp}) {
        read<KIND><<<slices + 2, dim3(w + 4, rows + 2)>>>(s, to, mode);
        if (cudaMemcpy(texels, to, threads * 4, cudaMemcpyDeviceToHost)) return 4;
        fwrite(texels, 4, threads, file);
    }
    unsigned kept;
    cudaArrayGetInfo(&same, &found, &kept, b);
    if (same.y != 16 || found.width != (size_t)w || found.depth != (size_t)depth || kept != flags) return 5;
    return cudaGetSurfaceObjectResourceDesc(&again, s) || again.res.array.array != a || cudaDestroySurfaceObject(s);
}
int main(int, char** argv) {
    FILE* file = fopen(argv[1], "wb");
    int wrong = all<1>(file, 0, 7, 0, 0) + all<2>(file, 0, 5, 3, 0) + all<3>(file, 0, 4, 3, 2);
    wrong += all<4>(file, cudaArrayLayered, 6, 0, 3) + all<5>(file, cudaArrayLayered, 3, 4, 2);
    wrong += all<6>(file, cudaArrayCubemap, 3, 3, 6) + all<7>(file, cudaArrayCubemap | cudaArrayLayered, 2, 2, 12);
    return fclose(file) + 10 * wrong;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_surfaces_are_read_and_written_within_their_bounds(monkeypatch, tmp_path: Path, compiler):
    use_compiler(monkeypatch, compiler)
    (tmp_path / "surfaces.cu").write_text(SURFACES)
    ran = run(tmp_path / "surfaces.cu", arguments=[str(tmp_path / "out")])
    assert (ran.status, ran.errors) == (0, []), ran.stderr
    data, at = np.frombuffer((tmp_path / "out").read_bytes(), np.int16), 0
    for expected_kind in range(1, 8):
        kind, w, rows, slices = data[at:at + 8].view(np.int32)
        assert kind == expected_kind
        z, y, x = np.ogrid[:slices, :rows, :w]
        right = np.stack(np.broadcast_arrays(100 * (z + 1) + 10 * (y + 1) + x + 2, -x), -1)
        size = 2 * w * rows * slices
        np.testing.assert_array_equal(data[at + 8:at + 8 + size].reshape(right.shape), right)
        at += 8 + size
        around = [(0, 0) if n == 1 and kind in skipped else before for n, skipped, before in
                  [(slices, (1, 2), (1, 1)), (rows, (1, 4), (1, 1)), (w, (), (2, 2))]]
        for mode in ("constant", "edge"):
            got = data[at:at + 2 * (w + 4) * (rows + 2) * (slices + 2)].reshape(slices + 2, rows + 2, w + 4, 2)
            at += got.size
            wide = np.pad(right, [*around, (0, 0)], mode)
            np.testing.assert_array_equal(got, np.broadcast_to(wide, got.shape), f"{kind=} {mode=}")
    assert at == len(data)


BUGS = r"""
#include <cstdio>
#include <cstdlib>
texture<float, 2> old;
surface<void, 2> old_surface;
__global__ void blend(cudaTextureObject_t t, cudaTextureObject_t linear, float* y, float shift) {
    y[threadIdx.x] = tex2D<float>(t, threadIdx.x + shift, 0.5f) + tex1Dfetch<float>(linear, (int)threadIdx.x - 2);
}
__global__ void turn(cudaSurfaceObject_t s, int x, int layer) {
    float v = surf2DLayeredread<float>(s, 4 * (7 - (int)threadIdx.x), 0, 0, cudaBoundaryModeClamp);
    __syncthreads();
    surf2DLayeredwrite(v, s, (int)threadIdx.x * x, 0, layer);
}
__global__ void in_place(cudaTextureObject_t linear, float* x, int behind) {
    float v = tex1Dfetch<float>(linear, threadIdx.x);
    x[threadIdx.x] = v + 1;
    if (behind == 1) x[threadIdx.x] += tex1Dfetch<float>(linear, threadIdx.x);
    if (behind == 2) x[threadIdx.x] += tex1Dfetch<float>(linear, threadIdx.x ^ 1);
}
__global__ void references(float* y) {
    y[threadIdx.x] = tex2D(old, threadIdx.x + 0.5f, 0.5f);
    float v = surf2Dread<float>(old_surface, (int)threadIdx.x * 4, 0);
    surf2Dwrite(v, old_surface, (int)threadIdx.x * 4, 1);
}
__global__ void texels(cudaTextureObject_t t, int n, int* y) {
    int i = threadIdx.x;
    if (i < n && (tex1D<int>(t, i / (float)n) != i || tex1D<int>(t, i * (1.0f / n) - 2) != i)) atomicAdd(y, 1);
}
// Of i / n, in rows of many lengths: texels that are not i.
static int not_found() {
    int texel[160], wrong = 0, *d_wrong;
    for (int i = 0; i < 160; ++i) texel[i] = i;
    cudaMalloc(&d_wrong, 4);
    cudaMemset(d_wrong, 0, 4);
    cudaChannelFormatDesc d = cudaCreateChannelDesc<int>();
    for (int n = 9; n <= 160; n += 10) {
        cudaResourceDesc r = {};
        cudaTextureDesc t = {};
        cudaTextureObject_t object;
        cudaMallocArray(&r.res.array.array, &d, n);
        cudaMemcpy2DToArray(r.res.array.array, 0, 0, texel, 4 * n, 4 * n, 1, cudaMemcpyHostToDevice);
        t.normalizedCoords = 1;
        if (cudaCreateTextureObject(&object, &r, &t, nullptr)) return -1;
        texels<<<1, 160>>>(object, n, d_wrong);
    }
    cudaMemcpy(&wrong, d_wrong, 4, cudaMemcpyDeviceToHost);
    return wrong;
}
int main(int, char** argv) {
    int bug = atoi(argv[1]);
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8], *d_x, *d_y;
    cudaChannelFormatDesc d = cudaCreateChannelDesc<float>();
    cudaArray_t image, layers;
    cudaMallocArray(&image, &d, 8, 2, cudaArraySurfaceLoadStore);
    cudaMalloc3DArray(&layers, &d, make_cudaExtent(8, 1, 2), cudaArrayLayered | cudaArraySurfaceLoadStore);
    cudaMemcpy2DToArray(image, bug == 1 ? 4 : 0, 0, x, 32, bug == 1 ? 28 : 32, 1, cudaMemcpyHostToDevice);
    cudaMemcpyToArray(layers, 0, 0, x, 32, cudaMemcpyHostToDevice);
    cudaMalloc(&d_x, 32), cudaMalloc(&d_y, 32);
    cudaMemcpy(d_x, x, 32, cudaMemcpyHostToDevice);
    cudaResourceDesc r = {};
    cudaTextureDesc t = {};
    t.filterMode = cudaFilterModeLinear;
    r.res.array.array = image;
    cudaTextureObject_t on_image, linear;
    cudaSurfaceObject_t on_layers;
    int answers = cudaCreateTextureObject(&on_image, &r, &t, nullptr);
    r.res.array.array = layers;
    answers += cudaCreateSurfaceObject(&on_layers, &r);
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = d_x, r.res.linear.desc = d, r.res.linear.sizeInBytes = 20;
    answers += cudaCreateTextureObject(&linear, &r, &t, nullptr);
    if (bug == 2) cudaDestroyTextureObject(on_image);
    if (bug == 3) cudaFreeArray(image);
    blend<<<1, 8>>>(on_image, bug == 4 ? on_image : linear, d_y, bug == 1 ? 1.0f : 1.5f);
    cudaMemcpy(y, d_y, 32, cudaMemcpyDeviceToHost);
    for (float v : y) printf("%g ", v);
    turn<<<1, 8>>>(bug == 5 ? on_image : on_layers, bug == 6 ? 8 : bug == 7 ? 2 : 4, bug == 8 ? 2 : 0);
    cudaMemcpyFromArray(y, layers, 0, 0, 32, cudaMemcpyDeviceToHost);
    for (float v : y) printf("%g ", v);
    in_place<<<1, 8>>>(linear, d_x, bug == 9 ? 1 : bug == 10 ? 2 : 0);
    old.filterMode = cudaFilterModePoint;
    answers += cudaBindSurfaceToArray(old_surface, image);
    if (bug != 11) answers += cudaBindTextureToArray(old, image, d);
    references<<<1, 8>>>(d_y);
    cudaMemcpy2DFromArray(y, 32, image, 0, 1, 32, 1, cudaMemcpyDeviceToHost);
    for (float v : y) printf("%g ", v);
    printf("%d ", not_found());
    t.readMode = cudaReadModeElementType;
    d = cudaCreateChannelDesc<int>();
    cudaArray_t whole, none;
    cudaMallocArray(&whole, &d, 8);
    r.resType = cudaResourceTypeArray, r.res.array.array = whole;
    printf("%d %d ", cudaCreateTextureObject(&on_image, &r, &t, nullptr), cudaCreateSurfaceObject(&on_layers, &r));
    d.x = 24;
    printf("%d %d %d ", cudaMallocArray(&none, &d, 8), cudaMemcpyToArray(whole, 4, 0, x, 32, cudaMemcpyHostToDevice), answers);
    printf("%d ", cudaFreeArray(whole));
    printf("%d\n", cudaFreeArray(whole));
    return 0;
}
"""
RESULT = ("1 2 3 5 7 9 11 7 " "7 6 5 4 3 2 1 0 " "0 1 2 3 4 5 6 7 0 " "26 1 20 1 0 0 1\n")
FOUND = {1: ("uninitialized", "image[0]", 7), 2: ("out of bounds", "tex2D of a texture object that does not exist", 7),
         3: ("out of bounds", "after cudaFree of image", 7), 4: ("not supported", "tex1Dfetch of what is not linear", 7),
         5: ("out of bounds", "of a surface object that does not exist", 10),
         6: ("out of bounds", "x = 32, y = 0, layer 0: the surface has 8 x 1 elements of 4 bytes in 2 layers", 12),
         7: ("misaligned", "layers", 12), 8: ("out of bounds", "layer 2", 12),
         9: ("race", "fetches d_x[0], which the same launch has written", 17),
         10: ("race", "d_x[1] is written by one thread and read by another", 16),
         11: ("not supported", "to which nothing is bound", 21)}


@pytest.fixture(scope="module")
def bugs(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("textures") / "bugs.cu"
    path.write_text(BUGS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain", "sanitize", "profile"])
def test_surfaces_references_and_answers(bugs, mode):
    ran = run(bugs, arguments=["0"], mode=mode)
    assert (ran.stdout, ran.errors, ran.status) == (RESULT, [], 0)
    if mode == "profile":
        counts = [[launch["counts"][key] for key in ("requests", "bytes", "load_sectors")] for launch in ran.launches[:4]]
        assert counts == [[2, 20 + 32, 1], [0, 0, 0], [2, 20 + 32, 1], [1, 32, 0]]
    notes = [note for note in ran.notes if note.startswith("not counted: ")]
    assert len(notes) == (3 + 16 if mode == "profile" else 0) and not any("in_place" in note for note in notes)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("bug", FOUND)
def test_wrong_accesses_are_found(monkeypatch, bugs, bug, compiler):
    use_compiler(monkeypatch, compiler)
    kind, words, line = FOUND[bug]
    error = run(bugs, arguments=[str(bug)]).errors[0]
    assert error["kind"] == kind and words in error["message"] and error["line"] == line
