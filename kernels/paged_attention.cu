// Attention of the newest queries over keys and values that are stored in blocks ("pages"), found through a
// table.
//
//   q, out (batch, heads, d); keys, values (n_blocks, kv_heads, block_size, d), one layer of the pool;
//   tables (batch, max_pages): position p of sequence b is in block tables[b][p / block_size], at p % block_size;
//   lengths (batch). Query head h reads key head h / (heads / kv_heads). d is a multiple of 4, 128 at most.
//
// Bytes of global memory as the laptop engine counts them (asked, and moved in sectors of 32), with lengths
// 256 and 128, pages of 16, d = 64, 8 query heads on 2 key heads. The dense kernel's keys and values are
// 393,216 bytes, the table 96, queries, output and lengths 8,224: 401,536 at least.
//
//   kernel                     idea                               still wastes                   asked     moved
//   1 paged_decode_naive       one thread per key                 a sector for 4 bytes       3,170,304 7,480,320
//   2 paged_decode_warps<L,1>  lanes share a token, 16 bytes each a load per query head      1,814,528 1,644,544
//   3 paged_decode_warps<L,G>  G query heads use each load        few blocks: an idle GPU      481,280   426,496
//   4 with n_splits = 4        pages split among blocks, merged   partial results written      651,776   522,240
//                                                                 to memory and read back
//   5 paged_prefill<D, ROWS>   a tile of rows shares each key     each page once per tile    2,803,584 2,753,280
//   6 kv_cache/tensor_core.cu, for a card
//
// Rung 5 is counted with chunks of 64 and 32 queries, the last of the same sequences: 786,592 bytes at least.
#include "common/pages.cuh"

// A reduction over all warps of the block (32 at most), not only the first; every thread gets the result.
// of_warp: 32 floats of shared memory. REDUCE is lanes_max with -inf as its neutral element, or lanes_sum
// with 0.
template <float (*REDUCE)(float, int)>
__device__ float block_reduce(float x, float neutral, float* of_warp) {
    x = REDUCE(x, 32);
    __syncthreads();  // the last result has been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return REDUCE(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : neutral, 32);
}

// 1: scores[j] = q . k_j by one thread per key, softmax by the block, then one thread per column of the
// output. Grid (heads, batch), a block of whole warps, 4 * (the largest length) bytes of shared memory.
__global__ void paged_decode_naive(const float* __restrict__ q, const float* __restrict__ keys,
                                   const float* __restrict__ values, const int* __restrict__ tables,
                                   const int* __restrict__ lengths, float* __restrict__ out, int heads,
                                   int kv_heads, int d, int block_size, int max_pages, float scale) {
    extern __shared__ float scores[];
    __shared__ float of_warp[32];
    const long long row = (long long)blockIdx.y * heads + blockIdx.x;
    const int kv_head = blockIdx.x / (heads / kv_heads), length = lengths[blockIdx.y];
    const int* table = tables + (long long)blockIdx.y * max_pages;
    q += row * d;

    float largest = -INFINITY;
    for (int j = threadIdx.x; j < length; j += blockDim.x) {
        const long long page = table[j / block_size];
        const float* k = keys + ((page * kv_heads + kv_head) * block_size + j % block_size) * d;
        float s = 0.0f;
        for (int c = 0; c < d; ++c) s += q[c] * k[c];
        scores[j] = scale * s;
        largest = fmaxf(largest, scale * s);
    }
    largest = block_reduce<lanes_max>(largest, -INFINITY, of_warp);
    float total = 0.0f;
    for (int j = threadIdx.x; j < length; j += blockDim.x) {
        const float weight = expf(scores[j] - largest);
        scores[j] = weight;
        total += weight;
    }
    total = block_reduce<lanes_sum>(total, 0.0f, of_warp);  // its barriers also order the weights
    for (int c = threadIdx.x; c < d; c += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < length; ++j) {
            const long long page = table[j / block_size];
            sum += scores[j] * values[((page * kv_heads + kv_head) * block_size + j % block_size) * d + c];
        }
        out[row * d + c] = length > 0 ? sum / total : 0.0f;
    }
}

