"""Blocks of a cache: which sequence holds which, and which prefixes are known.

A sequence has a name (any hashable value). Its block table lists the blocks that hold its positions in order:
position p is stored in block table[p // block_size], at offset p % block_size."""
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch

from course_lib.checks import check_sizes
from course_lib.checks.paged_attention import check_known_name, check_new_name, check_some_tokens


class OutOfBlocks(RuntimeError):
    """No block is free and no cached one can be evicted. The allocator is unchanged."""


@dataclass(eq=False)
class Prefix:
    """A whole block of known tokens after a known prefix. Its key is the hash by which it is found."""
    parent: "Prefix | None"
    tokens: tuple
    key: int


@dataclass
class Table:
    blocks: list = field(default_factory=list)
    length: int = 0                         # slots in use
    prefixes: list = field(default_factory=list)    # of its first blocks, those registered


class BlockAllocator:
    """Which sequence holds which block. It moves no data: PagedKVCache does.

    A block is in exactly one of three states: held (references > 0), cached (no sequence holds it, but its
    tokens are known, so a later request may share it; the least recently used is evicted first) or free."""

    def __init__(self, n_blocks: int, block_size: int, hash_function=hash):
        check_sizes(n_blocks=n_blocks, block_size=block_size)
        self.n_blocks, self.block_size, self.hash_function = n_blocks, block_size, hash_function
        self.references = [0] * n_blocks
        self.tables: dict = {}                           # name -> Table
        self._free = list(range(n_blocks))[::-1]         # the lowest number is taken first
        self._cached = OrderedDict()                     # block -> None, the least recently used first
        self._block_of = {}                              # hash of a prefix -> the block of its last tokens
        self._prefix_of = {}                             # block -> Prefix

    @property
    def n_available(self) -> int:
        """Blocks that can be taken now, cached ones included."""
        return len(self._free) + len(self._cached)

    def is_cached(self, block: int) -> bool:
        """Whether no sequence holds the block and its tokens are still known."""
        return block in self._cached

    def can_allocate(self, tokens, share: bool = True) -> bool:
        """Whether allocate would find room. False for no tokens, which allocate refuses."""
        tokens = _as_list(tokens)
        return len(tokens) > 0 and self._blocks_missing(tokens, self._known(tokens) if share else []) <= 0

    def allocate(self, name, tokens, share: bool = True) -> int:
        """Make a table with a slot for each of tokens; return how many of them are in the cache already.

        Whole blocks of the same prefix are shared, except the block of the last token: the output of that
        token is needed, so it has to be computed, and no sequence writes into a shared block.
        """
        tokens = _as_list(tokens)
        check_new_name("name", name, self.tables)
        check_some_tokens("tokens", tokens)
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
        """One more slot: (block, offset, source). If source is not None, copy it to block before writing."""
        table = self.table(name)
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
        """child holds all blocks of parent. A block is copied when parent or child first writes into it."""
        table = self.table(parent)
        check_new_name("child", child, self.tables)
        for block in table.blocks:
            self._hold(block)
        self.tables[child] = Table(list(table.blocks), table.length, list(table.prefixes))

    def free(self, name):
        table = self.table(name)
        del self.tables[name]
        for block in reversed(table.blocks):             # evict the end of a text before its beginning
            self._release(block)

    def register(self, name, tokens):
        """The first tokens of this sequence are computed: their whole blocks may be shared from now on."""
        table, size, tokens = self.table(name), self.block_size, _as_list(tokens)
        check_some_tokens("tokens", tokens, most=table.length)
        for i in range(len(table.prefixes), len(tokens) // size):
            parent = table.prefixes[-1] if table.prefixes else None
            of_block = tuple(tokens[i * size:(i + 1) * size])
            table.prefixes.append(self._publish(table.blocks[i], parent, of_block))

    def check(self):
        """Raise AssertionError unless every block is accounted for exactly once."""
        held = [0] * self.n_blocks
        for name, table in self.tables.items():
            n_blocks = math.ceil(table.length / self.block_size)
            assert len(table.blocks) == n_blocks, f"{name!r}: blocks and length"
            assert len(set(table.blocks)) == len(table.blocks), f"{name!r} holds a block twice"
            for block in table.blocks:
                held[block] += 1
        assert held == self.references, "references are not the tables' entries"
        idle = self._free + list(self._cached)
        assert len(set(idle)) == len(idle), "a block is idle twice"
        not_held = [block for block in range(self.n_blocks) if held[block] == 0]
        assert sorted(idle) == not_held, "a block is lost, or held and idle"
        assert set(self._cached) <= set(self._prefix_of), "a cached block has no prefix"
        assert not set(self._free) & set(self._prefix_of), "a free block has a prefix"
        by_hash = {prefix.key: block for block, prefix in self._prefix_of.items()}
        assert by_hash == self._block_of, "hashes and blocks"
        assert len(self._block_of) == len(self._prefix_of), "two blocks under one hash"

    def table(self, name) -> Table:
        check_known_name(name, self.tables)
        return self.tables[name]

    def _key(self, parent, tokens):
        return self.hash_function((parent.key if parent else None, tokens))

    def _known(self, tokens):
        """The blocks of the longest cached prefix, without the block of the last token."""
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
        """Different tokens can have equal hashes: compare the tokens. The prefix was compared before."""
        return prefix.parent is parent and prefix.tokens == tokens

    def _publish(self, block, parent, tokens):
        key = self._key(parent, tokens)
        other = self._block_of.get(key)
        if other is not None:
            if self._is(self._prefix_of[other], parent, tokens):
                return self._prefix_of[other]            # computed by two sequences at once: keep one
            self._forget(other)                          # a collision, or its prefix was evicted meanwhile
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


def _as_list(tokens):
    """Tokens are compared and hashed as numbers; the entries of a tensor would be hashed as objects."""
    return tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
