// The building blocks of a kernel that copies while it computes: barriers in shared memory that count
// arrivals and bytes, copies of whole tiles that one thread orders (TMA), and the fence between a thread's own
// accesses and those of the copies. Each is one instruction of sm_90, by its name in cuda::ptx. Compiled for
// sm_90a.
#pragma once
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <stdint.h>

namespace asynchronous {
namespace ptx = cuda::ptx;
using bf16 = __nv_bfloat16;

// ---- Barriers. A phase is over when all its arrivals and all its bytes have come; then the next one begins.
// Phases are told apart by parity: wait(b, 0) returns after phases 0, 2, 4, ..., wait(b, 1) after 1, 3, ... and
// at once on a new barrier, as if a phase before the first were over.
__device__ __forceinline__ void init(uint64_t* barrier, uint32_t arrivals) {
    ptx::mbarrier_init(barrier, arrivals);
}
__device__ __forceinline__ void arrive(uint64_t* barrier) { ptx::mbarrier_arrive(barrier); }
// One arrival, and so many bytes more that the phase waits for.
__device__ __forceinline__ void expect(uint64_t* barrier, uint32_t bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, bytes);
}
__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {}
}

// ---- Copies by a tensor map of (heads, rows, columns). The map knows the tile's size; what a tile has beyond
// the tensor arrives as 0 and is not stored. One thread orders a copy, and its bytes count at the barrier.
__device__ __forceinline__ void load_tile(bf16* tile, const CUtensorMap* map, int column, int row, int head,
                                          uint64_t* barrier) {
    const int at[] = {column, row, head};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, map, at, barrier);
}
__device__ __forceinline__ void store_tile(const CUtensorMap* map, int column, int row, int head,
                                           const bf16* tile) {
    const int at[] = {column, row, head};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, map, at, tile);
}
// Returns when all tiles that this thread has stored are written.
__device__ __forceinline__ void finish_stores() {
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
// What this thread has written to shared memory is seen by copies and products that are ordered after it.
__device__ __forceinline__ void fence_async() { ptx::fence_proxy_async(ptx::space_shared); }

}  // namespace asynchronous
