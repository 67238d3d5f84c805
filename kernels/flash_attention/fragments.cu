// Tensor cores up close: one product from the registers of 32 lanes, and a tile read with and without
// swizzle. Compiled for sm_80 and sm_90, checked on the laptop engine.
#include "../common/tensor_core.cuh"

using namespace tensor_core;

// One product of 16 x 16 by 16 x 8. a (32, 4, 2): each lane's four registers, the lower half first;
// b (32, 2, 2) and d (32, 4) likewise. One block of one warp.
__global__ void one_product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b,
                            float* __restrict__ d) {
    const int lane = threadIdx.x;
    uint32_t ra[4], rb[2];
    for (int i = 0; i < 4; ++i) ra[i] = ((const uint32_t*)a)[4 * lane + i];
    for (int i = 0; i < 2; ++i) rb[i] = ((const uint32_t*)b)[2 * lane + i];
    float rd[4] = {};
    multiply_add(rd, ra, rb, __nv_bfloat16());
    for (int i = 0; i < 4; ++i) d[4 * lane + i] = rd[i];
}

// x (16, 64) into shared memory, swizzled or row by row, and from there to registers in four loads of 16 x
// 16. registers (4, 32, 4, 2): the result of each load in each lane. One block of one warp.
__global__ void read_tile(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ registers,
                          int swizzle) {
    __shared__ __align__(128) __nv_bfloat16 tile[16 * 64];
    const int lane = threadIdx.x;
    for (int i = lane; i < 16 * 8; i += 32) {
        const int row = i / 8, column = i % 8 * 8;
        copy_async16(&tile[swizzle ? swizzled<64>(row, column) : row * 64 + column], &x[row * 64 + column]);
    }
    commit();
    wait<0>();
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        const int row = lane % 16, column = 16 * k + lane / 16 * 8;
        uint32_t r[4];
        load_matrix_x4(r, &tile[swizzle ? swizzled<64>(row, column) : row * 64 + column]);
        for (int i = 0; i < 4; ++i) ((uint32_t*)registers)[(k * 32 + lane) * 4 + i] = r[i];
    }
}
