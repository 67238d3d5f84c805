"""Chapter 7: keep the keys and values of earlier tokens, so that a new token costs one row of attention.

Every cache is one layer's. A layer asks for `next_positions(n)`, rotates its new keys by them, calls `append(k, v)`
and attends to `view()`, oldest first. k and v are (batch, n_kv_heads, n, width); their widths may differ.
A RollingCache takes keys as they are (`rotated` is False): the layer rotates view()'s keys by `key_positions()`.
"""
import torch
from torch import Tensor

from course_lib.checks import check_count
from course_lib.kv_cache.decoding import (append_kernel, choose_splits, decode_attention, decode_kernel,
                                 decode_quantized_kernel)
from course_lib.kv_cache.quantization import Quantized, check_bits, dequantize, quantize
from course_lib.kv_cache.sampling import next_token_probabilities

__all__ = ["KVCache", "GrowingCache", "StaticCache", "RollingCache", "QuantizedCache", "CrossCache", "choose_splits",
           "decode_attention", "decode_kernel", "decode_quantized_kernel", "append_kernel", "generate"]


class KVCache:
    """What all caches share: `length` tokens have been seen; tensors are made by the first append."""
    rotated = True                          # keys come in rotated by their positions

    def __init__(self):
        self.length, self.k, self.v = 0, None, None

    def next_positions(self, n: int) -> Tensor:
        """(n,): the positions of the next n tokens."""
        return self._positions_from(self.length, n)

    def append(self, k: Tensor, v: Tensor) -> None:
        raise NotImplementedError

    def view(self) -> tuple[Tensor, Tensor]:
        """The keys and values held, (batch, n_kv_heads, m, width) each, oldest first."""
        self._check_not_empty()
        return self.k, self.v

    def mask(self, n: int) -> Tensor | None:
        """(n, m): which of view()'s keys the last n queries may see beyond the causal rule; None means all."""
        return None

    def truncate(self, n: int) -> None:
        """Forget all but the first n tokens, as after drafted tokens that were refused."""
        self._check_shorter(n)
        if self.k is not None:
            self._map(lambda x: x[:, :, :n])
        self.length = n

    def reorder(self, index: Tensor) -> None:
        """Sequence i becomes what sequence index[i] was: beams that survive, in their new order. Copies are allowed."""
        self._check_not_empty()
        batch, index = self.k.shape[0], torch.as_tensor(index, device=self.k.device)
        if index.dim() != 1 or index.is_floating_point() or not ((0 <= index) & (index < batch)).all():
            raise ValueError(f"index must be integers (new batch,) below the batch of {batch}; got {index.tolist()}")
        self._map(lambda x: x.index_select(0, index))

    @property
    def bytes(self) -> int:
        """Bytes of memory that the cache occupies."""
        return sum(x.numel() * x.element_size() for x in self._tensors())

    def _positions_from(self, start, n):
        check_count("n", n, 0)
        return torch.arange(start, start + n, device=None if self.k is None else self.k.device)

    def _tensors(self):
        return [x for x in (self.k, self.v) if x is not None]

    def _map(self, change):
        self.k, self.v = change(self.k), change(self.v)

    def _check_new(self, k, v):
        for name, x, held in (("k", k, self.k), ("v", v, self.v)):
            if not isinstance(x, Tensor) or x.dim() != 4:
                got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise ValueError(f"{name} must be (batch, heads, n, width); got {got}")
            if held is not None and (x.dtype != held.dtype or x.device != held.device
                                     or x.shape[:2] != held.shape[:2] or x.shape[3] != held.shape[3]):
                raise ValueError(f"{name} must have the batch, heads, width, dtype and device of the cache, "
                                 f"{tuple(held.shape)} {held.dtype}; got {tuple(x.shape)} {x.dtype}")
        if v.shape[:3] != k.shape[:3] or v.dtype != k.dtype:
            raise ValueError(f"v must have the batch, heads, tokens and dtype of k, {tuple(k.shape[:3])} {k.dtype}; "
                             f"got {tuple(v.shape[:3])} {v.dtype}")

    def _check_not_empty(self):
        if self.k is None:
            raise ValueError("cache must hold tokens before it is read; got an empty one")

    def _check_shorter(self, n):
        if not isinstance(n, int) or not 0 <= n <= self.length:
            raise ValueError(f"n must be between 0 and the cache's {self.length} tokens; got {n!r}")


class GrowingCache(KVCache):
    """Grows by torch.cat: never too large, but every step copies all that is there."""

    def append(self, k, v):
        self._check_new(k, v)
        if self.k is None:
            self.k, self.v = k.clone(), v.clone()       # the caller may go on writing into his own
        else:
            self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)
        self.length += k.shape[2]


