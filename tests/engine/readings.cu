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

// The reads of a tiled product: `lanes` threads have a row; rows are `row` elements apart, columns `column`.
template <typename T> __global__ void tile_reads(T* out, int lanes, int row, int column) {
    __shared__ T tile[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = T{};
    __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x / lanes * row + threadIdx.x % lanes * column];
}

// A copy that begins somewhere.
__global__ void moved(const float* in, float* out, int from, int to) {
    out[to + threadIdx.x] = in[from + threadIdx.x];
}

// A copy of a matrix whose rows and columns are so far apart there and here: where these differ, transposed.
__global__ void turned(float* out, const float* in, int column_in, int row_in, int column_out, int row_out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * row_out + x * column_out] = in[y * row_in + x * column_in];
}

// The same inside a tile: written with one pitch, read with another.
__global__ void kept(int* out, int row_in, int column_in, int row_out, int column_out) {
    __shared__ int tile[33 * 34];
    int x = threadIdx.x, y = threadIdx.y;
    tile[y * row_in + x * column_in] = y * 32 + x;
    __syncthreads();
    out[y * 32 + x] = tile[y * row_out + x * column_out];
}

// A tile of 16 rows of 32, read column by column.
__global__ void rectangle(int* out, int pitch) {
    __shared__ int tile[16 * 34];
    int i = threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y * pitch + threadIdx.x] = i;
    __syncthreads();
    out[i] = tile[i % 16 * pitch + i / 16];
}

// Such a tile of a matrix, transposed on its way from global memory to global memory.
__global__ void turned_here(float* out, const float* in, int n, int pitch) {
    __shared__ float tile[16 * 34];
    int i = threadIdx.y * 32 + threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 32;
    tile[threadIdx.y * pitch + threadIdx.x] = in[(row + threadIdx.y) * n + column + threadIdx.x];
    __syncthreads();
    out[(column + i / 16) * n + row + i % 16] = tile[i % 16 * pitch + i / 16];
}

// A sum of 256 numbers in their place in global memory, by halves; the last warp does not mask its lanes.
__global__ void halved(int* in, int* out) {
    int t = threadIdx.x;
    volatile int* at = in + blockIdx.x * blockDim.x;
    for (int half = 128; half >= 32; half /= 2) {
        if (t < half) at[t] += at[t + half];
        __syncthreads();
    }
    for (int half = 16; half && t < 32; half /= 2) {
        int sum = at[t] + at[t + half];
        __syncwarp();
        at[t] = sum;
        __syncwarp();
    }
    if (t == 0) out[blockIdx.x] = at[0];
}

// The same in shared memory, of so many numbers per thread.
__global__ void halved_here(const int* in, int* out, int each) {
    __shared__ int part[256];
    int t = threadIdx.x, sum = 0;
    for (int k = 0; k < each; ++k) sum += in[(blockIdx.x * each + k) * blockDim.x + t];
    part[t] = sum;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

// The same of one number per thread, by steps that double: the lanes at work are ever farther apart.
__global__ void doubled_here(const int* in, int* out) {
    __shared__ int part[256];
    int t = threadIdx.x;
    part[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int at = 2 * step * t;
        if (at < blockDim.x) part[at] += part[at + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

// A block of a product of n x n matrices, by tiles of 32 x 32.
__global__ void product(int n, const float* a, const float* b, float* c) {
    __shared__ float a_tile[32][32], b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += 32) {
        a_tile[y][x] = a[y * n + k0 + x];
        b_tile[y][x] = b[(k0 + y) * n + x];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += a_tile[y][k] * b_tile[k][x];
        __syncthreads();
    }
    c[y * n + x] = sum + c[y * n + x];
}

// Atomic updates of a word for each 2^shift lanes, by the first `lanes` of a warp: their value is used, or it is not.
__global__ void exchanged(int* x, int shift) { x[32 + threadIdx.x] = atomicExch(x + (threadIdx.x >> shift), 6); }
__global__ void added(float* x, unsigned lanes) {
    if (threadIdx.x < lanes) atomicAdd(x, 1.0f);
}
