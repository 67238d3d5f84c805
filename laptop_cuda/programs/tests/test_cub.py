"""CUB's scans of a warp and a block, its loads and stores, and its algorithms of the whole device."""
import numpy as np
import pytest

from engine_kit import ORDERS, checked, fault, mod  # noqa: F401

SOURCE = r"""
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_scan.cuh>
__global__ void scans(const int* x, int* y, int* total, int again) {
    typedef cub::BlockScan<int, 128> Scan;
    __shared__ Scan::TempStorage room;
    int v = x[threadIdx.x], sum, before, most, all;
    Scan(room).InclusiveSum(v, sum);
    if (again) __syncthreads();
    Scan(room).ExclusiveSum(v, before, all);
    __syncthreads();
    Scan(room).InclusiveScan(v, most, cub::Max());
    y[threadIdx.x] = sum, y[128 + threadIdx.x] = before, y[256 + threadIdx.x] = most;
    if (threadIdx.x == 0) *total = all;
    __shared__ cub::WarpScan<int, 8>::TempStorage of_warp;
    int of_eight;
    cub::WarpScan<int, 8>(of_warp).InclusiveSum(v, of_eight);
    y[384 + threadIdx.x] = of_eight;
}
__global__ void items(const int* x, int* y, int n) {
    typedef cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_TRANSPOSE> Load;
    typedef cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_TRANSPOSE> Store;
    typedef cub::BlockScan<int, 64> Scan;
    __shared__ union { Load::TempStorage load; Store::TempStorage store; Scan::TempStorage scan; } room;
    int v[4];
    Load(room.load).Load(x, v, n, 0);
    __syncthreads();
    Scan(room.scan).ExclusiveSum(v, v);
    __syncthreads();
    Store(room.store).Store(y, v, n);
}
__global__ void largest_of_items(const int* x, int* y, int* all) {
    typedef cub::BlockScan<int, 64> Scan;
    __shared__ Scan::TempStorage room[2];
    int v[4], before[4], total[2];
    for (int i = 0; i < 4; ++i) v[i] = x[threadIdx.x * 4 + i];
    Scan(room[0]).ExclusiveScan(v, before, -5, cub::Max(), total[0]);
    Scan(room[1]).InclusiveScan(v, v, cub::Max(), total[1]);
    if (threadIdx.x == 63) all[0] = total[0], all[1] = total[1];
    for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = before[i], y[256 + threadIdx.x * 4 + i] = v[i];
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_scans_of_warps_and_blocks(mod, order):
    x = np.random.default_rng(0).integers(-9, 9, 128).astype(np.int32)
    y, total = np.zeros((4, 128), np.int32), np.zeros(1, np.int32)
    checked(mod.scans, 1, 128, x, y, total, 1, **order)
    assert (y[0] == x.cumsum()).all() and (y[1] == x.cumsum() - x).all() and total[0] == x.sum()
    assert (y[2] == np.maximum.accumulate(x)).all() and (y[3] == x.reshape(-1, 8).cumsum(1).reshape(-1)).all()
    error = fault(mod.scans, 1, 128, x, y, total, 0, **order)
    assert error.kind == "race"  # the temporary storage is used again without a barrier


def test_several_items_per_thread(mod):
    x, y = np.arange(250, dtype=np.int32), np.zeros(250, np.int32)
    checked(mod.items, 1, 64, x, y, 250)
    assert (y == x.cumsum() - x).all()


def test_scans_of_several_items_by_any_operation(mod):
    """CUB's documentation: ExclusiveScan starts from the initial value, which the aggregate leaves out."""
    x, y, total = np.random.default_rng(0).integers(-99, 99,
                                                    256).astype(np.int32), *np.zeros((2, 512), np.int32)
    x[:9] = -99
    checked(mod.largest_of_items, 1, 64, x, y, total)
    inclusive = np.maximum.accumulate(x)
    assert (y[:256] == np.maximum(np.r_[-5, inclusive[:-1]], -5)).all() and (y[256:] == inclusive).all()
    assert (total[:2] == x.max()).all()


ALGORITHMS = r"""
#include <cstdio>
#include <cub/cub.cuh>
__global__ void total(const int* x, int* out) {
    using Reduce = cub::BlockReduce<int, 32>;
    __shared__ typename Reduce::TempStorage temp;
    int mine[2] = {x[2 * threadIdx.x], x[2 * threadIdx.x + 1]};
    int largest = Reduce(temp).Reduce(mine, cuda::maximum<>());     // cub.cuh brings it
    __syncthreads();
    int sum = Reduce(temp).Sum(mine);
    if (threadIdx.x == 0) out[0] = largest, out[1] = sum;
}
template <class T, int N> T* on_device(const T (&x)[N]) {
    T* d;
    cudaMalloc(&d, sizeof x);
    cudaMemcpy(d, x, sizeof x, cudaMemcpyHostToDevice);
    return d;
}
template <int N = 4, class T> void show(const T* d) {
    T h[N];
    cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
    for (T v : h) printf("%g ", (double)v);
}
int main() {
    unsigned* keys = on_device<unsigned>({0x12, 0x21, 0x31, 0x02});
    unsigned* out = on_device<unsigned, 4>({});
    int* values = on_device<int>({0, 1, 2, 3});
    int* with = on_device<int, 4>({});
    char storage[512];
    size_t bytes = sizeof storage;
    cub::DeviceRadixSort::SortKeys(storage, bytes, keys, out, 4, 0, 4);          // by their last digit only
    show(out);
    cub::DeviceRadixSort::SortPairsDescending(storage, bytes, keys, out, values, with, 4, 4, 8);
    show(with);
    float* numbers = on_device<float>({1.5f, -2.f, 0.f, -3.f});
    float* sorted = on_device<float, 4>({});
    cub::DoubleBuffer<float> both(numbers, sorted);
    cub::DeviceRadixSort::SortKeys(nullptr, bytes, both, 4);
    cub::DeviceRadixSort::SortKeys(storage, bytes, both, 4);
    show(both.Current());
    int x[64];
    for (int i = 0; i < 64; ++i) x[i] = i;
    total<<<1, 32>>>(on_device(x), with);
    show<2>(with);
    int *six = on_device<int>({5, 3, 9, 3, 1, 7}), *ranks = on_device<int, 6>({}), *to = on_device<int, 6>({});
    void* room = nullptr;
    cub::DeviceReduce::Sum(room, bytes, six, with, 6);
    cudaMalloc(&room, bytes);
    cub::DeviceReduce::Sum(room, bytes, six, with, 6);
    show<1>(with);
    cub::DeviceScan::ExclusiveSum(room, bytes, six, ranks, 6);
    cub::DeviceRadixSort::SortPairs(room, bytes, six, on_device<int, 6>({}), ranks, to, 6);
    show<6>(to);                                         // the sums before 1, the first 3, ... and 9
    cub::DeviceSelect::If(room, bytes, six, to, with, 6, [](int v) { return v > 4; });
    show<1>(with);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_algorithms_of_the_device(program, mode):
    ran = program(ALGORITHMS, mode=mode)
    assert ran.stdout == "33 49 18 2 2 1 0 3 -3 -2 0 1.5 63 2016 28 20 5 17 0 21 8 3 " and not ran.errors
    assert not ran.crash
