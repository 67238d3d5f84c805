"""The exercises of notebook 0: one to try the checks on, and five that teach CUDA."""
import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn


def ceil_div(a, b):
    return -(-a // b)

def mix_cases(rng):
    yield Case(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[4.0, 0.0], [0.0, 8.0], [4.0, 4.0]]), label="3 rows of 2")
    for n, d in [(1, 4), (4, 4), (7, 3), (33, 5)]:
        yield Case(torch.softmax(randn(rng, n), 0), randn(rng, n, d), label=f"{n} rows of {d}")
    yield Case(torch.tensor([1.0, -0.25]), torch.tensor([[4.0, 8.0], [4.0, 16.0]]), label="weights of 1 and -0.25, which add up to 0.75")

exercise(id="0.1", title="Mix the rows", kind="write", points=1, minutes=4, difficulty=1, card=r"""
    Write `mix(weights, values)`: each row of `values` times its weight, all added up.

    - `weights` is `(n,)`, `values` is `(n, d)`, the result is `(d,)`
    - the weights are taken as they are; where they add up to 1, the result is an average: some rows count more than others
    """, given={"torch": torch}, solution='''
    def mix(weights, values):
        """(n,), (n, d) -> (d,)"""
        return (weights[:, None] * values).sum(0)
    ''', cases=mix_cases, compare=close(atol=1e-5),
    properties=[("the result has one entry for each column of values", lambda got, case: got.shape == case.args[1].shape[1:]),
                ("no entry is larger than the largest of its column",
                 lambda got, case: bool((got <= case.args[1].amax(0) + 1e-4).all()))], misconceptions=[
        Misconception("gives every row the same weight", change=("(weights[:, None] * values).sum(0)", "values.mean(0)"),
                      ask="Where do the weights come in?"),
        Misconception("adds the rows up without their weights", change=("(weights[:, None] * values).sum(0)", "values.sum(0)"),
                      ask="Where do the weights come in?"),
        Misconception("divides by the number of rows once more", change=(".sum(0)", ".mean(0)"),
                      ask="The weights add up to 1 already. What do they add up to after your division?"),
        Misconception("divides by the sum of the weights", change=(".sum(0)", ".sum(0) / weights.sum()"),
                      ask="If every weight is doubled, what becomes of the result that the card asks for, and of yours?"),
        Misconception("drops the signs of the weights", change=("weights[:, None]", "weights.abs()[:, None]"),
                      ask="The last case has a weight of -0.25. What does it do to its row?"),
        Misconception("lets the weights meet the columns", change=("weights[:, None] * values", "weights * values"),
                      ask="`(n,)` times `(n, d)`: axes are lined up from the right. What shape lets a weight meet its whole row?"),
        Misconception("weighs the rows and does not add them up", change=(".sum(0)", ""),
                      ask="What is the shape of the result that the card asks for?"),
        Misconception("adds along the columns and not along the rows", change=("sum(0)", "sum(1)"),
                      ask="The result has `d` entries. Which of the two axes has to disappear?")],
    hints=["`weights[:, None]` has the shape `(n, 1)`: it multiplies each row of `values` by its own weight.",
           "`.sum(0)` adds the rows up. A vector times a matrix, `weights @ values`, does both at once."])


ADD = """\
__global__ void add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int n) {
@}
"""

def add_cases(rng):
    for n, block in [(5, 4), (13, 8), (64, 32), (100, 32), (1, 32), (1000, 256)]:
        yield Case(randn(rng, n), randn(rng, n), block, label=f"{n} numbers, {ceil_div(n, block)} blocks of {block} threads")