// 2, 3, 4: LANES lanes hold one token, float4 each, so a warp reads 32 / LANES tokens at a time, and GROUP
// query heads of one key head use each load. Each group of lanes keeps its own online softmax over every (4 *
// 32 / LANES)th token; at the end they are merged: lanes by shuffles, warps through shared memory, splits by
// paged_merge. Grid (n_splits, heads / GROUP, batch), block 128. 4 * LANES >= d. parts (batch, heads,
// n_splits, d) and sums (batch, heads, n_splits, 2: largest score, sum of weights) are used if n_splits > 1.
template <int LANES, int GROUP>
__global__ void __launch_bounds__(128)
    paged_decode_warps(const float* __restrict__ q, const float* __restrict__ keys,
                       const float* __restrict__ values, const int* __restrict__ tables,
                       const int* __restrict__ lengths, float* __restrict__ out, float* __restrict__ parts,
                       float* __restrict__ sums, int heads, int kv_heads, int d, int block_size,
                       int max_pages, float scale) {
    constexpr int WARPS = 4, TOKENS = 32 / LANES, WIDTH = 4 * LANES;
    __shared__ float o_of[WARPS][GROUP][WIDTH], m_of[WARPS][GROUP], l_of[WARPS][GROUP];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = 4 * (lane % LANES);
    const int n_splits = gridDim.x, split = blockIdx.x, first_head = blockIdx.y * GROUP;
    const int kv_head = first_head / (heads / kv_heads), length = lengths[blockIdx.z];
    const long long row = (long long)blockIdx.z * heads + first_head;
    const int* table = tables + (long long)blockIdx.z * max_pages;
    const int pages = (length + block_size - 1) / block_size,
              pages_per_split = (pages + n_splits - 1) / n_splits;
    const int begin = split * pages_per_split * block_size,
              end = min(length, begin + pages_per_split * block_size);
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    float4 query[GROUP], o[GROUP];
    float m[GROUP], l[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        query[g] = c < d ? *(const float4*)(q + (row + g) * d + c) : zero;
        o[g] = zero;
        m[g] = -INFINITY;
        l[g] = 0.0f;
    }
    for (int base = begin + warp * TOKENS; base < end; base += WARPS * TOKENS) {
        const int token = base + lane / LANES;
        float4 k = zero, v = zero;
        if (token < end && c < d) {
            const long long page = table[token / block_size];
            const long long at = ((page * kv_heads + kv_head) * block_size + token % block_size) * d + c;
            k = *(const float4*)(keys + at);
            v = *(const float4*)(values + at);
        }
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            const float sum = lanes_sum(dot(query[g], k), LANES);  // by all lanes, also those beyond the end
            const float s = token < end ? scale * sum : -INFINITY;
            const float larger = fmaxf(m[g], s), old = expf(m[g] - finite(larger)),
                        weight = expf(s - finite(larger));
            multiply(o[g], old);
            add_scaled(o[g], weight, v);
            l[g] = l[g] * old + weight;
            m[g] = larger;
        }
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        for (int step = LANES; step < 32; step *= 2) {
            const float m_other = __shfl_xor_sync(0xffffffff, m[g], step);
            const float larger = fmaxf(m[g], m_other);
            const float mine = expf(m[g] - finite(larger)), others = expf(m_other - finite(larger));
            l[g] = l[g] * mine + others * __shfl_xor_sync(0xffffffff, l[g], step);
            o[g].x = o[g].x * mine + others * __shfl_xor_sync(0xffffffff, o[g].x, step);
            o[g].y = o[g].y * mine + others * __shfl_xor_sync(0xffffffff, o[g].y, step);
            o[g].z = o[g].z * mine + others * __shfl_xor_sync(0xffffffff, o[g].z, step);
            o[g].w = o[g].w * mine + others * __shfl_xor_sync(0xffffffff, o[g].w, step);
            m[g] = larger;
        }
        if (lane < LANES) {
            o_of[warp][g][c] = o[g].x;
            o_of[warp][g][c + 1] = o[g].y;
            o_of[warp][g][c + 2] = o[g].z;
            o_of[warp][g][c + 3] = o[g].w;
        }
        if (lane == 0) {
            m_of[warp][g] = m[g];
            l_of[warp][g] = l[g];
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < GROUP * d; e += blockDim.x) {
        const int g = e / d, column = e % d;
        float largest = -INFINITY, sum = 0.0f, total = 0.0f;
        for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, m_of[w][g]);
        for (int w = 0; w < WARPS; ++w) {
            const float weight = expf(m_of[w][g] - finite(largest));
            sum += weight * o_of[w][g][column];
            total += weight * l_of[w][g];
        }
        if (n_splits == 1) {
            out[row * d + e] = total > 0.0f ? sum / total : 0.0f;
        } else {
            const long long part = (row + g) * n_splits + split;
            parts[part * d + column] = sum;
            if (column == 0) {
                sums[2 * part] = largest;
                sums[2 * part + 1] = total;
            }
        }
    }
}

