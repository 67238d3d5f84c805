// The delta rule in chunks of 16 tokens, with a decay for every channel of the key, as in Kimi Linear:
//
//   S <- diag(a_t) S;  S <- S + k_t u_t^T with u_t = beta_t (v_t - S^T k_t);  o_t = S^T q_t
//
// In a chunk that starts from S_0, let A_t be the product of its decays up to t, channel by channel. Then
//
//   e_t = v_t - S_0^T (A_t k_t) - sum over s < t of system[t][s] u_s,  system[t][s] = k_t . (A_t / A_s) k_s
//   u_t = beta_t e_t                                                   one triangular system per chunk
//   o_t = S_0^T (A_t q_t) + sum over s <= t of within[t][s] u_s,       within[t][s] = q_t . (A_t / A_s) k_s
//   S   = diag(A_end) S_0 + sum of (A_end / A_t) k_t u_t^T
//
// Per head, with C = ceil(d_v / 32) blocks that each keep 32 columns of the state:
//
//   kernel        idea                    asked for / 4                       barriers        still wasted
//   delta_rule    (linear_attention.cu)   n (3 d + 2 d_v + 1) + 2 d d_v       2 n             n steps in a row
//                 token by token
//   delta_chunks  16 tokens at a time     C n (3 d + 1) + 2 n d_v + 2 d d_v   6 ceil(n / 16)  products inside a
//                                                                                             chunk, per block
//
// For the backward, delta_backward.cu, a second run leaves S_0 of every chunk in `before` and e in `errors`, which
// are null otherwise: ceil(n / 16) d d_v + n d_v numbers more.
//
// Layout: q, k, decay (heads, n, d); beta (heads, n); v, out, errors (heads, n, d_v); state (heads, d, d_v);
// before (heads, chunks, d, d_v); float. Any n and d_v, d up to 128.

#include <cuda_runtime.h>

#include "../common/faded_pairs.cuh"

constexpr int CHUNK = 16, COLUMNS = 32;

// One chunk of one head in shared memory. Rows of q, k and fade are d + 1 floats apart, against bank conflicts.
struct Tiles {
    float *state, *q, *k, *fade, *last, *beta, *system, *within, *u, *top;
    int pitch;

    __device__ Tiles(float* memory, int d) : pitch(d + 1) {
        state = memory;
        q = state + d * COLUMNS;
        k = q + CHUNK * pitch;
        fade = k + CHUNK * pitch;  // log A_t, later (A_end / A_t) k_t
        last = fade + CHUNK * pitch;  // A_end
        beta = last + d;
        system = beta + CHUNK;
        within = system + CHUNK * CHUNK;
        u = within + CHUNK * CHUNK;
        top = u + CHUNK * COLUMNS;  // what the earlier chunks give
    }
};

__device__ void load(Tiles t, const float* __restrict__ q, const float* __restrict__ k,
                     const float* __restrict__ beta, const float* __restrict__ decay, int rows, int d) {
    load_faded(q, k, decay, t.q, t.k, t.fade, rows, d, t.pitch);
    for (int r = threadIdx.x; r < rows; r += blockDim.x) t.beta[r] = beta[r];
}

// In place: q_t and k_t as they meet the state before the chunk, and k_t as the state after it keeps it.
__device__ void fade_rows(Tiles t, int rows, int d) {
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        float end = t.fade[(rows - 1) * t.pitch + i];
        for (int r = 0; r < rows; ++r) {
            int at = r * t.pitch + i;
            float log_a = t.fade[at], key = t.k[at], a = expf(log_a);
            t.q[at] *= a;
            t.k[at] = key * a;
            t.fade[at] = key * expf(end - log_a);
        }
        t.last[i] = expf(end);
    }
}

__device__ void read_state(Tiles t, const float* __restrict__ v, int rows, int d, int d_v, int columns) {
    for (int e = threadIdx.x; e < rows * COLUMNS; e += blockDim.x) {
        int r = e / COLUMNS, c = e % COLUMNS;
        if (c >= columns) continue;
        float found = 0.0f, top = 0.0f;
        for (int i = 0; i < d; ++i) {
            float s = t.state[i * COLUMNS + c];
            found += t.k[r * t.pitch + i] * s;
            top += t.q[r * t.pitch + i] * s;
        }
        t.u[e] = v[r * d_v + c] - found;
        t.top[e] = top;
    }
}

