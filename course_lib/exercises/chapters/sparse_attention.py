"""The exercises of chapter 5."""
import inspect
import math

import torch

from course_lib.exercises import (Case, Launch, Misconception, close, exact, exercise, inout, kernel_exercise,
                                  out, randn, whole)


exercise(id="5.1", title="The last few keys", kind="write", points=2, minutes=6, difficulty=1, card="""
    Write `sliding_window(n, window)`, a boolean mask of shape `(n, n)`, `True` where query `i` may see key `j`.

    - causal: no query sees a later key
    - `window` counts the keys that are seen, **the query's own included**
    - the first queries see fewer, because there are no more
    """, given={"torch": torch}, solution='''
    def sliding_window(n, window):
        """-> (n, n) boolean: query i may see the last `window` keys, its own included"""
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        return (j <= i) & (i - j < window)
    ''', compare=exact(),
    cases=lambda rng: (Case(n, w, label=f"n = {n}, window = {w}") for n, w in ((4, 2), (1, 1), (6, 1), (5, 9), (9, 4), (whole(rng, 10, 40), whole(rng, 2, 9)))),
    misconceptions=[
        Misconception("sees one key too many", change=("< window", "<= window"),
                      ask="With window = 1, which keys should a query see?"),
        Misconception("takes rows for keys and columns for queries",
                      change=("torch.arange(n)[:, None], torch.arange(n)[None]", "torch.arange(n)[None], torch.arange(n)[:, None]"),
                      ask="Row 0 belongs to query 0. Which keys may the first query see?"),
        Misconception("lets the first rows begin at a negative place, which Python counts from the end", body='''
            mask = torch.zeros(n, n, dtype=torch.bool)
            for i in range(n):
                mask[i, i - window + 1:i + 1] = True
            return mask
            ''', ask="What does `mask[0, -1:1]` select?"),
        Misconception("looks both ways", change=("(j <= i) & (i - j < window)", "(i - j).abs() < window"),
                      ask="May a model that predicts the next word look at it?"),
        Misconception("leaves the query's own key out", change=("(j <= i) & (i - j < window)", "(j < i) & (i - j <= window)"),
                      ask="Is the query's own key one of the `window` keys?"),
        Misconception("looks at the first keys in place of the last", change=("i - j < window", "j < window"),
                      ask="Which keys should query 8 of 9 see with a window of 4: 0 to 3, or 5 to 8?")],
    hints=["`torch.arange(n)[:, None]` is a column of query numbers, `torch.arange(n)[None]` a row of key numbers.",
           "The distance is i - j. It must be at least 0 and less than `window`. "
           "Join the two with `&`, each in brackets: `and` does not work on tensors."])


CLASSIFY = '''
def classify(mask, block):
    """(n_q, n_k) boolean -> (query blocks, key blocks) integers: 0 empty, 1 partial, 2 full"""
    rows, columns = math.ceil(mask.shape[0] / block), math.ceil(mask.shape[1] / block)
    kinds = torch.zeros(rows, columns, dtype=torch.long)
    for r in range(rows):
        for c in range(columns):
            part = mask[r * block:(r + 1) * block, c * block:(c + 1) * block]
            kinds[r, c] = 2 if part.all() else 1 if part.any() else 0
    return kinds
'''

def classify_cases(rng):
    yield Case(torch.ones(3, 3, dtype=torch.bool).tril(), 2, label="causal, n = 3, blocks of 2")
    yield Case(torch.ones(8, 8, dtype=torch.bool).tril(), 4, label="causal, n = 8, blocks of 4")
    i, j = torch.arange(10)[:, None], torch.arange(10)[None]
    yield Case((j <= i) & (i - j < 3), 4, label="a window of 3, n = 10, blocks of 4")
    yield Case(torch.rand(7, 12, generator=rng) > 0.5, 3, label="random, 7 x 12, blocks of 3")

exercise(id="5.3", title="From a mask to blocks", kind="write", points=3, minutes=10, difficulty=2, card="""
    Write `classify(mask, block)`: cut the mask into squares of `block` by `block` and say for each whether it is empty (0), partial (1)
    or full (2). An empty block need never be visited, and a full one needs no mask.

    - the last row and the last column of blocks may be smaller; a smaller block that is all `True` is full
    """, given={"torch": torch, "math": math},
    solution=CLASSIFY, cases=classify_cases, compare=exact(dtype="kind"), misconceptions=[
        Misconception("drops the smaller blocks at the end", code=CLASSIFY.replace("math.ceil(mask.shape[0] / block)", "mask.shape[0] // block").replace(
            "math.ceil(mask.shape[1] / block)", "mask.shape[1] // block"),
                      ask="With n = 3 and blocks of 2, which block holds query 2?"),
        Misconception("takes a smaller block for partial, because it is not block x block", code=CLASSIFY.replace(
            "2 if part.all()", "2 if part.sum() == block * block"),
                      ask="The last block of a 3 x 3 mask has one pair, and it is allowed. Is there anything in it to mask?"),
        Misconception("calls a block full when anything in it is allowed", change=("2 if part.all() else 1 if part.any() else 0", "2 if part.any() else 0"),
                      ask="In a block on the diagonal of a causal mask, may every query see every key?"),
        Misconception("exchanges partial and full", change=("2 if part.all() else 1", "1 if part.all() else 2"),
                      ask="Which number does the card give to a block that needs no mask?"),
        Misconception("looks at the diagonal of each block only", change=("part.any()", "part.diagonal().any()"),
                      ask="Can a block hold an allowed pair that is not on its own diagonal?")],
    hints=["A slice that runs over the end is simply shorter: `mask[r * block:(r + 1) * block]` needs no special case.",
           "`part.all()` is full, else `part.any()` is partial, else empty."])