kernel_exercise(id="0.2", title="Add two vectors", points=2, minutes=6, difficulty=1, name="add", card=r"""
    Write the kernel: thread number `i` of the whole grid makes `out[i] = x[i] + y[i]`.

    - find `i` from `blockIdx.x`, `blockDim.x` and `threadIdx.x`
    - the last block may reach past the end: threads with no element of their own do nothing
    - neighbouring threads take neighbouring elements
    """, stub=ADD.replace("@", "    // your code\n"),
    solution=ADD.replace("@", "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) out[i] = x[i] + y[i];\n"),
    cases=add_cases, launch=lambda x, y, block: Launch(ceil_div(len(x), block), block, [x, y, out(x.shape), len(x)]),
    expect=lambda x, y, block: x + y, compare=close(atol=1e-6), traffic=lambda x, y, block: 12 * len(x), misconceptions=[
        Misconception("lets threads past the end work", change=("if (i < n) ", ""),
                      ask="5 numbers, 2 blocks of 4 threads: which threads have no element, and what do they read?"),
        Misconception("lets one thread past the end work", change=("i < n", "i <= n"),
                      ask="The elements of a vector of 5 are numbers 0 to 4. What does thread 5 read?"),
        Misconception("takes the number inside the block for the number in the grid",
                      change=("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
                      ask="`threadIdx.x` starts at 0 in every block. Which element does thread 0 of block 1 take?"),
        Misconception("forgets that a block has many threads", change=("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x"),
                      ask="How many elements do 2 blocks cover, if all threads of a block take the same one?"),
        Misconception("adds the two numbers and does not multiply", change=("blockIdx.x * blockDim.x", "blockIdx.x"),
                      ask="Block 1 begins where block 0 ends. After how many threads is that?"),
        Misconception("takes the number of blocks for the number of threads in a block",
                      change=("blockIdx.x * blockDim.x", "blockIdx.x * gridDim.x"),
                      ask="2 blocks of 8 threads: how many threads have smaller numbers than those of block 1, 2 or 8?"),
        Misconception("lets every thread add up all of the vector",
                      change=("int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)", "for (int i = 0; i < n; i++)"),
                      ask="All threads run this loop. Which one element is a thread's own?"),
        Misconception("leaves out the last element", change=("i < n", "i < n - 1"),
                      ask="What is the number of the last element of a vector of 5?"),
        Misconception("deals the elements out among blocks, so that neighbouring threads are far apart in memory",
                      change=("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x * gridDim.x + blockIdx.x"),
                      ask="Threads 0 and 1 of a block read at the same time. How far apart in memory are their elements, in bytes?")],
    hints=["Block 2, with 4 threads per block: the threads before it are 2 x 4. Add the thread's own number.",
           "`if (i < n)` before the line that reads and writes."])


MATMUL = """\
#define TILE 8
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                       int m, int k, int n) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
@    }
    if (row < m && column < n) c[row * n + column] = sum;
}
"""
MATMUL_BODY = """\
        a_tile[ty][tx] = row < m && start + tx < k ? a[row * k + start + tx] : 0.0f;
        b_tile[ty][tx] = start + ty < k && column < n ? b[(start + ty) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += a_tile[ty][i] * b_tile[i][tx];
        __syncthreads();
"""

def matmul_cases(rng):
    for m, k, n in [(2, 3, 2), (2, 9, 1), (8, 8, 8), (16, 32, 16), (11, 20, 9), (1, 33, 17)]:
        yield Case(randn(rng, m, k), randn(rng, k, n), label=f"({m}, {k}) times ({k}, {n})")

def sectors(first, last):
    """How many sectors of 8 floats the floats first to last touch; none if there are none."""
    return last // 8 - first // 8 + 1 if last >= first else 0

def matmul_traffic(a, b):
    """Each element that a tile needs once per block, and the store: 32 x the sectors of every row of every tile."""
    (m, k), n = a.shape, b.shape[1]
    touched = sum(sectors(row * k + start, row * k + min(start + 8, k) - 1) * ceil_div(n, 8)
                  for row in range(m) for start in range(0, k, 8))
    touched += sum(sectors(row * n + start, row * n + min(start + 8, n) - 1) * factor
                   for rows, factor in ((k, ceil_div(m, 8)), (m, 1)) for row in range(rows) for start in range(0, n, 8))
    return 32 * touched

kernel_exercise(id="0.4", title="A product in tiles", points=3, minutes=10, difficulty=3, name="matmul", card=r"""
    Write the inside of the loop. A block of 8 x 8 threads makes one 8 x 8 tile of `c`, and `start` walks along `k`.

    - each thread loads **one** element of `a` and **one** of `b` into shared memory, or 0 outside the matrix
    - `a_tile[ty][tx]` is element `(row, start + tx)` of `a`, which has `k` columns
    - `b_tile[ty][tx]` is element `(start + ty, column)` of `b`, which has `n` columns
    - the block waits until both tiles are complete: `__syncthreads()`
    - each thread adds its 8 products to `sum`
    - the block waits again, before anyone overwrites the tiles
    """, stub=MATMUL.replace("@", "        // your code\n"), solution=MATMUL.replace("@", MATMUL_BODY), cases=matmul_cases,
    launch=lambda a, b: Launch((ceil_div(b.shape[1], 8), ceil_div(a.shape[0], 8)), (8, 8),
                               [a, b, out((a.shape[0], b.shape[1])), a.shape[0], a.shape[1], b.shape[1]]),
    expect=lambda a, b: a @ b, compare=close(atol=1e-4), traffic=matmul_traffic, misconceptions=[
        Misconception("multiplies before the tiles are complete",
                      change=("        __syncthreads();\n        for", "        for"),
                      ask="Thread (0, 0) reads what thread (7, 0) loads. How does it know that this is loaded already?"),
        Misconception("loads the next tiles while others still read the old ones",
                      change=("[i][tx];\n        __syncthreads();", "[i][tx];"),
                      ask="A fast thread is at the next `start` already. What does it do to the tile that a slow one reads?"),
        Misconception("lets only some threads of the block reach the barrier",
                      change=("        __syncthreads();\n        for",
                              "        if (row < m && column < n) __syncthreads();\n        for"),
                      ask="A thread that skips the barrier runs on. How many of the 64 must reach it before any may go on?"),
        Misconception("lets threads without an element of c leave before they have loaded",
                      code=MATMUL.replace("@", MATMUL_BODY).replace(
                          "    float sum = 0.0f;\n", "    float sum = 0.0f;\n    if (row >= m || column >= n) return;\n"),
                      ask="c is (2, 2) and the tiles are 8 x 8. Who loads `a_tile[0][5]` if only 4 threads stay?"),
        Misconception("does not ask everywhere whether a matrix has ended",
                      change=[("row < m && start + tx < k ? ", ""), ("start + ty < k && column < n ? ", ""), (" : 0.0f", "")],
                      ask="`a` is (2, 3), `b` is (3, 2), the tiles are 8 x 8. Along which axes of which matrix is there nothing to load?"),
        Misconception("does not ask everywhere whether b has ended",
                      change=("start + ty < k && column < n ? b[(start + ty) * n + column] : 0.0f", "b[(start + ty) * n + column]"),
                      ask="`b` is (3, 2) and its tile 8 x 8. Which rows and which columns of the tile lie outside `b`?"),
        Misconception("leaves the tile as it was where the matrix has ended",
                      change=[("a_tile[ty][tx] = row < m && start + tx < k ? ", "if (row < m && start + tx < k) a_tile[ty][tx] = "),
                              ("b_tile[ty][tx] = start + ty < k && column < n ? ",
                               "if (start + ty < k && column < n) b_tile[ty][tx] = "), (" : 0.0f", "")],
                      ask="The sum runs over all 8 elements of the tile. What is in those that no thread has loaded?"),
        Misconception("steps from row to row of b by k, the width of a",
                      change=("[(start + ty) * n + column]", "[(start + ty) * k + column]"),
                      ask="`b` is (k, n). How many numbers are between an element and the one below it?"),
        Misconception("loads the first tile of a at every step",
                      change=[("start + tx < k", "tx < k"), ("k + start + tx]", "k + tx]")],
                      ask="`start` walks along `k`. Which columns of `a` does the second step need?"),
        Misconception("reads the tile of b by rows, as it reads that of a", change=("b_tile[i][tx]", "b_tile[tx][i]"),
                      ask="In `sum over i of a[row][i] * b[i][column]`, which index of `b` runs?"),
        Misconception("reads an element once per product, which the tiles are there to save", code=MATMUL.replace("@", """\
        for (int i = start; i < start + TILE; i++)
            if (row < m && i < k && column < n) sum += a[row * k + i] * b[i * n + column];
"""), ask="Each element of `a` is needed by 8 threads of the block. How often should it be loaded?")],
    hints=["`a_tile[ty][tx] = row < m && start + tx < k ? a[row * k + start + tx] : 0.0f;` and the like for `b`.",
           "The products: `for (int i = 0; i < TILE; i++) sum += a_tile[ty][i] * b_tile[i][tx];`",
           "Two barriers: one between loading and multiplying, one between multiplying and the next load."])


WARP = """\
__global__ void warp_sum(const float* __restrict__ x, float* __restrict__ out) {
    float value = x[blockIdx.x * 32 + threadIdx.x];
@    if (threadIdx.x == 0) out[blockIdx.x] = value;
}
"""

def warp_cases(rng):
    yield Case(torch.arange(32.0), label="0, 1, 2, ..., 31")
    yield Case(torch.ones(96), label="3 blocks of ones")
    for blocks in (8, 32):
        yield Case(randn(rng, 32 * blocks), label=f"{blocks} blocks")
    # Added up lane after lane, the ones vanish beside 2^30; in five steps, whether from 16 or from 1, it cancels in time.
    large = torch.ones(32)
    large[[2, 3, 18, 19]] = torch.tensor([1.0, -1.0, -1.0, 1.0]) * 2.0**30
    yield Case(large, label="28 ones, and 2^30 and -2^30 twice, which five steps cancel before they meet a 1")

kernel_exercise(id="0.6", title="A warp adds up", points=2, minutes=6, difficulty=2, name="warp_sum", card=r"""
    A block is one warp here, and every lane holds one `value`. Make `value` of lane 0 the sum of all 32, without shared
    memory: five steps, in which each lane adds the value of the lane 16, 8, 4, 2 and 1 further on.

    - `__shfl_down_sync(0xffffffff, value, offset)` is the `value` of the lane `offset` further on
    - all 32 lanes must take part in each step
    """, stub=WARP.replace("@", "    // your code\n"),
    solution=WARP.replace("@", "    for (int offset = 16; offset > 0; offset /= 2)\n"
                               "        value += __shfl_down_sync(0xffffffff, value, offset);\n"),
    cases=warp_cases, launch=lambda x: Launch(len(x) // 32, 32, [x, out(len(x) // 32)]),
    expect=lambda x: x.double().reshape(-1, 32).sum(1).float(), compare=close(atol=1e-4),
    traffic=lambda x: 4 * len(x) + len(x), forbid=("__shared__",), misconceptions=[
        Misconception("stops one step early", change=("offset > 0", "offset > 1"),
                      ask="After the step with offset 2, which lanes' values are in lane 0, and which are in lane 1?"),
        Misconception("begins with offset 8", change=("offset = 16", "offset = 8"),
                      ask="Which lanes does lane 0 hear of, directly or through others, if the first step is 8?"),
        Misconception("begins with offset 32, which no lane has", change=("offset = 16", "offset = 32"),
                      ask="The warp has lanes 0 to 31. Whose value is added in your first step?"),
        Misconception("lets only the lanes take part that still matter",
                      change=("value += ", "if (threadIdx.x < offset) value += "),
                      ask="A shuffle reads a lane that takes part in it. Does lane 16 take part in your first step?"),
        Misconception("asks the lanes before it", change=("__shfl_down_sync", "__shfl_up_sync"),
                      ask="Lane 0 is to hold the sum. Which lanes are before it?"),
        Misconception("asks for the other lane's value and drops it", change=("value += ", ""),
                      ask="The shuffle returns a number. What do you do with it?"),
        Misconception("takes the other lane's value in place of adding it", change=("value += ", "value = "),
                      ask="What has become of lane 0's own value after the first step?"),
        Misconception("fetches the values one lane after the other, in 31 steps",
                      code=WARP.replace("@", "    float own = value;\n    for (int offset = 1; offset < 32; offset++)\n"
                                             "        value += __shfl_down_sync(0xffffffff, own, offset);\n"),
                      ask="Your sum needs 31 additions, and in float32 2^30 + 1 is 2^30. After the first of the card's five steps, "
                          "of how many lanes does lane 0 hold the sum?"),
        Misconception("lets lane 0 read all 32 numbers again, one after the other",
                      code=WARP.replace("@", "    for (int i = 1; threadIdx.x == 0 && i < 32; i++) value += x[blockIdx.x * 32 + i];\n"),
                      ask="The numbers are in the registers of the warp already. How does lane 0 get at them without memory?")],
    hints=["A loop: `for (int offset = 16; offset > 0; offset /= 2)`.",
           "Inside it one line, which adds to `value` what the lane `offset` further on holds."])
