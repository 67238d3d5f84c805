"""curand: a GPU's numbers, as NVIDIA's own header gives them on a CPU; and the host API."""
import numpy as np
import pytest
import torch

import laptop_cuda as cuda
from engine_kit import checked, fault, mod  # noqa: F401

SOURCE = r"""
#include <curand_kernel.h>
template <class State>
__global__ void draw(unsigned* u, float* f, double* d, unsigned long long seed, unsigned long long sub, unsigned long long offset) {
    State s;
    curand_init(seed, sub, offset, &s);
    for (int i = 0; i < 3; ++i) u[i] = curand(&s);
    uint4 four = curand4(&s);
    skipahead(1000003ull, &s);
    u[3] = curand(&s);
    skipahead_sequence(77ull, &s);
    u[4] = curand(&s);
    f[0] = curand_uniform(&s);
    for (int i = 1; i < 4; ++i) f[i] = curand_normal(&s);
    d[0] = curand_uniform_double(&s);
    d[1] = curand_normal_double(&s);
    u[5] = four.x ^ four.y ^ four.z ^ four.w;
}
__global__ void setup(curandState* states) { curand_init(1234, threadIdx.x, 0, states + threadIdx.x); }
__global__ void inside(curandState* states, int* count, int n) {
    curandState& mine = states[threadIdx.x];
    int in = 0;
    for (int i = 0; i < n; ++i) {
        float x = curand_uniform(&mine), y = curand_uniform(&mine);
        in += x * x + y * y <= 1;
    }
    atomicAdd(count, in);
}
"""
# seed 42, subsequence 7, offset 3
PUBLISHED = {
    "curandStateXORWOW_t": ([4081944259, 3437967554, 2362980919, 2703083594, 142610594, 1591859641],
        [0.77323329, 0.20842032, -3.1492062, -0.16362563], [0.768452841186489, 0.7876499593680517]),
    "curandStatePhilox4_32_10_t": ([1433639123, 3856525632, 1611620758, 3188829556, 4021282778, 2007987819],
        [0.23315121, 0.095392324, -0.55815399, 0.5788973], [0.7135331574827433, -2.1393214055273435])}


@pytest.mark.parametrize("state", PUBLISHED)
def test_the_numbers_are_those_of_nvidias_header(mod, state):
    u, f, d = np.zeros(6, np.uint32), np.zeros(4, np.float32), np.zeros(2)
    mod[f"draw<{state}>"][1, 1](u, f, d, 42, 7, 3)
    want_u, want_f, want_d = PUBLISHED[state]
    assert u.tolist() == want_u
    assert np.allclose(f, want_f, rtol=2e-6) and np.allclose(d, want_d, rtol=1e-9)


def test_states_in_memory_are_checked_and_go_on(mod):
    states, count = cuda.empty(64 * 48, dtype=torch.uint8), np.zeros(1, np.int32)
    assert fault(mod.inside, 1, 64, states, count, 100).kind == "uninitialized"
    checked(mod.setup, 1, 64, states)
    checked(mod.inside, 1, 64, states, count, 100)
    assert abs(4 * count[0] / 6400 - np.pi) < 0.1


HOST = r"""
#include <cstdio>
#include <curand.h>
int main() {
    float *x, h[1000];
    cudaMalloc(&x, sizeof h);
    curandGenerator_t g;
    curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT);
    curandSetPseudoRandomGeneratorSeed(g, 1234ULL);
    curandGenerateNormal(g, x, 1000, 5.f, 2.f);
    cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : h) sum += v;
    printf("%d %d\n", sum > 4700 && sum < 5300, curandGenerateUniform(g, h, 1000) == CURAND_STATUS_SUCCESS);
    return curandDestroyGenerator(g);
}
"""


def test_the_host_api(program):
    ran = program(HOST)
    assert ran.stdout == "1 0\n" and ran.status == 0 and not ran.crash
