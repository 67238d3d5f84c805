"""Chapter 8: what the memory of a cache is filled with while requests are served: in one piece each, or in blocks.

Nothing is computed here. All requests wait at the start, first come, first served; a step adds a token to each that
runs. A map is what lies where after a step: a list of (length, kind) from the first slot to the last.
"""
import math
from collections import deque
from itertools import groupby

from course_lib.paged_attention.cache import BlockAllocator, OutOfBlocks

USED, LATER, NEVER, FREE = KINDS = "in use", "reserved, used later", "reserved, never used", "free"

RESERVE = {     # what a request takes in one piece; only the first knows nothing about the output
    "the maximum": lambda request, context: context,
    "the next power of two": lambda request, context: 2 ** math.ceil(math.log2(request.prompt + request.output)),
    "the exact length": lambda request, context: request.prompt + request.output,
}


def contiguous_maps(requests, n_slots, reserve, context=2048):
    """A map for each step while somebody waits. reserve: a key of RESERVE. The first long enough hole is taken."""
    largest = max(RESERVE[reserve](request, context) for request in requests)
    if largest > n_slots:
        raise ValueError(f"n_slots must hold the largest request, {largest} slots by this rule; got {n_slots}")
    waiting, held, maps = deque(requests), [], []            # held: [start, size, request, tokens], sorted by start
    while True:
        held = [piece for piece in held if piece[3] < piece[2].prompt + piece[2].output]
        while waiting:
            size = RESERVE[reserve](waiting[0], context)
            start = _first_hole(held, size, n_slots)
            if start is None:
                break
            request = waiting.popleft()
            held = sorted(held + [[start, size, request, request.prompt]], key=lambda piece: piece[0])
        if not waiting:
            return maps
        for piece in held:
            piece[3] += 1
        maps.append(_contiguous_map(held, n_slots))


def paged_maps(requests, n_blocks, block_size):
    """The same with blocks that are taken when they are needed. Where none is left, the youngest gives its own back."""
    check_room(requests, n_blocks, block_size)
    allocator = BlockAllocator(n_blocks, block_size)
    waiting, running, maps = deque((i, r.prompt, r.prompt + r.output) for i, r in enumerate(requests)), [], []
    while True:
        for name, end in [pair for pair in running if allocator.tables[pair[0]].length >= pair[1]]:
            allocator.free(name)
            running.remove((name, end))
        preempted = False
        for name, end in list(running):
            while (name, end) in running:
                try:
                    allocator.append_slot(name)
                    break
                except OutOfBlocks:
                    youngest, its_end = running.pop()
                    waiting.appendleft((youngest, allocator.tables[youngest].length, its_end))
                    allocator.free(youngest)
                    preempted = True
        while not preempted and waiting and allocator.can_allocate([0] * (waiting[0][1] + 1), share=False):
            name, length, end = waiting.popleft()
            allocator.allocate(name, [0] * (length + 1), share=False)      # what is known, and the first new token
            running.append((name, end))
        if not waiting:
            return maps
        maps.append(_paged_map(allocator, dict(running)))


def check_room(requests, n_blocks, block_size):
    """What would never fit would be waited for without end."""
    largest = max(math.ceil((request.prompt + request.output) / block_size) for request in requests)
    if largest > n_blocks:
        raise ValueError(f"n_blocks must hold the largest request, {largest} blocks of {block_size}; got {n_blocks}")


def shares(maps):
    """{kind: its share of all slots, averaged over the steps}."""
    total = dict.fromkeys(KINDS, 0)
    for lengths in maps:
        for length, kind in lengths:
            total[kind] += length
    return {kind: count / sum(total.values()) for kind, count in total.items()}


def draw_maps(maps, caption, width=8.4):
    """One strip a map, {name: map}: what lies where."""
    from course_lib import figures

    looks = {kind: figures.filling(k) for k, kind in enumerate(KINDS)}
    looks[FREE] = {"facecolor": "white", "edgecolor": "#999999"}
    fig, ax = figures.new(width, 0.62 * len(maps) + 1.0)
    for y, lengths in enumerate(maps.values()):
        start = 0
        for kind, pieces in groupby(lengths, key=lambda piece: piece[1]):
            length = sum(piece[0] for piece in pieces)
            ax.add_patch(figures.rectangle(start, y - 0.36, length, 0.72, **looks[kind] | {"linewidth": 0.4}))
            start += length
    ax.set(xlim=(0, start), ylim=(len(maps) - 0.5, -0.5), xlabel="slot", yticks=range(len(maps)),
           yticklabels=list(maps))
    ax.legend(handles=[figures.rectangle(0, 0, 1, 1, label=kind, **look) for kind, look in looks.items()],
              fontsize=8, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    told = "; ".join(f"{name}: " + ", ".join(f"{share:.0%} {kind}" for kind, share in shares([lengths]).items())
                     for name, lengths in maps.items())
    figures.show(fig, alt=f"Strips of memory at one step. {told}.", caption=caption)


def _first_hole(held, size, n_slots):
    start = 0
    for piece in held:
        if piece[0] - start >= size:
            return start
        start = piece[0] + piece[1]
    return start if n_slots - start >= size else None


def _contiguous_map(held, n_slots):
    lengths, end = [], 0
    for start, size, request, tokens in held:
        needed = request.prompt + request.output
        lengths += [(start - end, FREE), (tokens, USED), (needed - tokens, LATER), (size - needed, NEVER)]
        end = start + size
    return [piece for piece in lengths + [(n_slots - end, FREE)] if piece[0]]


def _paged_map(allocator, ends):
    """ends: {name: how long the sequence will be}."""
    size = allocator.block_size
    blocks = [[(size, FREE)] for _ in range(allocator.n_blocks)]
    for name, table in allocator.tables.items():
        for i, block in enumerate(table.blocks):
            used, needed = (min(size, length - i * size) for length in (table.length, ends[name]))
            blocks[block] = [(used, USED), (needed - used, LATER), (size - needed, NEVER)]
    return [piece for block in blocks for piece in block if piece[0]]