exercise(id="5.4", title="How much of the work is useful?", kind="predict", points=1, minutes=5, difficulty=3, card=r"""
    A causal window of 64 keys in blocks of $64 \times 64$, far from the beginning of a long text. A block of queries visits every block
    of keys that holds an allowed pair. Which share of the pairs in the visited blocks is allowed? Type a number between 0 and 1.
    """, name="share", answer=0.5, tolerance=0.005, misconceptions=[
        Misconception("takes the diagonal block for all that is visited", value=1.0,
                      ask="Query 64 sees keys 1 to 64. In which blocks are they?"),
        Misconception("halves both blocks and then forgets that their halves add up", value=0.25,
                      ask="How many keys does each query see, and how many keys are in the blocks that its block of queries visits?"),
        Misconception("gives a percentage", value=50, ask="All pairs of a block are the share 1. What is half of them?"),
        Misconception("lets each query see the keys at its own place in both blocks", value=65 / 128,
                      ask="Query 0 of a block sees its own key and the last 63 of the block before. How many keys is that?"),
        Misconception("counts three visited blocks", value=1 / 3, ask="Can a window of 64 that ends in block 5 reach into block 3?")],
    hints=["The first query of a block sees almost only the block before its own, the last almost only its own.",
           "Each query sees 64 keys; its block of queries visits two blocks, 128 keys."])


def tensors(*values):
    for x in values:
        yield from [x] if isinstance(x, torch.Tensor) else tensors(*x) if isinstance(x, (list, tuple)) else ()

class NeverRead(torch.overrides.TorchFunctionMode):
    """Refuses to take the NaN out of tokens that hold it by any way but to choose others: who cleans them has read them."""
    CHOOSE = ("__getitem__", "index_select", "gather", "take", "take_along_dim", "embedding", "masked_select", "split", "chunk", "unbind")

    def __init__(self, *tokens):
        super().__init__()
        self.held = [x for x in tokens if self.nan(x)]        # kept alive, so that no other tensor takes their place

    def nan(self, x):
        return x.is_floating_point() and bool(x.isnan().any())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        places = {x.untyped_storage().data_ptr() for x in self.held}
        given = [x for x in tensors(args, list((kwargs or {}).values())) if x.untyped_storage().data_ptr() in places and self.nan(x)]
        made, name = func(*args, **(kwargs or {})), func.__name__
        if given and not (name in self.CHOOSE or name.startswith("new_") or name.endswith("_like")):
            fresh = [x for x in tensors(made) if x.numel() and x.untyped_storage().data_ptr() not in places]
            if not all(map(self.nan, [*given, *fresh])):
                raise ValueError("this reads tokens that are not to be read, and takes out the NaN that they hold")
        self.held += [x for x in tensors(made) if given and self.nan(x)]
        return made

def never_read(f, q, k, v, chosen):
    with NeverRead(k, v):
        return f(q, k, v, chosen)

def one_block_at_a_time(f, q, k, v, visits, block):
    """f(q, k, v, visits, block), refused exponentials of more scores than one block has, and blocks that are on no list."""
    take_exponentials = ("exp", "exp_", "exp2", "pow", "__pow__", "__rpow__", "softmax", "log_softmax", "softmin")

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if func.__name__ in take_exponentials and isinstance(made, torch.Tensor) and made.numel() > block**2:
                raise ValueError("this takes the exponentials of several blocks at once, and the exercise asks for one block at a time")
            return made

    with Watch(), NeverRead(k, v):
        return f(q, k, v, visits, block)

def block_cases(rng):
    def draw(n, d, visits, block, size=1.0, label=""):
        q, k, v = (torch.randn(n, d, generator=rng) for _ in "qkv")
        seen = {c for columns in visits for c in columns}
        for c in set(range(math.ceil(n / block))) - seen:
            k[c * block:(c + 1) * block] = v[c * block:(c + 1) * block] = math.nan
        return Case(size * q, k, v, visits, block, label=label)

    yield draw(4, 2, [[0], [0, 1]], 2, label="4 tokens in blocks of 2")
    yield draw(12, 5, [[0], [], [2, 0]], 4, label="12 tokens in blocks of 4, a list that is empty, a block that nobody visits")
    yield draw(10, 3, [[2], [1, 0], [0, 2]], 4, label="10 tokens in blocks of 4: the last block holds 2")
    yield draw(33, 8, [[0], [1, 0], [2, 1, 0], [3, 0], [4, 3, 1]], 8, 60.0, label="scores of some hundred")
    yield draw(24, 6, [list(range(r, -1, -1)) for r in range(6)], 4, label="24 tokens in blocks of 4, up to six blocks on a list")
    q, k, v = (randn(rng, 8, 4) for _ in "qkv")
    yield Case(-250 * q.abs(), k.abs(), v, [[0], [1, 0]], 4, label="scores of some hundred, all below 0")

