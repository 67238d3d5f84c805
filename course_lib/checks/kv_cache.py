"""What chapter 7 refuses: of caches, of decoding, of sampling, of generation."""
import torch
from torch import Tensor

from . import (check_choice, check_count, check_dtype, check_equal, check_integers, check_number,
               check_tensor, described)

BITS = (8, 4, "fp8")
LARGEST_WIDTH, LARGEST_GROUP, TILE = 128, 8, 32     # of the kernels in kernels/kv_cache.cu


def check_new(cache, k, v):
    """New keys and values (batch, n_kv_heads, n, width), alike, and like those that the cache holds."""
    for name, x, held in (("k", k, cache.k), ("v", v, cache.v)):
        check_tensor(name, x, ("batch", "n_kv_heads", "n", "width"))
        if held is not None and (x.dtype != held.dtype or x.device != held.device
                                 or x.shape[:2] != held.shape[:2] or x.shape[3] != held.shape[3]):
            raise ValueError(f"{name} must have the batch, heads, width, dtype and device of the cache, "
                             f"{tuple(held.shape)} {held.dtype}; got {tuple(x.shape)} {x.dtype}")
    if v.shape[:3] != k.shape[:3] or v.dtype != k.dtype:
        raise ValueError(f"v must have the batch, heads, tokens and dtype of k, {tuple(k.shape[:3])} "
                         f"{k.dtype}; got {tuple(v.shape[:3])} {v.dtype}")


def check_room(cache, k):
    if cache.length + k.shape[2] > cache.capacity:
        raise ValueError(f"k must fit into the cache: {cache.length} of its {cache.capacity} slots are "
                         f"taken; got {k.shape[2]} more tokens")


def check_not_empty(cache):
    if cache.k is None:
        raise ValueError("cache must hold tokens before it is read; got an empty one")


def check_empty(cache, k):
    if cache.k is not None:
        raise ValueError(f"cache must be empty: a context is read once, and this one holds {cache.length} "
                         f"tokens; got {k.shape[2]} more")


def check_truncation(n, length):
    if not isinstance(n, int) or not 0 <= n <= length:
        raise ValueError(f"n must be between 0 and the cache's {length} tokens; got {n!r}")


def check_window_left(n, first_needed, n_sink, first):
    if first_needed < first:
        raise ValueError(f"n must leave a whole window: tokens {n_sink} to {first - 1} are forgotten; got "
                         f"{n}")


def check_rolling(window, n_sink, positions):
    check_count("window", window)
    check_count("n_sink", n_sink, 0)
    check_choice("positions", positions, ("absolute", "reindexed"))


def check_bits(bits, x=None, group=1):
    check_choice("bits", bits, BITS)
    check_count("group", group)
    if bits == 4 and x is not None and x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension for int4; got {x.shape[-1]}")


