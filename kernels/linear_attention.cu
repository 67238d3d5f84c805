// Linear attention: the state S = sum of phi(k) v^T is carried from token to token; nothing is n x n.
//
// The normaliser z = sum of phi(k) is one more column of S, whose value is always 1: width w = d_v + 1.
// Bytes asked for by one head, all linear in n (T = tokens per chunk):
//
//   rung  kernel           idea                             asked for / 4                      still wasted
//   1     state_in_global  the recurrence, as written       n (2 d + 2 d_v) + 2 n d w          the state, read and
//                                                                                              written at every token
//   2     state_in_shared  the state stays on the chip      n (2 d + 2 d_v) + 2 d w            n steps in sequence;
//                                                                                              one block per head
//   3     chunk_states     T tokens at a time; the state    n (d + d_v) + 2 d w + (n / T) d w  keys and values are read
//         chunk_outputs    before each chunk is kept, then  n (2 d + 2 d_v) + (n / T) d w      twice, and one state per
//                          all chunks run at once                                              chunk goes out and in
//   4     linear_attention/tensor_core.cu, for a card: chunks of 64 on the tensor cores, everything read once
//
//   delta_rule             as rung 2, but the state is      n (2 d + 2 d_v + 1 + g) + 2 d d_v  as rung 2
//                          corrected, not only added to; g = 1 decay per token or d, one per channel
//                          linear_attention/delta_chunks.cu takes 16 tokens at a time
//
// Layout: q, k (heads, n, d); v, out (heads, n, d_v); state (heads, d, w); all float and contiguous, heads = b * h.
// Any n, d, d_v whose state fits in shared memory; the wrappers check. Always causal.

#include <cuda_runtime.h>

__device__ __forceinline__ float phi(float x, int map) {
    if (map == 0) return x > 0.0f ? x + 1.0f : expf(x);  // elu(x) + 1
    if (map == 1) return fmaxf(x, 0.0f);  // relu
    return x;
}

// One token: add k v^T to the state, then multiply the state by q.
// A thread owns whole columns, so no barrier is needed inside.
__device__ void add_and_read(float* state, const float* q_row, const float* k_row,
                             const float* __restrict__ v_row, float* top, int d, int width) {
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float value = c < width - 1 ? v_row[c] : 1.0f, sum = 0.0f;
        for (int i = 0; i < d; ++i) {
            float s = state[i * width + c] + k_row[i] * value;
            state[i * width + c] = s;
            sum += q_row[i] * s;
        }
        top[c] = sum;
    }
}

__device__ void write_row(float* __restrict__ out_row, const float* top, int width, int normalise) {
    float total = normalise ? top[width - 1] : 1.0f;
    for (int c = threadIdx.x; c < width - 1; c += blockDim.x)
        out_row[c] = total == 0.0f ? 0.0f : top[c] / total;  // all weights 0: the answer is 0
}

// Walks all tokens of one head; `state` is in global or in shared memory.
__device__ void walk(float* state, float* rows, const float* __restrict__ q, const float* __restrict__ k,
                     const float* __restrict__ v, float* __restrict__ out, int n, int d, int d_v, int map,
                     int normalise) {
    float *q_row = rows, *k_row = q_row + d, *top = k_row + d;  // d, d and d_v + 1 floats
    for (int t = 0; t < n; ++t) {
        for (int i = threadIdx.x; i < d; i += blockDim.x) {
            q_row[i] = phi(q[(size_t)t * d + i], map);
            k_row[i] = phi(k[(size_t)t * d + i], map);
        }
        __syncthreads();
        add_and_read(state, q_row, k_row, v + (size_t)t * d_v, top, d, d_v + 1);
        __syncthreads();  // top is complete; q_row and k_row may be overwritten
        write_row(out + (size_t)t * d_v, top, d_v + 1, normalise);
    }
}