class StaticCache(KVCache):
    """Room for `capacity` tokens, reserved once; a step writes its own row and nothing else."""

    def __init__(self, capacity: int):
        super().__init__()
        check_count("capacity", capacity, 1)
        self.capacity = capacity

    def reserve(self, k, v):
        """Check new keys and values, and make the room at the first ones."""
        self._check_new(k, v)
        if self.length + k.shape[2] > self.capacity:
            raise ValueError(f"k must fit the cache's capacity of {self.capacity} tokens, {self.length} of them taken; "
                             f"got {k.shape[2]} more")
        if self.k is None:
            self.k, self.v = (x.new_zeros(*x.shape[:2], self.capacity, x.shape[3]) for x in (k, v))

    def append(self, k, v):
        self.reserve(k, v)
        here = slice(self.length, self.length + k.shape[2])
        self.k[:, :, here], self.v[:, :, here] = k, v
        self.length += k.shape[2]

    def view(self):
        self._check_not_empty()
        return self.k[:, :, :self.length], self.v[:, :, :self.length]

    def truncate(self, n):
        self._check_shorter(n)
        self.length = n


class RollingCache(KVCache):
    """The first n_sink tokens and the last `window`: memory that no longer grows, at the price of forgetting.

    A query sees the sinks and `window` keys, its own included. positions="absolute" keeps every token's own position;
    "reindexed" counts those held 0, 1, 2, ..., so that positions stay small however long the text. That moves a key
    whenever another is forgotten, which is why keys are kept unrotated: a rotated one would have to be turned back.
    """
    rotated = False

    def __init__(self, window: int, n_sink: int = 0, positions: str = "absolute"):
        super().__init__()
        check_count("window", window, 1)
        check_count("n_sink", n_sink, 0)
        if positions not in ("absolute", "reindexed"):
            raise ValueError(f'positions must be "absolute" or "reindexed"; got {positions!r}')
        self.window, self.n_sink, self.positions = window, n_sink, positions
        self.first = n_sink                 # the oldest token held that is no sink

    def append(self, k, v):
        self._check_new(k, v)
        if self.k is None:
            self.k, self.v = k.clone(), v.clone()
        else:
            # Forget only what the first of the new queries cannot see: the others are hidden by mask().
            old = self._first_needed(self.length) - self.first
            if old:
                self._map(lambda x: torch.cat((x[:, :, :self.n_sink], x[:, :, self.n_sink + old:]), 2))
                self.first += old
            self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)
        self.length += k.shape[2]

    def next_positions(self, n):
        start = self.length
        if self.positions == "reindexed":
            start -= self._first_needed(self.length) - self.n_sink
        return self._positions_from(start, n)

    def key_positions(self) -> Tensor:
        """(m,): the positions by which view()'s keys have to be rotated."""
        held = self._tokens_held()
        return torch.arange(len(held), device=held.device) if self.positions == "reindexed" else held

    def mask(self, n):
        key = self._tokens_held()
        query = torch.arange(self.length - n, self.length, device=key.device)[:, None]
        return (key < self.n_sink) | (key > query - self.window)

    def truncate(self, n):
        self._check_shorter(n)
        if n <= self.n_sink:
            held, self.first = n, self.n_sink
        elif self._first_needed(n) >= self.first:
            held = self.n_sink + n - self.first
        else:
            raise ValueError(f"n must leave a whole window: {self.n_sink} to {self.first - 1} are forgotten; got {n}")
        if self.k is not None:
            self._map(lambda x: x[:, :, :held])
        self.length = n

    def _first_needed(self, position):
        """The oldest token, sinks apart, that a query at this position sees."""
        return max(self.n_sink, position - self.window + 1)

    def _tokens_held(self):
        self._check_not_empty()
        sinks = torch.arange(min(self.n_sink, self.length), device=self.k.device)
        return torch.cat((sinks, torch.arange(self.first, max(self.first, self.length), device=self.k.device)))


