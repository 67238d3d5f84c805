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


def taking_turns(tiles: int, product: int, softmax: int, groups: int = 1, overlapped: bool = False):
    """Steps, and the share of them in which the tensor cores work, when each of `groups` warpgroups has `tiles`
    tiles: a product of `product` steps on the one tensor core, then `softmax` steps on the group's own lanes.

    overlapped: a group orders the product of its next tile before the softmax of this one, so that it may run
    meanwhile; otherwise each of the group's products waits for the softmax before it."""
    check_sizes(tiles=tiles, product=product, softmax=softmax, groups=groups)
    free, lanes = 0, [0] * groups           # when the tensor core and each group's lanes have nothing to do
    ready = [0] * groups                    # when a group may order its next product
    for _ in range(tiles):
        for g in range(groups):
            free = max(free, ready[g]) + product
            begins = max(free, lanes[g])
            lanes[g] = begins + softmax
            ready[g] = begins if overlapped else lanes[g]
    steps = max(lanes)
    return steps, tiles * groups * product / steps