exercise(id="5.5", title="Attention over a list of blocks", kind="write", points=4, minutes=14, difficulty=3, card=r"""
    Write attention in which each block of queries visits only the blocks of keys on its list, with the three steps above.

    - **one block at a time**: no array holds the exponentials of more than `block` x `block` scores, however long a list is
      (two walks over a list pass too; the three steps need one)
    - `visits[r]` is the list of block numbers that block `r` of queries visits; every pair of a visited block is allowed
    - keys of blocks that are on no list are never read: in some cases they hold NaN
    - the last block may be smaller; queries with an empty list get 0
    - scores are scaled by $1/\sqrt d$; they may be several hundred
    """, given={"torch": torch, "math": math}, solution='''
def attend_blocks(q, k, v, visits, block):
    """q, k, v (n, d), visits: a list of block numbers for each block of queries -> (n, d)"""
    out = torch.zeros_like(v)
    for r, columns in enumerate(visits):
        rows = slice(r * block, (r + 1) * block)
        m = torch.full((len(q[rows]), 1), -math.inf)
        s, o = torch.zeros_like(m), torch.zeros_like(v[rows])
        for c in columns:
            keys = slice(c * block, (c + 1) * block)
            scores = q[rows] @ k[keys].T / math.sqrt(q.shape[1])
            top = torch.maximum(m, scores.amax(-1, keepdim=True))
            p, shrink = torch.exp(scores - top), torch.exp(m - top)
            s = s * shrink + p.sum(-1, keepdim=True)
            o = o * shrink + p @ v[keys]
            m = top
        if columns:
            out[rows] = o / s
    return out
''',
    cases=block_cases, compare=close(atol=1e-4), call="\n".join(map(inspect.getsource, (tensors, NeverRead, one_block_at_a_time))), forbid=("scaled_dot_product_attention",),
    misconceptions=[
        Misconception("puts the blocks of a list together and takes one softmax over them", body='''
            out = torch.zeros_like(v)
            for r, columns in enumerate(visits):
                if columns:
                    rows = slice(r * block, (r + 1) * block)
                    keys = torch.cat([k[c * block:(c + 1) * block] for c in columns])
                    values = torch.cat([v[c * block:(c + 1) * block] for c in columns])
                    out[rows] = torch.softmax(q[rows] @ keys.T / math.sqrt(q.shape[1]), -1) @ values
            return out
            ''', ask="The result is right. How many scores do you hold at once when a list names 1,000 blocks?"),
        Misconception("takes exponentials of the scores as they are", change=("torch.maximum(m, scores.amax(-1, keepdim=True))", "torch.zeros_like(m)"),
                      ask="A score may be several hundred. What is exp(300) in float32?"),
        Misconception("begins with 0 as the largest score", change=("torch.full((len(q[rows]), 1), -math.inf)", "torch.zeros(len(q[rows]), 1)"),
                      ask="If all scores of a query are below -200, what are their exponentials beside a largest score of 0?"),
        Misconception("does not rescale the output when the maximum grows", change=("o = o * shrink +", "o = o +"),
                      ask="The first block was summed with its own maximum as reference. Which factor brings it to the new one?"),
        Misconception("does not rescale the sum when the maximum grows", change=("s = s * shrink +", "s = s +"),
                      ask="The output and the sum are divided by one another. Do both refer to the same maximum?"),
        Misconception("forgets the largest score of the blocks before", change=(
            "torch.maximum(m, scores.amax(-1, keepdim=True))", "scores.amax(-1, keepdim=True)"),
                      ask="If the first block's largest score was 300 and the second's is -300, what is exp(300 - (-300))?"),
        Misconception("does not keep the largest score so far for the next block", change=("            m = top\n", ""),
                      ask="At the third block: by which largest score are `s` and `o` measured, and from which does your `shrink` start?"),
        Misconception("takes the place in the list for the block", change=("for c in columns:", "for c in range(len(columns)):"),
                      ask="The list [2, 0] has two entries. Which blocks does it name?"),
        Misconception("walks over all blocks, and hides those that are on no list", change=[
            ("for c in columns:", "for c in range(len(visits)):"), ("p @ v[keys]", "p @ v[keys].nan_to_num()"),
            ("q[rows] @ k[keys].T / math.sqrt(q.shape[1])", "(q[rows] @ k[keys].T / math.sqrt(q.shape[1])).nan_to_num() - 1e30 * (c not in columns)")],
                      ask="The result is right. A list names 8 of 1,000 blocks: how many of them does your loop read?"),
        Misconception("does not divide by the sum", change=("o / s", "o"), ask="To what do the weights of a row add up?"),
        Misconception("divides by 0 where a list is empty", change=("        if columns:\n            out[rows] = o / s", "        out[rows] = o / s"),
                      ask="What is `s` for queries that visit nothing, and what should they get?"),
        Misconception("forgets the scale", change=(" / math.sqrt(q.shape[1])", ""),
                      ask="What is the variance of a product of two random vectors of width d?"),
        Misconception("adds up the softmax of each block", change=[
            ("p, shrink = torch.exp(scores - top), torch.exp(m - top)", "p, shrink = torch.softmax(scores, -1), torch.ones_like(m)"),
            ("s = s * shrink + p.sum(-1, keepdim=True)", "s = torch.ones_like(m)")],
                      ask="Each block's weights add up to 1. To what do those of two blocks add up?")],
    hints=["Carry `m`, `s` and `o` for the rows of one block of queries; they start at -inf, 0 and 0.",
           "`q[r * block:(r + 1) * block]` is right for the last block too: a slice ends where the tensor ends.",
           "`shrink = exp(m - top)` multiplies both `s` and `o`; at the first block it is exp(-inf) = 0."])


