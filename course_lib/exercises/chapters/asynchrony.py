"""Exercises of chapter 12. Kernels begin with the same functions, `TMA`: a wait, an expectation, an order."""
from course_lib.exercises import Case, Launch, Misconception, TensorMap, close, exact, exercise, kernel_exercise, out, randn, whole

# copies land as late as is legal, and at once; then the last thread first
ORDERS = ("late", "early", "reverse")


TMA = """\
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;

// Returns when the phase of this parity is over.
__device__ void wait(uint64_t* bar, int parity) { while (!ptx::mbarrier_try_wait_parity(bar, parity)) {} }

// One arrival, which also says how many bytes are to come in this phase.
__device__ void expect(uint64_t* bar, int bytes)
{
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}

// Orders the tile of x that begins at (row, column) and returns at once; the bytes are counted at the barrier.
__device__ void order(void* tile, const CUtensorMap* x, int row, int column, uint64_t* bar)
{
    const int at[] = {column, row};                                 // a map counts the innermost dimension first
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, x, at, bar);
}
"""

_TRANSPOSE = TMA + """
// y = the transpose of x. A block of one warp has a tile of 16 x 16, of which some may hang over the edges of x.
__global__ void transpose(const __grid_constant__ CUtensorMap x, float* __restrict__ y, int rows, int columns)
{
    __shared__ alignas(128) float tile[16][16];
    __shared__ uint64_t full;
    const int row = 16 * blockIdx.y, column = 16 * blockIdx.x;
    if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&full, sizeof tile);
        order(tile, &x, row, column, &full);
    }
    wait(&full, 0);
    const int r = threadIdx.x % 16;
    for (int c = threadIdx.x / 16; c < 16; c += 2)
        if (row + r < rows && column + c < columns) y[(column + c) * rows + row + r] = tile[r][c];
}
"""
_BEFORE, _REST = _TRANSPOSE.split("    if (threadIdx.x == 0) ptx::mbarrier_init")
_AFTER = "    const int r =" + _REST.split("    const int r =")[1]

def _matrices(*sizes):
    """cases= of random matrices of these sizes."""
    return lambda rng: (Case(randn(rng, *size), label=f"{size[0]} x {size[1]}") for size in sizes)

