// A chunk of tokens whose keys fade channel by channel, for the delta rule: A_t is the product of the chunk's
// decays up to t. A_t / A_s is the exponential of a difference of logarithms, at most 0, so nothing overflows.
#pragma once

// q and k of one chunk to shared memory, and log A_t to fade; rows are `pitch` floats apart there.
__device__ inline void load_faded(const float* __restrict__ q, const float* __restrict__ k,
                                  const float* __restrict__ decay, float* to_q, float* to_k, float* fade,
                                  int rows, int d, int pitch) {
    for (int e = threadIdx.x; e < rows * d; e += blockDim.x) {
        int at = e / d * pitch + e % d;
        to_q[at] = q[e];
        to_k[at] = k[e];
    }
    for (int i = threadIdx.x; i < d; i += blockDim.x) {  // a thread owns whole channels
        float log_a = 0.0f;
        for (int r = 0; r < rows; ++r) fade[r * pitch + i] = log_a += logf(decay[r * d + i]);
    }
}

// All pairs s <= t of the chunk: what a query, or a key, finds in an earlier key that has faded since.
//   within[t][s] = q_t . (A_t / A_s) k_s,   system[t][s] = k_t . (A_t / A_s) k_s,   `chunk` floats per row
__device__ inline void faded_pairs(const float* q, const float* k, const float* fade, float* within,
                                   float* system, int rows, int d, int pitch, int chunk) {
    for (int pair = threadIdx.x; pair < rows * rows; pair += blockDim.x) {
        int t = pair / rows, s = pair % rows;
        if (s > t) continue;
        const float *log_t = fade + t * pitch, *log_s = fade + s * pitch;
        float by_query = 0.0f, by_key = 0.0f;
        for (int i = 0; i < d; ++i) {
            float faded = k[s * pitch + i] * expf(log_t[i] - log_s[i]);
            by_query += q[t * pitch + i] * faded;
            by_key += k[t * pitch + i] * faded;
        }
        within[t * chunk + s] = by_query;
        system[t * chunk + s] = by_key;
    }
}
