"""What one layer remembers of one batch of texts: rows, one per token, and states of a fixed size."""
import torch
from torch import Tensor


class Cache:
    """rows[name] is (..., tokens, width), the newest last; state[name] changes with every token."""
    counts: list | None = None      # tokens of each sequence, where a cache serves several (`whole.serving`)

    def __init__(self):
        self.length, self.rows, self.state, self.rooms = 0, {}, {}, {}

    def extend(self, **new: Tensor) -> list[Tensor]:
        """Append new rows of every name, one per new token; return all rows that are kept."""
        self.length += next(iter(new.values())).shape[-2]
        return [self.append(name, x) for name, x in new.items()]

    def append(self, name: str, x: Tensor) -> Tensor:
        """Append rows that are not one per token, such as a row for each block of tokens. Rows are kept in a
        room that is a little larger, so that a new one rarely copies the others."""
        kept, new = self.rows.get(name), x.shape[-2]
        if kept is None:
            self.rows[name] = x
            return x
        n = kept.shape[-2]
        room, end = self.rooms.get(name, (kept, n))
        if end + new > room.shape[-2]:
            room, end = kept.new_empty(*kept.shape[:-2], n + new + max(32, n // 16), kept.shape[-1]), n
            room.narrow(-2, 0, n).copy_(kept)
        room.narrow(-2, end, new).copy_(x)
        self.rooms[name] = room, end + new
        self.rows[name] = room.narrow(-2, end - n, n + new)
        return self.rows[name]

    def trim(self, limit: int | None, *names: str):
        """Forget all rows but the last `limit`, of these names or of all."""
        for name in names or self.rows:
            if limit is not None:
                self.rows[name] = self.rows[name][..., max(self.rows[name].shape[-2] - limit, 0):, :]

    @property
    def numbers(self) -> int:
        """Numbers kept for the whole batch."""
        return sum(x.numel() for x in (*self.rows.values(), *self.state.values()))