class QuantizedCache(KVCache):
    """Whole groups of tokens as int8, int4 or fp8; the newest, up to group - 1, wait in full precision.

    Keys share a step a channel (some channels are large in every token), values a step a token: the errors of one
    channel of keys, or of one token of values, then cannot spoil the others.
    """

    def __init__(self, bits, group: int = 32):
        super().__init__()
        check_bits(bits)
        check_count("group", group, 1)
        self.bits, self.group = bits, group
        self.keys = self.values = None      # Quantized, (batch, n_kv_heads, groups, group, width): the kernel's order

    def append(self, k, v):
        self._check_new(k, v)
        if self.k is None:
            self.k, self.v = k[:, :, :0], v[:, :, :0]
            self.keys, self.values = self._pack(0)
        self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)
        self.length += k.shape[2]
        n_groups = self.k.shape[2] // self.group
        if n_groups:
            self.keys, self.values = (_each(lambda *x: torch.cat(x, 2), old, new)
                                      for old, new in zip((self.keys, self.values), self._pack(n_groups)))
            # A copy: a slice would keep the memory of the tokens that have just been packed.
            super()._map(lambda x: x[:, :, n_groups * self.group:].clone())

    def view(self):
        self._check_not_empty()
        return tuple(torch.cat((dequantize(packed, self.bits).flatten(2, 3).to(waiting.dtype), waiting), 2)
                     for packed, waiting in ((self.keys, self.k), (self.values, self.v)))

    def waiting(self) -> tuple[Tensor, Tensor]:
        """Keys and values in full precision: the newest, fewer than a group."""
        self._check_not_empty()
        return self.k, self.v

    def truncate(self, n):
        """A group that is cut is unpacked, and its tokens wait again."""
        self._check_shorter(n)
        if self.k is not None:
            whole, rest = divmod(n, self.group)
            if n < self.length - self.k.shape[2]:
                self.k, self.v = (dequantize(_each(lambda x: x[:, :, whole], packed), self.bits).to(waiting.dtype)
                                  for packed, waiting in ((self.keys, self.k), (self.values, self.v)))
                self.keys, self.values = (_each(lambda x: x[:, :, :whole].clone(), x) for x in (self.keys, self.values))
            super()._map(lambda x: x[:, :, :rest])
        self.length = n

    def _pack(self, n_groups):
        return tuple(quantize(x[:, :, :n_groups * self.group].unflatten(2, (n_groups, self.group)), self.bits, dim)
                     for x, dim in ((self.k, -2), (self.v, -1)))

    def _tensors(self):
        return [x for x in (*(self.keys or ()), *(self.values or ()), self.k, self.v) if x is not None]

    def _map(self, change):
        super()._map(change)
        self.keys, self.values = _each(change, self.keys), _each(change, self.values)


def _each(change, *packed):
    """change() on the codes, on the steps, and on the lowest values where there are any."""
    return Quantized(*(None if fields[0] is None else change(*fields) for fields in zip(*packed)))


class CrossCache(KVCache):
    """Keys and values of the text that a decoder reads (cross-attention): made once, whatever is generated."""

    def append(self, k, v):
        self._check_new(k, v)
        if self.k is not None:
            raise ValueError(f"cache must be empty: what is read has {self.length} tokens already; got {k.shape[2]} more")
        self.k, self.v, self.length = k.clone(), v.clone(), k.shape[2]


def caches_for(model, make_cache):
    """A cache for each of model.blocks: by make_cache, or, where that is None, what model.make_caches() says."""
    return model.make_caches() if make_cache is None else [make_cache() for _ in model.blocks]


@torch.no_grad()
def generate(model, tokens: Tensor, max_new_tokens: int, temperature: float = 0.0, top_k: int | None = None,
             top_p: float | None = None, generator=None, stop: int | None = None, make_cache=GrowingCache,
             chunk: int | None = None) -> Tensor:
    """tokens (b, n) and up to max_new_tokens more, each from one pass of the model over one new token.

    model(tokens, caches) returns logits (b, n, vocabulary); it has `blocks`, one cache each, as `caches_for` makes them.
    The prompt goes in whole, or `chunk` tokens at a time. A sequence that has drawn `stop` is filled up with it; when all
    have, generation ends.
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be (batch, n) with n at least 1; got shape {tuple(tokens.shape)}")
    check_count("max_new_tokens", max_new_tokens, 0)
    for name, value, least in (("chunk", chunk, 1), ("stop", stop, 0)):
        if value is not None:
            check_count(name, value, least)
    caches = caches_for(model, make_cache)
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    pieces = tokens.split(chunk or tokens.shape[1], 1)
    for _ in range(max_new_tokens):
        for piece in pieces:
            logits = model(piece, caches)[:, -1]
        probabilities = next_token_probabilities(logits, temperature, top_k, top_p)
        if temperature == 0:
            new = probabilities.argmax(-1)
        else:
            new = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        if stop is not None:
            new = new.masked_fill(done, stop)
            done |= new == stop
        pieces = [new[:, None]]
        tokens = torch.cat((tokens, new[:, None]), 1)
        if done.all():
            break
    return tokens
