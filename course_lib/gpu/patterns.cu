// One warp and one access, whose places are in `at` (-1: the lane does nothing). A branch that is never taken (-2)
// keeps the compiler from leaving a store out.
#include <cuda_runtime.h>

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

template <typename T>
__global__ void load_shared(const int* at, float* out) {
    extern __shared__ float4 memory[];
    int i = threadIdx.x, where = at[i];
    if (where >= 0) ((T*)out)[i] = ((const T*)memory)[where];
}

template <typename T>
__global__ void store_shared(const int* at, float* out) {
    extern __shared__ float4 memory[];
    int i = threadIdx.x, where = at[i];
    T value = ((T*)out)[i];
    if (where >= 0) ((T*)memory)[where] = value;
    if (where == -2) ((T*)out)[i] = ((T*)memory)[0];
}

// COUNT matrices of 8 rows of 16 bytes; lane i says where row i begins.
template <int COUNT, bool TRANSPOSED>
__global__ void load_matrices(const int* at, float* out) {
    extern __shared__ float4 memory[];
    unsigned r[4] = {}, row = shared_address(memory + at[threadIdx.x]);
    if (COUNT == 1) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(row));
    if (COUNT == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row));
    if (COUNT == 4 && !TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
    if (COUNT == 4 && TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
    out[threadIdx.x] = (float)(r[0] + r[1] + r[2] + r[3]);
}

template <int BYTES>
__global__ void copy_async(const int* at, const float* in, float* out) {
    extern __shared__ float4 memory[];
    int i = threadIdx.x, where = at[i];
    if (where >= 0) {
        unsigned to = shared_address((char*)memory + where * BYTES);
        const char* from = (const char*)in + i * BYTES;
        if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
        else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES));
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    out[i] = ((float*)memory)[i];
}

template <typename T>
__global__ void add_shared(const int* at, float* out) {
    extern __shared__ float4 memory[];
    int i = threadIdx.x, where = at[i];
    if (where >= 0) atomicAdd((T*)memory + where, T(i));
    if (where == -2) out[i] = ((T*)memory)[0];
}

__global__ void exchange_shared(const int* at, float* out) {
    extern __shared__ int numbers[];
    int i = threadIdx.x, where = at[i];
    if (where >= 0) out[i] = atomicExch(&numbers[where], i);
}

template <typename T>
__global__ void load_global(const int* at, const float* in, float* out) {
    int i = threadIdx.x, where = at[i];
    if (where >= 0) ((T*)out)[i] = ((const T*)in)[where];
}

template <typename T>
__global__ void store_global(const int* at, const float* in, float* out) {
    int i = threadIdx.x, where = at[i];
    if (where >= 0) ((T*)out)[where] = ((const T*)in)[i];
}

__global__ void add_global(const int* at, float* out) {
    int i = threadIdx.x, where = at[i];
    if (where >= 0) atomicAdd(&out[where], 1.0f);
}

__global__ void exchange_global(const int* at, float* out) {
    int i = threadIdx.x, where = at[i];
    if (where >= 0) out[4096 + i] = atomicExch(&out[where], 1.0f);
}
