"""Static and continuous batching, compared in steps of the server and in slots that attention reads.

Exact: the continuous schedule is the course's own Scheduler, which does not depend on what the tokens are. A
step computes at most token_budget tokens. A request that arrives in step i can start in step i."""
from collections import deque
from typing import NamedTuple

from course_lib import figures
from course_lib.checks.paged_attention import check_largest
from .cache import PagedKVCache
from .memory_maps import largest_in_blocks
from .scheduler import Request, Scheduler, Sequence


class Row(NamedTuple):
    request: int       # its number in the list
    lane: int          # its line in a chart: rows of one lane do not overlap
    arrival: int
    start: int         # the step that computes its first prompt tokens
    first: int         # the step that generates its first token
    end: int           # the step after the one that generates its last token
    held: int          # the step after the last one in which it holds its place


class Served(NamedTuple):
    rows: list
    steps: int         # in which something was computed
    slots_read: int    # keys and values read by attention: each sequence's slots once per step
    tokens: int        # generated

    @property
    def latency(self):
        """Steps from arrival to the last token, on average."""
        return sum(row.end - row.arrival for row in self.rows) / len(self.rows)


def static_batches(requests, batch, token_budget):
    """Up to `batch` requests start together, padded to the longest prompt; the next when all are done."""
    rows, now, steps, slots_read = [], 0, 0, 0
    waiting = deque(enumerate(requests))
    while waiting:
        now = max(now, waiting[0][1].step)
        members = []
        while waiting and len(members) < batch and waiting[0][1].step <= now:
            members.append(waiting.popleft())
        prompt, output = max(r.prompt for _, r in members), max(r.output for _, r in members)
        chunk = max(1, token_budget // len(members))             # prompt positions per step, for all members
        ends = [min(prompt, at + chunk) for at in range(0, prompt, chunk)]
        # The step that ends the prompt generates the first token.
        lengths = ends + [prompt + i for i in range(1, output)]
        first = now + len(ends) - 1
        rows += [Row(i, lane, r.step, now, first, first + r.output, now + len(lengths))
                 for lane, (i, r) in enumerate(members)]
        slots_read += len(members) * sum(lengths)
        steps += len(lengths)
        now += len(lengths)
    return Served(rows, steps, slots_read, sum(r.output for r in requests))


def continuous_batches(requests, max_running, token_budget, n_blocks, block_size=16):
    """A request joins at the next step, frees its place when done, and gets blocks when it needs them."""
    check_largest("n_blocks", largest_in_blocks(requests, block_size), n_blocks, f"blocks of {block_size}")
    cache = PagedKVCache(n_blocks, block_size, 1, 1, 1)
    scheduler = Scheduler(cache, token_budget, max_running, share_prefixes=False)
    coming, rows, begun, firsts = deque(enumerate(requests)), [], {}, {}
    now = steps = slots_read = 0
    while coming or scheduler.waiting or scheduler.running or scheduler.preempted:
        while coming and coming[0][1].step <= now:
            i, r = coming.popleft()
            scheduler.add(Sequence(Request(i, [0] * r.prompt, r.output), 0, [0] * r.prompt))
        batch, _ = scheduler.schedule()
        for sequence, n in batch:
            i = sequence.request.id
            begun.setdefault(i, now)
            scheduler.computed(sequence, n)
            slots_read += sequence.computed
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(0)
                firsts.setdefault(i, now)
                if len(sequence.generated) == requests[i].output:
                    scheduler.remove(sequence)
                    rows.append(Row(i, 0, requests[i].step, begun[i], firsts[i], now + 1, now + 1))
        steps += bool(batch)
        now += 1
    return Served(_in_lanes(rows), steps, slots_read, sum(r.output for r in requests))


def chart(served, caption, width=8.4):
    """Gantt charts, one below the other, {name: Served}: reading the prompt, generating, holding a place."""
    parts = {"reads its prompt": 4, "generates": 2, "done, but keeps its place": 5}
    lanes = [max(row.lane for row in s.rows) + 1 for s in served.values()]
    fig, ax = figures.new(width, 0.3 * sum(lanes) + 1.5)
    top, told, ticks = 0, [], []
    for (name, s), n in zip(served.items(), lanes):
        for row in s.rows:
            y = top + row.lane
            for filling, start, end in zip(parts.values(), (row.start, row.first, row.end),
                                           (row.first, row.end, row.held)):
                if end > start:
                    look = figures.filling(filling)
                    ax.add_patch(figures.rectangle(start, y - 0.4, end - start, 0.8, **look))
            ax.text((row.start + row.end) / 2, y, str(row.request), ha="center", va="center", fontsize=7.5,
                    bbox=figures.paper())
        ticks.append((top + (n - 1) / 2, name))
        top += n + 1
        told.append(f"{name}: " + ", ".join(map(_in_words, sorted(s.rows))))
    last = max(row.held for s in served.values() for row in s.rows)
    ax.set(xlim=(0, last), ylim=(top - 1.4, -0.6), xlabel="step",
           yticks=[y for y, _ in ticks], yticklabels=[name for _, name in ticks])
    ax.tick_params(axis="y", length=0)
    handles = [figures.rectangle(0, 0, 1, 1, label=kind, **figures.filling(k)) for kind, k in parts.items()]
    ax.legend(handles=handles, fontsize=8, frameon=False, loc="lower center", ncols=3,
              bbox_to_anchor=(0.5, 1.0))
    figures.show(fig, alt=f"Charts of places over steps. {'. '.join(told)}.", caption=caption)


def _in_words(row):
    kept = f", place kept until {row.held - 1}" if row.held > row.end else ""
    return f"request {row.request} in steps {row.start} to {row.end - 1}{kept}"


def _in_lanes(rows):
    """Each row in the lowest lane that is free when it starts."""
    free_from, placed = [], []
    for row in sorted(rows, key=lambda row: (row.start, row.request)):
        lane = next((i for i, end in enumerate(free_from) if end <= row.start), len(free_from))
        free_from[lane:lane + 1] = [row.held]
        placed.append(row._replace(lane=lane))
    return placed
