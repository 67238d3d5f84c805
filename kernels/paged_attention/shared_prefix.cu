// Decoding requests that begin with the same text (cascade attention): its pages are read once for many requests.
//
// One launch. Its first blocks have a part of the shared pages and the queries of many requests: a row of their tile
// is one head of one request, and all rows see the same keys. Each other block has what one request does not share.
// A block leaves its rows' (largest score, sum of weights, output) in memory. The block that finishes a request's
// last part merges that request's parts, as exercise 6.3 does.
//
// Counted with 8 requests of 256 shared tokens and 32 of their own, pages of 16, d = 64, 4 query heads on one key
// head: bytes asked of global memory, and moved in sectors of 32. Keys and values of all pages, each once, are
// 262,144.
//
//   kernel                                        asked      moved  still wastes
//   paged_decode_warps<16, 4>, per request    1,404,928  1,258,496  the shared pages once per request
//   shared_prefix_decode                        358,912    333,312  a request's few rows leave most of its tile idle
//   shared_prefix_decode, n_splits = 4          482,560    425,472  more parts written to memory and read back
//
// q, out (batch, heads, d), keys, values, tables and lengths as in paged_attention.cu; the first `shared` tokens, whole
// pages, are in the same blocks for all requests. arrived (batch, kv_heads) counts finished parts, 0 at the start.
#include "../common/pages.cuh"

// parts (batch, heads, n_splits + 1, d), sums (batch, heads, n_splits + 1, 2); part n_splits is the request's own.
// Grid (tiles * n_splits + batch, kv_heads), block 128; a tile has 4 * ROWS / group whole requests.
template <int D, int ROWS>
__global__ void __launch_bounds__(128)
    shared_prefix_decode(const float* __restrict__ q, const float* __restrict__ keys,
                         const float* __restrict__ values, const int* __restrict__ tables,
                         const int* __restrict__ lengths, float* __restrict__ out, float* parts, float* sums,
                         int* arrived, int batch, int heads, int kv_heads, int d, int block_size,
                         int max_pages, int shared, int n_splits, float scale) {
    constexpr int TILE_Q = 4 * ROWS;
    __shared__ float4 q_tile[TILE_Q][D / 4];
    __shared__ int last[TILE_Q];  // whether this block finishes the request
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = heads / kv_heads,
              kv_head = blockIdx.y;
    const int together = TILE_Q / group, prefix_blocks = (batch + together - 1) / together * n_splits;
    const int own = (int)blockIdx.x - prefix_blocks;  // below 0: a block of the prefix
    const int request = own < 0 ? (int)blockIdx.x / n_splits * together : own;
    const int requests = own < 0 ? min(together, batch - request) : 1, rows = requests * group;
    const int part = own < 0 ? (int)blockIdx.x % n_splits : n_splits;
    const int pages = shared / block_size, per_split = (pages + n_splits - 1) / n_splits * block_size;
    const int begin = min(shared, part * per_split);  // of the request's own part, where the prefix ends
    const int end = own < 0 ? min(shared, begin + per_split) : lengths[request];
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    // Row r is head r % group of the key head, of request r / group.
    const auto row_of = [=](int r) {
        return (long long)(request + r / group) * heads + kv_head * group + r % group;
    };
    for (int e = threadIdx.x; e < TILE_Q * (D / 4); e += blockDim.x) {
        const int r = e / (D / 4), c = e % (D / 4);
        q_tile[r][c] = r < rows && 4 * c < d ? *(const float4*)(q + row_of(r) * d + 4 * c) : zero;
    }
    float m[ROWS], l[ROWS], o[ROWS][D / 32];
    start_rows(m, l, o);
    const auto seen = [=](int) { return end; };
    walk_pages<D, ROWS>(q_tile, keys, values, tables + (long long)request * max_pages, begin, end, rows,
                        kv_heads, kv_head, block_size, d, scale, seen, m, l, o);

    const int n_parts = n_splits + 1;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int r = warp * ROWS + i;
        if (r >= rows) break;
        const long long at = row_of(r) * n_parts + part;
        for (int b = 0; b < D / 32; ++b)
            if (32 * b + lane < d) parts[at * d + 32 * b + lane] = o[i][b];
        if (lane == 0) {
            sums[2 * at] = m[i];
            sums[2 * at + 1] = l[i];
        }
    }
    __threadfence();  // the part is in memory before it is counted
    __syncthreads();
    if (threadIdx.x < requests)
        last[threadIdx.x] = atomicAdd(&arrived[(request + threadIdx.x) * kv_heads + kv_head], 1) == n_splits;
    __syncthreads();
    __threadfence();  // and counted before it is read
    for (int e = threadIdx.x; e < rows * d; e += blockDim.x) {
        const int r = e / d, c = e % d;
        if (last[r / group])
            out[row_of(r) * d + c] =
                merged(parts + row_of(r) * n_parts * d, sums + row_of(r) * n_parts * 2, n_parts, d, c);
    }
}
