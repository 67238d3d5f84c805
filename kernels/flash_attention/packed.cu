// Texts of different lengths in one row of tokens, without padding, in one launch: rung 6 of the ladder, once per text.
//
//   cu_seqlens = [0, 30, 77, 100]: the first text is tokens 0 .. 29, the second 30 .. 76, the third 77 .. 99
//
// A block looks up where its text begins and ends. The walk over the keys is that of register_tiles.cuh, from the
// text's first row and for its length; tokens of other texts are not masked, they are outside. Its backward is in
// backward.cu, packed_keys and packed_queries.
//
// Counted at 128 tokens, d = 64, one float head, causal: bytes that loads ask of global memory, and move in sectors.
//
//   texts                 as                           asked      moved    still wastes
//   128                   rung 6, flash_two_groups   131,072    131,072    attends across texts, if there are several
//   128                   flash_packed               133,120    131,584    each thread loads the two ends
//   40, 60, 28            flash_packed               101,376     99,072    blocks beyond a shorter text's end do
//                                                                          nothing
//
// q, out (heads, total, d or v_dim), k, v (heads / group_size, total, d or v_dim), lse (heads, total); cu_seqlens
// (texts + 1). float, __half or __nv_bfloat16; widths as in flash_attention.cu.
#include "../common/register_tiles.cuh"

// Grid (longest / 64, heads, texts), block 128.
template <typename T, int D, int DV>
__global__ void flash_packed(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             const int* __restrict__ cu_seqlens, T* __restrict__ out, float* __restrict__ lse,
                             int group_size, int total, int d, int v_dim, float scale, int causal) {
    const int first = cu_seqlens[blockIdx.z], n = cu_seqlens[blockIdx.z + 1] - first;
    if (blockIdx.x * 64 >= n) return;  // another text is longer
    const long long head = blockIdx.y, row = head * total + first, key = head / group_size * total + first;
    register_tiles<T, D, DV, 2, true>(q + row * d, k + key * d, v + key * v_dim, nullptr, out + row * v_dim,
                                      lse + row, n, n, d, v_dim, scale, causal);
}
