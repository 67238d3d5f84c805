// The building blocks of a fast kernel: matrices from shared memory to registers, the tensor cores' product, and
// copies that do not wait. Each is one PTX instruction, of sm_80 and later. The CPU engine runs the same
// instructions: 32 lanes meet, exchange registers and go on; bank conflicts are counted, and touching the
// destination of a copy before its wait is an error. Compiled for sm_80 and sm_90.
//
// Everything here is collective: all 32 lanes of a warp call it together.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace tensor_core {

// ---- The maps. Lane l has group g = l / 4 (0..7) and place t = l % 4 (0..3). A register holds two 16-bit numbers.
//
//   a[4], 16 x 16, rows by k           b[2], 16 x 8, k by columns        d[4] floats, 16 x 8
//
//            k = 2t, 2t+1 | +8, +9              column g                        column 2t  2t+1
//   row g    a[0]         | a[2]        k = 2t, 2t+1   b[0]             row g        d[0]  d[1]
//   row g+8  a[1]         | a[3]        k + 8          b[1]             row g+8      d[2]  d[3]
//
// An 8 x 8 piece of 16-bit numbers, as load_matrix hands it out: lane l gets row g, columns 2t and 2t+1 in one
// register.
//
//            columns 0 1   2 3   4 5   6 7
//   row 0    lane    0     1     2     3
//   row 1            4     5     6     7
//   ...
//   row 7           28    29    30    31
//
// So a 16 x 16 tile of A is four pieces: (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k
// 8-15), and lane l gives the address of row l % 16, first k 8 * (l / 16).

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Four 8 x 8 pieces: lanes 0-7 give the rows of the first, 8-15 of the second, and so on, 16 bytes each.
__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same pieces, each transposed on the way: for a B stored with its columns side by side, as V does.
__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a b, for one 16 x 8 tile over 16 steps of k. The last argument only names the type.
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                             __nv_bfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                             __half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 bytes from global to shared memory, past the registers, or 16 zeros where there is nothing to copy.
__device__ __forceinline__ void copy_async16(void* shared, const void* global, bool there = true) {
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(bytes)
                 : "memory");
}
// Closes a group of copies; wait<LEFT>() returns when all but the LEFT newest groups of this thread have arrived.
// Other threads see them only after a __syncthreads() as well.
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// ---- The swizzle. A row of 64 16-bit numbers is 8 chunks of 16 bytes, all 32 banks. load_matrix reads the same
// chunk of 8 rows at once: unswizzled, 8 times the same 4 banks. Chunk c of row r is therefore kept at place c ^
// (r % 8).
template <int WIDTH>
__host__ __device__ __forceinline__ int swizzled(int row, int column) {
    static_assert(WIDTH % 64 == 0, "rows of whole 128 bytes");
    return row * WIDTH + ((column / 8 ^ row % 8) * 8 + column % 8);
}

__device__ __forceinline__ uint32_t pack(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&both);
}
__device__ __forceinline__ uint32_t pack(float low, float high, __half) {
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&both);
}

}  // namespace tensor_core
