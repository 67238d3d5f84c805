"""Problems whose answer is a pitch: a tile that is written by rows and read by columns."""
import random

import torch

from course_lib.exercises import Case, Launch, out
from laptop_cuda import Machine
from laptop_cuda.machine import lanes_together
from .model import FLOAT, LANES, least, passes, rows
from .problem import Problem, sized

TURN = """
__global__ void {name}(const {type}* __restrict__ in, {type}* __restrict__ out, int n, int columns) {{
    __shared__ {type} tile[32 * PITCH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32;
    for (int r = warp; r < 32 && first + r < n; r += 4)
        for (int c = lane; c < columns; c += 32) tile[r * PITCH + c] = in[(first + r) * columns + c];
    __syncthreads();
    for (int c = warp; c < columns; c += 4)
        if (first + lane < n) out[c * n + first + lane] = tile[lane * PITCH + c];
}}
"""
TEXT = """
    `in` has `n` rows of {{columns}} {what}. Write them transposed:
    `out[c * n + r] = in[r * columns + c]`.{story}
    The launch has one block of 128 threads for every 32 rows. Read and write global memory in runs of
    consecutive lanes, and turn the rows in shared memory, one {one} per lane and access: a tile there
    holds the 32 rows whole.
"""


class Turn(Problem):
    """Transposition through a shared tile, one element of `floats` floats per lane.

    Sectors: `in` is read once and `out` is written once. The last dimension is contiguous on each side, and
    a warp takes at most 32 consecutive elements of a row: their sectors are what `rows` adds up.

    Passes: a pass serves one word per bank, so different words take at least ceil(words / banks). Lanes
    that write consecutive elements touch consecutive words, which are spread evenly over the banks and take
    exactly that. Lanes that read a column touch elements of different rows, which share no word, since a
    row has at least two. So no kernel with one element per lane takes fewer passes than the budget. A pitch
    from `columns` on is tried until every leading part of the lanes takes exactly that many, and a ragged
    last tile is such a leading part: the budget is reached.

    Shared memory: 32 rows of the least pitch that reaches it for every n. All smaller ones have been tried;
    for one n a smaller one may do, which is within the budget too."""
    minutes, points, measured, target = 15, 4, "wavefronts", 6000
    unsaid = ("shared_bytes",)
    floats, widths = 1, (33, 270)
    words = dict(type="float", what="numbers", one="number")
    story = ""
    trial = """
        x = torch.randn(n, columns, {floats})
        result = cuda.empty((columns, n, {floats}))
        with cuda.profile(machine=machine, sanitized=True) as report:
            {name}[(n + 31) // 32, 128](x, result, n, columns)
        print("right" if torch.equal(result, x.transpose(0, 1)) else "wrong")
    """

    def __init_subclass__(cls):
        cls.body = TURN.format(name=cls.name, **cls.words)
        cls.trial = Turn.trial.format(name=cls.name, floats=cls.floats)
        cls.text = TEXT.format(story=cls.story, **cls.words)

    @property
    def size(self) -> int:
        return FLOAT * self.floats

    def numbers(self, machine: Machine, rng: random.Random) -> dict:
        columns = rng.randint(*self.widths)
        if self.choose(machine, {"columns": columns})["PITCH"] == columns:
            return None                          # nothing to find
        tile = self._least_passes(machine, LANES, columns)
        small = {"n": rng.randint(33, 63), "columns": columns}
        return {"columns": columns, "small": small,
                "large": {"n": round(LANES * self.target / tile), "columns": columns}}

    def _column(self, pitch: int, begin: int, lanes: int) -> list[int]:
        return [self.size * (lane * pitch + begin) for lane in range(lanes)]

    def choose(self, machine: Machine, numbers: dict) -> dict:
        pitch = numbers["columns"]
        while not all(passes(self._column(pitch, c, LANES), self.size, machine, exact=True) for c in (0, 1)):
            pitch += 1
        return {"PITCH": pitch}

    def _sectors(self, machine: Machine, n: int, columns: int) -> int:
        return rows(n, columns, self.size, machine) + rows(columns, n, self.size, machine)

    def counts(self, choice, machine, numbers, size):
        n, columns, pitch = size["n"], size["columns"], choice["PITCH"]
        shared = LANES * pitch * self.size
        if pitch < columns or shared > machine.shared_bytes:
            return None
        wavefronts = 0
        for lanes, times in ((LANES, n // LANES), (n % LANES, 1)):
            for begin in (0, 1) if lanes and times else ():
                columns_like_it = (columns + 1 - begin) // 2
                wavefronts += times * columns_like_it * passes(
                    self._column(pitch, begin, lanes), self.size, machine)
        for row in range(LANES):
            times = (n - row + LANES - 1) // LANES
            wavefronts += times * sum(
                passes([self.size * (row * pitch + c) for c in range(first, min(first + LANES, columns))],
                       self.size, machine) for first in range(0, columns, LANES))
        return {"sectors": self._sectors(machine, n, columns), "wavefronts": wavefronts,
                "shared_bytes": shared}

    def budget(self, machine, numbers, size):
        n, columns = size["n"], size["columns"]
        return {"sectors": self._sectors(machine, n, columns),
                "wavefronts": self._least_passes(machine, n, columns),
                "shared_bytes": LANES * self.choose(machine, size)["PITCH"] * self.size}

    def longest(self, machine, numbers, size):
        """Of the first warp, which has every fourth row and every fourth column."""
        columns = size["columns"]
        return 2 * 8 * -(-columns // LANES) + 1 + 2 * -(-columns // 4)

    def least(self, machine, numbers):
        return LANES * numbers["columns"] * self.size

    def _least_passes(self, machine: Machine, n: int, columns: int) -> int:
        def request(lanes: int, column: bool) -> int:
            together, words = lanes_together(self.size), max(1, self.size // machine.bank_bytes)
            return sum(least(words * k if column else -(-self.size * k // machine.bank_bytes), machine)
                       for k in (min(together, lanes - p) for p in range(0, lanes, together)))
        stores = n * sum(request(min(LANES, columns - c), False) for c in range(0, columns, LANES))
        return stores + columns * sum(request(min(LANES, n - r), True) for r in range(0, n, LANES))

    def case(self, size, rng):
        x = torch.randn(size["n"], size["columns"], self.floats, generator=rng)
        return sized(Case(x, label=f"{size['n']} rows"), size)

    def launch(self, x):
        n, columns, _ = x.shape
        return Launch(-(-n // LANES), 128, [x, out((columns, n, self.floats)), n, columns], kernel=self.name)

    def expect(self, x):
        return x.transpose(0, 1).contiguous()


class TurnFloats(Turn):
    __doc__ = Turn.__doc__
    id, chapter, name, title = "90.1", 0, "turn", "Rows into columns"


class TurnPairs(Turn):
    __doc__ = Turn.__doc__
    id, chapter, name, title = "90.4", 3, "turn_pairs", "A group's keys, in pairs"
    floats, widths, target = 2, (17, 130), 6000
    words = dict(type="float2", what="pairs of numbers", one="pair")
    story = " (So the keys of a group, rotated pair by pair, are laid out for all of its query heads.)"


class TurnFours(Turn):
    __doc__ = Turn.__doc__
    id, chapter, name, title = "90.6", 6, "turn_fours", "A key tile, in fours"
    floats, widths, target = 4, (5, 66), 6000
    words = dict(type="float4", what="groups of four numbers", one="group")
    story = " (So a tile of keys is turned for the product with the queries.)"
