// The backward of delta_chunks.cu: chunks of 16 tokens from the last to the first, with G the gradient of the
// state after the chunk. e (errors), u = beta e, A_t, within and system are those of the forward:
//
//   g_t = G^T ((A_end / A_t) k_t) + sum over s >= t of within[s][t] do_s
//         - sum over s > t of beta_s system[s][t] g_s                   of u_t: one triangular system per chunk
//   dv_t = beta_t g_t,   dbeta_t = g_t . e_t
//   d within[t][s] = do_t . u_s,   d system[t][s] = -dv_t . u_s
//   G <- diag(A_end) G + sum of A_t (q_t do_t^T - k_t dv_t^T)
//
// What is left belongs to one channel i of queries and keys, and a thread walks its channel through the chunk
// backwards. It multiplies by the decays a_t one after the other, as in Horner's scheme, so that it neither
// divides by a small product nor subtracts two large ones:
//
//   dq_t, dk_t    rows of S_0 do_t, -S_0 dv_t, then a_s times that + d within[t][s] k_s, and with d system
//   later[s]      what token s is to what comes from token t on: a_{t+1} later[s] + d within[t][s] q_t + ...
//   da_t          everything before t, faded up to t, times what it is to everything from t on
//
// Columns of the state do not depend on one another, but gradients of q, k, beta and decay are sums over them.
// Each of the C = ceil(d_v / 16) blocks of a head writes its own part, and PyTorch adds the parts in a fixed
// order, so every run gives the same bits.
//
//   asked for / 4, per head:   2 C n (3 d + 1) + 3 n d_v + (ceil(n / 16) + 2) d d_v;   6 barriers per chunk
//   still wasted:              C parts of dq, dk and d decay; products inside a chunk are made in every block;
//                              chunks may be ragged, so a thread's a and later (32 numbers) are in local memory
//
// Layout as in delta_chunks.cu; dq, dk, ddecay (C, heads, n, d), dbeta (C, heads, n); grad_state (heads, d, d_v)
// holds the gradient of the last state, and of the first when it is done.

#include <cuda_runtime.h>

#include "../common/faded_pairs.cuh"

constexpr int CHUNK = 16, COLUMNS = 16, PITCH = COLUMNS + 1;

struct Tiles {
    float *state, *grad, *q, *k, *fade, *beta, *within, *system, *error, *out, *g;
    int pitch;

    __device__ Tiles(float* memory, int d) : pitch(d + 1) {
        state = memory;  // S_0
        grad = state + d * PITCH;  // G
        q = grad + d * PITCH;
        k = q + CHUNK * pitch;
        fade = k + CHUNK * pitch;
        beta = fade + CHUNK * pitch;
        within = beta + CHUNK;  // later its gradient; so system
        system = within + CHUNK * CHUNK;
        error = system + CHUNK * CHUNK;
        out = error + CHUNK * COLUMNS;  // do
        g = out + CHUNK * COLUMNS;
    }
};

// Rows of `width` numbers, of which a block has `columns`, to rows of `pitch` floats in shared memory.
__device__ void load_columns(float* tile, const float* __restrict__ from, int rows, int width, int columns,
                             int pitch) {
    for (int e = threadIdx.x; e < rows * COLUMNS; e += blockDim.x)
        if (e % COLUMNS < columns)
            tile[e / COLUMNS * pitch + e % COLUMNS] = from[(size_t)(e / COLUMNS) * width + e % COLUMNS];
}

// What G and the outputs give to u_t, before the errors of later tokens are taken into account.
__device__ void gather(Tiles t, int rows, int d, int columns) {
    const float* end = t.fade + (rows - 1) * t.pitch;
    for (int e = threadIdx.x; e < rows * COLUMNS; e += blockDim.x) {
        int r = e / COLUMNS, c = e % COLUMNS;
        if (c >= columns) continue;
        float sum = 0.0f;
        for (int i = 0; i < d; ++i)
            sum += t.grad[i * PITCH + c] * t.k[r * t.pitch + i] * expf(end[i] - t.fade[r * t.pitch + i]);
        for (int s = r; s < rows; ++s) sum += t.within[s * CHUNK + r] * t.out[s * COLUMNS + c];
        t.g[e] = sum;
    }
}

// Backward substitution, a thread for whole columns.
__device__ void solve(Tiles t, int rows, int columns) {
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        for (int r = rows - 2; r >= 0; --r) {
            float g = t.g[r * COLUMNS + c];
            for (int s = r + 1; s < rows; ++s)
                g -= t.system[s * CHUNK + r] * t.beta[s] * t.g[s * COLUMNS + c];
            t.g[r * COLUMNS + c] = g;
        }
}

__device__ float dot(const float* a, const float* b, int columns) {
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) sum += a[c] * b[c];
    return sum;
}

// dv, dbeta, and the gradients of the pairs in the pairs' place.
__device__ void pair_gradients(Tiles t, float* __restrict__ dv, float* __restrict__ dbeta, int rows, int d_v,
                               int columns) {
    for (int pair = threadIdx.x; pair < rows * rows; pair += blockDim.x) {
        int r = pair / rows, s = pair % rows;
        if (s > r) continue;
        const float *error = t.error + s * COLUMNS, *g = t.g + r * COLUMNS;
        t.within[r * CHUNK + s] = t.beta[s] * dot(t.out + r * COLUMNS, error, columns);
        t.system[r * CHUNK + s] = s < r ? -t.beta[r] * t.beta[s] * dot(g, error, columns) : 0.0f;
        if (s == r) dbeta[r] = dot(g, error, columns);
    }
    for (int e = threadIdx.x; e < rows * COLUMNS; e += blockDim.x) {
        int r = e / COLUMNS, c = e % COLUMNS;
        if (c < columns) dv[(size_t)r * d_v + c] = t.beta[r] * t.g[e];
    }
}

