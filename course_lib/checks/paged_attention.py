"""What chapter 8 refuses: of blocks and tables, of kernels over pages, of requests."""
import math

import torch

from . import check_count, check_dtype, check_integers, check_sizes, check_tensor, described
from .kv_cache import check_sampling

MOST_SCORES = 12000         # of the naive kernel: 48 KiB of shared memory


def check_new_name(what, name, tables):
    if name in tables:
        raise ValueError(f"{what} must be new; got {name!r}, which has a table")


def check_known_name(name, tables):
    if name not in tables:
        raise ValueError(f"name must be a sequence that has a table; got {name!r}")


def check_some_tokens(name, tokens, most=None):
    if len(tokens) == 0 and most is None:
        raise ValueError(f"{name} must hold at least one token; got none")
    if most is not None and len(tokens) > most:
        raise ValueError(f"{name} must be at most the {most} that have a slot; got {len(tokens)}")


def check_pool(dtype, v_dim, **sizes):
    check_sizes(**sizes)
    check_count("v_dim", v_dim, 0)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype; got {dtype!r}")


def check_span(start, stop, length):
    if not 0 <= start <= stop <= length:
        raise ValueError(f"start and stop must be within the {length} slots; got {start}, {stop}")


def check_write(slots, n_slots, **written):
    """written: name=(rows, the pool that they are written to)."""
    if slots.device.type == "cpu":              # reading values back would stall a GPU, once per layer
        check_integers("slots", slots, (len(slots),), most=n_slots - 1)
    for name, (x, pool) in written.items():
        want = len(slots), pool.shape[2], pool.shape[4]
        if x.dtype != pool.dtype or tuple(x.shape) != want:
            raise ValueError(f"{name} must be {pool.dtype} of shape {want}; got {described(x)}")


def check_paged(q, cache, tables, lengths, layer, window=None):
    """q (b, heads, n, head_dim) over a PagedKVCache; tables name blocks that sequences hold."""
    pool = cache.keys
    check_tensor("q", q, ("b", "heads", "n", pool.shape[4]))
    check_dtype("q", q, pool.dtype, where="like the cache")
    if q.shape[1] == 0 or q.shape[1] % pool.shape[2]:
        raise ValueError(f"q must have a multiple of {pool.shape[2]} heads; got {tuple(q.shape)}")
    check_count("layer", layer, 0, most=pool.shape[0] - 1)
    check_count("window", window, optional=True)
    check_tensor("tables", tables, (len(q), "pages"), "integer")
    check_tensor("lengths", lengths, (len(q),), "integer")
    size, references = cache.block_size, cache.allocator.references
    for row, length in zip(tables.tolist(), lengths.tolist()):
        least, most = max(1, q.shape[2]), size * len(row)
        if not least <= length <= most:
            raise ValueError(f"lengths must be from {least} (there are {q.shape[2]} queries) to {most}, the "
                             f"slots of {len(row)} pages of {size}; got {length}")
        for block in row[:math.ceil(length / size)]:
            if not 0 <= block < len(references) or references[block] == 0:
                raise ValueError(f"tables must name blocks that a sequence holds; got {block}, a stale entry")


def check_chunks(counts, q, tables):
    """q (tokens, heads, head_dim) holds counts[i] rows for each sequence i."""
    check_tensor("q", q, ("tokens", "heads", "head_dim"))
    whole = all(isinstance(count, int) and count > 0 for count in counts)
    if not whole or len(counts) != len(tables) or sum(counts) != len(q) or len(q) == 0:
        raise ValueError(f"counts must be positive integers, one for each of the {len(tables)} sequences, "
                         f"whose sum is the {len(q)} rows of q; got {list(counts)}")


def check_decode_paged(q, cache, lengths, kernel, n_splits):
    _check_kernel_inputs(q, cache, ("b", "heads", 1, "head_dim"))
    check_count("n_splits", n_splits)
    if kernel == "naive":
        if n_splits != 1:
            raise ValueError(f"n_splits must be 1 for the naive kernel; got {n_splits}")
        longest = int(lengths.max()) if len(lengths) else 0
        if longest > MOST_SCORES:
            raise ValueError(f"lengths must be at most {MOST_SCORES} for the naive kernel, which keeps all "
                             f"scores in shared memory; got {longest}")


def check_prefill_paged(q, cache, lengths, counts):
    _check_kernel_inputs(q, cache, ("tokens", "heads", "head_dim"))
    if any(count > length for count, length in zip(counts, lengths.tolist())):
        raise ValueError(f"counts must be at most the lengths, {lengths.tolist()}; got {list(counts)}")


def check_shared_prefix(q, cache, lengths, n_splits, rows):
    """rows: of a block's tile, where the heads of one key head have one each."""
    check_decode_paged(q, cache, lengths, "grouped", n_splits)
    group_size = q.shape[1] // cache.keys.shape[2]
    if group_size > rows:
        raise ValueError(f"q must have at most {rows} heads per key head for this kernel; got {group_size}")


