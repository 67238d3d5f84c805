"""Problems whose answer is how much of the shared memory holds what."""
import torch

from course_lib.exercises import Case, Launch, out
from .model import FLOAT, LANES
from .problem import Problem, draw_room, sized


class Product(Problem):
    """C = A B by tiles in shared memory: `rows` x `depth` of A, `depth` x `columns` of B, and C's partial sums.

    A tile of C needs its rows of A and its columns of B once. So A is read ceil(n / columns) times, B
    ceil(m / rows) times, and C is written once; with whole sectors, that is
    (m k ceil(n / columns) + k n ceil(m / rows) + m n) / (floats per sector). Whole sectors need a depth and a
    number of columns that are multiples of a sector's floats, and the least depth leaves most room for the
    sums. Among all `rows` and `columns` that then fit, `choose` takes the cheapest: it tries them all. Each
    number of rows is tried with the most columns that fit beside it, since more columns cost no more."""
    id, chapter, name, title = "90.2", 0, "product", "The tiles of a product"
    minutes, points, target = 25, 6, 130_000
    unsaid, single = ("longest_thread",), True
    text = """
        `c = a b` for matrices of `m` x `k`, `k` x `n` and `m` x `n`, row by row. All tiles, the
        partial sums included, are kept in shared memory, of which {room} bytes are yours: a thread
        keeps single numbers, no arrays of its own. The launch has one block of 256 threads. Choose
        the tiles so that the product moves as little as possible on your machine.
    """
    trial = """
        a, b, result = torch.randn(m, k), torch.randn(k, n), cuda.empty((m, n))
        with cuda.profile(machine=machine, sanitized=True) as report:
            product[1, 256](a, b, result, m, n, k)
        print("right" if torch.allclose(result, a @ b, atol=1e-4) else "wrong")
    """
    body = """
        __global__ void product(const float* __restrict__ a, const float* __restrict__ b,
                                float* __restrict__ c, int m, int n, int k) {
            __shared__ float left[ROWS * DEPTH], right[DEPTH * COLUMNS], sums[ROWS * COLUMNS];
            for (int row = 0; row < m; row += ROWS)
                for (int column = 0; column < n; column += COLUMNS) {
                    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) sums[i] = 0;
                    for (int depth = 0; depth < k; depth += DEPTH) {
                        __syncthreads();
                        for (int i = threadIdx.x; i < ROWS * DEPTH; i += 256) {
                            int r = row + i / DEPTH, d = depth + i % DEPTH;
                            left[i] = 0;
                            if (r < m && d < k) left[i] = a[r * k + d];
                        }
                        for (int i = threadIdx.x; i < DEPTH * COLUMNS; i += 256) {
                            int d = depth + i / COLUMNS, j = column + i % COLUMNS;
                            right[i] = 0;
                            if (d < k && j < n) right[i] = b[d * n + j];
                        }
                        __syncthreads();
                        for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
                            int r = i / COLUMNS, j = i % COLUMNS;
                            float sum = sums[i];
                            for (int d = 0; d < DEPTH; ++d)
                                sum += left[r * DEPTH + d] * right[d * COLUMNS + j];
                            sums[i] = sum;
                        }
                    }
                    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
                        int r = row + i / COLUMNS, j = column + i % COLUMNS;
                        if (r < m && j < n) c[r * n + j] = sums[i];
                    }
                    __syncthreads();
                }
        }
    """

    def numbers(self, machine, rng):
        step, room = machine.sector_bytes // FLOAT, draw_room(rng)
        rows, columns = self._best(step, room, lambda r, c: 1 / r + 1 / c)
        times, k = rng.randint(2, 4), step * rng.randint(1, max(1, 64 // step))
        m, n = times * rows - rng.randrange(times), rng.randint(2, 4) * columns
        if m * n * k > 1_200_000 or k < 16:
            return None
        small = {"m": rng.randint(2, 4), "n": step, "k": 32}
        room = self._shared(rows, columns, step)         # all of it is needed
        return {"room": room, "small": small, "large": {"m": m, "n": n, "k": k}}

    def _shared(self, rows: int, columns: int, step: int) -> int:
        return FLOAT * (rows * step + step * columns + rows * columns)

    def _best(self, step: int, room: int, cost) -> tuple[int, int]:
        fitting, floats = [], room // FLOAT
        for rows in range(1, floats // step):
            columns = (floats - rows * step) // (rows + step) // step * step
            if columns > 0:
                fitting.append((cost(rows, columns), rows * columns, rows, columns))
        return min(fitting)[2:]

    def _sectors(self, size, rows, columns, step):
        m, n, k = size["m"], size["n"], size["k"]
        return (m * k * -(-n // columns) + k * n * -(-m // rows) + m * n) // step

    def choose(self, machine, numbers):
        step, large = machine.sector_bytes // FLOAT, numbers["large"]
        rows, columns = self._best(step, numbers["room"], lambda r, c: self._sectors(large, r, c, step))
        return {"ROWS": rows, "COLUMNS": columns, "DEPTH": step}

    def counts(self, choice, machine, numbers, size):
        rows, columns, depth = choice["ROWS"], choice["COLUMNS"], choice["DEPTH"]
        step = machine.sector_bytes // FLOAT
        shared = self._shared(rows, columns, depth)
        if shared > machine.shared_bytes:
            return None
        cut = 1 + bool(depth % step or columns % step)           # sectors that are cut are read twice
        return {"sectors": cut * self._sectors(size, rows, columns, step), "shared_bytes": shared}

    def budget(self, machine, numbers, size):
        step = machine.sector_bytes // FLOAT
        rows, columns = self._best(step, numbers["room"], lambda r, c: self._sectors(size, r, c, step))
        return {"sectors": self._sectors(size, rows, columns, step), "shared_bytes": numbers["room"]}

    def longest(self, machine, numbers, size):
        """Of the first thread, if no tile were ragged."""
        rows, columns, depth = self.choose(machine, numbers).values()
        sums, left, right = (-(-part // 256) for part in (rows * columns, rows * depth, depth * columns))
        deep = -(-size["k"] // depth) * (2 + 3 * (left + right) + sums * (2 + 2 * depth))
        return -(-size["m"] // rows) * -(-size["n"] // columns) * (3 * sums + deep + 1)

    def least(self, machine, numbers):
        """Of the tile, cut to what it covers of the large case."""
        (m, n, _), (rows, columns, depth) = numbers["large"].values(), self.choose(machine, numbers).values()
        return self._shared(-(-m // -(-m // rows)), -(-n // -(-n // columns) // depth) * depth, depth)

    def case(self, size, rng):
        a = torch.randn(size["m"], size["k"], generator=rng)
        b = torch.randn(size["k"], size["n"], generator=rng)
        return sized(Case(a, b, label=f"{size['m']} x {size['k']} x {size['n']}"), size)

    def launch(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        return Launch(1, 256, [a, b, out((m, n)), m, n, k], kernel=self.name)

    def expect(self, a, b):
        return a @ b


class Flash(Problem):
    """The best match of each query among all keys, with a tile of queries in shared memory.

    Every query meets every key. While a key is in shared memory, at most room / width - 1 queries fit
    beside it. So each key is read at least ceil(n / that) times, and each query once; a row of `width`
    floats, a multiple of 32, is whole sectors. With the roles of queries and keys exchanged, n and m are
    exchanged in that sum; the large case has m <= n and as many tiles, so that this costs no less."""
    id, chapter, name, title = "90.7", 6, "best_match", "As many queries as fit"
    minutes, points, target = 25, 6, 100_000
    single = True
    text = """
        `out[i]` is the largest of the products of query `i` with all keys: `n` queries and `m` keys
        of {width} numbers, row by row. The launch has one block of 256 threads. A thread keeps
        single numbers, no arrays of its own. Of shared memory, {room} bytes are yours: keep a tile
        of queries there and let the keys pass, one whole key at a time beside it, and choose the tile
        so that they pass as seldom as possible.
    """
    trial = """
        q, k, result = torch.randn(n, width), torch.randn(m, width), cuda.empty(n)
        with cuda.profile(machine=machine, sanitized=True) as report:
            best_match[1, 256](q, k, result, n, m, width)
        print("right" if torch.allclose(result, (q @ k.T).max(1).values, atol=1e-4) else "wrong")
    """
    body = """
        __global__ void best_match(const float* __restrict__ q, const float* __restrict__ k,
                                   float* __restrict__ out, int n, int m, int width) {
            __shared__ float tile[ROOM];                         // QUERIES rows, and one key
            float* key = tile + QUERIES * width;
            for (int first = 0; first < n; first += QUERIES) {
                for (int i = threadIdx.x; i < QUERIES * width; i += 256)
                    if (first * width + i < n * width) tile[i] = q[first * width + i];
                for (int base = 0; base < QUERIES; base += 256) {
                    int i = base + threadIdx.x;
                    float best = -INFINITY;
                    for (int j = 0; j < m; ++j) {
                        __syncthreads();
                        for (int c = threadIdx.x; c < width; c += 256) key[c] = k[j * width + c];
                        __syncthreads();
                        if (i >= QUERIES || first + i >= n) continue;
                        float sum = 0;
                        for (int c = 0; c < width; ++c) sum += tile[i * width + c] * key[c];
                        best = fmaxf(best, sum);
                    }
                    if (i < QUERIES && first + i < n) out[first + i] = best;
                }
                __syncthreads();
            }
        }
    """

    def numbers(self, machine, rng):
        room, width, times = draw_room(rng), 32 * rng.randint(3, 8), rng.randint(2, 4)
        queries = room // FLOAT // width - 1
        n = times * queries - rng.randrange(times)
        m = round((self.target / FLOAT / width - n) / times)
        if not (times - 1) * queries < m <= n:
            return None
        room = FLOAT * width * (queries + 1)             # all of it is needed
        return {"width": width, "room": room, "small": {"n": rng.randint(2, 5), "m": 7, "width": width},
                "large": {"n": n, "m": m, "width": width}}

    def choose(self, machine, numbers):
        width, room = numbers["width"], numbers["room"] // FLOAT
        return {"QUERIES": room // width - 1, "ROOM": room // width * width}

    def counts(self, choice, machine, numbers, size):
        n, m, width, queries = size["n"], size["m"], size["width"], choice["QUERIES"]
        if FLOAT * choice["ROOM"] > machine.shared_bytes or (queries + 1) * width > choice["ROOM"]:
            return None
        return {"sectors": self._sectors(machine, n, m, width, queries),
                "shared_bytes": FLOAT * choice["ROOM"]}

    def _sectors(self, machine, n: int, m: int, width: int, queries: int) -> int:
        row = FLOAT * width // machine.sector_bytes
        results = 0
        for first in range(0, n, queries):
            for warp in range(first, min(first + queries, n), LANES):
                last = min(warp + LANES, first + queries, n) - 1
                results += FLOAT * last // machine.sector_bytes - FLOAT * warp // machine.sector_bytes + 1
        return row * (n + m * -(-n // queries)) + results

    def budget(self, machine, numbers, size):
        queries = numbers["room"] // FLOAT // size["width"] - 1
        return {"sectors": self._sectors(machine, size["n"], size["m"], size["width"], queries),
                "shared_bytes": numbers["room"]}

    def longest(self, machine, numbers, size):
        """Of the first thread: its part of each tile and of each key, and a product with each key."""
        width, queries = size["width"], self.choose(machine, numbers)["QUERIES"]
        keys = size["m"] * (2 + 2 * -(-width // 256) + 2 * width) + 1
        return -(-size["n"] // queries) * (2 * -(-queries * width // 256) + -(-queries // 256) * keys + 1)

    def least(self, machine, numbers):
        return numbers["room"]

    def case(self, size, rng):
        q = torch.randn(size["n"], size["width"], generator=rng)
        k = torch.randn(size["m"], size["width"], generator=rng)
        return sized(Case(q, k, label=f"{size['n']} queries"), size)

    def launch(self, q, k):
        return Launch(1, 256, [q, k, out(len(q)), len(q), len(k), q.shape[1]], kernel=self.name)

    def expect(self, q, k):
        return (q @ k.T).max(1).values
