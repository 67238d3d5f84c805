"""Rows that are longer than shared memory: how much of one is kept."""
import torch

from course_lib.exercises import Case, Launch, out
from .model import FLOAT
from .problem import Problem, draw_room, sized


class Softmax(Problem):
    """The softmax of long rows, of which a block keeps as much as fits.

    No output is known before the whole row has been read, so every number of the row is read once before the
    first is written. What is not kept until then is read again. A block keeps at most room / 4 numbers; the
    reference uses 8 bytes per warp of them for the sums, and the budget grants those. So a row costs n / s
    sectors twice, less floor(kept / s), with s floats per sector, and n / s for the result. Warps have at
    least as many lanes as a sector has floats, so that a request of consecutive lanes is whole sectors."""
    id, chapter, name, title = "90.3", 1, "softmax", "A row that does not fit"
    minutes, points, target = 25, 6, 100_000
    own_warps = single = True
    text = """
        The softmax of `rows` rows of `n` numbers. The launch has one block of 256 threads per row.
        A thread keeps single numbers, no arrays of its own. Of shared memory, {room} bytes are
        yours, which is less than a row: use 8 bytes per warp for what the warps tell each other, and
        keep as much of the row as the rest holds. **In this exercise your GPU has {lanes} lanes per
        warp**, in shuffles, masks, votes and `warpSize`.
    """
    trial = """
        x, result = 3 * torch.randn(rows, n), cuda.empty((rows, n))
        with cuda.profile(machine=narrow, sanitized=True) as report:
            softmax[rows, 256](x, result, n)
        print("right" if torch.allclose(result, torch.softmax(x, 1), atol=1e-4) else "wrong")
    """
    body = """
        __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int n) {
            __shared__ float kept[KEPT], highest[256 / LANES], sums[256 / LANES];
            int warp = threadIdx.x / LANES;
            const float* row = x + (size_t)blockIdx.x * n;
            float high = -INFINITY, sum = 0;
            for (int i = threadIdx.x; i < n; i += 256) {
                float value = row[i];
                if (i < KEPT) kept[i] = value;
                float higher = fmaxf(high, value);
                sum = sum * expf(high - higher) + expf(value - higher);
                high = higher;
            }
            for (int d = LANES / 2; d > 0; d /= 2) {
                float other_high = __shfl_xor_sync(0xffffffff, high, d);
                float other = __shfl_xor_sync(0xffffffff, sum, d);
                float higher = fmaxf(high, other_high);
                if (higher > -INFINITY) sum = sum * expf(high - higher) + other * expf(other_high - higher);
                high = higher;
            }
            if (threadIdx.x % LANES == 0) { highest[warp] = high; sums[warp] = sum; }
            __syncthreads();
            high = -INFINITY;
            for (int w = 0; w < 256 / LANES; ++w) high = fmaxf(high, highest[w]);
            sum = 0;
            for (int w = 0; w < 256 / LANES; ++w) sum += sums[w] * expf(highest[w] - high);
            for (int i = threadIdx.x; i < n; i += 256) {
                float value;
                if (i < KEPT) value = kept[i];
                else value = row[i];
                out[(size_t)blockIdx.x * n + i] = expf(value - high) / sum;
            }
        }
    """

    def numbers(self, machine, rng):
        room, rows = draw_room(rng), rng.randint(1, 6)
        lanes = rng.choice([n for n in (8, 16, 32) if FLOAT * n >= machine.sector_bytes])
        n = (self.target // FLOAT // rows + room // FLOAT) // 3 // 32 * 32
        if n < room // FLOAT + 64:
            return None
        return {"room": room, "lanes": lanes, "small": {"rows": 2, "n": 32 * rng.randint(9, 20)},
                "large": {"rows": rows, "n": n}}

    def _row(self, machine, n: int, kept: int) -> int:
        step = machine.sector_bytes // FLOAT
        return 3 * n // step - min(kept, n) // step

    def choose(self, machine, numbers):
        return {"KEPT": numbers["room"] // FLOAT - 2 * 256 // numbers["lanes"], "LANES": numbers["lanes"]}

    def counts(self, choice, machine, numbers, size):
        shared = FLOAT * (choice["KEPT"] + 2 * 256 // choice["LANES"])
        if shared > machine.shared_bytes or choice["LANES"] > numbers["lanes"]:
            return None                          # a shuffle reaches no further than the warp
        return {"sectors": size["rows"] * self._row(machine, size["n"], choice["KEPT"]),
                "shared_bytes": shared}

    def budget(self, machine, numbers, size):
        kept = self.choose(machine, numbers)["KEPT"]
        return {"sectors": size["rows"] * self._row(machine, size["n"], kept),
                "shared_bytes": numbers["room"]}

    def longest(self, machine, numbers, size):
        """Per 256 numbers a load, a store of what is kept, a second load and a store; two shuffles for each
        halving of a warp, three loads for each warp's sums, two stores of its own and the barrier."""
        lanes, kept = numbers["lanes"], min(size["n"], self.choose(machine, numbers)["KEPT"])
        return (3 * -(-size["n"] // 256) + -(-kept // 256) + 2 * (lanes.bit_length() - 1) + 3 * 256 // lanes
                + 3)

    def least(self, machine, numbers):
        step = machine.sector_bytes // FLOAT
        return FLOAT * (self.choose(machine, numbers)["KEPT"] // step * step)

    def case(self, size, rng):
        x = 3 * torch.randn(size["rows"], size["n"], generator=rng)
        return sized(Case(x, label=f"{size['rows']} x {size['n']}"), size)

    def launch(self, x):
        return Launch(len(x), 256, [x, out(x.shape), x.shape[1]], kernel=self.name)

    def expect(self, x):
        return torch.softmax(x, 1)
