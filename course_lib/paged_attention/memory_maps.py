"""How a cache's memory is used while requests are served: one contiguous piece for each, or blocks.

Only places are simulated, no keys. All requests wait at the start and are served in order; a step adds a
token to each running request. A map describes the memory after a step: (length, kind), in order."""
import math
from collections import deque
from itertools import groupby

from course_lib import figures
from course_lib.checks.paged_attention import check_largest
from .blocks import BlockAllocator, OutOfBlocks

USED, LATER, NEVER, FREE = KINDS = "in use", "reserved, used later", "reserved, never used", "free"

RESERVE = {     # slots that a request reserves; only the first does not need the length of the output
    "the maximum": lambda request, context: context,
    "the next power of two": lambda request, context: 2 ** math.ceil(math.log2(_total(request))),
    "the exact length": lambda request, context: _total(request)}


def contiguous_maps(requests, n_slots, reserve, context=2048):
    """One map per step, while a request waits. reserve: a key of RESERVE. First fit."""
    largest = max(RESERVE[reserve](request, context) for request in requests)
    check_largest("n_slots", largest, n_slots, "slots by this rule")
    waiting, maps = deque(requests), []
    held = []                                                # [start, size, request, tokens], sorted by start
    while True:
        held = [piece for piece in held if piece[3] < _total(piece[2])]
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
    """The same with blocks, allocated when needed. If none is left, the youngest request loses its own."""
    check_largest("n_blocks", largest_in_blocks(requests, block_size), n_blocks, f"blocks of {block_size}")
    allocator = BlockAllocator(n_blocks, block_size)
    waiting, running, maps = deque((i, r.prompt, _total(r)) for i, r in enumerate(requests)), [], []
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
            allocator.allocate(name, [0] * (length + 1), share=False)      # one more for the next token
            running.append((name, end))
        if not waiting:
            return maps
        maps.append(_paged_map(allocator, dict(running)))


def largest_in_blocks(requests, block_size):
    """The blocks that the longest of the requests needs at its end."""
    return max(math.ceil(_total(request) / block_size) for request in requests)


def shares(maps):
    """{kind: its share of all slots, averaged over the steps}."""
    total = dict.fromkeys(KINDS, 0)
    for lengths in maps:
        for length, kind in lengths:
            total[kind] += length
    return {kind: count / sum(total.values()) for kind, count in total.items()}


def draw_maps(maps, caption, width=8.4):
    """One strip per map, {name: map}, with a colour for each kind."""
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
    handles = [figures.rectangle(0, 0, 1, 1, label=kind, **look) for kind, look in looks.items()]
    ax.legend(handles=handles, fontsize=8, frameon=False, loc="lower center", ncols=4,
              bbox_to_anchor=(0.5, 1.0))
    told = []
    for name, lengths in maps.items():
        parts = (f"{share:.0%} {kind}" for kind, share in shares([lengths]).items())
        told.append(f"{name}: {', '.join(parts)}")
    figures.show(fig, alt=f"Strips of memory at one step. {'; '.join(told)}.", caption=caption)


def _total(request):
    return request.prompt + request.output


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
        needed = _total(request)
        lengths += [(start - end, FREE), (tokens, USED), (needed - tokens, LATER), (size - needed, NEVER)]
        end = start + size
    return [piece for piece in lengths + [(n_slots - end, FREE)] if piece[0]]


def _paged_map(allocator, ends):
    """ends: {name: how long the sequence will be}."""
    size = allocator.block_size
    blocks = [[(size, FREE)]] * allocator.n_blocks
    for name, table in allocator.tables.items():
        full = table.length // size
        for block in table.blocks[:full]:
            blocks[block] = [(size, USED)]
        for i, block in enumerate(table.blocks[full:], full):
            used, needed = (min(size, length - i * size) for length in (table.length, ends[name]))
            blocks[block] = [(used, USED), (needed - used, LATER), (size - needed, NEVER)]
    return [piece for block in blocks for piece in block if piece[0]]
