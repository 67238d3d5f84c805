"""Each line of the tables breaks a kernel a little; values, or the sanitizer, must show it."""
from dataclasses import replace
from functools import partial

import pytest
import torch

from changed_kernels import changed_kernels
from course_lib import cuda
from course_lib.gpu.case import Case
from course_lib.gpu.cases import BF16, CASES, F32
from course_lib.gpu.cases.flash_attention import biased
from course_lib.linear_attention import linear_attention, linear_attention_kernel, tensor_core as linear_core

# What judges a change: cases of course_lib/gpu/cases with shapes of them. One that sees it is enough.
LATENT = {"lengths": (37, 37), "heads": 20, "head_dim": 4, "latent_dim": 12, "rope_dim": 8}
PREFIX = {"pages": 1, "lengths": (20, 33, 21, 63, 44, *range(30, 21, -1), 40, 41, 42), "heads": 4,
          "kv_heads": 2, "d": 32}
CAUSAL = {"b": 1, "heads": 2, "kv_heads": 1, "causal": True}


def only(*kernels, dtype=F32, note="", shapes=()):
    """The first case of just these kernels."""
    case = next(case for case in CASES
                if case.kernels == kernels and case.dtype == dtype and note in case.note)
    return [(case, shape) for shape in shapes or case.small]


def times(factor, judges):
    """With queries times a factor: maxima that move from tile to tile."""
    def scaled(inputs):
        def made(draw, **shape):
            q, *others = inputs(draw, **shape)
            return factor * q, *others
        return made
    return [(replace(case, inputs=scaled(case.inputs)), shape) for case, shape in judges]


def three_launches():
    return only("attention_scores", "softmax_on_chip", "attention_output",
                shapes=[{"b": 5, "heads": 1, "kv_heads": 1, "n": 5, "m": 63, "d": 20, "causal": True}])


def recurrences():
    """elu and relu, under which one query's weights are all 0."""
    def dark(draw, n, d):
        q, k, v = (draw(1, 2, n, d) for _ in "qkv")
        q[:, :, 5] = -1
        return q, k, v
    found = only("delta_rule", shapes=[{"n": 37, "d": 20}])
    rungs = ("state_in_global",), ("state_in_shared",), ("chunk_states", "chunk_outputs")
    for number, kernels in enumerate(rungs, 1):
        (case, _), = only(*kernels)
        for name in ("elu", "relu"):
            run = partial(linear_attention_kernel, feature_map=name, rung=number, chunk_size=8)
            oracle = partial(linear_attention, feature_map=name, causal=True)
            found.append((replace(case, inputs=dark, run=run, oracle=oracle), {"n": 37, "d": 20}))
    return found


def walks():
    """And relu from an empty state, with queries whose weights are all 0."""
    def dark(draw, n, d, segments):
        q, k, v = (draw(1, 2, n, d) for _ in "qkv")
        q[..., :3, :] = -1
        return q, k, v, segments

    def run(q, k, v, segments):
        return linear_core.run(q, k, v, q.new_zeros(1, 2, 128 * 129, dtype=F32), 1, True, segments)[0]
    (case, _), = wide = only("linear_walk", dtype=BF16, shapes=[{"n": 100, "d": 128, "segments": 1}])
    return [*wide, (replace(case, inputs=dark, run=run, oracle=lambda q, k, v, segments: linear_attention(
        q, k, v, "relu", causal=True)), wide[0][1]),
        *only("linear_walk", "segment_prefix", dtype=BF16, shapes=[{"n": 200, "d": 64, "segments": 3}])]


def windows_and_blocks():
    window = {"heads": 2, "kv_heads": 1, "n": 300, "d": 64, "n_sink": 5}
    shapes = [window | {"window": w} for w in (20, 136)]
    return [*times(4, only("window_tensor_core", dtype=BF16, shapes=shapes)),
            *only("block_sparse_tensor_core", dtype=BF16)]


def biased_flash(rung):
    return [(biased(rung), CAUSAL | {"n": n, "m": m, "d": 20, "v_dim": 25}) for n, m in ((63, 33), (33, 63))]