// Forward substitution. A thread owns whole columns, so no barrier is needed between the rows.
__device__ void solve(Tiles t, float* __restrict__ errors, int rows, int d_v, int columns) {
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        for (int r = 0; r < rows; ++r) {
            float error = t.u[r * COLUMNS + c];
            for (int s = 0; s < r; ++s) error -= t.system[r * CHUNK + s] * t.u[s * COLUMNS + c];
            t.u[r * COLUMNS + c] = t.beta[r] * error;
            if (errors) errors[r * d_v + c] = error;
        }
}

__device__ void write(Tiles t, float* __restrict__ out, int rows, int d, int d_v, int columns) {
    for (int e = threadIdx.x; e < rows * COLUMNS; e += blockDim.x) {
        int r = e / COLUMNS, c = e % COLUMNS;
        if (c >= columns) continue;
        float sum = t.top[e];
        for (int s = 0; s <= r; ++s) sum += t.within[r * CHUNK + s] * t.u[s * COLUMNS + c];
        out[r * d_v + c] = sum;
    }
    for (int e = threadIdx.x; e < d * COLUMNS; e += blockDim.x) {
        int i = e / COLUMNS, c = e % COLUMNS;
        if (c >= columns) continue;
        float sum = t.last[i] * t.state[e];
        for (int r = 0; r < rows; ++r) sum += t.fade[r * t.pitch + i] * t.u[r * COLUMNS + c];
        t.state[e] = sum;
    }
}

// Grid (ceil(d_v / 32), heads): columns of the state do not depend on one another.
__global__ void delta_chunks(const float* __restrict__ q, const float* __restrict__ k,
                             const float* __restrict__ v, const float* __restrict__ beta,
                             const float* __restrict__ decay, float* __restrict__ state,
                             float* __restrict__ out, float* __restrict__ before, float* __restrict__ errors,
                             int n, int d, int d_v) {
    extern __shared__ float shared[];
    Tiles t(shared, d);
    int first_column = blockIdx.x * COLUMNS, columns = min(COLUMNS, d_v - first_column);
    size_t head = blockIdx.y, size = (size_t)d * d_v;
    if (before) before += head * ((n + CHUNK - 1) / CHUNK) * size + first_column;
    float* mine = state + head * size + first_column;
    for (int e = threadIdx.x; e < d * COLUMNS; e += blockDim.x)
        if (e % COLUMNS < columns) t.state[e] = mine[e / COLUMNS * d_v + e % COLUMNS];
    for (int start = 0; start < n; start += CHUNK) {
        int rows = min(CHUNK, n - start);
        size_t token = head * n + start;
        for (int e = threadIdx.x; before && e < d * COLUMNS; e += blockDim.x)
            if (e % COLUMNS < columns)
                before[start / CHUNK * size + e / COLUMNS * d_v + e % COLUMNS] = t.state[e];
        load(t, q + token * d, k + token * d, beta + token, decay + token * d, rows, d);
        __syncthreads();
        faded_pairs(t.q, t.k, t.fade, t.within, t.system, rows, d, t.pitch, CHUNK);
        __syncthreads();  // the logarithms are read
        fade_rows(t, rows, d);
        __syncthreads();  // q and k are faded
        read_state(t, v + token * d_v + first_column, rows, d, d_v, columns);
        __syncthreads();  // u is whole before it is solved
        solve(t, errors ? errors + token * d_v + first_column : nullptr, rows, d_v, columns);
        __syncthreads();  // u is solved
        write(t, out + token * d_v + first_column, rows, d, d_v, columns);
        __syncthreads();  // the next chunk overwrites the tiles
    }
    for (int e = threadIdx.x; e < d * COLUMNS; e += blockDim.x)
        if (e % COLUMNS < columns) mine[e / COLUMNS * d_v + e % COLUMNS] = t.state[e];
}
