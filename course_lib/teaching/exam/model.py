"""What requests cost on a machine, by arithmetic: the definitions by which the engine counts."""
import random
from collections import Counter

from laptop_cuda import Machine
from laptop_cuda.machine import lanes_together

FLOAT = 4
LANES = 32           # of a warp in all exercises but those with `own_warps`, which count for themselves
BANKS, BANK_BYTES, SECTORS = (24, 32, 40, 48), (4, 8), (16, 32, 64, 128)


def draw_machine(rng: random.Random) -> Machine:
    """A machine with 4 x 2 x 4 kinds of banks and sectors, and 36 to 48 KiB of shared memory per block."""
    return Machine(rng.choice(BANKS), rng.choice(BANK_BYTES), rng.choice(SECTORS), 64 * rng.randint(576, 768))


def passes(places: list[int], size: int, machine: Machine, exact: bool = False) -> int:
    """Passes over the banks of one request, whose lanes begin at these bytes of shared memory.

    `exact` is for a question of a different kind: 0 unless every leading part of the lanes takes the least,
    which is the number of its words over the number of banks, rounded up."""
    total, together = 0, lanes_together(size)
    for first in range(0, len(places), together):
        words, load = set(), [0] * machine.banks
        for place in places[first:first + together]:
            for word in machine.words(place, size):
                if word not in words:
                    words.add(word)
                    load[word % machine.banks] += 1
            if exact and max(load) > least(len(words), machine):
                return 0
        total += max(load)
    return total


def least(words: int, machine: Machine) -> int:
    """Passes that so many different words take at the least: each serves one word per bank."""
    return -(-words // machine.banks)


def run(first: int, elements: int, size: int, machine: Machine) -> int:
    """Sectors of consecutive elements from byte `first` on, which warps take 32 at a time."""
    total = 0
    for begin in range(first, first + size * elements, LANES * size):
        end = min(begin + LANES * size, first + size * elements)
        total += (end - 1) // machine.sector_bytes - begin // machine.sector_bytes + 1
    return total


def rows(count: int, elements: int, size: int, machine: Machine) -> int:
    """Sectors of so many rows, stored without gaps. The place in a sector where a row begins decides."""
    starts = Counter(row * elements * size % machine.sector_bytes for row in range(count))
    return sum(times * run(begin, elements, size, machine) for begin, times in starts.items())