def average_cases(rng):
    def case(n, d, visits, label):
        start, column = [0], []
        for row in visits:
            column += row
            start.append(len(column))
        return Case(randn(rng, n, d), torch.tensor(start, dtype=torch.int32), torch.tensor(column, dtype=torch.int32), label=label)

    yield case(4, 1, [[0]], "4 values, one block")
    yield case(64, 8, [[0], [0, 1]], "64 values, two blocks, causal")
    yield case(100, 16, [[0], [1], [0, 2], [3, 0]], "100 values, four blocks, the last one smaller")
    yield case(96, 4, [[], [2, 0], [1]], "a block that visits nothing")

def averages(v, start, column):
    rows = []
    for r in range(len(start) - 1):
        seen = [v[32 * c:32 * c + 32] for c in column[start[r]:start[r + 1]].tolist()]
        rows.append(torch.cat(seen).mean(0) if seen else torch.zeros(v.shape[1]))
    return torch.stack(rows)

kernel_exercise(id="5.6", title="Walk the list", points=4, minutes=15, difficulty=3, name="average_blocks", card=r"""
    Attention with equal scores is a plain average. Write the walk: row `r` of `out` is the average of all values in the blocks that
    block `r` of queries visits, which are `column[start[r]]`, `column[start[r] + 1]`, ... up to, not including, `column[start[r + 1]]`.

    - `v` is `(n, d)` with `d` at most 32
    - a block is 32 values; block `b` begins at value `32 * b`, and the last one may hold fewer
    - a row that visits nothing gets 0
    - launch: one block of 32 threads per row `r`, one thread per column
    - budget: values of visited blocks once, and nothing of the others; read each `column[entry]` once
    """, stub='''
__global__ void average_blocks(const float* __restrict__ v, const int* __restrict__ start,
                               const int* __restrict__ column, float* __restrict__ out, int n, int d) {
    int row = blockIdx.x, c = threadIdx.x;         // a block of queries; one column of the values per thread
    if (c >= d) return;
    // your code
}
''', solution='''
    __global__ void average_blocks(const float* __restrict__ v, const int* __restrict__ start,
                                   const int* __restrict__ column, float* __restrict__ out, int n, int d) {
        int row = blockIdx.x, c = threadIdx.x;         // a block of queries; one column of the values per thread
        if (c >= d) return;
        float sum = 0.0f;
        int seen = 0;
        for (int entry = start[row]; entry < start[row + 1]; ++entry) {
            int first = column[entry] * 32, last = min(first + 32, n);
            for (int j = first; j < last; ++j) sum += v[j * d + c];
            seen += last - first;
        }
        out[row * d + c] = seen > 0 ? sum / seen : 0.0f;
    }
    ''', cases=average_cases, compare=close(atol=1e-5), expect=averages,
    launch=lambda v, start, column: Launch(grid=len(start) - 1, block=32,
                                           args=[v, start, column, out((len(start) - 1, v.shape[1])), len(v), v.shape[1]]),
    # at least one sector per row of values; start and column cost a sector each time they are read
    traffic=lambda v, start, column: (len(column) * 32 * max(32, 4 * v.shape[1]) + 32 * (4 * len(column) + 4 * len(start))
                                      + max(32, 4 * v.shape[1]) * (len(start) - 1)), misconceptions=[
        Misconception("takes the place in the list for the block", change=("column[entry] * 32", "entry * 32"),
                      ask="The second row's first entry is number start[1] of the list. Which block is that?"),
        Misconception("runs over the end of the last block", change=("min(first + 32, n)", "first + 32"),
                      ask="With 100 values, which values are in block 3?"),
        Misconception("averages the averages of the blocks", change=[
            ("        int first", "        float part = 0.0f;\n        int first"), ("sum += v[j * d + c];", "part += v[j * d + c];"),
            ("seen += last - first;", "sum += part / (last - first);\n        seen += 1;")],
                      ask="A block of 4 values and one of 32: which share has each value in your average?"),
        Misconception("reads the list again for every value of a block", change=[
            ("int first = column[entry] * 32, last = min(first + 32, n);", ""),
            ("for (int j = first; j < last; ++j) sum += v[j * d + c];",
             "for (int j = column[entry] * 32; j < min(column[entry] * 32 + 32, n); ++j) { sum += v[j * d + c]; ++seen; }"),
            ("        seen += last - first;\n", "")],
                      ask="How often does your inner loop read `column[entry]`? Keep it in a variable."),
        Misconception("divides by 32 for every block", change=("seen += last - first", "seen += 32"),
                      ask="How many values does the last block hold when there are 100?"),
        Misconception("divides by 0 where a row visits nothing", change=("seen > 0 ? sum / seen : 0.0f", "sum / seen"),
                      ask="How many values has a row seen whose list is empty?"),
        Misconception("leaves a row that visits nothing unwritten", change=("out[row * d + c] = seen > 0 ? sum / seen : 0.0f", "if (seen > 0) out[row * d + c] = sum / seen"),
                      ask="The array `out` is not cleared before the launch. What does it hold where no thread has written?"),
        Misconception("divides by all values, the unvisited ones too", change=("sum / seen", "sum / n"),
                      ask="The average is over the values of the visited blocks. How many are these?"),
        Misconception("visits one entry too many", change=("entry < start[row + 1]", "entry <= start[row + 1]"),
                      ask="To which row does entry start[row + 1] belong?"),
        Misconception("starts every row at the head of the list", change=("int entry = start[row]", "int entry = 0"),
                      ask="Where in the list do row 1's blocks begin?")],
    hints=["`for (int entry = start[row]; entry < start[row + 1]; ++entry)` visits the row's entries.",
           "Block `column[entry]` holds values `32 * column[entry]` to `min(that + 32, n) - 1`.",
           "Count the values as you add them, and divide once, at the end."])


