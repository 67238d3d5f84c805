"""The ladder without a machine: when each tile is ordered, arrives and is used, in steps.

One producer orders tiles into a ring of buffers, a copy takes its time, one consumer uses the tiles in turn. What
a step is on a card nobody has said here: only ratios mean something."""
from dataclasses import dataclass

from course_lib.checks import check_sizes


@dataclass(frozen=True)
class Tile:
    """The steps at which a tile was ordered, arrived, began to be used, and was left; the steps waited for it."""
    ordered: int
    arrived: int
    started: int
    finished: int
    waited: int


def pipeline(tiles: int, stages: int, latency: int, copy: int, use: int) -> list[Tile]:
    """The life of each tile in a ring of `stages` buffers.

    A tile is ordered as soon as its buffer is empty. It arrives `latency` steps after that at the earliest, and
    `copy` steps after the tile before it: copies overlap, but share one path. Its use takes `use` steps and
    begins when it has arrived and the use before it is over."""
    check_sizes(tiles=tiles, stages=stages, latency=latency, copy=copy, use=use)
    done = []
    for j in range(tiles):
        before = done[-1] if done else Tile(0, 0, 0, 0, 0)
        ordered = max(before.ordered, done[j - stages].finished if j >= stages else 0)
        arrived = max(ordered + latency, before.arrived + copy)
        started = max(arrived, before.finished)
        done.append(Tile(ordered, arrived, started, started + use, started - before.finished))
    return done


@dataclass(frozen=True)
class Part:
    """What a warpgroup does from a step on: "scores", "softmax" or "values" of a tile."""
    group: int
    kind: str
    tile: int
    begin: int


def schedule(tiles: int, product: int, softmax: int, groups: int = 1, overlapped: bool = False) -> list[Part]:
    """What each of `groups` warpgroups does with `tiles` tiles: scores, `product` steps on the one tensor core;
    `softmax` steps on the group's own lanes; weights times values, `product` steps again.

    A group issues the values of a tile behind the scores of the next one. overlapped: the softmax waits for its
    scores alone, so that the product with the values runs beside it; otherwise it waits for both."""
    check_sizes(tiles=tiles, product=product, softmax=softmax, groups=groups)
    parts, free, ready = [], 0, [0] * groups    # when the tensor core is free; a group has its next weights
    for turn in range(tiles + 1):
        for group in range(groups):
            scored = free = max(free, ready[group])
            if turn < tiles:
                parts.append(Part(group, "scores", turn, free))
                scored = free = free + product
            if turn > 0:
                parts.append(Part(group, "values", turn - 1, free))
                free += product
            if turn < tiles:
                parts.append(Part(group, "softmax", turn, scored if overlapped else free))
                ready[group] = parts[-1].begin + softmax
    return parts


def taking_turns(tiles: int, product: int, softmax: int, groups: int = 1, overlapped: bool = False):
    """Steps of a `schedule`, and the share of them in which the tensor cores work."""
    steps = schedule(tiles, product, softmax, groups, overlapped)[-1].begin + product
    return steps, 2 * tiles * groups * product / steps
