"""Arrays of device pointers: what they point at is copied, checked and counted like an argument."""
import time

import numpy as np
import pytest

import laptop_cuda
from engine_kit import WAYS, checked, counted, mod as module  # noqa: F401

SOURCE = """
__global__ void scale(float** rows, const long long* table, int m) {
    float* row = rows[blockIdx.x];
    const float* other = (const float*)table[blockIdx.x];
    for (int i = threadIdx.x; i < m; i += blockDim.x) row[i] += 2 * other[i];
}
__global__ void swap(float** rows) {
    if (threadIdx.x == 0) { float* a = rows[0]; rows[0] = rows[1]; rows[1] = a; }
}
__global__ void shuffled(float** rows) { rows[0][threadIdx.x] = __shfl_down_sync(0xf, rows[1][threadIdx.x], 2, 4); }
"""


def rows(n=3, m=10):
    return [np.arange(m, dtype=np.float32) + i for i in range(n)]


@pytest.mark.parametrize("mode", WAYS)
def test_what_pointers_lead_to_is_read_and_written(module, mode):
    a, b = rows(), rows()
    pointers = laptop_cuda.pointers(a)
    before = pointers.tolist()
    with WAYS[mode]():
        module.scale[3, 32](pointers, laptop_cuda.pointers(*b), 10)
    for i, row in enumerate(a):
        np.testing.assert_array_equal(row, 3 * (np.arange(10) + i))
    assert pointers.tolist() == before


def test_counts_are_those_of_arrays_passed_directly(module):
    a, b = rows(), rows()
    launch = counted(module.scale, 3, 32, laptop_cuda.pointers(a), laptop_cuda.pointers(b), 10)
    load, store = launch.global_load, launch.global_store
    # per block 10 floats of two arrays, and two addresses that all 32 lanes ask for
    assert (load.bytes, store.bytes) == (3 * (2 * 40 + 2 * 8 * 32), 3 * 40)
    assert store.sectors == 3 * 2


def test_a_plain_list_of_tensor_addresses_is_followed(module):
    torch = pytest.importorskip("torch")
    a, b = [torch.from_numpy(r) for r in rows()], [torch.from_numpy(r) for r in rows()]
    table = torch.tensor([t.data_ptr() for t in b])
    checked(module.scale, 3, 32, torch.tensor([t.data_ptr() for t in a]), table, 10)
    assert torch.equal(a[2], 3 * (torch.arange(10.) + 2))


def test_an_index_past_such_an_array_names_it(module):
    with laptop_cuda.sanitize(), pytest.raises(laptop_cuda.KernelError) as caught:
        module.scale[3, 32](laptop_cuda.pointers(rows()), laptop_cuda.pointers(rows()), 11)
    assert caught.value.kind == "out of bounds"
    assert "rows[0][10]" in caught.value.message or "table[0][10]" in caught.value.message


@pytest.mark.parametrize("mode", WAYS)
def test_a_kernel_may_store_pointers(module, mode):
    a = rows()
    pointers = laptop_cuda.pointers(a)
    before = pointers.tolist()
    with WAYS[mode]():
        module.swap[1, 32](pointers)
    assert pointers.tolist() == [before[1], before[0], before[2]]


def test_an_array_that_is_also_an_argument_is_one_array(module):
    a = np.arange(8, dtype=np.float32)
    both = laptop_cuda.compile("__global__ void twice(float** p, float* x) { p[0][threadIdx.x] += 1; "
                               "x[threadIdx.x] *= 2; }")
    checked(both.twice, 1, 8, laptop_cuda.pointers(a), a)
    np.testing.assert_array_equal(a, 2 * (np.arange(8) + 1))


def test_an_undefined_value_that_is_not_used_is_told_apart_with_pointers_too(module):
    a = rows(2, 4)
    checked(module.shuffled, 1, 4, laptop_cuda.pointers(a))
    np.testing.assert_array_equal(a[0], [3, 4, 3, 4])


def test_a_pointer_to_pointers_asks_for_addresses(module):
    with pytest.raises(laptop_cuda.ArgumentError, match=r"laptop_cuda.pointers\(a, b, ...\)"):
        module.swap[1, 32](np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="takes arrays, got int"):
        laptop_cuda.pointers(3)


def test_integers_that_look_like_addresses_cost_no_time():
    torch = pytest.importorskip("torch")
    total = laptop_cuda.compile("__global__ void total(const long long* x, long long* out, int n) {"
                                " for (int i = 0; i < n; ++i) out[0] += x[i]; }").total
    large = torch.randint(1 << 21, 1 << 46, (30_000,))
    alive, out = [torch.zeros(3) for _ in range(1000)], torch.zeros(1, dtype=torch.int64)
    begin = time.process_time()
    with laptop_cuda.profile():
        total[1, 1](large, out, 10)
    assert out.item() == large[:10].sum() and len(alive) == 1000
    assert time.process_time() - begin < 5                   # searched one by one it was more than a minute
