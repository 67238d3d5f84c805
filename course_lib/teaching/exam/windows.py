"""A window's scores, seen from the keys: a shared tile that is read along its diagonals."""
import random

import torch

from course_lib.exercises import Case, Launch, out
from laptop_cuda import Machine
from .model import FLOAT, LANES, least, passes, run
from .problem import Problem, sized


class Looked(Problem):
    """Entry (k, j) of the result is entry (k - j, j) of the scores: one diagonal of a tile per key.

    Sectors: a block has the rows of its 32 keys, of which there are 31 + window, and reads each once; it
    writes its 32 rows of the result once. Each row is contiguous, and a warp takes 32 elements of it.

    Passes: the lanes of a request read entries of different rows, pitch - 1 apart, which share no word, so
    they take at least ceil(lanes / banks); those that write a row of the tile take ceil(words / banks), see
    `pitches.Turn`. A pitch from `window` on is tried until every leading part of every diagonal takes exactly
    that. The rows that do not exist cut a leading or a trailing part off a diagonal; a trailing one is a
    leading one of the shifted diagonal, which the search contains too.

    Shared memory: 31 + window rows of the least such pitch, for every n as in `pitches.Turn`."""
    id, chapter, name, title = "90.5", 5, "looked_at", "Who looks at this key?"
    minutes, points, measured, target = 20, 5, "wavefronts", 6000
    unsaid = ("shared_bytes",)
    text = """
        A layer with a window of {window} has scores `s` with `n` rows: `s[i * window + j]` is what
        query `i` gives to key `i + j`. Turn them: `out[k * window + j]` is what key `k` gets from
        query `k - j`, and 0 where there is no such query, for the `n + window - 1` keys. The launch
        has one block of 128 threads for every 32 keys. Read each row that a block needs once, in
        runs of consecutive lanes, write the result in runs of consecutive lanes, one warp for a
        key's row, and turn the scores in shared memory in between: a tile there holds the rows of all
        queries that see one of the 32 keys, whole.
    """
    trial = """
        s = torch.randn(n, window)
        result = cuda.empty((n + window - 1, window))
        with cuda.profile(machine=machine, sanitized=True) as report:
            looked_at[(n + window + 30) // 32, 128](s, result, n, window)
        wanted = torch.zeros(n + window - 1, window)
        for j in range(window):
            wanted[j:j + n, j] = s[:, j]
        print("right" if torch.equal(result, wanted) else "wrong")
    """
    body = """
        __global__ void looked_at(const float* __restrict__ s, float* __restrict__ out, int n, int window) {
            __shared__ float tile[(31 + WINDOW) * PITCH];
            int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32;
            int low = first - window + 1;                // the first query that sees one of these keys
            for (int r = warp; r < 31 + window; r += 4)
                if (low + r >= 0 && low + r < n)
                    for (int j = lane; j < window; j += 32) tile[r * PITCH + j] = s[(low + r) * window + j];
            __syncthreads();
            for (int k = first + warp; k < first + 32 && k < n + window - 1; k += 4)
                for (int j = lane; j < window; j += 32) {
                    float seen = 0;
                    if (k - j >= 0 && k - j < n) seen = tile[(k - j - low) * PITCH + j];
                    out[k * window + j] = seen;
                }
        }
    """

    def numbers(self, machine, rng: random.Random):
        window = rng.randint(9, 76)
        if self.choose(machine, {"window": window})["PITCH"] == window:
            return None                          # nothing to find
        n = max(64, round(self.target / self._least(machine, 40 * LANES, window) * 40 * LANES))
        return {"window": window, "small": {"n": rng.randint(33, 63), "window": window},
                "large": {"n": n, "window": window}}

    def _diagonal(self, pitch: int, row: int, js: range) -> list[int]:
        return [FLOAT * ((row - j) * pitch + j) for j in js]

    def choose(self, machine, numbers):
        pitch, window = numbers["window"], numbers["window"]

        def good() -> bool:
            chunks = [range(c, min(c + LANES, window)) for c in range(0, window, LANES)]
            return all(passes(self._diagonal(pitch, row, js[cut:]), FLOAT, machine, exact=True)
                       for row in (200, 201) for js in chunks for cut in range(min(2, len(js))))
        while not good():
            pitch += 1
        return {"WINDOW": window, "PITCH": pitch}

    def _requests(self, n: int, window: int):
        """(row of the tile, the lanes' j) of every read along a diagonal."""
        for k in range(n + window - 1):
            for c in range(0, window, LANES):
                js = range(max(c, k - n + 1), min(c + LANES, window, k + 1))
                if js:
                    yield k % LANES + window - 1, js

    def _tile_rows(self, n: int, window: int):
        """(row of the tile, row of the scores) of every row that a block reads."""
        for first in range(0, n + window - 1, LANES):
            for r in range(31 + window):
                if 0 <= first - window + 1 + r < n:
                    yield r, first - window + 1 + r

    def _sectors(self, machine, n: int, window: int) -> int:
        known = {}

        def row(start: int) -> int:
            at = start * window * FLOAT % machine.sector_bytes
            if at not in known:
                known[at] = run(at, window, FLOAT, machine)
            return known[at]
        return sum(row(i) for _, i in self._tile_rows(n, window)) + sum(map(row, range(n + window - 1)))

    def _least(self, machine, n: int, window: int) -> int:
        words = [-(-FLOAT * min(LANES, window - c) // machine.bank_bytes) for c in range(0, window, LANES)]
        stores = sum(least(w, machine) for w in words) * sum(1 for _ in self._tile_rows(n, window))
        return stores + sum(least(len(js), machine) for _, js in self._requests(n, window))

    def counts(self, choice, machine, numbers, size):
        n, window, pitch = size["n"], size["window"], choice["PITCH"]
        shared = FLOAT * (31 + choice["WINDOW"]) * pitch
        if choice["WINDOW"] < window or pitch < window or shared > machine.shared_bytes:
            return None
        known, wavefronts = {}, 0
        for row, js in self._requests(n, window):
            key = row % 2, js
            if key not in known:
                known[key] = passes(self._diagonal(pitch, 200 + row % 2, js), FLOAT, machine)
            wavefronts += known[key]
        for r, _ in self._tile_rows(n, window):
            if r not in known:
                known[r] = sum(passes([FLOAT * (r * pitch + j) for j in range(c, min(c + LANES, window))],
                                      FLOAT, machine) for c in range(0, window, LANES))
            wavefronts += known[r]
        return {"sectors": self._sectors(machine, n, window), "wavefronts": wavefronts,
                "shared_bytes": shared}

    def budget(self, machine: Machine, numbers, size):
        n, window = size["n"], size["window"]
        pitch = self.choose(machine, size)["PITCH"]
        return {"sectors": self._sectors(machine, n, window), "wavefronts": self._least(machine, n, window),
                "shared_bytes": FLOAT * (31 + window) * pitch}

    def longest(self, machine, numbers, size):
        """Of the first warp: every fourth row of the tile, and 8 keys."""
        window = size["window"]
        return 2 * -(-window // LANES) * (-(-(31 + window) // 4) + 8) + 1

    def least(self, machine, numbers):
        return FLOAT * (31 + numbers["window"]) * numbers["window"]

    def case(self, size, rng):
        s = torch.randn(size["n"], size["window"], generator=rng)
        return sized(Case(s, label=f"{size['n']} rows"), size)

    def launch(self, s):
        n, window = s.shape
        keys = n + window - 1
        return Launch(-(-keys // LANES), 128, [s, out((keys, window)), n, window], kernel=self.name)

    def expect(self, s):
        n, window = s.shape
        made = torch.zeros(n + window - 1, window)
        for j in range(window):
            made[j:j + n, j] = s[:, j]
        return made
