"""Keep the keys and values of earlier tokens, so that a new token costs one row of attention.

Every cache is one layer's. A layer asks for `next_positions(n)`, rotates its new keys by them, calls
`append(k, v)` and attends to `view()`, oldest first. k and v are (batch, n_kv_heads, n, width); their widths
may differ. A RollingCache stores keys unrotated (`rotated`): view()'s are rotated by `key_positions()`."""
import torch
from torch import Tensor

from course_lib.checks import check_count, check_integers
from course_lib.checks.kv_cache import (check_empty, check_new, check_not_empty, check_rolling, check_room,
                                        check_truncation, check_window_left)


class KVCache:
    """What all caches share: `length` tokens have been seen; the first append makes the tensors."""
    rotated = True                          # keys are appended rotated by their positions

    def __init__(self):
        self.length, self.k, self.v = 0, None, None

    def next_positions(self, n: int) -> Tensor:
        """(n,): the positions of the next n tokens."""
        return self._positions_from(self.length, n)

    def append(self, k: Tensor, v: Tensor) -> None:
        check_new(self, k, v)
        self._add(k, v)
        self.length += k.shape[2]

    def view(self) -> tuple[Tensor, Tensor]:
        """The keys and values held, (batch, n_kv_heads, m, width) each, oldest first."""
        check_not_empty(self)
        return self._held()

    def mask(self, n: int) -> Tensor | None:
        """(n, m): which of view()'s keys the last n queries may see beyond the causal rule; None: all."""
        return None

    def truncate(self, n: int) -> None:
        """Forget all but the first n tokens, as after drafted tokens were refused."""
        check_truncation(n, self.length)
        self._cut(n)
        self.length = n

    def reorder(self, index: Tensor) -> None:
        """Sequence i becomes a copy of sequence index[i], as when beams survive or branch."""
        check_not_empty(self)
        index = check_integers("index", index, ("new batch",), most=self.k.shape[0] - 1, device=self.k.device)
        self._map(lambda x: x.index_select(0, index))

    @property
    def bytes(self) -> int:
        """Bytes of memory that the cache occupies."""
        return sum(x.numel() * x.element_size() for x in self._tensors())

    def _positions_from(self, start, n):
        check_count("n", n, 0)
        return torch.arange(start, start + n, device=None if self.k is None else self.k.device)

    def _add(self, k, v):
        raise NotImplementedError

    def _held(self):
        return self.k, self.v

    def _cut(self, n):
        if self.k is not None:
            self._map(lambda x: x[:, :, :n])

    def _tensors(self):
        return [x for x in (self.k, self.v) if x is not None]

    def _map(self, change):
        self.k, self.v = change(self.k), change(self.v)


class GrowingCache(KVCache):
    """Grows by torch.cat: never larger than needed, but every step copies the whole cache."""

    def _add(self, k, v):
        if self.k is None:
            self.k, self.v = k.clone(), v.clone()       # copies: the caller may overwrite its own tensors
        else:
            self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)


class StaticCache(KVCache):
    """Memory for `capacity` tokens, allocated once; a step writes its own row and nothing else."""

    def __init__(self, capacity: int):
        super().__init__()
        check_count("capacity", capacity, 1)
        self.capacity = capacity

    def reserve(self, k, v):
        """Check new keys and values; the first call allocates."""
        check_new(self, k, v)
        self._allocate(k, v)

    def _allocate(self, k, v):
        check_room(self, k)
        if self.k is None:
            self.k, self.v = (x.new_zeros(*x.shape[:2], self.capacity, x.shape[3]) for x in (k, v))

    def _add(self, k, v):
        self._allocate(k, v)
        here = slice(self.length, self.length + k.shape[2])
        self.k[:, :, here], self.v[:, :, here] = k, v

    def _held(self):
        return self.k[:, :, :self.length], self.v[:, :, :self.length]

    def _cut(self, n):
        """Nothing to do: later tokens overwrite the slots."""


class RollingCache(KVCache):
    """The first n_sink tokens and the last `window`: memory stops growing, those between are forgotten.

    A query sees the sinks and `window` keys, its own included. positions="absolute" keeps every token's own
    position; "reindexed" numbers the tokens held 0, 1, 2, ..., so that positions stay small however long the
    text. Forgetting a key moves all later ones, so keys are stored unrotated, not to be rotated back."""
    rotated = False

    def __init__(self, window: int, n_sink: int = 0, positions: str = "absolute"):
        super().__init__()
        check_rolling(window, n_sink, positions)
        self.window, self.n_sink, self.positions = window, n_sink, positions
        self.first = n_sink                 # the oldest token held, sinks apart

    def _add(self, k, v):
        if self.k is None:
            self.k, self.v = k.clone(), v.clone()
        else:
            # Forget only what the first new query cannot see; mask() hides more from the later ones.
            old = self._first_needed(self.length) - self.first
            if old:
                self._map(lambda x: torch.cat((x[:, :, :self.n_sink], x[:, :, self.n_sink + old:]), 2))
                self.first += old
            self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)

    def next_positions(self, n):
        start = self.length
        if self.positions == "reindexed":
            start -= self._first_needed(self.length) - self.n_sink
        return self._positions_from(start, n)

    def key_positions(self) -> Tensor:
        """(m,): the positions by which to rotate view()'s keys."""
        held = self._tokens_held()
        return torch.arange(len(held), device=held.device) if self.positions == "reindexed" else held

    def mask(self, n):
        key = self._tokens_held()
        query = torch.arange(self.length - n, self.length, device=key.device)[:, None]
        return (key < self.n_sink) | (key > query - self.window)

    def _cut(self, n):
        if n <= self.n_sink:
            held, self.first = n, self.n_sink
        else:
            check_window_left(n, self._first_needed(n), self.n_sink, self.first)
            held = self.n_sink + n - self.first
        if self.k is not None:
            self._map(lambda x: x[:, :, :held])

    def _first_needed(self, position):
        """The oldest token, sinks apart, that a query at this position sees."""
        return max(self.n_sink, position - self.window + 1)

    def _tokens_held(self):
        check_not_empty(self)
        sinks = torch.arange(min(self.n_sink, self.length), device=self.k.device)
        rest = torch.arange(self.first, max(self.first, self.length), device=self.k.device)
        return torch.cat((sinks, rest))


class CrossCache(KVCache):
    """Keys and values of cross-attention's context: computed once per context, however much is generated."""

    def _add(self, k, v):
        check_empty(self, k)
        self.k, self.v = k.clone(), v.clone()
