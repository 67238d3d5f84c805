"""Chapter 8: a key-value cache in blocks of fixed size, found through a table as an operating system finds pages.

A sequence is known by a name (any hashable value). Its block table lists the blocks that hold its positions in
order: position p lies in block table[p // block_size], at offset p % block_size.
"""
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from course_lib.checks import check_count
from course_lib.paged_attention.kernels import (check_chunks, check_paged, copy_blocks_kernel, paged_attention_kernel,
                                      paged_prefill_kernel)

__all__ = ["OutOfBlocks", "BlockAllocator", "PagedKVCache", "paged_attention", "paged_prefill",
           "paged_attention_kernel", "paged_prefill_kernel", "copy_blocks_kernel"]


class OutOfBlocks(RuntimeError):
    """No block is free and no cached one can be evicted. Nothing was changed."""


@dataclass(eq=False)
class Prefix:
    """A whole block of known tokens after a known prefix: what the hash of a block stands for."""
    parent: "Prefix | None"
    tokens: tuple
    key: int


@dataclass
class Table:
    blocks: list = field(default_factory=list)
    length: int = 0                         # slots in use
    prefixes: list = field(default_factory=list)    # of its first blocks, as far as they are registered


class BlockAllocator:
    """Who holds which block. It moves no data: PagedKVCache does.

    A block is in exactly one of three states: held (references > 0), cached (nobody holds it, but its tokens are
    known and it may be asked for again; least recently used first out) or free.
    """

    def __init__(self, n_blocks: int, block_size: int, hash_function=hash):
        for name, value in (("n_blocks", n_blocks), ("block_size", block_size)):
            check_count(name, value, 1)
        self.n_blocks, self.block_size, self.hash_function = n_blocks, block_size, hash_function
        self.references = [0] * n_blocks
        self.tables: dict = {}                           # name -> Table
        self._free = list(range(n_blocks))[::-1]         # the lowest is taken first
        self._cached = OrderedDict()                     # block -> None, the least recently used first
        self._block_of = {}                              # hash of a prefix -> the block that holds its last tokens
        self._prefix_of = {}                             # block -> Prefix

    @property
    def n_available(self) -> int:
        """Blocks that can be had now, cached ones included."""
        return len(self._free) + len(self._cached)

    def can_allocate(self, tokens, share: bool = True) -> bool:
        """Whether allocate would find room; never for no tokens, which it refuses."""
        tokens = _as_list(tokens)
        return len(tokens) > 0 and self._blocks_missing(tokens, self._known(tokens) if share else []) <= 0

    def allocate(self, name, tokens, share: bool = True) -> int:
        """Make a table with a slot for each of tokens; return how many of them are in the cache already.

        Whole blocks of the same prefix are shared. The block of the last token never is: its output is
        wanted, so at least one token has to be computed, and nobody writes into a shared block.
        """
        tokens = _as_list(tokens)
        if name in self.tables:
            raise ValueError(f"name must be new; got {name!r}, which has a table")
        if len(tokens) == 0:
            raise ValueError("tokens must hold at least one token; got none")
        known = self._known(tokens) if share else []
        missing = self._blocks_missing(tokens, known)
        if missing > 0:
            raise OutOfBlocks(f"{len(tokens)} tokens need {missing} more blocks than the "
                              f"{self.n_available} available")
        for block in known:
            self._hold(block)
        n_new = math.ceil(len(tokens) / self.block_size) - len(known)
        blocks = known + [self._take() for _ in range(n_new)]
        self.tables[name] = Table(blocks, len(tokens), [self._prefix_of[block] for block in known])
        return len(known) * self.block_size

    def append_slot(self, name):
        """One more slot: (block, offset, source). Where source is not None, copy it to block before you write."""
        table = self._table(name)
        offset = table.length % self.block_size
        source = None
        if offset == 0:
            self._check_available()
            table.blocks.append(self._take())
        elif self.references[table.blocks[-1]] > 1:      # partly filled and shared: copy on write
            self._check_available()
            source, table.blocks[-1] = table.blocks[-1], self._take()
            self._release(source)
        table.length += 1
        return table.blocks[-1], offset, source

    def fork(self, parent, child):
        """child holds all blocks of parent. A block is copied when one of them first writes into it."""
        table = self._table(parent)
        if child in self.tables:
            raise ValueError(f"child must be new; got {child!r}, which has a table")
        for block in table.blocks:
            self._hold(block)
        self.tables[child] = Table(list(table.blocks), table.length, list(table.prefixes))

    def free(self, name):
        table = self._table(name)
        del self.tables[name]
        for block in reversed(table.blocks):             # a prefix outlives what follows it
            self._release(block)

    def register(self, name, tokens):
        """tokens, the first of this sequence, are computed: their whole blocks may be shared from now on."""
        table, size, tokens = self._table(name), self.block_size, _as_list(tokens)
        if len(tokens) > table.length:
            raise ValueError(f"tokens must be at most the {table.length} with a slot; got {len(tokens)}")
        for i in range(len(table.prefixes), len(tokens) // size):
            parent = table.prefixes[-1] if table.prefixes else None
            table.prefixes.append(self._publish(table.blocks[i], parent, tuple(tokens[i * size:(i + 1) * size])))

    def check(self):
        """Raise AssertionError unless every block is accounted for exactly once."""
        held = [0] * self.n_blocks
        for name, table in self.tables.items():
            assert len(table.blocks) == math.ceil(table.length / self.block_size), f"{name!r}: blocks and length"
            assert len(set(table.blocks)) == len(table.blocks), f"{name!r} holds a block twice"
            for block in table.blocks:
                held[block] += 1
        assert held == self.references, "references are not the tables' entries"
        idle = self._free + list(self._cached)
        assert len(set(idle)) == len(idle), "a block is idle twice"
        assert sorted(idle) == [b for b in range(self.n_blocks) if held[b] == 0], "a block is lost, or held and idle"
        assert set(self._cached) <= set(self._prefix_of), "a cached block has no prefix"
        assert not set(self._free) & set(self._prefix_of), "a free block has a prefix"
        assert {key: b for b, p in self._prefix_of.items() for key in [p.key]} == self._block_of, "hashes and blocks"
        assert len(self._block_of) == len(self._prefix_of), "two blocks under one hash"

    def _table(self, name):
        if name not in self.tables:
            raise ValueError(f"name must be of a sequence that has a table; got {name!r}")
        return self.tables[name]

    def _key(self, parent, tokens):
        return self.hash_function((parent.key if parent else None, tokens))

    def _known(self, tokens):
        """The blocks of the longest cached prefix, the last token's block left out."""
        blocks, parent, size = [], None, self.block_size
        for i in range((len(tokens) - 1) // size):
            of_block = tuple(tokens[i * size:(i + 1) * size])
            block = self._block_of.get(self._key(parent, of_block))
            if block is None or not self._is(self._prefix_of[block], parent, of_block):
                break
            blocks.append(block)
            parent = self._prefix_of[block]
        return blocks

    @staticmethod
    def _is(prefix, parent, tokens):
        """Equal hashes prove nothing: the tokens decide, and the prefix before them, which was compared before."""
        return prefix.parent is parent and prefix.tokens == tokens

    def _publish(self, block, parent, tokens):
        key = self._key(parent, tokens)
        other = self._block_of.get(key)
        if other is not None:
            if self._is(self._prefix_of[other], parent, tokens):
                return self._prefix_of[other]            # computed twice at the same time: one copy is enough
            self._forget(other)                          # a collision, or what follows a prefix evicted long ago
        self._block_of[key] = block
        self._prefix_of[block] = Prefix(parent, tokens, key)
        return self._prefix_of[block]

    def _forget(self, block):
        del self._block_of[self._prefix_of.pop(block).key]
        if block in self._cached:
            del self._cached[block]
            self._free.append(block)

    def _blocks_missing(self, tokens, known):
        needed = math.ceil(len(tokens) / self.block_size) - len(known)
        return needed - (self.n_available - sum(block in self._cached for block in known))

    def _check_available(self):
        if self.n_available == 0:
            raise OutOfBlocks(f"all {self.n_blocks} blocks are held")

    def _take(self):
        if not self._free:
            self._forget(next(iter(self._cached)))       # evict the least recently used
        block = self._free.pop()
        self.references[block] = 1
        return block

    def _hold(self, block):
        self._cached.pop(block, None)
        self.references[block] += 1

    def _release(self, block):
        self.references[block] -= 1
        if self.references[block] == 0:
            if block in self._prefix_of:
                self._cached[block] = None
            else:
                self._free.append(block)


class PagedKVCache:
    """keys and values (n_layers, n_blocks, n_kv_heads, block_size, head_dim), and the allocator of their blocks.

    Values are v_dim wide where that is given.
    """

    def __init__(self, n_blocks, block_size, n_layers, n_kv_heads, head_dim, dtype=torch.float32, device=None,
                 v_dim=None):
        self.allocator = BlockAllocator(n_blocks, block_size)
        v_dim = head_dim if v_dim is None else v_dim
        for name, value in (("n_layers", n_layers), ("n_kv_heads", n_kv_heads), ("head_dim", head_dim)):
            check_count(name, value, 1)
        check_count("v_dim", v_dim, 0)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point dtype; got {dtype!r}")
        shape = n_layers, n_blocks, n_kv_heads, block_size
        self.keys, self.values = (torch.zeros(*shape, width, dtype=dtype, device=device) for width in (head_dim, v_dim))

    @property
    def block_size(self) -> int:
        return self.allocator.block_size

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def append_slot(self, name):
        """(block, offset) of one more slot, in a block that only this sequence holds."""
        block, offset, source = self.allocator.append_slot(name)
        if source is not None:
            self.copy_block(source, block)
        return block, offset

    def copy_block(self, source: int, target: int):
        for pool in (self.keys, self.values):
            pool[:, target] = pool[:, source]

    def tables(self, names):
        """(tables, lengths): int32 (b, the most blocks of one), filled up with -1, and int32 (b).

        They hold until one of these sequences is changed or freed: then ask again.
        """
        tables = [self.allocator._table(name) for name in names]
        width = max((len(table.blocks) for table in tables), default=0)
        rows = [table.blocks + [-1] * (width - len(table.blocks)) for table in tables]
        return (torch.tensor(rows, dtype=torch.int32).view(len(rows), width),
                torch.tensor([table.length for table in tables], dtype=torch.int32))

    def slots(self, name, start: int, stop: int) -> torch.Tensor:
        """Positions start to stop of a sequence as slots of the whole pool: block * block_size + offset."""
        table = self.allocator._table(name)
        if not 0 <= start <= stop <= table.length:
            raise ValueError(f"start and stop must lie within the {table.length} slots; got {start}, {stop}")
        size = self.block_size
        return torch.tensor([table.blocks[p // size] * size + p % size for p in range(start, stop)], dtype=torch.long)

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        """k (n, n_kv_heads, head_dim) and v (n, n_kv_heads, v_dim) of one layer into n slots."""
        n_slots = self.keys.shape[1] * self.block_size
        on_cpu = slots.device.type == "cpu"         # a card would have to finish all it has begun, once a layer
        if on_cpu and len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < n_slots:
            raise ValueError(f"slots must lie in 0 to {n_slots - 1}; got {int(slots.min())} to {int(slots.max())}")
        blocks, offsets = slots // self.block_size, slots % self.block_size
        for name, pool, x in (("k", self.keys, k), ("v", self.values, v)):
            want = (len(slots), pool.shape[2], pool.shape[4])
            if x.dtype != pool.dtype or tuple(x.shape) != want:
                raise ValueError(f"{name} must be {pool.dtype} of shape {want}; got {x.dtype}, {tuple(x.shape)}")
        self.keys[layer, blocks, :, offsets] = k
        self.values[layer, blocks, :, offsets] = v

    def read_blocks(self, blocks):
        """A copy of these blocks (two tensors) to keep elsewhere: swapping out."""
        return self.keys[:, blocks].clone(), self.values[:, blocks].clone()

    def write_blocks(self, blocks, saved):
        """Swapping in: what read_blocks gave, into other blocks."""
        self.keys[:, blocks], self.values[:, blocks] = saved


def paged_attention(q, cache: PagedKVCache, tables, lengths, layer: int = 0, scale: float | None = None,
                    window: int | None = None, values=None):
    """Causal attention of the last n positions of each sequence over its blocks -> (b, heads, n, v_dim).

    q (b, heads, n, head_dim); tables (b, pages) and lengths (b) as cache.tables gives them. With a window a query sees
    that many keys, its own included. What is averaged is values(k, v), the cached v itself unless given. The reference:
    it gathers each sequence's blocks into one tensor, which is the copy that the kernels do without.
    """
    check_paged(q, cache, tables, lengths, layer)
    if window is not None:
        check_count("window", window, 1)
    b, heads, n, d = q.shape
    n_kv_heads = cache.keys.shape[2]
    if q.numel() == 0:
        return q.new_zeros(b, heads, n, cache.values.shape[4])
    scale = 1 / math.sqrt(d) if scale is None else scale
    blocks, lengths = tables.to(q.device, torch.long).clamp(min=0), lengths.to(q.device, torch.long)
    # (b, pages, kv heads, size, width) -> (b, kv heads, 1, pages * size, width)
    k, v = (pool[layer][blocks].transpose(1, 2).flatten(2, 3)[:, :, None] for pool in (cache.keys, cache.values))
    v = v if values is None else values(k, v)
    positions = torch.arange(k.shape[3], device=q.device)
    own = (lengths[:, None] - n + torch.arange(n, device=q.device))[..., None]             # (b, n, 1): of each query
    visible = positions <= own                                                             # (b, n, keys)
    if window is not None:
        visible &= positions > own - window
    scores = scale * q.view(b, n_kv_heads, heads // n_kv_heads, n, d) @ k.transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~visible[:, None, None], -math.inf), -1)
    # What lies behind the end of a sequence may be anything, and 0 * nan is nan: it must not enter the sum.
    v = v.masked_fill((positions >= lengths[:, None])[:, None, None, :, None], 0)
    return (weights @ v).view(b, heads, n, v.shape[-1])


def paged_prefill(q, cache: PagedKVCache, tables, lengths, counts, layer: int = 0, scale: float | None = None,
                  window: int | None = None, values=None):
    """paged_attention of chunks of different length, one after the other in q (tokens, heads, head_dim).

    counts[i] rows of q are the last positions of sequence i. Returns (tokens, heads, v_dim). Chunks of one length
    are computed together.
    """
    check_chunks(counts, q, tables)
    starts, rows, parts = list(accumulate(counts, initial=0)), [], []
    for n in set(counts):
        members = [i for i, count in enumerate(counts) if count == n]
        here = torch.tensor([range(starts[i], starts[i] + n) for i in members], device=q.device)
        pages = math.ceil(int(lengths[members].max()) / cache.block_size)
        heads = paged_attention(q[here].transpose(1, 2), cache, tables[members, :pages], lengths[members], layer,
                                scale, window, values)
        rows.append(here.flatten())
        parts.append(heads.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[torch.cat(rows).argsort()]


def _as_list(tokens):
    """Tokens are compared and hashed as numbers; the entries of a tensor would be hashed as objects."""
    return tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