// Rung 1. One block per head.
__global__ void state_in_global(const float* __restrict__ q, const float* __restrict__ k,
                                const float* __restrict__ v, float* __restrict__ state,
                                float* __restrict__ out, int n, int d, int d_v, int map, int normalise) {
    extern __shared__ float shared[];
    size_t head = blockIdx.x;
    walk(state + head * d * (d_v + 1), shared, q + head * n * d, k + head * n * d, v + head * n * d_v,
         out + head * n * d_v, n, d, d_v, map, normalise);
}

// Rung 2. One block per head.
__global__ void state_in_shared(const float* __restrict__ q, const float* __restrict__ k,
                                const float* __restrict__ v, float* __restrict__ state,
                                float* __restrict__ out, int n, int d, int d_v, int map, int normalise) {
    extern __shared__ float shared[];
    size_t head = blockIdx.x;
    int size = d * (d_v + 1);
    float* mine = state + head * size;
    for (int e = threadIdx.x; e < size; e += blockDim.x) shared[e] = mine[e];
    __syncthreads();
    walk(shared, shared + size, q + head * n * d, k + head * n * d, v + head * n * d_v, out + head * n * d_v,
         n, d, d_v, map, normalise);
    __syncthreads();
    for (int e = threadIdx.x; e < size; e += blockDim.x) mine[e] = shared[e];
}

__device__ void load_keys_and_values(float* k_tile, int pitch, float* v_tile, const float* __restrict__ k,
                                     const float* __restrict__ v, int rows, int d, int d_v, int map) {
    int width = d_v + 1;
    for (int e = threadIdx.x; e < rows * d; e += blockDim.x) k_tile[e / d * pitch + e % d] = phi(k[e], map);
    for (int e = threadIdx.x; e < rows * d_v; e += blockDim.x) v_tile[e / d_v * width + e % d_v] = v[e];
    for (int r = threadIdx.x; r < rows; r += blockDim.x) v_tile[r * width + d_v] = 1.0f;
}

// Rung 3, first pass. One block per head: before[head][chunk] is the state that the chunk starts from.
__global__ void chunk_states(const float* __restrict__ k, const float* __restrict__ v,
                             float* __restrict__ state, float* __restrict__ before, int n, int d, int d_v,
                             int chunk, int map) {
    extern __shared__ float shared[];
    int width = d_v + 1, size = d * width, n_chunks = (n + chunk - 1) / chunk;
    size_t head = blockIdx.x;
    float *s = shared, *k_tile = s + size, *v_tile = k_tile + chunk * d;
    float* mine = state + head * size;
    for (int e = threadIdx.x; e < size; e += blockDim.x) s[e] = mine[e];
    for (int j = 0; j < n_chunks; ++j) {
        int start = j * chunk, rows = min(chunk, n - start);
        load_keys_and_values(k_tile, d, v_tile, k + (head * n + start) * d, v + (head * n + start) * d_v,
                             rows, d, d_v, map);
        __syncthreads();
        for (int e = threadIdx.x; e < size; e += blockDim.x) {  // a thread updates its own entries only
            int i = e / width, c = e % width;
            float sum = s[e];
            before[(head * n_chunks + j) * size + e] = sum;
            for (int r = 0; r < rows; ++r) sum += k_tile[r * d + i] * v_tile[r * width + c];
            s[e] = sum;
        }
        __syncthreads();  // the next chunk overwrites the tiles
    }
    for (int e = threadIdx.x; e < size; e += blockDim.x) mine[e] = s[e];
}

