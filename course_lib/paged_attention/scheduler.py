"""Requests, their samples, and the scheduler: which sequence computes how many tokens in each step.

First come, first served. Without blocks the youngest frees its own and waits (preemption): the oldest goes on.
"""
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Callable

from course_lib.checks import check_choice, check_sizes
from course_lib.checks.paged_attention import check_running
from .blocks import OutOfBlocks
from .cache import PagedKVCache


@dataclass(eq=False)
class Sequence:
    """One sample of a request: its prompt and what was generated so far."""
    request: "Request"
    sample: int
    tokens: list
    computed: int = 0              # how many tokens have their keys and values in the cache
    swapped: tuple | None = None   # those keys and values, while they are stored elsewhere
    finished: bool = False

    @property
    def name(self):
        return self.request.id, self.sample

    @property
    def generated(self) -> list:
        return self.tokens[len(self.request.prompt):]


@dataclass(eq=False)
class Request:
    id: int
    prompt: list
    max_new_tokens: int
    sampling: dict = field(default_factory=dict)       # temperature, top_k, top_p, repetition_penalty
    stop: frozenset = frozenset()
    on_token: Callable | None = None
    generators: list = field(default_factory=list)     # torch.Generator, one per sample
    samples: list = field(default_factory=list)        # Sequence; only the first until the prompt is read
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        all_begun = len(self.samples) == len(self.generators)
        return self.cancelled or (all_begun and all(sample.finished for sample in self.samples))


class Scheduler:
    """Decides which sequence computes how many tokens in the next step; allocates and frees its blocks.

    waiting: not begun. running: holds blocks. preempted: lost its blocks, restarts before those waiting."""

    def __init__(self, cache: PagedKVCache, token_budget=64, max_running=16, preemption="recompute",
                 share_prefixes=True):
        check_sizes(token_budget=token_budget, max_running=max_running)
        check_choice("preemption", preemption, ("recompute", "swap"))
        self.cache, self.token_budget, self.max_running = cache, token_budget, max_running
        self.preemption, self.share_prefixes = preemption, share_prefixes
        self.waiting, self.running, self.preempted = deque(), [], deque()

    def add(self, sequence):
        self.waiting.append(sequence)

    def schedule(self):
        """([(sequence, tokens to compute)], [preempted sequences]) of one step, slots included."""
        batch, preempted, budget = [], [], self.token_budget
        for sequence in list(self.running):                            # the oldest first
            if budget == 0 or sequence not in self.running:            # preempted in this loop
                continue
            if not self._make_room(sequence, preempted):
                break
            n = min(budget, len(sequence.tokens) - sequence.computed)
            batch.append((sequence, n))
            budget -= n
        # If blocks ran out, a new sequence would be preempted at once.
        while budget > 0 and not preempted and len(self.running) < self.max_running:
            queue = self.preempted or self.waiting
            if not queue or not self._start(queue[0]):
                break
            sequence = queue.popleft()
            n = min(budget, len(sequence.tokens) - sequence.computed)
            batch.append((sequence, n))
            budget -= n
        return batch, preempted

    def fork(self, parent, child):
        """child continues from parent's state: now, sharing its blocks, or later if max_running is reached."""
        if len(self.running) < self.max_running:
            self.cache.allocator.fork(parent.name, child.name)
            child.computed = parent.computed
            self.running.append(child)
        else:
            self.preempted.append(child)

    def computed(self, sequence, n):
        """Record that n more tokens of sequence are in the cache; their whole blocks may be shared."""
        sequence.computed += n
        if self.share_prefixes:
            self.cache.allocator.register(sequence.name, sequence.tokens[:sequence.computed])

    def preempt(self, sequence):
        """Free the blocks of a running sequence. "swap" saves their content, "recompute" does not."""
        check_running(sequence, self.running)
        if self.preemption == "swap":
            blocks = self.cache.allocator.tables[sequence.name].blocks
            n_used = math.ceil(sequence.computed / self.cache.block_size)
            sequence.swapped = self.cache.read_blocks(blocks[:n_used])
        else:
            sequence.computed = 0
        self._leave(sequence)
        self.preempted.appendleft(sequence)        # the youngest is preempted first: the oldest ends in front

    def remove(self, sequence):
        """Take a finished or cancelled sequence out of whichever queue holds it."""
        if sequence in self.running:
            self._leave(sequence)
        for queue in (self.waiting, self.preempted):
            if sequence in queue:
                queue.remove(sequence)
        sequence.swapped = None
        sequence.finished = True

    def _leave(self, sequence):
        self.cache.allocator.free(sequence.name)
        self.running.remove(sequence)

    def _make_room(self, sequence, preempted):
        """A slot for each token of a running sequence; False if the sequence itself was preempted."""
        allocator = self.cache.allocator
        while allocator.tables[sequence.name].length < len(sequence.tokens):
            try:
                self.cache.append_slot(sequence.name)
            except OutOfBlocks:
                youngest = self.running[-1]
                self.preempt(youngest)
                preempted.append(youngest)
                if youngest is sequence:
                    return False
        return True

    def _start(self, sequence):
        allocator, share = self.cache.allocator, self.share_prefixes and sequence.swapped is None
        if not allocator.can_allocate(sequence.tokens, share):
            return False
        n_cached = allocator.allocate(sequence.name, sequence.tokens, share)
        if sequence.swapped is None:
            sequence.computed = n_cached
        else:
            n_used = math.ceil(sequence.computed / self.cache.block_size)
            self.cache.write_blocks(allocator.tables[sequence.name].blocks[:n_used], sequence.swapped)
            sequence.swapped = None
        self.running.append(sequence)
        return True