MARK = '''
__global__ void mark_visits(int* __restrict__ visits, int n_blocks, int window_blocks, int sink_blocks) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;              // a block of queries
    if (row >= n_blocks) return;
    int oldest = max(0, row - window_blocks + 1);
    for (int c = 0; c < min(sink_blocks, oldest); ++c) visits[row * n_blocks + c] += 1;
    for (int c = oldest; c <= row; ++c) visits[row * n_blocks + c] += 1;
}
'''

kernel_exercise(id="5.7", title="Counted twice", points=3, minutes=9, difficulty=3, name="mark_visits", kind="repair", card="""
    A kernel with a window and sinks first has to decide which blocks of keys to visit. In this one `visits[row][c]` counts how often the
    queries of block `row` visit the keys of block `c`: the first `sink_blocks` blocks, and the last `window_blocks` up to their own. Two things
    are wrong. The sanitizer finds one. A count finds the other: **no block may be visited twice, and none in the future** (no `c` above `row`).
    """, stub=MARK.replace("c < min(sink_blocks, oldest)", "c < sink_blocks").replace("    if (row >= n_blocks) return;\n", ""),
    solution=MARK, compare=exact(),
    # The last counts begin at 7: to write a 1 is not to add one.
    cases=lambda rng: (Case(torch.full((n, n), count, dtype=torch.int32), w, s,
                            label=f"{n} blocks, a window of {w}, {s} sink blocks" + f", counts that begin at {count}" * (count > 0))
                       for n, w, s, count in ((3, 1, 1, 0), (6, 2, 1, 0), (40, 3, 2, 0), (5, 9, 2, 7),
                                          (whole(rng, 8, 20), whole(rng, 2, 5), whole(rng, 1, 3), whole(rng, 1, 99)))),
    launch=lambda visits, w, s: Launch(grid=math.ceil(len(visits) / 32), block=32, args=[inout(visits), len(visits), w, s]),
    expect=lambda visits, w, s: visits + _visits(len(visits), w, s), misconceptions=[
        Misconception("guards the rows and leaves the double visit", change=("c < min(sink_blocks, oldest)", "c < sink_blocks"),
                      ask="Block 0 is a sink. Is it also in the window of row 0?"),
        Misconception("never visits a sink in the future, but still visits some twice", change=("min(sink_blocks, oldest)", "min(sink_blocks, row)"),
                      ask="Row 1 has a window of two blocks and one sink block. How often does it visit block 0?"),
        Misconception("writes a 1 and counts nothing", change=[("visits[row * n_blocks + c] += 1", "visits[row * n_blocks + c] = 1"),
                                                               ("min(sink_blocks, oldest)", "min(sink_blocks, row)")],
                      ask="If a block were visited twice, what would your `visits` hold?"),
        Misconception("keeps the sinks out of the future, but not out of the window", change=("min(sink_blocks, oldest)", "min(sink_blocks, row + 1)"),
                      ask="Block 0 is a sink and in the window of row 0. How often does row 0 visit it?"),
        Misconception("drops the sinks where they meet the window", change=(
            "for (int c = 0; c < min(sink_blocks, oldest); ++c)", "if (sink_blocks <= oldest) for (int c = 0; c < sink_blocks; ++c)"),
                      ask="Two sink blocks, and a window that begins at block 1. Who visits block 0?")],
    hints=["There are more threads than rows. What do the others write to?",
           "The sinks before the oldest block of the window are the only ones that the second loop does not visit."])