def _check_kernel_inputs(q, cache, shape):
    check_tensor("q", q, shape)
    check_dtype("q", q, torch.float32)
    if q.shape[-1] % 4 or q.shape[-1] > 128:
        raise ValueError("q must have a head_dim that is a multiple of 4 and at most 128 for this kernel; "
                         f"got {q.shape[-1]}")
    _check_equal_widths(cache)


def _check_equal_widths(cache):
    if cache.values.shape != cache.keys.shape:
        raise ValueError(f"cache must hold values as wide as keys, {cache.keys.shape[4]}, for this kernel; "
                         f"got {cache.values.shape[4]}")


def check_copies(cache, sources, targets):
    _check_equal_widths(cache)
    _, n_blocks, *block = cache.keys.shape
    pairs = list(zip(sources, targets))
    if len(set(targets)) < len(targets) or set(targets) & set(sources):
        raise ValueError(f"pairs must have unique targets, none of which is also a source; got {pairs}")
    if any(not 0 <= x < n_blocks for x in sources + targets):
        raise ValueError(f"pairs must name blocks from 0 to {n_blocks - 1}; got {pairs}")
    if cache.keys.dtype != torch.float32 or math.prod(block) % 4:
        raise ValueError("cache must be float32 with blocks of a multiple of 4 numbers; got "
                         f"{cache.keys.dtype}, {tuple(block)}")


def check_running(sequence, running):
    if sequence not in running:
        raise ValueError(f"sequence must be running; got {sequence.name}")


def check_request(model, n_slots, prompt, stop, max_new_tokens, n_samples, seed, on_token, sampling) -> tuple:
    """Returns prompt and stop as lists."""
    vocabulary, context = model.config.vocab_size, model.config.context
    prompt, stop = _token_list("prompt", prompt, vocabulary), _token_list("stop", stop, vocabulary)
    check_some_tokens("prompt", prompt)
    check_sizes(max_new_tokens=max_new_tokens, n_samples=n_samples)
    check_count("seed", seed, 0)
    check_sampling(**sampling)
    if on_token is not None and not callable(on_token):
        raise ValueError(f"on_token must be a function or None; got {on_token!r}")
    room = min(n_slots, context)
    if len(prompt) + max_new_tokens - 1 > room:         # the last token is never read
        raise ValueError(f"prompt must leave room for max_new_tokens={max_new_tokens} in {room} slots (the "
                         f"whole cache, or the model's context); got {len(prompt)} tokens")
    return prompt, stop


def _token_list(name, tokens, vocabulary):
    tokens = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
    if not isinstance(tokens, (list, tuple, set, frozenset)):
        raise ValueError(f"{name} must be a list of tokens; got {tokens!r}")
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary:
            raise ValueError(f"{name} must hold whole numbers from 0 to {vocabulary - 1}; got {token!r}")
    return list(tokens)


def check_request_id(request_id, requests):
    if request_id not in requests:
        raise ValueError(f"request_id must name a request that was added; got {request_id!r}")


def check_pageable(layers):
    """Pages hold keys and values of every token, of the same shape in every layer."""
    for i, layer in enumerate(layers):
        if "attend" in vars(layer):
            raise ValueError("model must attend by its own function: the engine replaces attention by paged "
                             "attention; undo set_attention() first")
        if getattr(layer, "recurrent", False):
            raise ValueError("model must keep keys and values of every token, because pages hold nothing "
                             f"else; got layer {i}, {type(layer).__name__}, whose past is a state of fixed "
                             "size: use its own cache")
    shapes = {(layer.n_kv_heads, layer.key_width, layer.value_width) for layer in layers}
    if len(shapes) > 1:
        raise ValueError("model must keep the same shape per token in every layer, because all share one "
                         "table of blocks; got (n_kv_heads, width of a key, width of a value) in "
                         f"{sorted(shapes)}")


def check_engine_kernels(kernels, model, widths):
    weight, windows = model.embedding.weight, [block.attention.window for block in model.blocks]
    if kernels and (weight.dtype != torch.float32 or widths[0] != widths[1] or any(windows)):
        raise ValueError("kernels must be False unless the model is float32, has values as wide as its "
                         f"keys and no window; got {weight.dtype}, attention {model.config.attention!r}")


def check_largest(name, largest, n, unit):
    """A request that never fits would wait without end."""
    if largest > n:
        raise ValueError(f"{name} must hold the largest request, {largest} {unit}; got {n}")


def check_slices(lengths, q, k):
    """lengths of the slices of a sequence, one per process."""
    n = k.shape[2]
    if any(not isinstance(m, int) or m < 1 for m in lengths) or sum(lengths) != n or q.shape[2] != n:
        raise ValueError(f"lengths must be positive and sum to the {n} tokens of k and of q; got {lengths!r}")


def check_gathered(lengths):
    if min(lengths) < 1:
        raise ValueError(f"k must hold at least one token in each process; got {lengths}")
