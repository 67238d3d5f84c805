"""What older or differently formatted programs write, in programs of our own."""
import pytest

import laptop_cuda
from laptop_cuda.program import run

OLD = r"""
#include <cstdio>
#include <cuComplex.h>
#include <nvToolsExt.h>
#include <sm_61_intrinsics.h>
#ifndef __DRIVER_TYPES_H__
#error a helper header would be of no use
#endif
__global__ void old(int* y) {
    int v = threadIdx.x;
    for (int d = 16; d; d >>= 1) v += __shfl_down(v, d);
    if (threadIdx.x == 0) y[0] = v;
    int w = threadIdx.x % 4;
    if (threadIdx.x < 16) {                                   // half of the warp is here
        w = __shfl_xor(w, 1);
        if (threadIdx.x == 0) y[1] = w, y[2] = __popc(__activemask());
        unsigned odd = __ballot(threadIdx.x & 1);
        int any = __any(threadIdx.x == 15), all = __all(threadIdx.x < 15);
        if (threadIdx.x == 3) y[3] = odd, y[4] = any, y[5] = all, y[6] = __shfl_up(w, 1);
    }
}
__global__ void square(cuComplex* z) {
    cuFloatComplex a = cuCmulf(*z, *z);
    *z = cuCdivf(cuCaddf(a, make_cuFloatComplex(1, 1)), make_cuComplex(cuCabsf(make_cuComplex(3, 4)), 0));
}
int main() {
    int* y;
    cuComplex* z;
    nvtxRangePush("all of it");
    cudaMallocManaged(&y, 7 * sizeof(int)); cudaMallocManaged(&z, sizeof(cuComplex));
    *z = make_cuComplex(1, 2);
    old << <1, 32 >> > (y);
    square << < dim3(1), dim3(1), 0, 0 >> >(z);
    cudaDeviceSynchronize();
    printf("%d %d %d %x %d %d | %g %g | %d\n", y[0], y[1], y[2], y[3], y[4], y[5], z->x, z->y, 16 << (1 >> 1));
    nvtxRangePop();
}
"""


@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_old_names_and_spaced_launches(tmp_path, mode):
    (tmp_path / "old.cu").write_text(OLD)
    ran = run(tmp_path / "old.cu", mode=mode)
    assert ran.stdout == "496 1 1 aaaa 1 0 | -0.4 1 | 16\n", ran.stderr
    assert not ran.errors


THREADS = r"""
#include <cstdio>
#include <thread>
#include <vector>
__global__ void fill(int* x, int v, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = v; }
int main() {
    int total = 0;
    std::vector<std::thread> team;
    std::vector<int> sums(4);
    for (int t = 0; t < 4; ++t) team.emplace_back([t, &sums] {
        for (int round = 0; round < 20; ++round) {
            int *x, host[300];
            cudaMalloc(&x, sizeof host);
            fill<<<1, 64>>>(x, t + round, 300);
            cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
            for (int v : host) sums[t] += v;
            cudaFree(x);
        }
    });
    for (auto& t : team) t.join();
    for (int s : sums) total += s;
    printf("%d\n", total);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "profile", "plain"])
def test_host_threads_may_launch_at_the_same_time(tmp_path, mode):
    (tmp_path / "threads.cu").write_text(THREADS)
    ran = run(tmp_path / "threads.cu", mode=mode)
    assert ran.status == 0 and not ran.errors, (ran.crash, ran.errors, ran.stderr)
    assert int(ran.stdout) == 300 * sum(t + r for t in range(4) for r in range(20))
    assert len(ran.launches) == 80