def tensor_flash():
    case = biased(7, dtype=BF16)
    full = CAUSAL | {"d": 64, "causal": False}
    return [(case, CAUSAL | {"n": 100, "m": 70, "d": 40}), (case, full | {"n": 75, "m": 140}),
            *times(16, only("flash_tensor_core", dtype=BF16, shapes=[full | {"n": 40, "m": 260}]))]


def tensor_backward():
    case = biased(7, dtype=BF16)
    return [(case, CAUSAL | {"n": n, "m": m, "d": 64, "causal": n > 45})
            for n, m in ((100, 70), (70, 150), (45, 150))]


def packed():
    return only("flash_packed", "packed_keys", "packed_queries",
                shapes=[{"lengths": (33, 5, 70), "heads": 4, "kv_heads": 2, "d": 16, "causal": True}])


def caches():
    shape = {"heads": 16, "kv_heads": 2, "d": 40}
    return (only("decode_part", "merge_parts", note="2", shapes=[shape | {"lengths": (130, 0, 97)}])
            + only("decode_part_int8", "decode_part", "merge_parts", shapes=[shape | {"n": 100}]))


def half_caches():
    shape = {"lengths": (101, 331), "heads": 8, "kv_heads": 2, "d": 64}
    return times(8, only("decode_tensor_core", "merge_splits", dtype=BF16, shapes=[shape])
                 + only("paged_tensor_core", "merge_splits", dtype=BF16, shapes=[shape]))


def pages(note):
    case = next(case for case in CASES if case.chapter == "paged_attention" and case.note == note)
    return [(case, {"lengths": (1, 75, 9), "heads": 4, "kv_heads": 2, "d": 32})]


class Bias(Case):
    """The bias of w2_prepare is that of the keys as they were rounded."""
    tolerance = 1e-5


