"""Chapter 3: grouped-query attention, three rungs, and one query per sequence on latents."""
import math
from functools import partial

import torch
from einops import einsum

from course_lib.gpu.case import BF16, F16, F32, GROUPED, Case, attention_output, qkv
from course_lib.gqa import gqa_kernel, latent_decode_kernel

# (b, heads, kv_heads, n, m, d); in the last some queries see no key.
SIZES = ((1, 1, 1, 1, 1, 1), (2, 4, 2, 3, 33, 8), (1, 6, 2, 2, 31, 20), (1, 4, 4, 2, 63, 5),
         (1, 4, 1, 1, 100, 64), (1, 2, 1, 5, 3, 8))


def rung(number, *kernels):
    return Case(chapter="gqa", kernels=kernels, counted=number != 2, inputs=qkv,
                run=partial(gqa_kernel, rung=number), oracle=attention_output,
                small=(*GROUPED[:1],
                       *({"b": b, "heads": heads, "kv_heads": kv_heads, "n": n, "m": m, "d": d, "causal": causal}
                         for b, heads, kv_heads, n, m, d in SIZES for causal in (False, True))),
                large=({"b": 1, "heads": 8, "kv_heads": 2, "n": 100, "m": 700, "d": 64, "causal": True},))


def latents(draw, lengths, heads, head_dim, latent_dim, rope_dim):
    """NaN in the places after the end of a sequence."""
    b, n = len(lengths), max(lengths)
    latent, k_rope = draw(b, 1, n, latent_dim), draw(b, 1, n, rope_dim)
    for x in (latent, k_rope):
        for i, length in enumerate(lengths):
            x[i, :, length:] = math.nan
    up = (draw(heads, head_dim, latent_dim) / latent_dim**0.5 for _ in "kv")
    queries = draw(b, heads, 1, head_dim), draw(b, heads, 1, rope_dim)
    return *queries, latent, k_rope, *up, torch.tensor(lengths)


def unfolded(q, q_rope, latent, k_rope, k_up, v_up, lengths):
    """Keys and values of every head, from the latents."""
    rows = []
    for i, length in enumerate(lengths.tolist()):
        c = latent[i, 0, :length]
        k, v = (einsum(c, up, "n c, h d c -> h n d") for up in (k_up, v_up))
        k = torch.cat([k, k_rope[i, :, :length].expand(len(k), -1, -1)], -1)
        rows.append(attention_output(torch.cat([q, q_rope], -1)[i:i + 1], k[None], v[None]))
    return torch.cat(rows)


LATENTS = (((33, 5), 6, 8, 22, 6), ((1,), 1, 1, 1, 1), ((33, 33), 3, 5, 7, 3), ((31, 31), 16, 8, 24, 8),
           ((100,), 20, 4, 65, 6), ((17, 0, 40), 4, 8, 12, 4), ((19,), 17, 128, 512, 64))


def absorbed(dtype, heads_per_block=None):
    return Case(chapter="gqa", kernels=("latent_decode",), dtype=dtype, counted=dtype == F32, inputs=latents,
                note=f"{heads_per_block} heads per block" if heads_per_block else "",
                run=partial(latent_decode_kernel, heads_per_block=heads_per_block), oracle=unfolded,
                small=tuple({"lengths": lengths, "heads": heads, "head_dim": head_dim, "latent_dim": latent_dim,
                             "rope_dim": rope_dim} for lengths, heads, head_dim, latent_dim, rope_dim in LATENTS),
                large=({"lengths": (2001, 1, 700), "heads": 128, "head_dim": 128, "latent_dim": 512,
                        "rope_dim": 64},) if not heads_per_block else ())


CASES = [
    rung(1, "repeat_kv", "attend_by_head"),
    rung(2, "attend_by_head"),
    rung(3, "attend_by_group"),
    absorbed(F32),
    absorbed(F32, 1),
    absorbed(F32, 4),
    absorbed(F16),
    absorbed(BF16)]
