"""Rows in pages: how far apart rows must be stored so that a gather moves no sector for nothing."""
import torch

from course_lib.exercises import Case, Launch, out, scratch
from .model import FLOAT, LANES, run
from .problem import Problem, sized


class Gather(Problem):
    """Rows of `width` floats are stored anywhere in pages and gathered in another order.

    Sectors: a row of `width` floats covers at least ceil(4 * width / sector) sectors, and exactly that many
    where it begins at a sector; its first 32, next 32, ... floats then begin at sectors too. It is written once
    and gathered once per entry of `order`. The other arrays cost what `run` says. So no layout costs less.

    Room: the pages have `slots` rows of the least multiple of a sector that holds a row. A larger pitch does
    not fit into them, a smaller one lets a row begin inside a sector and costs a sector more there."""
    id, chapter, name, title = "90.8", 8, "gather", "Rows in pages"
    minutes, points, target = 15, 4, 160_000
    unsaid = ("room",)
    text = """
        `in` has `n` keys of {width} numbers. `store` puts key `t` into slot `slot[t]` of the pages;
        `gather` then copies the keys of the slots `order[0]`, `order[1]`, ... one behind the other
        into `out`. Choose the distance from slot to slot, the same in both kernels: the pages have
        exactly as much room as the `slots` need with the least distance that keeps to the budget.
        The launches have one warp for each row, and blocks of 128 threads. Read and write rows in
        runs of consecutive lanes.
    """
    trial = """
        x, where = torch.randn(n, width), torch.randperm(slots)[:n].int()
        order = torch.randint(n, (m,))
        pitch = width                                            # put yours here
        pages, result = cuda.empty(slots * pitch), cuda.empty((m, width))
        with cuda.profile(machine=machine, sanitized=True) as report:
            store[(n + 3) // 4, 128](x, where, pages, n, width)
            gather[(m + 3) // 4, 128](pages, where[order], result, m, width)
        print("right" if torch.equal(result, x[order]) else "wrong")
    """
    body = """
        __global__ void store(const float* __restrict__ in, const int* __restrict__ slot,
                              float* __restrict__ pages, int n, int width) {
            int lane = threadIdx.x % 32, t = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
            if (t >= n) return;
            int to = slot[t] * PITCH;
            for (int c = lane; c < width; c += 32) pages[to + c] = in[t * width + c];
        }
        __global__ void gather(const float* __restrict__ pages, const int* __restrict__ order,
                               float* __restrict__ out, int m, int width) {
            int lane = threadIdx.x % 32, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
            if (i >= m) return;
            int from = order[i] * PITCH;
            for (int c = lane; c < width; c += 32) out[i * width + c] = pages[from + c];
        }
    """

    @property
    def stub(self) -> str:
        body = "    // your code\n}\n"
        return ("__global__ void store(const float* __restrict__ in, const int* __restrict__ slot,\n"
                "                      float* __restrict__ pages, int n, int width) {\n" + body +
                "__global__ void gather(const float* __restrict__ pages, const int* __restrict__ order,\n"
                "                       float* __restrict__ out, int m, int width) {\n" + body)

    def numbers(self, machine, rng):
        step = machine.sector_bytes // FLOAT
        # the next multiples of 8, 16 and 32 floats differ for these: another sector's pitch is wrong
        width = rng.choice([w for w in range(65, 480) if 0 < w % 64 < 4])
        pitch = -(-width // step) * step
        trial = self.budget(machine, {}, {"n": 20, "m": 40, "width": width})["sectors"] * machine.sector_bytes
        m = round(40 * self.target / trial)

        def size(n: int, m: int) -> dict:
            return {"n": n, "m": m, "width": width, "slots": n + 3, "room": (n + 3) * pitch}
        return {"width": width, "small": size(5, 7), "large": size(m // 2 + rng.randint(-3, 3), m)}

    def choose(self, machine, numbers):
        step = machine.sector_bytes // FLOAT
        return {"PITCH": -(-numbers["width"] // step) * step}

    def counts(self, choice, machine, numbers, size):
        """The slots are drawn, so all rows are counted as if they began at the worst of the first slots: a
        pitch that is no multiple of a sector costs one more sector there."""
        pitch, width = choice["PITCH"], size["width"]
        if pitch < width or size["slots"] * pitch > size["room"]:
            return None
        row = max(run(FLOAT * s * pitch, width, FLOAT, machine) for s in range(size["slots"]))
        return {"sectors": self._outside(machine, size) + (size["n"] + size["m"]) * row}

    def _outside(self, machine, size) -> int:
        n, m, width = size["n"], size["m"], size["width"]
        return (sum(run(FLOAT * t * width, width, FLOAT, machine) for t in range(n)) + n
                + sum(run(FLOAT * i * width, width, FLOAT, machine) for i in range(m)) + m)

    def budget(self, machine, numbers, size):
        row = -(-FLOAT * size["width"] // machine.sector_bytes)
        return {"sectors": self._outside(machine, size) + (size["n"] + size["m"]) * row, "device_bytes": 0}

    def longest(self, machine, numbers, size):
        """Of both launches: the slot, and a load and a store per 32 numbers."""
        return 2 * (1 + 2 * -(-size["width"] // LANES))

    def case(self, size, rng):
        slot = torch.randperm(size["slots"], generator=rng)[:size["n"]].int()
        order = slot[torch.randint(size["n"], (size["m"],), generator=rng)]
        x = torch.randn(size["n"], size["width"], generator=rng)
        return sized(Case(x, slot, order, size["room"], label=f"{size['m']} rows"), size)

    def launch(self, x, slot, order, room):
        (n, width), m, pages = x.shape, len(order), scratch(room)
        blocks = 128 // LANES
        return [Launch(-(-n // blocks), 128, [x, slot, pages, n, width], kernel="store"),
                Launch(-(-m // blocks), 128, [pages, order, out((m, width)), m, width], kernel="gather")]

    def expect(self, x, slot, order, room):
        where = {int(s): t for t, s in enumerate(slot)}
        return x[[where[int(s)] for s in order]]