def check_decode(q, k, v, lengths) -> Tensor:
    """One query per sequence, and keys and values that it can attend to. Returns lengths; m for None."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x, ("batch", "heads", "n", "width"), "floating-point")
        check_dtype(name, x, q.dtype, where="like q")
    b, n_heads, n, d = q.shape
    if n != 1:
        raise ValueError("q must be one query per sequence, (batch, heads, 1, width); got shape "
                         f"{tuple(q.shape)}")
    if k.shape[0] != b or k.shape[1] == 0 or n_heads % k.shape[1] or k.shape[3] != d:
        raise ValueError(f"k must have q's batch {b} and width {d}, and a number of heads that divides "
                         f"{n_heads}; got {tuple(k.shape)}")
    check_equal("v", "have the batch, heads and tokens of k", tuple(v.shape[:3]), tuple(k.shape[:3]))
    if lengths is None:
        return torch.full((b,), k.shape[2], device=k.device)
    return check_integers("lengths", lengths, (b,), most=k.shape[2], device=k.device)


def check_decode_kernel(q, k, v):
    """What kernels/kv_cache.cu is written for."""
    check_dtype("q", q, torch.float32)
    if v.shape[3] != q.shape[3] or q.shape[3] > LARGEST_WIDTH:
        raise ValueError(f"v must be as wide as q, at most {LARGEST_WIDTH}, for this kernel; got "
                         f"{v.shape[3]} and {q.shape[3]}")
    check_group(q, k.shape[1])


def check_group(q, n_kv_heads):
    group_size = q.shape[1] // n_kv_heads
    if group_size > LARGEST_GROUP:
        raise ValueError(f"q must have at most {LARGEST_GROUP} heads per key head for this kernel; got "
                         f"{group_size}")


def check_tensor_core(fits, q, n_kv_heads):
    if not fits:
        raise ValueError("q must be float16 or bfloat16, 64 or 128 wide like the values, with at most "
                         f"{LARGEST_GROUP} heads per key head; got {described(q)} for {n_kv_heads} key heads")


def check_int8_cache(cache):
    bits, group = getattr(cache, "bits", None), getattr(cache, "group", None)
    if bits != 8 or group != TILE:
        raise ValueError(f"cache must be QuantizedCache(8, group={TILE}) for this kernel; got "
                         f"{type(cache).__name__}, bits {bits!r}, group {group}")


def check_append(cache, k, v, rope):
    """A StaticCache, float32 keys of an even width, values of the same shape, and a table of enough rows."""
    if not hasattr(cache, "reserve"):
        raise ValueError(f"cache must be a StaticCache for this kernel; got {type(cache).__name__}")
    if k.dim() != 4 or k.shape[3] % 2 or v.shape != k.shape or k.dtype != torch.float32:
        raise ValueError("k must be float32 (batch, heads, n, width) of an even width, shaped like v; "
                         f"got {k.dtype} {tuple(k.shape)}")
    if not isinstance(rope, (tuple, list)) or len(rope) != 2:
        raise ValueError(f"rope must be a pair (cos, sin), as from rope_table; got {type(rope).__name__}")
    rows, pairs = cache.length + k.shape[2], k.shape[3] // 2
    if any(table.shape[0] < rows or table.shape[1] != pairs for table in rope):
        raise ValueError(f"rope must be tables of at least {rows} rows, {pairs} wide; got "
                         f"{tuple(rope[0].shape)} and {tuple(rope[1].shape)}")


def check_sampling(temperature=1.0, top_k=None, top_p=None, repetition_penalty=1.0, seen=()):
    check_number("temperature", temperature, least=0)
    check_count("top_k", top_k, optional=True)
    if top_p is not None:
        check_number("top_p", top_p, above=0, most=1)
    check_number("repetition_penalty", repetition_penalty, above=0)
    if repetition_penalty != 1 and seen is None:
        raise ValueError("seen must be given with a repetition_penalty; got None")


def check_draft(target, draft, drafted):
    """draft (n, vocabulary) for n drafted tokens, target (n + 1, vocabulary)."""
    n = len(drafted)
    if draft.dim() != 2 or len(draft) != n:
        raise ValueError(f"draft must be ({n}, vocabulary) for {n} drafted tokens; got {tuple(draft.shape)}")
    if target.shape != (n + 1, draft.shape[-1]):
        raise ValueError(f"target must be {(n + 1, draft.shape[-1])}; got {tuple(target.shape)}")


def check_prompt(tokens, max_new_tokens, batch="batch", **counts):
    """tokens (batch, n) with n at least 1. counts: name=(value, least), where None is always allowed."""
    check_tensor("tokens", tokens, (batch, "n"))
    if tokens.shape[1] == 0:
        raise ValueError("tokens must hold at least one token per sequence; got none")
    check_count("max_new_tokens", max_new_tokens, 0)
    for name, (value, least) in counts.items():
        check_count(name, value, least, optional=True)


def check_context(context):
    if context is None:
        raise ValueError("context must be given while the cache is empty; got None")


def check_head_prompt(tokens):
    if tokens.shape[1] < 2:
        raise ValueError("tokens must be at least 2 for a multi-token head, which reads the model's state at "
                         f"one and the token after it; got {tokens.shape[1]}")
