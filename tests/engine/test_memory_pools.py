"""Memory in the order of a stream, from pools that keep account; what is not there is refused where it is reached, by name."""
from __future__ import annotations

import pytest

from laptop_cuda.program import run

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
__global__ void add(float* x, float by) { x[threadIdx.x] += by; }
unsigned long long read(cudaMemPool_t pool, cudaMemPoolAttr what) {
    unsigned long long value = 7;
    cudaMemPoolGetAttribute(pool, what, &value);
    return value;
}
int main(int argc, char** argv) {
    int bug = argc > 1 ? atoi(argv[1]) : 0;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMemPool_t usual, own;
    cudaDeviceGetDefaultMemPool(&usual, 0);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned, props.location = {cudaMemLocationTypeDevice, 0}, props.maxSize = 4096;
    cudaMemPoolCreate(&own, &props);
    unsigned long long keep = 512;
    cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &keep);
    float *a, *b, *c, host[32] = {};
    cudaMallocAsync(&a, 1024, stream);
    cudaMallocAsync(&b, 2048, own, stream);
    printf("%d ", cudaMallocFromPoolAsync(&c, 4096, own, stream));            // more than the pool may have
    printf("%llu %llu ", read(usual, cudaMemPoolAttrUsedMemCurrent), read(own, cudaMemPoolAttrUsedMemCurrent));
    cudaMemcpyAsync(b, host, sizeof host, cudaMemcpyHostToDevice, stream);
    add<<<1, 32, 0, stream>>>(bug == 1 ? a : b, 3);                           // a is not initialised
    cudaMemcpyAsync(host, b, sizeof host, cudaMemcpyDeviceToHost, stream);
    cudaFreeAsync(b, stream);
    if (bug == 2) add<<<1, 32, 0, stream>>>(b, 3);                            // given back
    printf("%d ", cudaFreeAsync(b, stream));                                  // twice
    cudaFree(a);
    for (cudaMemPool_t pool : {usual, own})
        printf("%llu %llu %llu ", read(pool, cudaMemPoolAttrUsedMemCurrent), read(pool, cudaMemPoolAttrUsedMemHigh),
               read(pool, cudaMemPoolAttrReservedMemCurrent));
    printf("%g %d\n", host[31], cudaMemPoolDestroy(own));
    if (bug != 3) return cudaGetLastError() == cudaErrorInvalidValue ? 0 : 2;
    cudaIpcMemHandle_t handle;
    cudaMallocAsync(&a, 64, stream);
    printf("%d\n", cudaIpcGetMemHandle(&handle, a));
}
"""
RESULT = "2 1024 2048 1 0 1024 0 0 2048 512 3 0\n"


@pytest.fixture
def program(tmp_path):
    (tmp_path / "pools.cu").write_text(PROGRAM)
    return tmp_path / "pools.cu"


@pytest.mark.slow
def test_pools_keep_account_and_what_was_given_back_is_gone(program):
    for mode in ("sanitize", "plain"):
        ran = run(program, mode=mode)
        assert (ran.stdout, ran.errors, ran.crash, ran.status) == (RESULT, [], "", 0)
    for bug, kind, word in ((1, "uninitialized", "a[0]"), (2, "out of bounds", "b")):
        (error,) = run(program, arguments=[str(bug)]).errors
        assert error["kind"] == kind and word in error["message"] and error["line"] == 4


@pytest.mark.slow
def test_what_is_not_there_is_refused_where_it_is_reached(program):
    ran = run(program, arguments=["3"])
    assert ran.stdout == f"{RESULT}801\n" and not ran.errors
    assert "laptop_cuda: cudaIpcGetMemHandle" in ran.stderr
