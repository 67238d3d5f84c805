"""Threads that add up side by side (`regions/packs.py`): the results of fibers to the bit, or no packs."""
import numpy as np
import pytest

import laptop_cuda as cuda
from laptop_cuda.regions import loops_of

HEAD = """
#define TILE 8
#define AT(i, j) ((i) * TILE + (j))
#define NEXT(i) (i += 1)
__device__ float twice(float x) { return 2 * x; }
"""
INDEX = """
        int tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        __shared__ float s[200];
        for (int i = tid; i < 200; i += blockDim.x * blockDim.y * blockDim.z) s[i] = y[i];
        __syncthreads();
"""
# name: the end of a kernel over float* x, const float* y, int n
PACKS = {
    "a product in an if that some threads take": """
        float best = -1e30f;
        for (int j = 0; j < TILE; ++j) {
            const int key = (tid + j) % 13;
            if (key < 9 && tid != 5) {
                float dot = 0;
                for (int c = 0; c < n; ++c) dot += s[tid % 7 + c] * s[AT(key, 1) + c % TILE];
                best = fmaxf(best, dot * key);
            }
        }
        __syncthreads();
        x[tid] = best;""",
    "a sum that outlives its region": """
        float sum = tid, kept[3] = {1, 2, 3}, other = 0; int turns = 0;
        for (int r = 0; r < 3; ++r) {
            for (int j = 0; j < 2; ++j)
                for (int c = 0; c < n; ++c) sum += s[(tid + c) % 64] * kept[j];
            kept[r] += sum; turns++;
            other -= turns * s[turns];
            __syncthreads();
        }
        x[tid] = sum + kept[1] + other + turns;""",
    "sums between shuffles": """
        float sum = 0, most = s[tid], part[2] = {0, 1};
        for (int t = 0; t < n; t += 8) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                float of_j = 0, unused = 3;
                if (j > 0) { for (int c = 0; c < 8; ++c) of_j += s[c + t] * s[(tid ^ j) + c]; }
                else for (int c = 0; c < 4; ++c) { int from = c + tid % 4; of_j = of_j + s[from]; }
                part[j] = part[j] * 0.5f + of_j + unused;
            }
            sum += __shfl_xor_sync(0xffffffffu, part[1], 2);
            most = fmaxf(most, __shfl_down_sync(0xffffffffu, sum, 1));
        }
        x[tid] = sum + most + part[0];""",
    "whole numbers, blocks and ways of their own": """
        unsigned hash = tid; long wide = 0;
        for (int j = 0; j < 3; ++j) {
            {
                for (unsigned c = 0; c < 5; c += 2) hash = hash * 31 + (unsigned)(s[c + j] * 100);
                int k = 0;
                while (k < tid) { k += 3; if (k == 9) break; wide += k; }
            }
            if (tid > 3) if (hash % 2) for (int c = 0; c < n; c++) wide += (long)s[c] + c;
        }
        __syncthreads();
        x[tid] = hash % 1000 + wide;""",
}
# what another thread might see, or what a text does not show
ALONE = {
    "a store": "x[tid] = sum;", "a store through a pointer": "float* p = x; *p = sum; sum += *p;",
    "a store into a pointer's element": "float* p = x + tid; p[1] = sum;",
    "a store beside a sum": "s[tid] += sum;", "a counter in memory": "x[tid]++;",
    "a counter before": "++x[tid];", "a counter in shared memory": "int* p = (int*)s; ++p[tid];",
    "a shift": "((int*)x)[0] <<= 2;", "an atomic": "atomicAdd(&x[0], sum);", "a helper": "sum += twice(sum);",
    "a macro that counts": "int i = 0; NEXT(i); sum += i;", "an address": "float* p = &sum; sum += p[0];",
    "a number of a loop in a macro": "for (int c = 0; c < 2; ++c) { x[AT(0, c)] = 1; }",
    "a return": "if (tid > 60) return;", "two results of one call": "sincosf(sum, x, x + 1);",
    "a volatile number": "volatile float v = sum; sum += v;",
}
SUM = """
        float sum = 0;
        for (int j = 0; j < 2; ++j) for (int c = 0; c < n; ++c) sum += s[c + j];
"""


def kernel(number: int, body: str) -> str:
    return f"__global__ void k{number}(float* x, const float* y, int n) {{ {INDEX} {body} }}\n"


@pytest.fixture(scope="module")
def module():
    return cuda.compile(HEAD + "".join(kernel(*each) for each in enumerate(PACKS.values())))


def run(module, number: int, block: tuple[int, int, int]) -> bytes:
    x, y = np.zeros(80, np.float32), np.random.default_rng(number).standard_normal(200).astype(np.float32)
    getattr(module, f"k{number}")[2, block](x, y, 24)
    assert x.any()
    return x.tobytes()


def in_packs(module) -> list[bool]:
    loops = loops_of(module._files, module.name)
    return ["LAPTOP_EACH_PACK" in loops[id(kernel.function)] for kernel in module._texts]


@pytest.mark.parametrize("name", PACKS)
def test_packs_give_what_fibers_give(module, name, monkeypatch):
    number = list(PACKS).index(name)
    assert in_packs(module)[number]
    blocks = (64, 1, 1), (8, 4, 2), (7, 5, 2), (3, 1, 1), (6, 7, 1)
    packs = [run(module, number, block) for block in blocks]
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    assert packs == [run(module, number, block) for block in blocks]


def test_what_others_may_see_is_done_thread_by_thread():
    bodies = [f"{SUM} __syncthreads(); x[tid] = sum;", *(f"{SUM} {more}" for more in ALONE.values())]
    module = cuda.compile(HEAD + "".join(map(kernel, range(len(bodies)), bodies)))
    found = dict(zip(["nothing else", *ALONE], in_packs(module)))
    assert [name for name, packed in found.items() if packed] == ["nothing else"]
