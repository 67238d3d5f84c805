"""One new query per sequence over a cache: split-KV decoding (Flash-Decoding) in PyTorch, as in kernels."""
import math
from functools import reduce

import torch
from torch import Tensor

from course_lib.checks import check_count
from course_lib.checks.kv_cache import check_decode
from course_lib.flash_attention import finish, grouped, merge, state_of
from course_lib.launching import MULTIPROCESSORS, parts_that_fit


BLOCKS_PER_MULTIPROCESSOR = 16      # of one warp each: decode_part's registers allow no more on any card


def choose_splits(heads: int, n_keys: int, n_multiprocessors: int = MULTIPROCESSORS,
                  least_keys: int = 128) -> int:
    """Into how many parts to cut the keys, so that heads * splits blocks of one warp are one full wave and no
    part is too short. A block more would wait for a second wave."""
    return parts_that_fit(BLOCKS_PER_MULTIPROCESSOR * n_multiprocessors, heads, n_keys, least_keys)


def decode_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None,
                     splits: int | None = None) -> Tensor:
    """q (b, n_heads, 1, d), one new query per sequence; k (b, n_kv_heads, m, d),
    v (b, n_kv_heads, m, v_dim) -> (b, n_heads, 1, v_dim). lengths (b,): how many of the m keys are
    valid; the rest is ignored, NaN or not.

    The keys are cut into `splits` parts (by `choose_splits` if None). The parts do not depend on
    each other; chapter 6's merge joins their results.
    """
    lengths = check_decode(q, k, v, lengths)
    dtype, m = q.dtype, k.shape[2]
    splits = splits_or_default(splits, q, k.shape[1], m)
    valid = torch.arange(m, device=k.device) < lengths[:, None]             # (b, m)
    k, v = (x.masked_fill(~valid[:, None, :, None], 0) for x in (k, v))     # 0 * NaN would be NaN
    q, k, v, _ = grouped(q, k, v, None)
    scores = (q @ k.mT * q.shape[-1]**-0.5).masked_fill(~valid[:, None, None, None], -torch.inf)
    if m == 0:
        return q.new_zeros(*q.shape[:-1], v.shape[-1]).flatten(1, 2).to(dtype)
    size = math.ceil(m / splits)
    parts = [state_of(scores[..., i:i + size], v[..., i:i + size, :]) for i in range(0, m, size)]
    return finish(reduce(merge, parts))[0].flatten(1, 2).to(dtype)


def splits_or_default(splits: int | None, q: Tensor, n_kv_heads: int, n_keys: int) -> int:
    """splits if given, checked, else by `choose_splits`: a block serves one key head of one sequence."""
    if splits is None:
        return choose_splits(q.shape[0] * n_kv_heads, n_keys)
    check_count("splits", splits)
    return splits