def prepared():
    def rounded(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
        keys = torch.cat([mu_k - mu_k[:, :, :1], sigma_k - sigma_k[:, :, :1]], -1).bfloat16().double()
        return -keys.square().sum(-1) / tau[:, None]
    (case, shape), = found = only("w2_prepare", dtype=BF16)
    return [*found, (Bias(**vars(case) | {"run": lambda *x: case.run(*x)[2], "oracle": rounded}), shape)]


def gaussians():
    shapes = [{"b": 1, "heads": 2, "n": n, "m": m, "d": 20, "causal": True} for n, m in ((63, 33), (33, 63))]
    return [judge for kernels in (("w2_score_matrix", "softmax_rows", "weighted_sum"), ("w2_flash",),
                                  ("rowsum_do_o", "w2_backward_keys", "w2_backward_queries"))
            for judge in only(*kernels, shapes=shapes)]


CHANGES = {
    "attention common/rows.cuh": [
        (only("softmax_stable"), [("expf(in_row[c] - largest) / total", "expf(in_row[c]) / total")]),
        (only("softmax_online"), [
            ("a.total * expf(a.largest - shift)", "a.total"), ("if (row >= rows) return;", "")]),
        (only("softmax_warp"), [
            ("distance = 16", "distance = 8"),
            ("c = lane; c < columns; c += 32", "c = lane; c < columns - 1; c += 32")]),
        (only("softmax_block"), [
            ("of_warp[warp] = state;\n    __syncthreads();", "of_warp[warp] = state;"),
            ("lane < n_warps ? of_warp[lane]", "lane < 2 ? of_warp[lane]")]),
        (only("softmax_on_chip"), [("kept[c] = entry;", "kept[c / 2] = entry;")]),
        (only("softmax_registers", shapes=[{"rows": 5, "columns": 1000}]), [
            ("columns ? loaded[i].get(e) : -INFINITY", "columns ? loaded[i].get(e) : 0.0f"),
            ("if (lane == 0) of_warp[1][warp] = total;\n        __syncthreads();",
             "if (lane == 0) of_warp[1][warp] = total;")]),
        (three_launches(), [
            ("__syncthreads();  // keep the tiles", "// keep the tiles"), ("inside && i < n ?", "inside ?"),
            ("i + 1 + n_k - n_q", "i + 1"),
            ("int visible = i < n ? keys_seen(i, n, m, causal) : 0;", "int visible = m;")])],
    "gqa common/rows.cuh": [
        (only("repeat_kv", "attend_by_head"), [
            ("int kv_head = head / group_size;\n    float value",
             "int kv_head = head % n_kv_heads;\n    float value")]),
        (only("attend_by_head"), [
            ("int kv_head = head / group_size;\n    size_t",
             "int kv_head = head % (n_heads / group_size);\n    size_t"), ("i + 1 + n_k - n_q", "i + 1")]),
        (only("attend_by_group"), [
            ("int first_head = kv_head * group_size;", "int first_head = kv_head;"),
            ("int rows = min(TILE, visible - start);", "int rows = TILE;"),
            ("__syncthreads();  // the next tile", "// the next tile"),
            ("float total = acc[e] * rescale[h];", "float total = acc[e];"),
            ("row_sum[h] * shrink;", "row_sum[h];")])],
    "gqa/latent_decode": [
        (only("latent_decode", shapes=[LATENT]), [
            ("const long long batch = blockIdx.y, row = batch * n_heads + first_head;",
             "const long long batch = blockIdx.y, row = batch * n_heads;"),
            ("latents += batch * n * latent_dim;", ""),
            ("for (int c = 0; c < all_columns; ++c) score", "for (int c = 0; c < columns; ++c) score"),
            ("const int tokens = min(TILE, length - first);", "const int tokens = TILE;"),
            ("if (h < heads) multiply(mixed[h], shrink[h]);", ";"),
            ("row_sum[tid] * shrink[tid] + sum", "row_sum[tid] + sum"),
            ("__syncthreads();  // the next tile", "// the next tile"),
            ("weight[h][j] = scale * score;", "weight[h][j] = score;"),
            ("tile[j * pitch + tid];", "tile[j * pitch + tid + 1];")])],
    "rope": [
        (only("rope_interleaved"), [("pair[1] = a * s + b * c", "pair[1] = b * c - a * s")]),
        (only("rope_half"), [
            ("float* second = first + half_dim;", "float* second = first + half_dim - 1;"),
            ("token = row % n;", "token = row / heads % n;"), ("row / (heads * n)", "row / heads")]),
        (only("rope_interleaved_vec4"), [
            ("locate(unit, half_dim / 2, 2,", "locate(unit, half_dim / 2, 1,"),
            ("v.z * c.y - v.w * s.y", "v.z * c.x - v.w * s.x")]),
        (only("rope_half_vec4"), [
            ("float4* second = first + half_dim / 4;", "float4* second = first + half_dim / 2;")]),
        (only("rope_heads", note="half"), [
            ("head_stride = (size_t)n * 2 * half_dim", "head_stride = (size_t)n * half_dim")]),
        (only("rope_heads", note="interleaved"), [
            ("if (first_head + h < heads) {\n            const", "{\n            const"),
            ("first[h].set(2 * i + 1, turned_b)", "first[h].set(2 * i + 1, turned_a)")])],
    "linear_attention": [
        (recurrences(), [
            ("x > 0.0f ? x + 1.0f : expf(x)", "x > 0.0f ? x : expf(x)"),
            ("float value = c < width - 1 ? v_row[c] : 1.0f",
             "float value = c < width - 1 ? v_row[c] : 0.5f"),
            ("        __syncthreads();  // top is complete", "        // top is complete"),
            ("        __syncthreads();   // the next chunk", "        // the next chunk"),
            ("        __syncthreads();   // the next token", "        // the next token"),
            ("if (j <= r) ", "if (j < r) "), ("j <= r; ++j) sum", "j < r; ++j) sum"),
            ("min(chunk, n - start);\n        load", "chunk;\n        load"),
            ("min(chunk, n - start);\n    size_t", "chunk;\n    size_t"),
            ("before[(head * n_chunks + j) * size + e] = sum;\n", ""),
            ("k_row[i] * a_row[i * every] * s[", "k_row[i] * s["),
            ("float now = a_row[i * every] * s[", "float now = s["), ("total == 0.0f ? 0.0f :", "")])],
    "linear_attention/delta_chunks common/faded_pairs.cuh": [
        (only("delta_chunks", shapes=[{"n": 37, "d": 34}]), [
            ("= log_a += logf(", "= log_a = logf("), ("if (s > t) continue;", "if (s >= t) continue;"),
            ("expf(log_t[i] - log_s[i])", "expf(log_t[i])"), ("t.beta[r] * error", "error"),
            ("t.fade[at] = key * expf(end - log_a)", "t.fade[at] = key"), ("t.q[at] *= a;", ""),
            ("t.k[at] = key * a;", ""),
            ("for (int s = 0; s < r; ++s) error -=", "for (int s = 1; s < r; ++s) error -="),
            ("for (int s = 0; s <= r; ++s) sum +=", "for (int s = 0; s < r; ++s) sum +="),
            ("t.last[i] * t.state[e]", "t.state[e]"), ("min(CHUNK, n - start)", "CHUNK"),
            ("min(COLUMNS, d_v - first_column)", "COLUMNS"),
            ("__syncthreads();  // the logarithms are read", ""),
            ("__syncthreads();  // q and k are faded", ""),
            ("__syncthreads();  // u is whole before it is solved", ""),
            ("__syncthreads();  // u is solved", ""),
            ("__syncthreads();  // the next chunk overwrites the tiles", "")]),
        (only("delta_chunks", "delta_backward", shapes=[{"n": 21, "d": 18}]), [
            ("if (errors) errors[r * d_v + c] = error;",
             "if (errors) errors[r * d_v + c] = t.u[r * COLUMNS + c];"),
            ("before[start / CHUNK * size +", "before[")])],
    "linear_attention/delta_backward": [
        (only("delta_chunks", "delta_backward", shapes=[{"n": 21, "d": 18}]), [
            ("expf(end[i] - t.fade[r * t.pitch + i])", "1.0f"),
            ("for (int s = r; s < rows; ++s) sum +=", "for (int s = r + 1; s < rows; ++s) sum +="),
            ("next = r + 1 < rows ? a[r + 1] : 1.0f", "next = 1.0f"),
            ("start = next * start + q * of_q + k * of_k;", "start = next * start + q * of_q;"),
            ("if (s < r) of_a", "if (s <= r) of_a"), ("dot(state, grad, columns)", "0.0f"),
            ("g = a[r] * (g +", "g = (g +"), ("__syncthreads();  // g is whole before it is solved", ""),
            ("__syncthreads();  // the pairs' gradients are whole", ""),
            ("__syncthreads();  // the next chunk overwrites the tiles", "")])],
    "linear_attention/tensor_core": [
        (walks(), [
            ("if (i / (D / 8) >= rows_left) break;", ""), ("g + i / 2 * 8) p[0]", "g + i / 2 * 8 + 1) p[0]"),
            ("wait<0>(); __syncthreads();", "__syncthreads();"),
            ("        __syncthreads();\n\n        if (OUTPUT) {\n            uint32_t held",
             "        if (OUTPUT) {\n            uint32_t held"), ("column / 64 * D * 64 + swizzled", "swizzled"),
            ("weight[h] == 0.0f ? 0.0f :", ""), ("sum += own;", "sum = own;"),
            ("before += own * SIZE;", "before += head * SIZE;"),
            ("blockIdx.x != gridDim.x - 1", "blockIdx.x != 0")])],
    "sparse_attention/tensor_core": [
        (windows_and_blocks(), [
            ("q0 - window + 1) / TILE_K", "q0 - window + 65) / TILE_K"),
            ("row - key < window", "row - key <= window"),
            ("row + ROWS - 1 - k0 < window", "row - k0 < window"),
            ("k0 + TILE_K - 1 <= row &&", "k0 <= row &&"), ("i % 2 * TILE_K; }", "0; }"),
            ("k0 + TILE_K <= n_k; }", "true; }"), ("place < 0 || masks", "place < 1 || masks"),
            ("k0 < row + ROWS &&", "k0 < row &&"),
            ("k0 + TILE_K > row - window + 1", "k0 + TILE_K > row + 1"),
            ("        wait<0>();\n        __syncthreads();", "        wait<0>();")])],
    "flash_attention common/tiles.cuh common/register_tiles.cuh": [
        (biased_flash(2), [
            ("l = shrink * l + p;", "l += p;"), ("expf(m - finite(m_new));  //", "1.0f;  //")]),
        (biased_flash(3), [
            ("__syncthreads();  // the last tile", "// the last tile"),
            ("__syncthreads();  // the new tile", "// the new tile"),
            ("k0 + row < n_k && c < d ?", "c < d ?"), ("            __syncwarp();\n", "")]),
        (biased_flash(4), [
            ("o[r][b] = shrink * o[r][b] + sum;", "o[r][b] += sum;"),
            ("key_bias && key < n_k ? key_bias", "key_bias ? key_bias")]),
        (biased_flash(5), [
            ("__syncthreads();  // all have", "// all have"),
            ("expf(m[r] - finite(top))", "expf(m[r] - top)")]),
        (biased_flash(6), [
            ("keys_seen(q0 + first_row + 31,", "keys_seen(q0 + first_row,"),
            ("keys_seen(min(q0 + TILE_Q, n_q) - 1,", "keys_seen(q0,"),
            ("if (tx == 0 && i < n_q) lse", "if (tx == 0) lse")])],
    "flash_attention/backward common/tiles.cuh common/register_tiles.cuh": [
        (biased_flash(6), [
            ("max(0, k0 + n_q - n_k)", "k0"), ("p * (dp[r][j] - row_delta)", "p * dp[r][j]"),
            ("add_scaled(dk_sum[j][b], scale * ds,", "add_scaled(dk_sum[j][b], ds,"),
            ("for (int i = 0; i < B; ++i) bias_sum", "for (int i = 1; i < B; ++i) bias_sum"),
            ("const int end = keys_seen(min(q0 + B, n_q) - 1,", "const int end = keys_seen(q0,")]),
        (packed(), [
            ("const long long at = cu_seqlens[blockIdx.z];", "const long long at = 0;"),
            ("group_size, total, total, n, n", "group_size, n, n, n, n")])],
    "flash_attention/packed": [
        (packed(), [
            ("- first;", ";"), ("row = head * total + first", "row = head * total"),
            ("key = head / group_size * total + first", "key = head * total + first"),
            ("if (blockIdx.x * 64 >= n) return;", "if (blockIdx.x * 64 + 6 >= n) return;")])],
    "flash_attention/tensor_core common/tensor_tiles.cuh": [
        (tensor_flash(), [
            ("wait<0>(); __syncthreads();  //", "__syncthreads();  //"),
            ("keep_bias(0, bias_of(0)); wait<0>();", "keep_bias(0, bias_of(0));"),
            ("__syncthreads();  // tile", "// tile"), ("k0 + TILE_K > seen_by_all", "k0 + TILE_K > warp_end"),
            ("- k0 - 2 * t;", "- k0 - t;"), ("l[m][h] *= shrink;", ""),
            ("from = finite(top[m][h])", "from = top[m][h]"),
            ("lanes_max(highest, 4)", "lanes_max(highest, 2)"), ("top[m][h] = next[m][h];", ""),
            ("if (8 * n + e >= seen)", "if (8 * n + e > seen)"),
            ("k0 / TILE_K % 2 * TILE_K + 2 * t", "k0 / TILE_K % 2 * TILE_K + t"),
            ("if (t == 0 && row < n_q)", "if (t == 0)"),
            ("swizzled<WIDTH>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8)",
             "swizzled<WIDTH>(lane % 16, lane / 16 * 8)"),
            ("b + n * 16 * WIDTH + (b_piece ^ 16 * k)", "b + n * 16 * WIDTH + b_piece + 16 * k"),
            ("p[m][2 * k + i / 2][i % 2 * 2]", "p[m][2 * k + i % 2][i / 2 * 2]"),
            ("column < width ? rows_left - row : 0", "rows_left - row"), ("    __syncwarp();\n", "")])],
    "flash_attention/tensor_core_backward": [
        (tensor_backward(), [
            ("wait<0>(); __syncthreads();  //", "__syncthreads();  //"),
            ("__syncthreads();  // the", "// the"), ("x == -INFINITY ? x : -x * LOG2E", "-x * LOG2E"),
            ("j >= n_k ? -INFINITY :", ""), ("max(0, row0 - shift)", "max(0, row0)"),
            ("row > 8 * n + e + shift", "row >= 8 * n + e + shift"),
            ("8 * n + e > row + shift", "8 * n + e > row"), ("(dp[m][n][i] - of_query)", "dp[m][n][i]"),
            ("of_head * n_q + c0", "head * n_q + c0"), ("by_scale[m][h] = scale", "by_scale[m][h] = 1.0f"),
            ("min(c0 + C, n_q) - 1 + shift", "c0 + shift"),
            ("terms + step % 2 * C) + t", "terms + step % 2 * C) + g"),
            ("row_tile + warp_row * D, rows_sum", "row_tile, rows_sum")])],
    "kv_cache common/rows.cuh": [
        (caches(), [
            ("step > 0; step /= 2", "step > 1; step /= 2"), ("j < min(tile + TILE, end)", "j < tile + TILE"),
            ("lengths[blockIdx.z]); size_t rows", "m); size_t rows"), ("out[g][i] * shrink", "out[g][i]"),
            ("sum[g] * shrink", "sum[g]"), ("j % TILE), l", "0), l"), ("total[i] * shrink", "total[i]"),
            ("sum > 0.0f ? total[i] / sum : 0.0f", "total[i] / sum"), ("first / TILE", "0"),
            ("first_part + blockIdx.x, n_parts", "blockIdx.x, n_parts"),
            ("lane + 32 * i < d ? from", "true ? from")])],
    "kv_cache/tensor_core": [
        (half_caches(), [
            ("8 * n + 2 * t + e <= last ?", "8 * n + 2 * t + e <= last + 1 ?"),
            ("min(r / 2 * 8 + 2 * t + r % 2, last)", "(r / 2 * 8 + 2 * t + r % 2)"),
            ("r / 2 * 8 + 2 * t + r % 2", "r / 2 * 8 + t + r % 2"), ("sum *= shrink;", ""),
            ("o[h][j][1] *= shrink;", ""), ("0x7632", "0x3276"),
            ("    __syncthreads();\n    for (int e = threadIdx.x; e < group",
             "    for (int e = threadIdx.x; e < group"),
            ("if (next + STRIDE < end) next_place = rows.place(next + STRIDE);", "next_place += STRIDE * D;"),
            ("if (next < end) load_keys(place, end - next - 1);", ""),
            ("power_of_two(sums[2 * i] - largest)", "1.0f"),
            ("key / block_size]", "key / block_size - key / block_size % 2]")])],
    "paged_attention common/pages.cuh": [
        (pages("naive, 1 splits"), [
            ("if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;",
             "if (threadIdx.x == 0) of_warp[0] = x;"),
            ("threadIdx.x % 32 < blockDim.x / 32 ?", "threadIdx.x % 32 < 1 ?"),
            ("    __syncthreads();                                        // the last", "    // the last"),
            ("int kv_head = blockIdx.x / (heads / kv_heads)", "int kv_head = blockIdx.x % kv_heads")]),
        (pages("warp, 1 splits"), [
            ("step = LANES; step < 32", "step = LANES; step < 16"), ("w < WARPS; ++w) {", "w < 1; w++) {")]),
        (pages("grouped, 1 splits"), [
            ("token < end ? scale * sum : -INFINITY", "scale * sum"),
            ("first_head / (heads / kv_heads)", "first_head % kv_heads"),
            ("token % block_size) * d + c", "token) * d + c"),
            ("    __syncthreads();\n    for (int e", "    for (int e")]),
        (pages("grouped, 3 splits"), [
            ("begin + pages_per_split * block_size)", "begin + pages_per_split * block_size - 1)"),
            ("weight * sums[2 * i + 1]", "sums[2 * i + 1]")]),
        (only("paged_prefill"), [
            ("(row0 + rows - 1) / group + 1", "(row0 + rows - 1) / group"),
            ("min(end, before + (row0 + row) / group + 1)", "end"),
            ("before + (row0 + row) / group + 1)", "before + row0 + row + 1)"),
            ("(page * kv_heads + kv_head)", "(page * kv_heads)"),
            ("kv_head * group + g) * d + 4 * c", "g * kv_heads + kv_head) * d + 4 * c"),
            ("if (row >= rows) break;", ""), ("__syncthreads();  // places", "// places"),
            ("__syncthreads();  // the new tile", "// the new tile"), ("            __syncwarp();\n", "")])],
    "paged_attention/shared_prefix common/pages.cuh": [
        (only("shared_prefix_decode", shapes=[PREFIX]), [
            ("const int begin = min(shared, part * per_split);",
             "const int begin = own < 0 ? min(shared, part * per_split) : 0;"),
            ("(batch + together - 1) / together * n_splits",
             "batch / together * n_splits + n_splits - n_splits"),
            ("(int)blockIdx.x / n_splits * together", "0"), ("== n_splits;", "== n_splits - 1;"),
            ("== n_splits;", "== 0;"), ("if (row >= rows) break;", "if (row >= rows - 1) break;"),
            ("key < seen(row)", "key < seen(row) + 1"),
            ("const float old = expf(m - finite(larger)), weight = expf(m_part - finite(larger));",
             "const float old = 1.0f, weight = 1.0f;")])],
    "w2_attention/tensor_core": [
        (prepared(), [
            ("row < n &&", ""), ("own.get(i) - centre.get(i)", "own.get(i)"),
            ("square += own.get(i)", "square += moved"), ("lanes_sum(square, 16)", "lanes_sum(square, 8)"),
            ("bias ? 1.0f : 2.0f", "bias ? 1.0f : 1.0f")])],
    "w2_attention common/tiles.cuh": [
        (gaussians(), [
            ("sum += mean * mean + width * width", "sum += mean * mean"),
            ("inverse_tau[head % n_heads]) : -INFINITY", "inverse_tau[0]) : -INFINITY"),
            ("__syncthreads();                                    // all have finished with v",
             "// all have finished with v"),
            ("__syncthreads();  // all have finished with k", "// all have finished with k"),
            ("l[r] = shrink * l[r] + lanes_sum", "l[r] = l[r] + lanes_sum"),
            ("expf(m[r] - finite(top))", "expf(m[r] - top)"),
            ("keys_seen(q0 + first_row + 31,", "keys_seen(q0 + first_row,"),
            ("if (tx == 0 && i < n_q) {", "if (tx == 0) {"),
            ("c < D / 4 ? mu : sigma, first + row", "mu, first + row"),
            ("p * (dp[r][j] - d)", "p * dp[r][j]"), ("expf(score - m) / l", "expf(score - m)"),
            ("max(0, k0 + n_q - n_k)", "k0"), ("minus(q_tile[i][tx + 8 * b], key)", "q_tile[i][tx + 8 * b]"),
            ("minus(k_tile[j][tx + 8 * b], query)", "minus(query, k_tile[j][tx + 8 * b])"),
            ("= p_tile[0][0] + p_tile[0][1]", "= p_tile[0][0]"),
            ("__syncthreads();  // all have finished with p_tile", "// all have finished with p_tile"),
            ("const int end = keys_seen(min(q0 + B, n_q) - 1,", "const int end = keys_seen(q0,"),
            ("total += ds * (score - finite(m))", "total += ds")])],
}


def seen(judges) -> bool:
    """Whether a value is wrong, or the sanitizer names a fault."""
    try:
        with cuda.sanitize():
            return not all(case.error(shape) <= case.tolerance for case, shape in judges)
    except cuda.KernelError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("files", CHANGES)
def test_a_changed_kernel_is_caught(files, tmp_path, monkeypatch):
    """All changes of a file are one build, and without one the judges see nothing."""
    word, *beside = files.split()
    groups, load = CHANGES[files], cuda.load
    every = [change for _, changes in groups for change in changes]
    with cuda.sanitize():
        changed = changed_kernels(tmp_path, word, every, *beside)
    monkeypatch.setattr(cuda, "load", lambda name: changed if name == word else load(name))
    number, missed = 0, []
    for judges, changes in groups:
        changed.globals["chosen"] = 0
        assert not seen(judges)
        for change in changes:
            changed.globals["chosen"] = number = number + 1
            missed += [] if seen(judges) else [change]
    assert not missed