kernel_exercise(id="12.2", title="Order a tile and wait for it", points=3, minutes=12, difficulty=3, name="transpose", card="""
        Each block transposes one tile of `x`. The tile comes by one copy. Write the lines before the loop that reads it.

        - make `full` an mbarrier that expects one arrival (`ptx::mbarrier_init(&full, 1)`), once, and let no thread use it
          before it is made
        - one thread says how many bytes are to come, and orders the tile that begins at (`row`, `column`)
        - every thread waits for phase 0 of `full`, whose parity is 0
        - tiles at the edges need nothing of you: what is beyond `x` is filled with zeros""",
    stub=_BEFORE + "    // your code: make the barrier, order the tile, wait for it\n" + _AFTER, solution=_TRANSPOSE,
    cases=_matrices((16, 16), (32, 48), (7, 20), (33, 12), (50, 36)), expect=lambda x: x.T.contiguous(), compare=exact(), orders=ORDERS,
    launch=lambda x: Launch(grid=(-(-x.shape[1] // 16), -(-x.shape[0] // 16)), block=32,
                            args=[TensorMap(x, (16, 16)), out((x.shape[1], x.shape[0])), *x.shape]), misconceptions=[
        Misconception("reads the tile without waiting for it", change=("    wait(&full, 0);\n", ""),
                      ask="The order returns at once. Which line makes sure that the bytes are there?"),
        Misconception("waits for the phase of parity 1", change=("wait(&full, 0)", "wait(&full, 1)"),
                      ask="Phase 0 is in progress, and its parity is 0. When does a wait for parity 1 return?"),
        Misconception("lets threads use the barrier before it is made", change=("(&full, 1);\n    __syncthreads();", "(&full, 1);"),
                      ask="Thread 31 may be the first to run. What does it find in `full`?"),
        Misconception("lets every thread order the tile", change=("    if (threadIdx.x == 0) {\n        expect", "    {\n        expect"),
                      ask="How many arrivals was the barrier made for, and how many come?"),
        Misconception("expects only the bytes that are within x", change=(
            "sizeof tile", "4 * min(16, rows - row) * min(16, columns - column)"),
                      ask="What does the copy write where the tile hangs over the edge?"),
        Misconception("makes the barrier for the arrivals of all 32 threads", change=("mbarrier_init(&full, 1)", "mbarrier_init(&full, 32)"),
                      ask="Who arrives at the barrier? A wait is no arrival."),
        Misconception("orders the tile and announces no bytes", change=("        expect(&full, sizeof tile);\n", ""),
                      ask="Which line of yours is the one arrival for which the barrier was made?"),
        Misconception("exchanges row and column", change=("&x, row, column", "&x, column, row"),
                      ask="Where does the tile of block (1, 0) begin?")],
    hints=["The order of things: make the barrier, `__syncthreads()`, one thread expects and orders, all wait.",
           "`expect(&full, sizeof tile)`, then `order(tile, &x, row, column, &full)`, both by thread 0.",
           "`wait(&full, 0)` is outside the `if`: every thread that reads the tile waits for it."])


def _finished_cases(rng):
    def case(tiles, stages, latency, copy, use):
        return Case(tiles, stages, latency, copy, use,
                    label=f"{tiles} tiles, {stages} stages, latency {latency}, copy {copy}, use {use}")

    for numbers in [(3, 1, 2, 1, 1), (4, 2, 2, 1, 3), (4, 2, 5, 1, 1), (6, 3, 4, 2, 1), (8, 4, 6, 1, 2), (5, 8, 3, 3, 1)]:
        yield case(*numbers)
    for _ in range(4):
        yield case(*(whole(rng, low, high) for low, high in ((6, 12), (1, 5), (2, 9), (1, 4), (1, 5))))

exercise(id="12.3", title="When each tile is finished", kind="write", points=2, minutes=9, difficulty=3, card="""
        A model of the ring, in whole steps. Write `finished`: when each of the `tiles` has been used.

        - a tile is ordered as soon as it has a stage: at 0 for the first `stages` tiles, else when the tile before it in its
          stage is finished
        - it arrives `latency` steps after its order, but at least `copy` steps after the tile before it arrived
        - the first arrives at step `copy` at the earliest
        - tiles are used in order, one at a time, for `use` steps each: from when the tile has arrived and the one before is
          finished""", given={}, solution='''
        def finished(tiles, stages, latency, copy, use):
            """-> a list of whole numbers, one for each tile"""
            done, arrived = [], 0
            for i in range(tiles):
                ordered = done[i - stages] if i >= stages else 0
                arrived = max(ordered + latency, arrived + copy)
                done.append(max(arrived, done[-1] if done else 0) + use)
            return done
        ''', cases=_finished_cases, compare=exact(), misconceptions=[
        Misconception("orders every tile at step 0, as if there were a stage for each",
                      change=("done[i - stages] if i >= stages else 0", "0"),
                      ask="With two stages, where should tile 2 be put before tile 0 is finished?"),
        Misconception("orders a tile when the one before it is finished",
                      change=("done[i - stages] if i >= stages else 0", "done[-1] if done else 0"),
                      ask="What is the second stage for, if nothing is ordered before the tile in the first one is finished?"),
        Misconception("lets tiles arrive side by side, however short the time between them",
                      change=("max(ordered + latency, arrived + copy)", "ordered + latency"),
                      ask="Two tiles ordered in the same step: when does each of them arrive?"),
        Misconception("uses a tile before it has arrived", change=("max(arrived, done[-1] if done else 0)", "(done[-1] if done else arrived)"),
                      ask="The one before is finished, and this one is still on its way. When does its use begin?"),
        Misconception("uses tiles side by side", change=("max(arrived, done[-1] if done else 0)", "arrived"),
                      ask="Two tiles arrive while an earlier one is in use. When is the second of them finished?")],
    hints=["Keep a list of when tiles were finished, and one number: when the last tile arrived.",
           "`ordered = done[i - stages] if i >= stages else 0`",
           "Arrival and finish are both a maximum of two numbers, plus something."])


def _turn_of_cases(rng):
    for i, stages in [(0, 2), (1, 2), (2, 2), (4, 2), (0, 1), (1, 1), (2, 1), (3, 3), (9, 4)]:
        yield Case(i, stages, label=f"tile {i}, {stages} stages")
    for _ in range(8):
        i, stages = whole(rng, 5, 60), whole(rng, 1, 7)
        yield Case(i, stages, label=f"tile {i}, {stages} stages")

exercise(id="12.4", title="Which phase", kind="write", points=2, minutes=6, difficulty=2, card="""
        A ring has `stages` buffers, called stages, and tile `i` goes into stage `i % stages`. Each stage has two barriers: a
        phase of `full` ends when a tile has arrived in it, a phase of `empty` when every reader has given it back. Write
        `turn_of`, which returns

        - the stage of tile `i`
        - the parity for which its readers wait at `full`
        - the parity for which its producer waits at `empty` before it orders the tile; `None` for the first tile of a stage,
          which waits for nothing
        - phases of each barrier are counted from 0, and the parity of a phase is its number modulo 2""", given={}, solution='''
        def turn_of(i, stages):
            """-> (stage, parity at full, parity at empty or None)"""
            stage, turn = i % stages, i // stages
            return stage, turn % 2, (turn - 1) % 2 if turn else None
        ''', cases=_turn_of_cases, compare=exact(), misconceptions=[
        Misconception("takes the parity of the tile, not of its turn in the stage",
                      change=("return stage, turn % 2, (turn - 1) % 2", "return stage, i % 2, (i - 1) % 2"),
                      ask="Tiles 0, 2, 4 go into stage 0 of two. Which phases of its barrier are they?"),
        Misconception("waits at empty for the phase of this turn, which ends after the tile was read",
                      change=("(turn - 1) % 2 if", "turn % 2 if"),
                      ask="The tile of turn 1 may be ordered once the tile of which turn has been read?"),
        Misconception("lets the first tiles wait for an empty stage", change=(" if turn else None", ""),
                      ask="Who has given back a stage that nobody has used?"),
        Misconception("always has two stages", change=("i % stages, i // stages", "i % 2, i // 2"),
                      ask="With three stages, where does tile 2 go?")],
    hints=["How often was the stage used before? `i // stages` times.",
           "Turn 1 of a stage waits for the end of phase 0 of its `empty`: parity 0."])

_SUMS = TMA + """
constexpr int ROWS = 4, COLUMNS = 64;

// The sum of each column of x, n rows of 64. One block of 64: thread t adds column t, thread 0 orders the tiles, too.
__global__ void column_sums(const __grid_constant__ CUtensorMap x, float* __restrict__ out, int n)
{
    __shared__ alignas(128) float tile[2][ROWS][COLUMNS];
    __shared__ uint64_t full[2], empty[2];
    for (int stage = 0; threadIdx.x == 0 && stage < 2; stage++) {
        ptx::mbarrier_init(&full[stage], 1);
        ptx::mbarrier_init(&empty[stage], COLUMNS);
    }
    __syncthreads();
    const int tiles = (n + ROWS - 1) / ROWS;
    float sum = 0.0f;
    for (int i = -1; i < tiles; i++) {
        const int next = i + 1, stage = next % 2, turn = next / 2;
        if (threadIdx.x == 0 && next < tiles) {                     // the next tile comes while this one is added
            if (turn > 0) wait(&empty[stage], (turn - 1) % 2);
            expect(&full[stage], sizeof tile[stage]);
            order(tile[stage], &x, ROWS * next, 0, &full[stage]);
        }
        if (i < 0) continue;
        wait(&full[i % 2], i / 2 % 2);
        for (int r = 0; r < ROWS; r++) sum += tile[i % 2][r][threadIdx.x];
        ptx::mbarrier_arrive(&empty[i % 2]);
    }
    out[threadIdx.x] = sum;
}
"""
_GIVEN_BACK = "            if (turn > 0) wait(&empty[stage], (turn - 1) % 2);\n"

kernel_exercise(
    id="12.5", title="A buffer filled too early", kind="repair", points=3, minutes=10, difficulty=3, name="column_sums", card="""
        Two buffers: while a tile is added, the next one comes. One line is missing. Run the cell and the check, read what the
        sanitizer says, and repair the kernel.

        - change as little as you can; `full` and `empty` are all that you need
        - on a card the results would be right whenever the copy is slow enough; the check runs the kernel with copies that land
          as late as possible and with copies that land at once""",
    stub=_SUMS.replace(_GIVEN_BACK, ""), solution=_SUMS, cases=_matrices(*((n, 64) for n in (4, 8, 9, 17, 30))), expect=lambda x: x.double().sum(0).float(),
    compare=close(atol=1e-4), orders=ORDERS,
    launch=lambda x: Launch(grid=1, block=64, args=[TensorMap(x, (4, 64)), out(64), len(x)]), misconceptions=[
        Misconception("waits at `full` where it should wait at `empty`", change=("wait(&empty[stage]", "wait(&full[stage]"),
                      ask="The tile before has arrived in this buffer, that is true. Has everybody read it?"),
        Misconception("waits at `empty` for the phase of this turn", change=("(turn - 1) % 2", "turn % 2"),
                      ask="Turn 1 of a buffer may begin once its turn 0 was read. Which parity is that?"),
        Misconception("waits at `empty` in the first turn, too", change=("if (turn > 0) wait(&empty[stage], (turn - 1) % 2)",
                                                                       "wait(&empty[stage], turn % 2)"),
                      ask="Who gives back a buffer that nobody has used?")],
    hints=["Which buffer does the copy of tile 2 write, and who may still be reading it?",
           "All 64 threads arrive at `empty[i % 2]` when they have read tile i. Nobody waits there.",
           "Before the order of turn 1 or later: `wait(&empty[stage], (turn - 1) % 2)`."])

_RING = TMA + """
constexpr int ROWS = 4, COLUMNS = 64, STAGES = 3;

// The sum of squares of each column of x, n rows of 64. One block of 96: warps 0 and 1 consume, thread 64 produces.
__global__ void squares(const __grid_constant__ CUtensorMap x, float* __restrict__ out, int n)
{
    __shared__ alignas(128) float tile[STAGES][ROWS][COLUMNS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    for (int stage = 0; threadIdx.x == 0 && stage < STAGES; stage++) {
        ptx::mbarrier_init(&full[stage], 1);
        ptx::mbarrier_init(&empty[stage], COLUMNS);
    }
    __syncthreads();
    const int tiles = (n + ROWS - 1) / ROWS;
    if (threadIdx.x == COLUMNS) {                                   // the producer
        for (int i = 0; i < tiles; i++) {
            const int stage = i % STAGES, turn = i / STAGES;
            if (turn > 0) wait(&empty[stage], (turn - 1) % 2);
            expect(&full[stage], sizeof tile[stage]);
            order(tile[stage], &x, ROWS * i, 0, &full[stage]);
        }
    }
    if (threadIdx.x < COLUMNS) {                                    // the consumers: thread t has column t
        float sum = 0.0f;
        for (int i = 0; i < tiles; i++) {
            const int stage = i % STAGES, turn = i / STAGES;
            wait(&full[stage], turn % 2);
            for (int r = 0; r < ROWS; r++) sum += tile[stage][r][threadIdx.x] * tile[stage][r][threadIdx.x];
            ptx::mbarrier_arrive(&empty[stage]);
        }
        out[threadIdx.x] = sum;
    }
}
"""

def _without(text, begin, end, instead):
    """A stub: what is between two pieces of the solution is left to write."""
    before, rest = text.split(begin, 1)
    return before + begin + instead + end + rest.split(end, 1)[1]

kernel_exercise(id="12.6", title="Producer and consumers", points=4, minutes=15, difficulty=4, name="squares", card="""
        A ring of three stages. One thread orders all tiles; 64 others add the squares of their columns. Write both loops.

        - tile `i` goes into stage `i % STAGES`; `expect`, `order` and `wait` are those of 12.2
        - the producer waits for an empty stage, except in the first turn of each
        - a consumer waits for a full stage, reads it, and then arrives at `empty` (`ptx::mbarrier_arrive(&empty[stage])`)
        - rows beyond `n` come as zeros; no `__syncthreads()`: the two sides meet at the barriers alone""",
    stub=_without(_without(_RING, "// the producer\n", "    }\n    if", "        // your code: order every tile, each when its stage is empty\n"),
                  "        float sum = 0.0f;\n", "        out[",
                  "        // your code: for each tile, wait for it, add the squares, give the stage back\n"),
    solution=_RING, cases=_matrices(*((n, 64) for n in (4, 12, 13, 30, 41))),
    expect=lambda x: x.double().square().sum(0).float(), compare=close(atol=1e-3), orders=ORDERS,
    launch=lambda x: Launch(grid=1, block=96, args=[TensorMap(x, (4, 64)), out(64), len(x)]), misconceptions=[
        Misconception("orders a tile before its stage is empty, with no wait or with one for the phase of this turn",
                      change=("            if (turn > 0) wait(&empty[stage], (turn - 1) % 2);\n", ""),
                      ask="Tile 3 goes where tile 0 is. Who says that tile 0 was read?"),
        Misconception("waits for an empty stage in the first turn, too",
                      change=("if (turn > 0) wait(&empty[stage], (turn - 1) % 2)", "wait(&empty[stage], turn % 2)"),
                      ask="Who gives back a stage that nobody has used?"),
        Misconception("does not let all 64 consumers give the stage back",
                      change=("            ptx::mbarrier_arrive(&empty", "            if (threadIdx.x == 0) ptx::mbarrier_arrive(&empty"),
                      ask="For how many arrivals was `empty` made, and who may still be reading when thread 0 is done?"),
        Misconception("announces another number of bytes than one tile has", change=("sizeof tile[stage]", "sizeof tile"),
                      ask="`tile` is the whole ring. How many bytes does one order bring?"),
        Misconception("orders tiles and announces no bytes", change=("            expect(&full[stage], sizeof tile[stage]);\n", ""),
                      ask="Which line of the producer is the one arrival for which `full` was made?"),
        Misconception("gives the stage back before it is read", change=[
            ("            ptx::mbarrier_arrive(&empty[stage]);\n", ""),
            ("            wait(&full[stage], turn % 2);\n",
             "            wait(&full[stage], turn % 2);\n            ptx::mbarrier_arrive(&empty[stage]);\n")],
                      ask="What may the producer do from the moment of the last arrival on?"),
        Misconception("reads a stage without waiting for it", change=("            wait(&full[stage], turn % 2);\n", ""),
                      ask="Which line makes sure that the tile has arrived?"),
        Misconception("waits at `full` for the parity of the tile, not of its turn", change=("wait(&full[stage], turn % 2)", "wait(&full[stage], i % 2)"),
                      ask="Tiles 0, 1 and 2 are the first in their stages: which phase of `full` is each of them?")],
    hints=["Both loops begin with `const int stage = i % STAGES, turn = i / STAGES;`. The parities are those of 12.4.",
           "Producer: wait for empty unless `turn` is 0; `expect(&full[stage], sizeof tile[stage])`; order the tile of row `ROWS * i`.",
           "Consumer: wait for `full` with `turn % 2`, read, arrive at `empty`. All 64 arrive: for that many it was made."])


WARPGROUP = """
// A tile in shared memory as wgmma is told of it: where it begins, 8 rows are 1,024 bytes, the 128-byte swizzle.
__device__ uint64_t described(const __nv_bfloat16* tile)
{
    return (__cvta_generic_to_shared(tile) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Issued by 128 threads: sums = a b^T for a 64 x 16 and b 32 x 16, added to the sums if `adds`. Returns at once.
__device__ void multiply(float (&sums)[16], uint64_t a, uint64_t b, int adds)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0; }"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
                   "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
                   "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]) : "l"(a), "l"(b), "r"(adds));
}
__device__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ void wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory"); }
"""

_PRODUCT = TMA.replace("#include <cuda.h>\n", "#include <cuda.h>\n#include <cuda_bf16.h>\n") + WARPGROUP + """
// c = a b^T for a (64, n) and b (32, n), in tiles of 64 columns. Block 160: a warpgroup multiplies, thread 128 orders.
__global__ void product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                        float* __restrict__ c, int n)
{
    __shared__ alignas(1024) __nv_bfloat16 a_tile[2][64][64], b_tile[2][32][64];
    __shared__ uint64_t full[2], empty[2];
    for (int stage = 0; threadIdx.x == 0 && stage < 2; stage++) {
        ptx::mbarrier_init(&full[stage], 1);
        ptx::mbarrier_init(&empty[stage], 128);
    }
    __syncthreads();
    const int tiles = (n + 63) / 64;
    for (int i = 0; threadIdx.x == 128 && i < tiles; i++) {
        const int stage = i % 2;
        if (i >= 2) wait(&empty[stage], (i / 2 - 1) % 2);
        expect(&full[stage], sizeof a_tile[stage] + sizeof b_tile[stage]);
        order(a_tile[stage], &a, 0, 64 * i, &full[stage]);
        order(b_tile[stage], &b, 0, 64 * i, &full[stage]);
    }
    if (threadIdx.x >= 128) return;
    float sums[16];
    for (int i = 0; i < tiles; i++) {
        const int stage = i % 2, turn = i / 2;
        wait(&full[stage], turn % 2);
        begin_products();
        for (int k = 0; k < 64; k += 16)
            multiply(sums, described(&a_tile[stage][0][k]), described(&b_tile[stage][0][k]), i + k > 0);
        commit_products();
        wait_products<0>();
        ptx::mbarrier_arrive(&empty[stage]);
    }
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 16; i++) c[(row + i / 2 % 2 * 8) * 32 + column + i / 4 * 8 + i % 2] = sums[i];
}
"""

kernel_exercise(id="12.9", title="A product that returns at once", points=4, minutes=14, difficulty=4, name="product", card="""
        The tiles come by a ring of two stages; the producer is given. Write what the warpgroup does with each pair of tiles.

        - wait until the stage is full
        - `begin_products()`, then four products: of the columns `k` to `k + 15` for `k` = 0, 16, 32, 48 of both tiles, as
          `multiply(sums, described(&a_tile[stage][0][k]), described(&b_tile[stage][0][k]), adds)`
        - the very first product of all sets the sums (`adds` = 0), every later one adds to them
        - `commit_products()`, and `wait_products<0>()` before the stage is given back by all 128 threads""",
    stub=_without(_PRODUCT, "        const int stage = i % 2, turn = i / 2;\n        wait(&full", "    }\n    const int row",
                  "").replace("        wait(&full    }\n", "        // your code: wait, multiply, give the stage back\n    }\n"),
    solution=_PRODUCT, cases=lambda rng: (
        Case(randn(rng, 64, n).bfloat16(), randn(rng, 32, n).bfloat16(), label=f"{n} columns") for n in (64, 128, 200, 320)),
    expect=lambda a, b: (a.double() @ b.double().T).float(), compare=close(atol=1e-3), orders=ORDERS,
    launch=lambda a, b: Launch(grid=1, block=160, args=[TensorMap(a, (64, 64), 128), TensorMap(b, (32, 64), 128), out((64, 32)),
                                                        a.shape[1]]), misconceptions=[
        Misconception("gives the stage back before the products have read it", change=[
            ("        wait_products<0>();\n        ptx::mbarrier_arrive(&empty[stage]);\n",
             "        ptx::mbarrier_arrive(&empty[stage]);\n        wait_products<0>();\n")],
                      ask="`multiply` returns at once. Until when may it still read the tiles?"),
        Misconception("does not wait for the products of this tile: no wait, nothing committed, or a wait that leaves a group under way",
                      change=("wait_products<0>", "wait_products<1>"),
                      ask="`wait_products<1>` returns while one group is still under way. Which one is that here?"),
        Misconception("does not fence before the first product", change=("        begin_products();\n", ""),
                      ask="The sums are registers. Who orders what was done with them before against the product?"),
        Misconception("sets the sums anew in every tile", change=("i + k > 0", "k > 0"), ask="Of how many tiles is c the sum?"),
        Misconception("adds to sums that nobody has set", change=("i + k > 0", "1"), ask="What is in `sums` before the first product?")],
    hints=["The order: wait for the stage, begin, four products, commit, wait for the products, arrive at `empty`.",
           "`for (int k = 0; k < 64; k += 16) multiply(..., i + k > 0);`: the sum of `i` and `k` is 0 for the first product alone.",
           "The stage may be overwritten from the last arrival on. So `wait_products<0>()` precedes it."])

_DOUBLED = TMA + """
// Stores the tile into the box of y that begins at (row, column), and waits until the tile was read.
__device__ void send(const CUtensorMap* y, int row, int column, void* tile)
{
    const int at[] = {column, row};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, y, at, tile);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
}

// y = 2 x. A block of 64 has a tile of 16 x 32: it comes by TMA, is doubled in place, and leaves by TMA.
__global__ void doubled(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y)
{
    __shared__ alignas(128) float tile[16][32];
    __shared__ uint64_t landed;
    const int row = 16 * blockIdx.y, column = 32 * blockIdx.x;
    if (threadIdx.x == 0) ptx::mbarrier_init(&landed, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&landed, sizeof tile);
        order(tile, &x, row, column, &landed);
    }
    wait(&landed, 0);
    for (int e = threadIdx.x; e < 16 * 32; e += 64) tile[e / 32][e % 32] *= 2;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) send(&y, row, column, tile);
}
"""
_FENCE = "    ptx::fence_proxy_async(ptx::space_shared);\n"

def _doubled_launch(x):
    y = out(tuple(x.shape))
    return Launch(grid=(-(-x.shape[1] // 32), -(-x.shape[0] // 16)), block=64, args=[TensorMap(x, (16, 32)), TensorMap(y, (16, 32))])

kernel_exercise(
    id="12.10", title="Two ways to one memory", kind="repair", points=2, minutes=6, difficulty=3, name="doubled", card="""
        Every thread stores into the tile, all meet at `__syncthreads()`, one of them sends the tile. Read what the sanitizer says
        about it, and repair the kernel.

        - `ptx::fence_proxy_async(ptx::space_shared)` is the line that is missing
        - it belongs between the stores and the copy""",
    stub=_DOUBLED.replace(_FENCE, ""), solution=_DOUBLED, cases=_matrices((16, 32), (5, 8), (40, 36), (32, 100)), expect=lambda x: 2 * x, compare=exact(), orders=ORDERS,
    launch=_doubled_launch, misconceptions=[
        Misconception("has no fence of this kind between the stores and the copy: it is missing, before the stores, of one thread "
                      "alone, or of another kind", change=("ptx::fence_proxy_async(ptx::space_shared)", "__threadfence_block()"),
                      ask="Which threads stored, and which line of theirs, after the stores, tells the other way to memory?"),
        Misconception("has the fence in place of the barrier", change=("    __syncthreads();\n    if (threadIdx.x == 0) send",
                                                                     "    if (threadIdx.x == 0) send"),
                      ask="A fence orders what its own thread did. How does thread 0 know that the others have stored?")],
    hints=["First the stores, then the fence by the same threads, then the barrier, then the copy.",
           "One line, between the loop and `__syncthreads()`: each thread fences what it stored."])
