// Multi-head latent attention, one query per sequence, on the latents themselves: nothing is unfolded.
//
//   score of head h and token j:   scale (q_h . c_j + r_h . k_j)        mixed_h = sum over j of weight_hj c_j
//
// c_j is the latent of token j and k_j its rotated key, which all heads share; q_h is the query after W_UK has
// been moved to its side, r_h its rotated part. W_UV is applied to mixed_h afterwards, once per head. A latent is
// key and value at once, so a tile of latents in shared memory is loaded once and used twice by each head.
//
// Counted with 256 tokens, 16 heads, latents of 64 (head_dim 16), rotated keys of 8, float: bytes that loads ask of
// global memory. The cache of these tokens is 73,728 bytes.
//
//   kernel                    idea                                      asked  still wastes
//   attend_by_head (gqa.cu)   keys and values unfolded, kept for      787,968  a cache of 640 numbers per token
//                             every head                                       in place of 72
//   latent_decode<T, 1>       the latents, one block per head       1,192,448  every head loads every latent
//   attend_by_group (gqa.cu)  one block for all heads, as MQA         152,064  each latent comes as key and value
//   latent_decode<T, 16>      a tile is keys and values at once        78,848  FP32 pipes do the products: tensor
//                                                                              cores are idle
//
// With few sequences, few blocks run: chapter 7 splits the keys. latent_dim at most 512; any n and rope_dim.
#include "../common/tiles.cuh"

constexpr int TILE = 16, THREADS = 128;

// `count` rows of shared memory, `pitch` float4 apart: row first + i of x, then of rotated; 0 from row n on.
template <typename T>
__device__ void load_rows(float4* __restrict__ rows, int count, int pitch, const T* __restrict__ x,
                          const T* __restrict__ rotated, int first, int n, int latent_dim, int rope_dim) {
    const int columns = (latent_dim + 3) / 4, all_columns = columns + (rope_dim + 3) / 4;
    for (int e = threadIdx.x; e < count * all_columns; e += THREADS) {
        const int row = e / all_columns, c = e % all_columns;
        rows[row * pitch + c] = c < columns ? load4(x, first + row, 4 * c, n, latent_dim)
                                            : load4(rotated, first + row, 4 * (c - columns), n, rope_dim);
    }
}

// q, out (b, n_heads, latent_dim), q_rope (b, n_heads, rope_dim), latents (b, n, latent_dim), rope_keys (b, n,
// rope_dim), lengths (b): tokens of each sequence. Thread t owns columns 4 t .. 4 t + 3 of all heads' sums.
// Grid (n_heads / HEADS, b), block THREADS, (HEADS + TILE) * pitch * 16 bytes of shared memory.
template <typename T, int HEADS>
__global__ void __launch_bounds__(THREADS)
    latent_decode(const T* __restrict__ q, const T* __restrict__ q_rope, const T* __restrict__ latents,
                  const T* __restrict__ rope_keys, const int* __restrict__ lengths, T* __restrict__ out,
                  int n_heads, int n, int latent_dim, int rope_dim, float scale) {
    extern __shared__ float4 shared[];
    __shared__ float weight[HEADS][TILE + 1], row_max[HEADS], row_sum[HEADS], shrink[HEADS];
    const int columns = (latent_dim + 3) / 4, all_columns = columns + (rope_dim + 3) / 4;
    const int pitch = all_columns | 1;  // odd: eight tokens' float4 are in eight groups of banks
    float4* queries = shared;  // [HEADS][pitch]
    float4* tile = queries + HEADS * pitch;  // [TILE][pitch]
    const int tid = threadIdx.x, first_head = blockIdx.x * HEADS, heads = min(HEADS, n_heads - first_head);
    const long long batch = blockIdx.y, row = batch * n_heads + first_head;
    const int length = lengths[batch];
    latents += batch * n * latent_dim;
    rope_keys += batch * n * rope_dim;

    load_rows(queries, HEADS, pitch, q + row * latent_dim, q_rope + row * rope_dim, 0, heads, latent_dim,
              rope_dim);
    for (int h = tid; h < HEADS; h += THREADS) {
        row_max[h] = -INFINITY;
        row_sum[h] = 0.0f;
    }
    float4 mixed[HEADS] = {};
    for (int first = 0; first < length; first += TILE) {
        const int tokens = min(TILE, length - first);
        load_rows(tile, tokens, pitch, latents, rope_keys, first, length, latent_dim, rope_dim);
        __syncthreads();

        for (int pair = tid; pair < heads * TILE; pair += THREADS) {
            const int h = pair / TILE, j = pair % TILE;
            float score = 0.0f;
            if (j < tokens)
                for (int c = 0; c < all_columns; ++c)
                    score += dot(queries[h * pitch + c], tile[j * pitch + c]);
            weight[h][j] = scale * score;
        }
        __syncthreads();

        // One thread per head merges the tile into its running maximum and sum.
        if (tid < heads) {
            const float before = row_max[tid];
            float now = before, sum = 0.0f;
            for (int j = 0; j < tokens; ++j) now = fmaxf(now, weight[tid][j]);
            for (int j = 0; j < tokens; ++j) {
                const float p = expf(weight[tid][j] - now);
                weight[tid][j] = p;
                sum += p;
            }
            shrink[tid] = expf(before - now);  // first tile: exp(-inf) = 0
            row_sum[tid] = row_sum[tid] * shrink[tid] + sum;
            row_max[tid] = now;
        }
        __syncthreads();

        if (tid < columns) {
#pragma unroll
            for (int h = 0; h < HEADS; ++h)
                if (h < heads) multiply(mixed[h], shrink[h]);
            for (int j = 0; j < tokens; ++j) {
                const float4 latent = tile[j * pitch + tid];  // the key of before is the value now
#pragma unroll
                for (int h = 0; h < HEADS; ++h)
                    if (h < heads) add_scaled(mixed[h], weight[h][j], latent);
            }
        }
        __syncthreads();  // the next tile overwrites this one
    }

    if (tid < columns) {
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            if (h >= heads) break;
            multiply(mixed[h], length > 0 ? 1.0f / row_sum[h] : 0.0f);
            store4(out + row * latent_dim, mixed[h], h, 4 * tid, heads, latent_dim);
        }
    }
}