def _visits(n, w, s):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return ((j <= i) & ((i - j < w) | (j < s))).int()


def topk_cases(rng):
    for n, m, top, shift in ((1, 3, 2, 0), (4, 7, 3, 0), (3, 5, 5, 2), (6, 33, 1, 5)):
        yield Case(torch.randn(n, m, generator=rng) - shift, top, label=f"{n} x {m}, top {top}")
    scores = torch.randperm(12, generator=rng).reshape(2, 6) - 12_000.0
    yield Case(scores, 3, label="2 x 6, top 3, all scores below -10,000")

exercise(id="5.9", title="Only the best", kind="write", points=2, minutes=8, difficulty=2, card="""
    Write `topk_weights(scores, top)`: each row keeps its `top` largest scores and shares the weight 1 among them by softmax; all others
    get 0. `top` is at most the number of columns; scores have any size, and no two of a row are equal.
    """, given={"torch": torch, "math": math}, solution='''
    def topk_weights(scores, top):
        """(n, m) -> (n, m): softmax over the `top` largest scores of each row, 0 elsewhere"""
        kept = scores.topk(top, -1).indices
        chosen = torch.full_like(scores, -math.inf).scatter(-1, kept, scores.gather(-1, kept))
        return torch.softmax(chosen, -1)
    ''', compare=close(atol=1e-6), cases=topk_cases,
    properties=[("each row sums to 1", lambda got, case: bool((got.sum(-1) - 1).abs().max() < 1e-4))], misconceptions=[
        Misconception("forgets to share the weight out again", body='''
            weights = torch.softmax(scores, -1)
            kept = weights.topk(top, -1).indices
            return torch.zeros_like(weights).scatter(-1, kept, weights.gather(-1, kept))
            ''', ask="What do the kept weights of a row add up to?"),
        Misconception("returns the kept weights without their places", body="return torch.softmax(scores.topk(top, -1).values, -1)",
                      ask="The result has one column per key. In which column is the weight of the best key of row 0?"),
        Misconception("puts 0 where -inf belongs", change=("-math.inf", "0.0"), ask="A score of 0 is not weight 0. What is exp(0)?"),
        Misconception("hides scores behind a number such as -10,000, where -inf is needed", change=("-math.inf", "-1e4"),
                      ask="Which key gets the weight if every score that is kept is below -10,000?"),
        Misconception("hides the smallest of the kept scores as well", body='''
            least = scores.topk(top, -1).values[:, -1:]
            return torch.softmax(scores.masked_fill(scores <= least, -math.inf), -1)
            ''', ask="With top = 1, which scores are left after your filling?"),
        Misconception("keeps the largest of each column", change=[("topk(top, -1)", "topk(min(top, len(scores)), 0)"), ("scatter(-1", "scatter(0"),
                                                                  ("gather(-1", "gather(0")],
                      ask="Who chooses: each query among its keys, or each key among its queries?"),
        Misconception("keeps the smallest", change=("topk(top, -1)", "topk(top, -1, largest=False)"), ask="Which scores mark the keys that fit?")],
    hints=["`scores.topk(top, -1).indices` are the places to keep.", "Fill a tensor with -inf, put the kept scores back, then softmax."])


exercise(id="5.10", title="Packed sequences", kind="write", points=2, minutes=8, difficulty=3, card="""
    Several documents are packed into one row of tokens, to waste none on padding. Write `same_document(starts, n)`, where `starts` holds the
    first token of each document: query `i` may see key `j` if both are in the same document and `j` is not later.
    """, given={"torch": torch}, solution='''
    def same_document(starts, n):
        """starts: first token of each document, ascending, starts[0] = 0 -> (n, n) boolean, causal, within documents"""
        document = torch.searchsorted(starts, torch.arange(n), right=True)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        return (document[:, None] == document[None]) & (j <= i)
    ''', compare=exact(), cases=lambda rng: (Case(torch.tensor(s), n, label=f"{n} tokens, documents from {s}")
                       for s, n in (([0, 2], 4), ([0], 3), ([0, 1, 5], 9), ([0, 3, 4, 7], 12),
                                    (sorted({0, whole(rng, 1, 9), whole(rng, 10, 24)}), whole(rng, 25, 40)))), misconceptions=[
        Misconception("counts a document's first token to the one before", change=("right=True", "right=False"),
                      ask="Does token starts[1] belong to document 0 or to document 1?"),
        Misconception("lets a document see all earlier ones", change=("document[:, None] == document[None]", "document[:, None] >= document[None]"),
                      ask="Should the second document know what the first one said?"),
        Misconception("forgets the last document, which no later start ends", body='''
            mask = torch.zeros(n, n, dtype=torch.bool)
            for first, end in zip(starts[:-1], starts[1:]):
                mask[first:end, first:end] = True
            return mask.tril()
            ''', ask="Where does the last document end?"),
        Misconception("forgets that it must be causal", change=(" & (j <= i)", ""), ask="May a token see a later one of its own document?")],
    hints=["Number the documents: token t belongs to the last document whose start is at most t.",
           "`torch.searchsorted(starts, tokens, right=True)` counts the starts that are at most t."])