// Rung 3, second pass. Grid (chunks, heads): no chunk waits for another.
__global__ void chunk_outputs(const float* __restrict__ q, const float* __restrict__ k,
                              const float* __restrict__ v, const float* __restrict__ before,
                              float* __restrict__ out, int n, int d, int d_v, int chunk, int map,
                              int normalise) {
    extern __shared__ float shared[];
    int width = d_v + 1, size = d * width, pitch = d + 1;  // pitch: keys fall into different banks
    int start = blockIdx.x * chunk, rows = min(chunk, n - start);
    size_t head = blockIdx.y, first = head * n + start;
    float *s = shared, *q_tile = s + size, *k_tile = q_tile + chunk * d, *v_tile = k_tile + chunk * pitch;
    float *weight = v_tile + chunk * width, *top = weight + chunk * chunk;  // top: chunk x width

    before += (head * gridDim.x + blockIdx.x) * size;
    for (int e = threadIdx.x; e < size; e += blockDim.x) s[e] = before[e];
    for (int e = threadIdx.x; e < rows * d; e += blockDim.x) q_tile[e] = phi(q[first * d + e], map);
    load_keys_and_values(k_tile, pitch, v_tile, k + first * d, v + first * d_v, rows, d, d_v, map);
    __syncthreads();

    for (int pair = threadIdx.x; pair < rows * rows; pair += blockDim.x) {
        int r = pair / rows, j = pair % rows;
        float sum = 0.0f;
        if (j <= r)  // a key after the query has weight 0
            for (int i = 0; i < d; ++i) sum += q_tile[r * d + i] * k_tile[j * pitch + i];
        weight[r * chunk + j] = sum;
    }
    __syncthreads();

    for (int e = threadIdx.x; e < rows * width; e += blockDim.x) {
        int r = e / width, c = e % width;
        float sum = 0.0f;
        for (int i = 0; i < d; ++i) sum += q_tile[r * d + i] * s[i * width + c];  // the chunks before
        for (int j = 0; j <= r; ++j) sum += weight[r * chunk + j] * v_tile[j * width + c];
        top[e] = sum;
    }
    __syncthreads();

    for (int r = 0; r < rows; ++r) write_row(out + (first + r) * d_v, top + r * width, width, normalise);
}

// S <- a S;  S <- S + beta k (v - k^T S);  o = q^T S. One block per head; state (heads, d, d_v).
// decay (heads, n, gates): one number per token, or one per token and channel of the key.
__global__ void delta_rule(const float* __restrict__ q, const float* __restrict__ k,
                           const float* __restrict__ v, const float* __restrict__ beta,
                           const float* __restrict__ decay, float* __restrict__ state,
                           float* __restrict__ out, int n, int d, int d_v, int gates) {
    extern __shared__ float shared[];
    int size = d * d_v, every = gates == 1 ? 0 : 1;
    size_t head = blockIdx.x;
    float *s = shared, *q_row = s + size, *k_row = q_row + d, *a_row = k_row + d;
    float* mine = state + head * size;
    for (int e = threadIdx.x; e < size; e += blockDim.x) s[e] = mine[e];
    for (int t = 0; t < n; ++t) {
        size_t token = head * n + t;
        for (int i = threadIdx.x; i < d; i += blockDim.x) {
            q_row[i] = q[token * d + i];
            k_row[i] = k[token * d + i];
        }
        for (int i = threadIdx.x; i < gates; i += blockDim.x) a_row[i] = decay[token * gates + i];
        if (threadIdx.x == 0) a_row[gates] = beta[token];
        __syncthreads();
        float b = a_row[gates];
        for (int c = threadIdx.x; c < d_v; c += blockDim.x) {  // a thread owns whole columns of S
            float found = 0.0f, sum = 0.0f;
            for (int i = 0; i < d; ++i) found += k_row[i] * a_row[i * every] * s[i * d_v + c];
            float correction = b * (v[token * d_v + c] - found);
            for (int i = 0; i < d; ++i) {
                float now = a_row[i * every] * s[i * d_v + c] + k_row[i] * correction;
                s[i * d_v + c] = now;
                sum += q_row[i] * now;
            }
            out[token * d_v + c] = sum;
        }
        __syncthreads();  // the next token overwrites q_row and k_row
    }
    for (int e = threadIdx.x; e < size; e += blockDim.x) mine[e] = s[e];
}
