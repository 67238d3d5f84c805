"""Checks of chapter 5: rules, masks in blocks, and the kernels that visit some of the blocks."""
import torch

from course_lib.launching import HALF

from .attention import check_alike, check_attention, check_grouped
from .tensors import check_dtype, check_integers, check_tensor, check_tensor_cores
from .values import check_count, check_equal, check_sizes


def check_window(window, n_sink=0):
    check_count("window", window)
    check_count("n_sink", n_sink, 0)


def check_square(mask) -> int:
    """mask is (n, n). Returns n."""
    check_tensor("mask", mask, ("n", "n"))
    check_tensor("mask", mask, (len(mask), len(mask)))
    return len(mask)


def check_longformer(n, global_tokens):
    """Returns the global tokens as a tensor of positions."""
    check_count("n", n, 0)
    tokens = torch.as_tensor(global_tokens).flatten()
    tokens = tokens if tokens.numel() else tokens.long()
    return check_integers("global_tokens", tokens, ("tokens",), 0, n - 1)


def check_bigbird(n, block, window, n_global, n_random):
    check_sizes(block=block, window=window)
    check_sizes(0, n=n, n_global=n_global, n_random=n_random)


def check_selection(q, k, block, top, causal):
    check_sizes(block=block, top=top)
    if causal and q.shape[-2] != k.shape[-2]:
        raise ValueError(f"k must have as many rows as q if causal, {q.shape[-2]}; got {k.shape[-2]}")


def check_blocks(q, k, v, block_mask):
    """q (b, h, n_q, d), k (b, h, n_k, d), v (b, h, n_k, v_dim) for a BlockMask of n_q x n_k."""
    check_block_mask(block_mask)
    check_alike(q=q, k=k, v=v)
    check_tensor("q", q, ("b", "h", block_mask.n_q, "d"), advice="The block_mask has as many rows")
    columns = "The block_mask has as many columns"
    check_tensor("k", k, (*q.shape[:2], block_mask.n_k, q.shape[-1]), advice=columns)
    check_tensor("v", v, (*k.shape[:3], "v_dim"))


def check_block_mask(block_mask):
    if not hasattr(block_mask, "visited"):
        raise ValueError("block_mask must be a BlockMask, as from BlockMask.from_mask(mask, block); "
                         f"got {type(block_mask).__name__}")


def check_dense_kernel(q, k, v, mask, scale, widest):
    check_float32(q, k, v, scale, widest)
    check_tensor("mask", mask, (q.shape[-2], k.shape[-2]), "boolean")


def check_block_kernel(q, k, v, block_mask, scale, block, widest):
    check_block_mask(block_mask)
    if block_mask.block != block:
        raise ValueError(f"block_mask must have blocks of {block} for this kernel; got {block_mask.block}")
    wanted, got = (q.shape[-2], k.shape[-2]), (block_mask.n_q, block_mask.n_k)
    check_equal("block_mask", "have the rows of q and of k", got, wanted)
    if q.dtype not in HALF:
        check_float32(q, k, v, scale, widest)


def check_window_kernel(q, k, v, window, n_sink, scale, widest):
    check_window(window, n_sink)
    check_equal("k", "have as many rows as q", k.shape[-2], q.shape[-2])
    if q.dtype not in HALF:
        check_float32(q, k, v, scale, widest)


def check_float32(q, k, v, scale, widest):
    """The float32 kernels. Half precision is checked by those for tensor cores, check_sparse_tensor_core."""
    check_attention(q, k, v, scale)
    check_dtype("q", q, torch.float32)
    if v.shape[-1] != q.shape[-1] or q.shape[-1] > widest:
        raise ValueError(f"v must have the head_dim of q, {q.shape[-1]}, and at most {widest}, "
                         f"for this kernel; got {v.shape[-1]}")


def check_sparse_tensor_core(q, k, v, scale, fits) -> int:
    """Returns the group size."""
    group_size = check_grouped(q, k, v, scale)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    wanted = "float16 or bfloat16, its width a multiple of 8 up to 128"
    check_tensor_cores(fits and scale > 0, wanted, q, v, scale)
    return group_size


def check_index(q, k, weights):
    """The indexer's queries (b, h, n_q, d), keys (b, n_k, d) and weights (b, n_q, h)."""
    check_tensor("q", q, ("b", "h", "n_q", "d"), "floating-point")
    check_tensor("k", k, (q.shape[0], "n_k", q.shape[3]), "floating-point")
    check_tensor("weights", weights, (q.shape[0], q.shape[2], q.shape[1]), "floating-point")


def check_choice_of_tokens(scores, top_k):
    check_tensor("scores", scores, ("b", "n_q", "n_k"), "floating-point")
    check_count("top_k", top_k)


def check_gather(q, k, v, chosen, scale):
    check_grouped(q, k, v, scale)
    check_tensor("v", v, tuple(k.shape))
    check_integers("chosen", chosen, (q.shape[0], q.shape[2], "top_k"), -1, k.shape[2] - 1)


def check_gather_kernel(q, k, v, chosen, scale):
    check_gather(q, k, v, chosen, scale)
    check_dtype("q", q, torch.float32)
    heads, kv_heads, d = q.shape[1], k.shape[1], q.shape[3]
    if d > 128 or heads // kv_heads > 32:
        raise ValueError("q must have a head_dim of at most 128, and at most 32 heads per head of k, for the "
                         f"kernel; got {d}, {heads} and {kv_heads}")