// One channel: gradients of its queries, keys and decays, from the last token of the chunk to the first.
__device__ void walk(Tiles t, int i, float* __restrict__ dq, float* __restrict__ dk,
                     float* __restrict__ ddecay, int rows, int d, int columns) {
    const float *state = t.state + i * PITCH, *grad = t.grad + i * PITCH;
    float a[CHUNK], later[CHUNK], start = dot(state, grad, columns);  // start: what S_0 is to what follows
    for (int r = 0; r < rows; ++r) {
        a[r] = expf(t.fade[r * t.pitch + i] - (r ? t.fade[(r - 1) * t.pitch + i] : 0.0f));
        later[r] = t.beta[r] * dot(grad, t.error + r * COLUMNS, columns);
    }
    for (int r = rows - 1; r >= 0; --r) {
        const float *within = t.within + r * CHUNK, *system = t.system + r * CHUNK;
        float q = t.q[r * t.pitch + i], k = t.k[r * t.pitch + i], next = r + 1 < rows ? a[r + 1] : 1.0f;
        float of_q = dot(state, t.out + r * COLUMNS, columns);
        float of_k = -t.beta[r] * dot(state, t.g + r * COLUMNS, columns);
        start = next * start + q * of_q + k * of_k;
        float of_a = start;
        for (int s = 0; s <= r; ++s) {
            float key = t.k[s * t.pitch + i];
            later[s] = next * later[s] + within[s] * q + system[s] * k;
            of_q = of_q * a[s] + within[s] * key;
            of_k = of_k * a[s] + system[s] * key;
            if (s < r) of_a = of_a * a[s] + key * later[s];
        }
        dq[(size_t)r * d + i] = of_q;
        dk[(size_t)r * d + i] = of_k + later[r];
        ddecay[(size_t)r * d + i] = of_a;
    }
    for (int c = 0; c < columns; ++c) {
        float g = grad[c];
        for (int r = rows - 1; r >= 0; --r)
            g = a[r] * (g + t.q[r * t.pitch + i] * t.out[r * COLUMNS + c] -
                        t.k[r * t.pitch + i] * t.beta[r] * t.g[r * COLUMNS + c]);
        t.grad[i * PITCH + c] = g;
    }
}

// Grid (ceil(d_v / 16), heads).
__global__ void delta_backward(const float* __restrict__ q, const float* __restrict__ k,
                               const float* __restrict__ beta, const float* __restrict__ decay,
                               const float* __restrict__ before, const float* __restrict__ errors,
                               const float* __restrict__ grad_out, float* __restrict__ grad_state,
                               float* __restrict__ dq, float* __restrict__ dk, float* __restrict__ dv,
                               float* __restrict__ dbeta, float* __restrict__ ddecay, int n, int d, int d_v) {
    extern __shared__ float shared[];
    Tiles t(shared, d);
    int first_column = blockIdx.x * COLUMNS, columns = min(COLUMNS, d_v - first_column);
    int chunks = (n + CHUNK - 1) / CHUNK;
    size_t head = blockIdx.y, part = blockIdx.x * (size_t)gridDim.y + head, size = (size_t)d * d_v;
    grad_state += head * size + first_column;
    load_columns(t.grad, grad_state, d, d_v, columns, PITCH);
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
        int start = chunk * CHUNK, rows = min(CHUNK, n - start);
        size_t token = head * n + start, to = part * n + start, at = token * d_v + first_column;
        load_faded(q + token * d, k + token * d, decay + token * d, t.q, t.k, t.fade, rows, d, t.pitch);
        for (int r = threadIdx.x; r < rows; r += blockDim.x) t.beta[r] = beta[token + r];
        load_columns(t.state, before + (head * chunks + chunk) * size + first_column, d, d_v, columns, PITCH);
        load_columns(t.error, errors + at, rows, d_v, columns, COLUMNS);
        load_columns(t.out, grad_out + at, rows, d_v, columns, COLUMNS);
        __syncthreads();
        faded_pairs(t.q, t.k, t.fade, t.within, t.system, rows, d, t.pitch, CHUNK);
        __syncthreads();  // the pairs are whole
        gather(t, rows, d, columns);
        __syncthreads();  // g is whole before it is solved
        solve(t, rows, columns);
        __syncthreads();  // g is solved
        pair_gradients(t, dv + at, dbeta + to, rows, d_v, columns);
        __syncthreads();  // the pairs' gradients are whole
        for (int i = threadIdx.x; i < d; i += blockDim.x)
            walk(t, i, dq + to * d, dk + to * d, ddecay + to * d, rows, d, columns);
        __syncthreads();  // the next chunk overwrites the tiles
    }
    for (int e = threadIdx.x; e < d * COLUMNS; e += blockDim.x)
        if (e % COLUMNS < columns)
            grad_state[(size_t)(e / COLUMNS) * d_v + e % COLUMNS] = t.grad[e / COLUMNS * PITCH + e % COLUMNS];
}