def chosen_cases(rng):
    def tokens(n, m, top, first=0):
        return torch.stack([first + torch.randperm(m - first, generator=rng)[:top] for _ in range(n)])

    def case(n, m, d, top, label, first=0):
        k, v, chosen = randn(rng, m, d), randn(rng, m, 3), tokens(n, m, top, first)
        never = torch.tensor([j not in chosen for j in range(m)])
        k[never], v[never] = math.nan, math.nan
        return Case(3 * randn(rng, n, d), k, v, chosen, label=label)

    yield Case(randn(rng, 1, 4), randn(rng, 3, 4), randn(rng, 3, 3), torch.tensor([[2, 0]]), label="2 of 3 tokens")
    few = tokens(3, 6, 4)
    few[0], few[1, 3:] = torch.tensor([0, -1, -1, -1]), -1
    yield Case(randn(rng, 3, 4), randn(rng, 6, 4), randn(rng, 6, 3), few, label="1, 3 and 4 of 6 tokens")
    none = tokens(2, 5, 2)
    none[0], none[1] = torch.tensor([3, 0]), -1
    k, v = randn(rng, 5, 4), randn(rng, 5, 3)
    k[1], v[1] = math.nan, math.nan
    yield Case(randn(rng, 2, 4), k.clone(), v.clone(), none, label="a query without a token")
    k[4], v[4] = math.nan, math.nan
    yield Case(randn(rng, 2, 4), k, v, torch.tensor([[0, 3, 2], [2, -1, 0]]), label="tokens 1 and 4 are chosen by nobody and hold NaN")
    yield case(4, 20, 8, 3, "4 queries, 3 of 20 tokens, the others hold NaN")
    yield case(7, 33, 16, 2, "7 queries, 2 of 33 tokens, the others hold NaN", first=1)

exercise(id="5.11", title="Only the chosen tokens", kind="write", points=3, minutes=10, difficulty=3, card=r"""
    An indexer has chosen tokens for every query. Write attention over these tokens alone, for one head: `chosen[i]` holds the numbers of the
    tokens that query `i` attends to, in any order.

    - the softmax of a query is over its own chosen tokens; scores are scaled by $1/\sqrt d$
    - where a query has fewer tokens than `top`, the rest of its row is `-1` and counts for nothing; a query without any token gets 0
    - tokens that no query has chosen are never read: they hold NaN in some cases. (Where there is a `-1`, some query has chosen token 0.)
    """, given={"torch": torch, "math": math}, solution='''
    def attend_chosen(q, k, v, chosen):
        """q (n, d), k (m, d), v (m, d_v), chosen (n, top): token numbers, or -1 -> (n, d_v)"""
        at = chosen.clamp(min=0)
        scores = (k[at] @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(chosen < 0, -math.inf)
        weights = torch.softmax(scores, -1).masked_fill(chosen < 0, 0)
        return (weights[:, None] @ v[at])[:, 0]
    ''', compare=close(atol=1e-5), cases=chosen_cases,
    call="\n".join(map(inspect.getsource, (tensors, NeverRead, never_read))), misconceptions=[
        Misconception("takes -1 for the last token, as Python does", change=[("chosen.clamp(min=0)", "chosen"),
                      (".masked_fill(chosen < 0, -math.inf)", ""), (".masked_fill(chosen < 0, 0)", "")],
                      ask="Which row is `k[-1]`?"),
        Misconception("reads the last token for -1 and hides it afterwards", change=("chosen.clamp(min=0)", "chosen"),
                      ask="`v[-1]` is the last token, which nobody may have chosen. What is its weight times its value, if that is NaN?"),
        Misconception("takes -1 for token 0", change=[(".masked_fill(chosen < 0, -math.inf)", ""), (".masked_fill(chosen < 0, 0)", "")],
                      ask="A place with -1 must be replaced by some number to index with. What keeps that token out of the softmax?"),
        Misconception("gives NaN to a query that has no token", change=(".masked_fill(chosen < 0, 0)", ""),
                      ask="What is the softmax of a row of -inf?"),
        Misconception("reads all tokens and hides those that are not chosen", body='''
            mask = torch.zeros(len(q), len(k) + 1, dtype=torch.bool)
            mask = mask.scatter(1, torch.where(chosen < 0, len(k), chosen), True)[:, :len(k)]
            scores = (q @ k.nan_to_num().T / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
            return torch.softmax(scores, -1).masked_fill(~mask, 0) @ v.nan_to_num()
            ''', ask="A query has chosen 8 of 100,000 tokens. How many keys does it read in your function?"),
        Misconception("takes token 0 for no token", change=[(".masked_fill(chosen < 0, -math.inf)", ".masked_fill(chosen <= 0, -math.inf)"),
                      (".masked_fill(chosen < 0, 0)", ".masked_fill(chosen <= 0, 0)")],
                      ask="Tokens are counted from 0. Which numbers mean that there is none?"),
        Misconception("leaves out the softmax", body='''
            at = chosen.clamp(min=0)
            scores = (k[at] @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[-1])
            return (scores.masked_fill(chosen < 0, 0)[:, None] @ v[at])[:, 0]
            ''', ask="A score may be negative. What do the weights of a query add up to?"),
        Misconception("takes the softmax over all tokens before it picks the chosen ones", body='''
            weights = torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1)
            at = chosen.clamp(min=0)
            weights = weights.gather(1, at).masked_fill(chosen < 0, 0)
            return (weights[:, None] @ v[at])[:, 0]
            ''', ask="What do the weights of a query add up to?"),
        Misconception("forgets the root of d", change=(" / math.sqrt(q.shape[-1])", ""), ask="By what are scores divided before the softmax?")],
    hints=["`k[chosen]` has shape (n, top, d): a matrix of its own keys for every query. `-1` must be replaced before.",
           "`k[at] @ q[:, :, None]` has shape (n, top, 1): every chosen key times its query.",
           "Hide the places with -1 before the softmax, and set their weights to 0 after it, as in exercise 1.5."])


