// Access patterns whose counts others have read off a card: see test_readings.py.

// One wide load of a warp: lane t reads vector at[t], or nothing where that is negative.
template <typename T> __device__ void wide_load(const int* at, T* out) {
    __shared__ T tile[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = T{};
    __syncwarp();
    int place = at[threadIdx.x];
    if (place >= 0) out[threadIdx.x] = tile[place];
}
__global__ void wide8(const int* at, float2* out) { wide_load(at, out); }
__global__ void wide16(const int* at, float4* out) { wide_load(at, out); }