// The splits of one head, weighted by exp(largest score). Grid (heads, batch), d threads rounded up to whole
// warps.
__global__ void paged_merge(const float* __restrict__ parts, const float* __restrict__ sums,
                            float* __restrict__ out, int n_splits, int d) {
    const long long row = (long long)blockIdx.y * gridDim.x + blockIdx.x;
    const int c = threadIdx.x;
    if (c >= d) return;
    parts += row * n_splits * d;
    sums += row * n_splits * 2;
    out[row * d + c] = merged(parts, sums, n_splits, d, c);
}

// 5: a chunk of queries per sequence, its last tokens; each sees the keys up to its own position. q and out
// (tokens, heads, d): the chunk of sequence b is tokens starts[b] .. starts[b + 1] - 1. A row of the tile is
// one head of one token; the heads of one key head are neighbours, so all 4 * ROWS rows use the keys in
// shared memory. This is rung 4 of chapter 6, but each key is looked up. Grid (rows of the longest chunk / (4
// * ROWS), kv_heads, batch), block 128.
template <int D, int ROWS>
__global__ void __launch_bounds__(128)
    paged_prefill(const float* __restrict__ q, const float* __restrict__ keys,
                  const float* __restrict__ values, const int* __restrict__ tables,
                  const int* __restrict__ starts, const int* __restrict__ lengths, float* __restrict__ out,
                  int heads, int kv_heads, int d, int block_size, int max_pages, float scale) {
    constexpr int TILE_Q = 4 * ROWS;
    __shared__ float4 q_tile[TILE_Q][D / 4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = heads / kv_heads,
              kv_head = blockIdx.y;
    const int start = starts[blockIdx.z], n = starts[blockIdx.z + 1] - start,
              before = lengths[blockIdx.z] - n;
    const int row0 = blockIdx.x * TILE_Q, rows = min(TILE_Q, n * group - row0);
    if (rows <= 0) return;  // another sequence has a longer chunk
    const int* table = tables + (long long)blockIdx.z * max_pages;
    const int end = before + (row0 + rows - 1) / group + 1;  // the keys that the tile's last row sees
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    for (int e = threadIdx.x; e < TILE_Q * (D / 4); e += blockDim.x) {
        const int row = e / (D / 4), c = e % (D / 4), token = (row0 + row) / group, g = (row0 + row) % group;
        const long long at = ((long long)(start + token) * heads + kv_head * group + g) * d + 4 * c;
        q_tile[row][c] = row < rows && 4 * c < d ? *(const float4*)(q + at) : zero;
    }
    float m[ROWS], l[ROWS], o[ROWS][D / 32];
    start_rows(m, l, o);
    const auto seen = [=](int row) { return min(end, before + (row0 + row) / group + 1); };
    walk_pages<D, ROWS>(q_tile, keys, values, table, 0, end, rows, kv_heads, kv_head, block_size, d, scale,
                        seen, m, l, o);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = warp * ROWS + r, token = (row0 + row) / group, g = (row0 + row) % group;
        if (row >= rows) break;
        const long long at = ((long long)(start + token) * heads + kv_head * group + g) * d;
        for (int b = 0; b < D / 32; ++b)
            if (32 * b + lane < d) out[at + 32 * b + lane] = o[r][b] / l[r];
    }
}

// pairs (n, 2): source and target, the same for every layer. keys, values (layers, n_blocks, 4 * vectors).
// Grid (n, layers).
__global__ void copy_blocks(float* __restrict__ keys, float* __restrict__ values,
                            const int* __restrict__ pairs, int n_blocks, int vectors) {
    const long long source = pairs[2 * blockIdx.x], target = pairs[2 * blockIdx.x + 1];
    const long long from = ((long long)blockIdx.y * n_blocks + source) * vectors;
    const long long to = ((long long)blockIdx.y * n_blocks + target) * vectors;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        ((float4*)keys)[to + i] = ((const float4*)keys)[from + i];
        ((float4*)values)[to + i] = ((const float4*)values)[from + i];
    }
}
