"""CUB's sort and exchange of a block's items, and its direct loads and stores."""
import numpy as np
import pytest

from engine_kit import ORDERS, checked, counted, fault, mod  # noqa: F401

pytestmark = pytest.mark.slow
SOURCE = r"""
#include <cub/cub.cuh>
#include <cuda_fp16.h>
template <class Key, int ITEMS>
__global__ void sorted(const Key* x, Key* y, int* places, int descending, int begin, int end) {
    typedef cub::BlockRadixSort<Key, 64, ITEMS, int> Sort;
    __shared__ typename Sort::TempStorage room;
    Key key[ITEMS];
    int at[ITEMS];
    for (int i = 0; i < ITEMS; i++) key[i] = x[threadIdx.x * ITEMS + i], at[i] = threadIdx.x * ITEMS + i;
    if (descending) Sort(room).SortDescending(key, at, begin, end);
    else Sort(room).Sort(key, at, begin, end);
    for (int i = 0; i < ITEMS; i++) y[threadIdx.x * ITEMS + i] = key[i], places[threadIdx.x * ITEMS + i] = at[i];
}
__global__ void striped(const float* x, float* y, int again, int waits) {
    typedef cub::BlockRadixSort<float, 64, 3> Sort;
    __shared__ Sort::TempStorage room;
    float key[3];
    cub::LoadDirectBlocked(threadIdx.x, x, key, 190, 1e9f);
    for (int i = 0; i <= again; i++) {
        if (i && waits) __syncthreads();
        Sort(room).SortDescendingBlockedToStriped(key);
    }
    cub::StoreDirectStriped<64>(threadIdx.x, y, key, 191);
}
__global__ void exchanged(const int* x, int* y) {
    typedef cub::BlockExchange<int, 64, 4> Exchange;
    __shared__ Exchange::TempStorage room;
    int v[4], w[4], rank[4];
    cub::LoadDirectStriped<64>(threadIdx.x, x, v);
    Exchange(room).StripedToBlocked(v, w);
    __syncthreads();
    for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = w[i], rank[i] = 255 - threadIdx.x * 4 - i;
    Exchange(room).BlockedToWarpStriped(w);
    __syncthreads();
    for (int i = 0; i < 4; i++) y[256 + threadIdx.x / 32 * 128 + i * 32 + threadIdx.x % 32] = w[i];
    Exchange(room).WarpStripedToBlocked(w);
    __syncthreads();
    Exchange(room).ScatterToStriped(w, rank);
    cub::StoreDirectStriped<64>(threadIdx.x, y + 512, w);
}
"""


def keys_of(dtype, n):
    rng = np.random.default_rng(n)
    if dtype in (np.float32, np.float16, np.float64):
        return rng.choice(np.array([0, -0., 1.5, -1.5, 3, np.inf, -np.inf, 1e-7, -2.25, 100], dtype), n)
    limits = np.iinfo(dtype)
    return rng.choice(np.array([0, 1, limits.max, limits.min, limits.max - 7, 12, 13], dtype), n)


@pytest.mark.parametrize("c_type, dtype", [("int", np.int32), ("unsigned", np.uint32), ("float", np.float32),
                          ("double", np.float64), ("half", np.float16), ("unsigned char", np.uint8),
                          ("long long", np.int64)])
def test_a_sort_is_stable_in_both_directions(mod, c_type, dtype):
    x = keys_of(dtype, 320)
    for descending in (0, 1):
        y, places = np.zeros_like(x), np.zeros(320, np.int32)
        checked(mod[f"sorted<{c_type}, 5>"], 1, 64, x, y, places, descending, 0, 8 * x.itemsize)
        order = sorted(range(320), key=lambda i: float(x[i]) if dtype != np.int64 else int(x[i]),
                       reverse=bool(descending))
        assert places.tolist() == order and y.tobytes() == x[order].tobytes()


@pytest.mark.parametrize("order", ORDERS)
def test_some_bits_alone(mod, order):
    x = np.random.default_rng(0).integers(0, 2**32, 64, np.uint32)
    y, places = np.zeros_like(x), np.zeros(64, np.int32)
    checked(mod["sorted<unsigned, 1>"], 1, 64, x, y, places, 0, 6, 17, **order)
    assert places.tolist() == sorted(range(64), key=lambda i: int(x[i]) >> 6 & 0x7FF)
    launch = counted(mod["sorted<unsigned, 1>"], 1, 64, x, y, places, 0, 6, 17)
    assert launch.global_load.bytes == x.nbytes and launch.shared_store.bytes > 3 * 2 * 4 * 64


def test_to_stripes_and_again(mod):
    x = np.random.default_rng(0).standard_normal(190).astype(np.float32)
    y = np.zeros(192, np.float32)
    checked(mod.striped, 1, 64, x, y, 0, 1)
    assert (y[2:191] == np.sort(x)[::-1][:189]).all() and (y[:2] == 1e9).all() and y[191] == 0
    error = fault(mod.striped, 1, 64, x, y, 1, 0)
    assert error.kind == "race"  # the temporary storage is used again without a barrier
    checked(mod.striped, 1, 64, x, y, 1, 1)


@pytest.mark.parametrize("order", ORDERS)
def test_arrangements(mod, order):
    x, y = np.arange(256, dtype=np.int32) * 3, np.zeros((3, 256), np.int32)
    checked(mod.exchanged, 1, 64, x, y, **order)
    assert (y[0] == x).all() and (y[1] == x).all() and (y[2] == x[::-1]).all()