exercise(id="5.12", title="Entries in the place of tokens", kind="write", points=3, minutes=10, difficulty=3, card=r"""
    Compress a text as a layer of DeepSeek-V4 does: every `ratio` neighbouring tokens become one entry, a weighted mean of their values.
    Return the entries, and which of them each query may see.

    - the weights are a softmax over the `ratio` tokens of an entry, **for every channel by itself**
    - tokens at the end that do not fill an entry have none yet
    - a query sees an entry once its last token is at the query's own place or before it
    """, given={"torch": torch}, solution='''
    def compress(values, gates, ratio):
        """values, gates (n, d) -> entries (n // ratio, d), seen (n, n // ratio) boolean"""
        n, d = values.shape
        m = n // ratio
        weights = gates[:m * ratio].reshape(m, ratio, d).softmax(1)
        entries = (weights * values[:m * ratio].reshape(m, ratio, d)).sum(1)
        last = ratio * torch.arange(1, m + 1) - 1
        return entries, last <= torch.arange(n)[:, None]
    ''', cases=lambda rng: [
        Case(torch.tensor([[2.0], [4.0], [6.0], [8.0]]), torch.zeros(4, 1), 2, label="equal gates: means of two tokens"),
        Case(randn(rng, 12, 3), randn(rng, 12, 3), 4, label="12 tokens, entries of 4"),
        Case(randn(rng, 11, 2), 200 * randn(rng, 11, 2), 3, label="11 tokens, entries of 3: two are left over; large gates"),
        Case(randn(rng, 3, 2), randn(rng, 3, 2), 4, label="too few tokens for an entry")],
    compare=close(atol=1e-5), misconceptions=[
        Misconception("shows an entry from its first token on", change=("ratio * torch.arange(1, m + 1) - 1", "ratio * torch.arange(m)"),
                      ask="The second token of an entry looks at it. Which later tokens are already mixed into it?"),
        Misconception("shows an entry one token too late", change=("last <= torch", "last < torch"),
                      ask="Under the causal rule a query sees its own token. May it see an entry that ends there?"),
        Misconception("weighs all channels of a token alike", change=(".softmax(1)", ".mean(-1, keepdim=True).softmax(1)"),
                      ask="Gates have one number per channel. May two channels of an entry prefer different tokens?"),
        Misconception("takes the softmax over the channels", change=(".softmax(1)", ".softmax(2)"),
                      ask="What do the weights of the tokens of one entry add up to, in one channel?"),
        Misconception("takes the plain mean and ignores the gates", change=("gates[:m * ratio].reshape", "(0 * gates[:m * ratio]).reshape"),
                      ask="What does your function do with its argument `gates`?"),
        Misconception("puts tokens together that are not neighbours", body='''
            n, d = values.shape
            m = n // ratio
            weights = gates[:m * ratio].reshape(ratio, m, d).softmax(0)
            entries = (weights * values[:m * ratio].reshape(ratio, m, d)).sum(0)
            return entries, ratio * torch.arange(1, m + 1) - 1 <= torch.arange(n)[:, None]
            ''', ask="In `reshape(ratio, m, d)` the tokens run along the second axis first. Which tokens are in entry 0?"),
        Misconception("takes the exponentials of the gates as they are", change=[(".softmax(1)", ".exp()"), (".sum(1)", ".sum(1) / weights.sum(1)")],
                      ask="A gate may be several hundred. What is exp(300) in float32?"),
        Misconception("sums where it should average", change=(".softmax(1)", ".exp()"),
                      ask="With equal gates an entry is the mean of its tokens. What is yours?")],
    hints=["`gates[:m * ratio].reshape(m, ratio, d)` has the tokens of an entry in its second dimension.",
           "Entry e ends with token `ratio * (e + 1) - 1`."])
