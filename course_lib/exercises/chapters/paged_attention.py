"""The exercises of chapter 8."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, kernel_exercise, out, randn


def randint(rng, low, high):
    return int(torch.randint(low, high, (), generator=rng))


def _page_cases(rng):
    for n_blocks, size, d, table, length in [
            (3, 2, 1, [2, 0], 3), (6, 4, 3, [5, 1, 4], 12), (6, 4, 3, [3, 0, 2, -1], 9), (8, 1, 2, [7, 3, 5, 0], 4),
            (9, 16, 8, [8, 2, 0, 6, 4], 65), (4, 3, 2, [1, -1], 1), (6, 4, 3, [3, 5, 999], 7),
            (6, 4, 3, [2, 0, 999], 8)]:
        pool = torch.full((n_blocks, size, d), math.nan)
        for i in range(length):
            pool[table[i // size], i % size] = randn(rng, d)
        yield Case(pool, table, length, label=f"{length} positions in pages of {size}, table {table}")

exercise(id="8.2", title="From position to slot", kind="write", points=2, minutes=6, difficulty=2, card="""
    Write `read_pages`: the keys of one sequence, in the order of their positions, out of a pool of pages.

    - `pool` is `(n_blocks, block_size, d)`; `table` is a list: the sequence's i-th page is number `table[i]`
    - position `p` is in the table's entry `p // block_size`, at offset `p % block_size`
    - return `(length, d)`; slots behind the end hold anything, and so do entries of the table behind the last page:
      such an entry need not be the number of a page
    """, given={"torch": torch}, solution='''
    def read_pages(pool, table, length):
        """(n_blocks, block_size, d), a list of page numbers, an integer -> (length, d)"""
        positions = torch.arange(length)
        blocks = torch.tensor(table)[positions // pool.shape[1]]
        return pool[blocks, positions % pool.shape[1]]
    ''', cases=_page_cases, compare=close(atol=0), misconceptions=[
        Misconception("reads the pool from its beginning, as if the sequence were in one piece", body="return pool.flatten(0, 1)[:length]",
                      ask="Whose tokens are in page 0 of the pool?"),
        Misconception("reads the pages in the order of their numbers", body='''
            n = -(-length // pool.shape[1])
            return pool[sorted(table[:n])].flatten(0, 1)[:length]
            ''', ask="With the table [2, 0], in which page are the first tokens?"),
        Misconception("looks up entries of the table behind the last page", body="return pool[torch.tensor(table)].flatten(0, 1)[:length]",
                      ask="How many entries of the table does a sequence of `length` tokens use? What may the next one hold?"),
        Misconception("looks up one entry too many when the last page is just full",
                      body="return pool[torch.tensor(table[:length // pool.shape[1] + 1])].flatten(0, 1)[:length]",
                      ask="8 positions in pages of 4: how many pages is that?"),
        Misconception("takes the offset for the table's entry, and the entry for the offset", body='''
            positions = torch.arange(length)
            blocks = torch.tensor(table)[(positions % pool.shape[1]).clamp(max=len(table) - 1)]
            return pool[blocks, (positions // pool.shape[1]).clamp(max=pool.shape[1] - 1)]
            ''', ask="Positions 0 to 3 are in the first page of 4. Which of `//` and `%` gives all four the same entry?"),
        Misconception("returns the empty slots of the last page, too", body="return pool[table[:-(-length // pool.shape[1])]].flatten(0, 1)",
                      ask="Which of the last page's slots belong to this sequence?"),
        Misconception("drops a last page that is not full", body="return pool[table[:length // pool.shape[1]]].flatten(0, 1)",
                      ask="3 positions in pages of 2: how many pages do they fill or begin?")],
    hints=["`torch.arange(length)` are the positions. Which page, and which offset, has each of them?",
           "`pool[blocks, offsets]` with two tensors of `length` numbers gives `length` rows."])


def chain(parent, tokens):
    """A number for these tokens after the prefix that `parent` stands for. After nothing, parent is 0."""
    return hash((parent, tuple(tokens)))

def _prefix_cases(rng):
    def cache(size, *prompts):
        """{chained hash: block} of the whole blocks of prompts; blocks numbered as they come."""
        cached = {}
        for tokens in prompts:
            parent = 0
            for i in range(len(tokens) // size):
                parent = chain(parent, tokens[i * size:(i + 1) * size])
                cached.setdefault(parent, len(cached))
        return cached

    yield Case([1, 2, 3, 4, 5], cache(2, [1, 2, 3, 4]), 2, label="two pages known, one token more")
    yield Case([1, 2, 3, 4], cache(2, [1, 2, 3, 4]), 2, label="the whole prompt is known")
    yield Case([1, 2, 3, 4, 5], cache(2, [9, 9, 3, 4], [1, 2]), 2, label="a page known after another beginning")
    evicted = cache(2, [1, 2, 3, 4, 5, 6])
    del evicted[chain(chain(0, [1, 2]), [3, 4])]
    yield Case([1, 2, 3, 4, 5, 6, 7], evicted, 2, label="the second of three pages was evicted")
    yield Case([1, 2, 1, 2, 1, 2, 7], cache(2, [5, 6], [1, 2, 1, 2, 1, 2]), 2, label="the same page three times")
    yield Case([4, 5], {}, 4, label="nothing is known")
    base = torch.randint(0, 50, (40,), generator=rng).tolist()
    yield Case(base[:21] + [60, 61, 62], cache(4, [7] * 9, base), 4, label="24 tokens, of which 21 are an old prompt's")
    yield Case(base[:33], cache(16, base[:16], base), 16, label="33 tokens in pages of 16")

KNOWN = '''
def known_blocks(tokens, cached, block_size):
    """tokens, {chained hash: page}, block_size -> list of pages"""
    blocks, parent = [], 0
    for i in range((len(tokens) - 1) // block_size):
        parent = chain(parent, tokens[i * block_size:(i + 1) * block_size])
        if parent not in cached:
            break
        blocks.append(cached[parent])
    return blocks
'''

exercise(id="8.3", title="What is there already", kind="write", points=2, minutes=8, difficulty=3, card="""
    Write `known_blocks`: the pages at the beginning of a prompt that need not be computed.

    - `cached` maps the chained hash of a page to its number; `chain(parent, tokens)` makes that hash: `parent` is 0
      for the first page, and for every other one the hash of the page before
    - only whole pages are in `cached`; stop at the first that is not. A page may have the number 0
    - the page of the **last** token is never taken, even if it is in `cached`: the next token is chosen from the last
      token's output, so that has to be computed
    - an equal hash is taken for an equal page here, as in vLLM; the course's allocator compares the tokens as well
    """, given={"chain": chain}, solution=KNOWN, cases=_prefix_cases, compare=exact(), misconceptions=[
        Misconception("looks up each page by its own tokens", change=("chain(parent, tokens[i", "chain(0, tokens[i"),
                      ask="Are the keys of `3 4` the same after `1 2` and after `9 9`, in the second layer?"),
        Misconception("takes the page of the last token, too",
                      change=("(len(tokens) - 1) // block_size", "len(tokens) // block_size"),
                      ask="If nothing is computed, from which output is the first new token chosen?"),
        Misconception("takes page 0 for no page", change=("if parent not in cached:", "if not cached.get(parent):"),
                      ask="Is the number 0 true or false in Python?"),
        Misconception("makes a later page's hash of something else than the hash before and its own tokens", code=KNOWN.replace(
            "parent = chain(parent, tokens[i * block_size:(i + 1) * block_size])",
            "parent = chain(0, tokens[:(i + 1) * block_size])"),
                      ask="A hash in `cached` was made of two things: the hash before, and the tokens of one page. Of which is yours made?"),
        Misconception("always leaves out the last whole page",
                      change=("(len(tokens) - 1) // block_size", "len(tokens) // block_size - 1"),
                      ask="5 tokens in pages of 2: in which page is the last token, and how many whole pages precede it?"),
        Misconception("goes on after a page that is missing", change=("break", "continue"),
                      ask="The table needs its pages in order. Which page would fill the gap?"),
        Misconception("chains with the tokens of the page before only", code=KNOWN.replace(
            "parent = chain(parent, tokens[i * block_size:(i + 1) * block_size])",
            "parent = chain(chain(0, tokens[(i - 1) * block_size:i * block_size]) if i else 0, "
            "tokens[i * block_size:(i + 1) * block_size])"),
                      ask="Does the hash of the third page know anything about the first?")],
    hints=["Walk over the whole pages from the front and carry the hash along.",
           "How many whole pages precede the last token? 4 tokens in pages of 2: one; 5 tokens: two."])


def _plan_cases(rng):
    yield Case([1, 1], [6], 5, 4, label="two that generate, a prompt that does not fit whole")
    yield Case([1, 1, 1], [4, 9], 6, 4, label="three that generate, one place")
    yield Case([1, 20], [3], 8, 8, label="a prompt half read")
    yield Case([], [3, 2, 50, 7], 10, 8, label="none runs yet")
    yield Case([1, 1, 1, 1], [2], 3, 8, label="a budget below the number that run")
    yield Case([1, 1], [5], 16, 2, label="no place")
    yield Case([1, 1, 1], [5], 16, 2, label="more run than now may")
    yield Case([1], [], 4, 2, label="none waits")
    yield Case([1, 4], [2, 2, 2], 5, 9, label="a budget that is just enough for those that run")
    running = [1] * randint(rng, 2, 6) + [randint(rng, 2, 9)]
    yield Case(running, [randint(rng, 1, 30) for _ in range(6)], 40, 10, label=f"{len(running)} run, six wait")

def _plan_call(f, running, waiting, token_budget, max_running):
    """f on copies: a plan may use up its lists."""
    return f(list(running), list(waiting), token_budget, max_running)

PLAN = '''
def plan(running, waiting, token_budget, max_running):
    """-> [tokens for each that runs] + [tokens for each that starts]"""
    tokens = []
    for needs in running:
        n = min(needs, token_budget)
        tokens.append(n)
        token_budget -= n
    for needs in waiting:
        if token_budget == 0 or len(tokens) >= max_running:
            break
        n = min(needs, token_budget)
        tokens.append(n)
        token_budget -= n
    return tokens
'''

exercise(id="8.4", title="Plan a step", kind="write", points=2, minutes=8, difficulty=2, card="""
    Write `plan`: how many tokens each sequence computes in the next step. Memory is no limit here.

    - `running` lists what is still to compute, oldest first: 1 for a sequence that generates, more for a prompt that is
      half read
    - those that run come first; each gets what it needs, as far as the budget reaches (perhaps 0)
    - then those in `waiting` (lengths of prompts) start, in order, while there is budget and fewer than `max_running`
      run
    - a prompt may get a part of what it needs: the rest follows in later steps
    - the lists are copies: you may change them (`waiting.pop(0)`)
    """, solution=PLAN, cases=_plan_cases, call=_plan_call, compare=exact(), misconceptions=[
        Misconception("starts a prompt only when all of it fits", change=(
            "or len(tokens) >= max_running:", "or len(tokens) >= max_running or needs > token_budget:"),
                      ask="When would a prompt start that is longer than the budget of any step?"),
        Misconception("lets a prompt have more than the budget", code=PLAN.replace(
            "            break\n        n = min(needs, token_budget)\n        tokens.append(n)\n"
            "        token_budget -= n",
            "            break\n        tokens.append(needs)\n        token_budget = max(0, token_budget - needs)"),
                      ask="How long do the others wait for their next token while 2,000 are read in one step?"),
        Misconception("starts more than there are places", change=("token_budget == 0 or len(tokens) >= max_running",
                                                                   "token_budget == 0"),
                      ask="What limits how many run at the same time?"),
        Misconception("starts another when more run than may", change=("len(tokens) >=", "len(tokens) =="),
                      ask="Three run, and 2 may from now on. How many more should start?"),
        Misconception("leaves out running sequences that get no token", code=PLAN.replace(
            "        tokens.append(n)\n        token_budget -= n\n    for needs in waiting",
            "        if n:\n            tokens.append(n)\n        token_budget -= n\n    for needs in waiting"),
                      ask="How many numbers must the list have for four running sequences, whatever the budget?"),
        Misconception("gives tokens to those that run without taking them off the budget",
                      change=("        token_budget -= n\n    for needs in waiting", "    for needs in waiting"),
                      ask="Two of five tokens are given away. How many are left for the prompts?"),
        Misconception("gives every running sequence one token, also a prompt that is half read", code=PLAN.replace(
            "n = min(needs, token_budget)", "n = min(1, token_budget)", 1),
                      ask="20 tokens of a prompt are still to be read. How many can this step read?"),
        Misconception("starts a sequence with no token", change=("token_budget == 0 or len(tokens) >= max_running",
                                                               "len(tokens) >= max_running"),
                      ask="What does a sequence do in a step in which it computes nothing?"),
        Misconception("gives to those that wait before those that run", body='''
            new = []
            for needs in waiting:
                if token_budget == 0 or len(running) + len(new) >= max_running:
                    break
                new.append(min(needs, token_budget))
                token_budget -= new[-1]
            old = []
            for needs in running:
                old.append(min(needs, token_budget))
                token_budget -= old[-1]
            return old + new
            ''', ask="A user reads a text as it is generated. What do they see while new prompts keep coming?")],
    hints=["Two loops, one after the other, that spend the same budget.",
           "`min(needs, token_budget)`, and take it off."])


SCORES = '''
// Block 64. q (d), d <= 128; keys (n_blocks, block_size, d); table: the sequence's pages; scores (length).
__global__ void paged_scores(const float* __restrict__ q, const float* __restrict__ keys, const int* __restrict__ table,
                             float* __restrict__ scores, int length, int d, int block_size, float scale)
{
    const int lane = threadIdx.x % 32;
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, n_warps = gridDim.x * blockDim.x / 32;
    float query[4];                                     // this lane's columns of q: lane, lane + 32, ...
    for (int i = 0; i < 4; i++) query[i] = lane + 32 * i < d ? q[lane + 32 * i] : 0.0f;

    for (int j = warp; j < length; j += n_warps) {
        const float* key = keys + ((size_t)table[j / block_size] * block_size + j % block_size) * d;
        float sum = 0.0f;
        for (int i = 0; i < 4; i++)
            if (lane + 32 * i < d) sum += query[i] * key[lane + 32 * i];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
        if (lane == 0) scores[j] = scale * sum;
    }
}
'''
_LOOP = SCORES[SCORES.index("    for (int j = warp;"):SCORES.rindex("}")]

def _pool(rng, length, d, size):
    """Blocks of one sequence among others: (keys, table), the table with an entry more than it needs."""
    n = -(-length // size)
    table = torch.randperm(n + 3, generator=rng)[:n].int()
    return randn(rng, n + 3, size, d), torch.cat([table, torch.tensor([-1], dtype=torch.int32)])

def _score_cases(rng):
    for length, d, size in [(3, 4, 2), (40, 32, 16), (65, 64, 16), (128, 64, 32), (30, 100, 8), (50, 128, 16)]:
        yield Case(randn(rng, d), *_pool(rng, length, d, size), length, 1 / math.sqrt(d),
                   label=f"{length} positions in pages of {size}, d = {d}")

def _in_order(pool, table, length):
    return pool[table[:-(-length // pool.shape[1])].long()].flatten(0, 1)[:length]

kernel_exercise(id="8.5", title="Scores through a table", points=4, minutes=15, difficulty=4, name="paged_scores", card="""
    Finish the kernel: the scores of one query against the keys of a sequence that is stored in pages.

    - one **warp** takes one position at a time: its lanes read neighbouring columns of the key, multiply with their
      part of the query, and add up by shuffles (chapter 7); one lane writes the score, `scale` times the sum
    - warp `w` takes the positions `w`, `w + n_warps`, ...; each finds its key through `table`
    - the table has entries behind the last page that mean nothing
    - all 32 lanes must reach each shuffle, also those beyond the width
    - budget: each key once, and for each position a sector of the table and one of the scores
    """, stub=SCORES.replace(
        _LOOP, "    // for each position of this warp: find the key, multiply, add up over the lanes, write\n"),
    solution=SCORES, cases=_score_cases, launch=lambda q, keys, table, length, scale: Launch(
        grid=2, block=64, args=[q, keys, table, out((length,)), length, len(q), keys.shape[1], scale]),
    expect=lambda q, keys, table, length, scale: scale * _in_order(keys, table, length) @ q, compare=close(atol=1e-5),
    traffic=lambda q, keys, table, length, scale: 4 * length * len(q) + 64 * length + 4 * (4 * len(q) + 32),
    stored=lambda q, keys, table, length, scale: 4 * length, misconceptions=[
        Misconception("takes position j for slot j, as if the sequence were in one piece", change=(
            "((size_t)table[j / block_size] * block_size + j % block_size) * d", "(size_t)j * d"),
                      ask="What is the table for? Whose key is in slot j of the pool?"),
        Misconception("looks up the offset in place of the page", change=("table[j / block_size]", "table[j % block_size]"),
                      ask="Positions 0 to 15 are in one page of 16. Which entry of the table must they all read?"),
        Misconception("takes the number of a page for the number of its first slot",
                      change=("(size_t)table[j / block_size] * block_size", "(size_t)table[j / block_size]"),
                      ask="Page 3 of 16 slots: which slot of the pool is its first?"),
        Misconception("lets every lane write the score", change=("if (lane == 0) scores[j]", "scores[j]"),
                      ask="After the shuffles all 32 lanes have the sum. How many of them need to store it?"),
        Misconception("does not add up over the lanes", change=(
            "        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);\n", ""),
                      ask="Lane 0 has multiplied columns 0, 32, 64, 96. Who has the others?"),
        Misconception("leaves out the scale", change=("scale * sum", "sum"), ask="What does the argument `scale` multiply?"),
        Misconception("leaves out the offset in the page", change=(" * block_size + j % block_size) * d", " * block_size) * d"),
                      ask="Do the 16 positions of one page all have the same key?"),
        Misconception("adds up with one shuffle too few", change=("int step = 16", "int step = 8"),
                      ask="After steps 8, 4, 2 and 1, how many lanes are in each sum?"),
        Misconception("lets only the lanes below the width reach the shuffles", change=(
            "        for (int step = 16; step > 0; step /= 2) sum +=", "        for (int step = 16; lane < d && step > 0; step /= 2) sum +="),
                      ask="With d = 4: which lanes does `0xffffffff` name, and which of them reach the shuffle?"),
        Misconception("gives each thread a key of its own", code=SCORES.replace(_LOOP, """\
    for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < length; j += gridDim.x * blockDim.x) {
        const float* key = keys + ((size_t)table[j / block_size] * block_size + j % block_size) * d;
        float sum = 0.0f;
        for (int c = 0; c < d; c++) sum += q[c] * key[c];
        scores[j] = scale * sum;
    }
"""), ask="In one request, how far apart are the addresses that two neighbouring lanes read?"),
        Misconception("lets every warp take every position", change=("int j = warp; j < length; j += n_warps", "int j = 0; j < length; j++"),
                      ask="How many warps read each key now?"),
        Misconception("reads the query again for each position", change=(
            "sum += query[i] * key[lane + 32 * i]", "sum += q[lane + 32 * i] * key[lane + 32 * i]"),
                      ask="What was read into `query` before the loop, and for what?"),
        Misconception("reads columns beyond the width", change=("if (lane + 32 * i < d) sum +=", "sum +="),
                      ask="With d = 4: which column does lane 5 read, and whose is it?"),
        Misconception("multiplies the first 32 columns only", change=(
            "        for (int i = 0; i < 4; i++)\n            if", "        for (int i = 0; i < 1; i++)\n            if"),
                      ask="A key of 100 numbers: how many of them does each lane multiply?"),
        Misconception("leaves out a last page that is not full", change=(
            "j < length; j += n_warps", "j < length / block_size * block_size; j += n_warps"),
                      ask="40 positions in pages of 16: which of them are in the third page?")],
    hints=["The page is `table[j / block_size]`, the slot `page * block_size + j % block_size`; a slot: `d` floats.",
           "`for (int i = 0; i < 4; i++)`: column `lane + 32 * i`, where it is below `d`.",
           "`__shfl_xor_sync(0xffffffff, sum, step)` with steps 16, 8, 4, 2, 1: then every lane has the whole sum."])


ATTEND = '''
// One query of one head: a block of d threads (whole warps, 128 at most), one thread per column of the output.
// keys, values (n_blocks, block_size, d). Shared memory: `length` floats.
__global__ void paged_attend(const float* __restrict__ q, const float* __restrict__ keys,
                             const float* __restrict__ values, const int* __restrict__ table, float* __restrict__ out,
                             int length, int d, int block_size, float scale)
{
    extern __shared__ float weights[];
    __shared__ float largest_of[4], total_of[4];            // of each warp
    float largest = -INFINITY, total = 0.0f, sum = 0.0f;
    for (int j = threadIdx.x; j < length; j += blockDim.x) {
        const float* key = keys + ((size_t)table[j / block_size] * block_size + j % block_size) * d;
        float score = 0.0f;
        for (int c = 0; c < d; c++) score += q[c] * key[c];
        weights[j] = scale * score;
        largest = fmaxf(largest, scale * score);
    }
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, step));
    if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) largest = fmaxf(largest, largest_of[w]);

    for (int j = threadIdx.x; j < length; j += blockDim.x) {
        weights[j] = expf(weights[j] - largest);
        total += weights[j];
    }
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
    if (threadIdx.x % 32 == 0) total_of[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) total += total_of[w];

    for (int j = 0; j < length; j++)
        sum += weights[j] * values[((size_t)table[j / block_size] * block_size + j % block_size) * d + threadIdx.x];
    out[threadIdx.x] = sum / total;
}
'''
_OF_WARPS = "    __shared__ float largest_of[4], total_of[4];            // of each warp\n"
_RIGHT_MAX = """\
    if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) largest = fmaxf(largest, largest_of[w]);
"""
_FAULTY_MAX = """\
    if (threadIdx.x == 0) largest_of_all = largest;
    __syncthreads();
    largest = largest_of_all;
"""
_RIGHT_SUM = """\
    if (threadIdx.x % 32 == 0) total_of[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) total += total_of[w];
"""
_FAULTY_SUM = """\
    if (threadIdx.x == 0) total_of_all = total;
    __syncthreads();
    total = total_of_all;
"""
_FAULTY_MAX_ONLY = ATTEND.replace(_RIGHT_MAX, _FAULTY_MAX).replace(
    _OF_WARPS, "    __shared__ float largest_of_all, total_of[4];\n")
_FAULTY_SUM_ONLY = ATTEND.replace(_RIGHT_SUM, _FAULTY_SUM).replace(
    _OF_WARPS, "    __shared__ float largest_of[4], total_of_all;\n")

def _attend_cases(rng):
    for length, d, size in [(5, 64, 4), (5, 32, 4), (40, 64, 16), (20, 64, 16), (100, 128, 16), (200, 96, 8)]:
        keys, table = _pool(rng, length, d, size)
        yield Case(randn(rng, d), keys, randn(rng, *keys.shape), table, length, 1 / math.sqrt(d),
                   label=f"{length} positions, d = {d}: {d // 32} warp{'s' * (d > 32)}")
    keys, table = _pool(rng, 60, 64, 4)
    for i in range(60):                                     # later keys fit the query better and better
        keys[table[i // 4], i % 4] = i / 8
    yield Case(torch.full((64,), 4.0), keys, randn(rng, *keys.shape), table, 60, 0.5,
               label="60 positions, d = 64, growing scores")
    yield Case(torch.full((64,), -4.0), keys + 1, randn(rng, *keys.shape), table, 20, 0.5,
               label="20 positions, d = 64, all scores far below zero")

def _attend_expect(q, keys, values, table, length, scale):
    weights = torch.softmax((scale * _in_order(keys, table, length) @ q).double(), 0)
    return (weights @ _in_order(values, table, length).double()).float()

kernel_exercise(id="8.6", title="Right for narrow heads", points=3, minutes=8, difficulty=3, name="paged_attend", kind="repair",
    card="""
    The thread block of this kernel has as many threads as a head has columns. With `d = 32` it is right.

    - find out what the threads beyond the first warp contribute to the softmax, and repair it
    - **two** things are shared by the thread block; both have to come from all of its warps
    - a result of another warp can only be read behind a barrier
    """, stub=_FAULTY_MAX_ONLY.replace(_RIGHT_SUM, _FAULTY_SUM).replace("total_of[4];", "total_of_all;"),
    solution=ATTEND, cases=_attend_cases, compare=close(atol=1e-4), launch=lambda q, keys, values, table, length, scale: Launch(
        grid=1, block=len(q), shared=4 * length,
        args=[q, keys, values, table, out(q.shape), length, len(q), keys.shape[1], scale]),
    expect=_attend_expect, misconceptions=[
        Misconception("still lets only the first warp choose the maximum", code=_FAULTY_MAX_ONLY,
                      ask="A key of the second warp has a score 100 above the first's. What is its exponential?"),
        Misconception("counts only the last weight of each thread", change=("total += weights[j];", "total = weights[j];"),
                      ask="200 positions, 96 threads: how many weights does a thread compute?"),
        Misconception("still lets only the first warp add up the weights", code=_FAULTY_SUM_ONLY,
                      ask="Values of all ones should give 1. And when some weights are not in the total?"),
        Misconception("lets lane 0 of each warp store its total in the same variable", code=_FAULTY_SUM_ONLY.replace(
            "if (threadIdx.x == 0) total_of_all", "if (threadIdx.x % 32 == 0) total_of_all"),
                      ask="Two warps write one variable. Which of the two totals is in it afterwards?"),
        Misconception("adds the total of its own warp twice", change=("    total = 0.0f;\n    for", "    for"),
                      ask="`total` already holds this warp's share when the loop over the warps begins. What does the loop add?"),
        Misconception("lets each warp keep its own maximum", change=(
            "    for (int w = 0; w < blockDim.x / 32; w++) largest = fmaxf(largest, largest_of[w]);\n", ""),
                      ask="Weights that were measured from two maxima are in one sum. What is missing?"),
        Misconception("adds up four warps, however many the block has", change=(
            "for (int w = 0; w < blockDim.x / 32; w++) total +=", "for (int w = 0; w < 4; w++) total +="),
                      ask="A block of 64 threads has two warps. Who has written the third entry?"),
        Misconception("reads the other warps' totals before they are written", change=(
            "    if (threadIdx.x % 32 == 0) total_of[threadIdx.x / 32] = total;\n    __syncthreads();\n",
            "    if (threadIdx.x % 32 == 0) total_of[threadIdx.x / 32] = total;\n    __syncwarp();\n"),
                      ask="Warp 0 may be here while warp 1 is still adding. What makes it wait?"),
        Misconception("divides each column by the total of its own warp", change=(
            "    total = 0.0f;\n    for (int w = 0; w < blockDim.x / 32; w++) total += total_of[w];\n", ""),
                      ask="Column 40 belongs to the second warp. Do the keys of the first warp not count for it?")],
    hints=["A shuffle reaches the 32 lanes of one warp. How many warps has a block of 64 threads?",
           "Let lane 0 of each warp write its result to shared memory, wait, and let every thread read them all.",
           "`__shared__ float of_warp[4];`, once for the maximum and once for the sum."])


def _append_call(f, table, length, references, free, block_size):
    table, references, free = list(table), list(references), list(free)
    returned = f(table, length, references, free, block_size)
    return {"returned": returned, "table": table, "references": references, "free": free}

def _append_cases(rng):
    yield Case([0, 1], 3, [1, 1, 0, 0], [3, 2], 2, label="room in the last page, no other table holds it")
    yield Case([0, 1], 4, [1, 1, 0, 0], [3, 2], 2, label="the last page is full")
    yield Case([0, 1], 3, [2, 2, 0, 0], [3, 2], 2, label="room in the last page, and another table holds it")
    yield Case([0, 1], 4, [2, 2, 0, 0], [3, 2], 2, label="the last page is full, and another table holds it")
    yield Case([0, 1], 3, [3, 1, 0, 0], [3, 2], 2, label="another table holds the first page only")
    yield Case([1, 0], 3, [2, 1, 0, 0], [3, 2], 2, label="another table holds the last page, which is page 0")
    yield Case([4, 0, 2], 9, [1, 0, 4, 0, 2], [1, 3], 4, label="four hold the last page")
    size = randint(rng, 3, 9)
    for length in (3 * size - 1, 2 * size + 1, 3 * size):
        yield Case([5, 3, 1], length, [0, 2, 0, 1, 0, 2], [4, 2, 0], size, label=f"{length} slots in pages of {size}")

exercise(id="8.8", title="Copy on write", kind="write", points=3, minutes=10, difficulty=3, card="""
    Write `append_slot`: one more slot for a sequence of `length` tokens. Change `table`, `references` and `free` in
    place.

    - `references[b]` says how many tables hold page `b`; a new page is `free.pop()`, and then one table holds it
    - the last page is full: the table gets a new one
    - the last page has room, and other tables hold it: they must not see what is written. The table gets a new page
      in its place, and `source` says what to copy into it
    - return `(page, offset, source)`; `source` is None where nothing is copied
    """, solution='''
    def append_slot(table, length, references, free, block_size):
        """-> (page, offset, source): the new slot, and the page to copy into `page` before it is written, or None"""
        offset, source = length % block_size, None
        if offset == 0:
            table.append(free.pop())
            references[table[-1]] = 1
        elif references[table[-1]] > 1:
            source = table[-1]
            references[source] -= 1
            table[-1] = free.pop()
            references[table[-1]] = 1
        return table[-1], offset, source
    ''', cases=_append_cases, call=_append_call, compare=exact(), misconceptions=[
        Misconception("writes into a page that others read", body='''
            if length % block_size == 0:
                table.append(free.pop())
                references[table[-1]] = 1
            return table[-1], length % block_size, None
            ''', ask="Two samples share a page that is half full. Both now write their next token. Into which slot?"),
        Misconception("copies a full page, too",
                      change=("    if offset == 0:", "    if offset == 0 and references[table[-1]] == 1:"),
                      ask="Where does the new token go when the shared page is full? Does it change that page?"),
        Misconception("forgets that it no longer holds the source", change=("        references[source] -= 1\n", ""),
                      ask="When everybody is done, how many tables hold the source? And what does its count say?"),
        Misconception("copies because another page of its table is shared",
                      change=("references[table[-1]] > 1", "max(references[b] for b in table) > 1"),
                      ask="Which page is written into? Who else holds that one?"),
        Misconception("does not count the new page", change=(
            "        table[-1] = free.pop()\n        references[table[-1]] = 1\n", "        table[-1] = free.pop()\n"),
                      ask="How many tables hold the copy? What does `references` say?")],
    hints=["Two questions decide: is the last page full, and how many tables hold it?",
           "In the third case the table's last entry changes; the old page has one reader less."])


def _release_call(f, table, references):
    table, references = list(table), list(references)
    return {"returned": f(table, references), "references": references}

def _release_cases(rng):
    yield Case([0, 1, 2], [1, 1, 1], label="none is shared")
    yield Case([2, 0, 1], [1, 1, 2], label="another table holds the first page")
    yield Case([4, 1, 3, 0], [1, 2, 0, 1, 2], label="two pages are shared")
    yield Case([5], [0, 0, 0, 0, 0, 1], label="one page")
    table = torch.randperm(9, generator=rng)[:6].tolist()
    yield Case(table, [randint(rng, 1, 3) for _ in range(9)], label=f"table {table}")

RELEASE = '''
def release(table, references):
    """The pages of a finished sequence that no table holds any more, the first to be evicted in front."""
    idle = []
    for block in reversed(table):
        references[block] -= 1
        if references[block] == 0:
            idle.append(block)
    return idle
'''

exercise(id="8.9", title="Evicted from the wrong end", kind="repair", points=2, minutes=5, difficulty=2, card="""
    When a sequence ends, its pages stay as a cached prefix until they are evicted, in the order in which `release`
    returns them. This `release` loses no page, and yet, after **one** eviction, nothing of the prefix is ever found
    again. Why? Repair it. Counts in `references` are lowered in place; `table` is a copy, and you may change it.
    """, stub=RELEASE.replace("reversed(table)", "table"), solution=RELEASE, cases=_release_cases, call=_release_call,
    compare=exact(), misconceptions=[
        Misconception("evicts the pages with the largest numbers first",
                      change=("reversed(table)", "sorted(table, reverse=True)"),
                      ask="Does the number of a page say anything about its place in the text?"),
        Misconception("gives away pages that others hold", change=(
            "        if references[block] == 0:\n            idle.append(block)", "        idle.append(block)"),
                      ask="Somebody else's table holds this page. Who may evict it?")],
    hints=["A prefix is looked up from its first page on. What is found when the first page is gone?",
           "The last page of the text should go first: walk through the table backwards."])


def room_cases(rng):
    yield Case([3], [1], 1, label="one sequence, a page is free")
    yield Case([3, 2], [1, 0], 0, label="no page is free; the oldest needs one")
    yield Case([3, 2], [1, 1], 1, label="one page is free, two need one")
    yield Case([4, 1, 1], [3, 0, 0], 0, label="the oldest needs more than the youngest holds")
    yield Case([4, 1, 1, 1], [9, 0, 0, 0], 0, label="the oldest needs more than all of them hold")
    yield Case([2, 3, 1], [1, 1, 1], 1, label="the youngest is preempted before its turn")
    yield Case([5, 2], [0, 0], 0, label="nobody needs a page")
    for _ in range(6):
        n = randint(rng, 2, 7)
        yield Case([randint(rng, 1, 6) for _ in range(n)], [randint(rng, 0, 2) for _ in range(n)], randint(rng, 0, 4),
                   label=f"{n} sequences")

exercise(id="8.11", title="Make room", kind="write", points=3, minutes=12, difficulty=3, card="""
    At the beginning of a step, each running sequence needs a number of further pages. If they run out, sequences are
    preempted. Write `make_room`: how many sequences still run, and how many pages are left.

    - `held[i]` pages belong to sequence `i`, `needs[i]` more are needed; the oldest sequence is the first
    - serve the oldest first: it takes its pages from the `free` ones
    - while there are too few, the **youngest** that still runs gives back **all** its pages, and stops; that may be the
      one being served, and then nobody younger is left
    - a sequence that was preempted needs nothing any more
    - the lists are copies: you may change them""", given={}, solution="""
    def make_room(held, needs, free):
        \"\"\"held and needs: pages of each running sequence, oldest first -> (how many still run, pages left free)\"\"\"
        held = list(held)
        for i, need in enumerate(needs):
            if i == len(held):
                break
            while free < need:
                free += held.pop()
                if i == len(held):
                    return i, free
            free -= need
            held[i] += need
        return len(held), free
    """, cases=room_cases, compare=exact(), mutates=("held", "needs"), misconceptions=[
        Misconception("preempts the sequence that finds no room, not the youngest", body='''
            running = 0
            for have, need in zip(held, needs):
                if free < need:
                    free += have
                else:
                    free -= need
                    running += 1
            return running, free
            ''', ask="Which of two sequences must be sure to end, so that no request waits for ever?"),
        Misconception("preempts one sequence, even where its pages are too few", change=("while free < need:", "if free < need:"),
                      ask="The oldest needs 3 pages and the youngest holds 1. What then?"),
        Misconception("loses the pages of the preempted", change=("free += held.pop()", "held.pop()\n            free = need"),
                      ask="The youngest held five pages and one was needed. Where are the other four?"),
        Misconception("gives back the needed pages only, not those held before",
                      change=("free += held.pop()", "free += needs[len(held) - 1]\n            held.pop()"),
                      ask="Which pages does a sequence that waits keep?"),
        Misconception("lets the sequence being served run although it was preempted",
                      change=("return i, free", "return i + 1, free"),
                      ask="The last sequence found no room and gave its own pages back. Does it run in this step?")],
    hints=["Walk over the sequences from the oldest; the youngest is always the last of those that still run.",
           "`held.pop()` removes the youngest and tells how many pages come free."])


def reader_cases(rng):
    def case(readers, shared, own, d, label, scale=1.0):
        return Case(scale * randn(rng, readers, d), randn(rng, shared, d), randn(rng, shared, 3), randn(rng, readers, own, d),
                    randn(rng, readers, own, 3), label=label)
    yield case(1, 2, 1, 2, "one reader, 2 shared keys and one of its own")
    yield case(3, 5, 2, 4, "3 readers, 5 shared keys and 2 of their own")
    yield case(4, 1, 9, 8, "4 readers, one shared key and 9 of their own")
    yield case(2, 6, 6, 16, "2 readers with scores in the hundreds", scale=200.0)
    own = torch.tensor([[[0.0], [1.0]], [[-150.0], [-149.0]], [[200.5], [199.5]]])     # own scores: 0, 1; 150, 149; about -200
    yield Case(torch.tensor([[1.0], [-1.0], [-1.0]]), torch.tensor([[200.0], [199.0]]), randn(rng, 2, 3), own, randn(rng, 3, 2, 3),
               label="3 readers: the largest score is shared, its own, or far below the others'")

def _read_once(f, q, k_shared, v_shared, k_own, v_own):
    """f, watched: the shared keys go into one product, and no tensor has room for a copy of them per request."""
    from torch.utils._python_dispatch import TorchDispatchMode
    products, room = [], max(q.numel(), len(q) * len(k_shared), k_own.numel(), v_own.numel())

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result, name = operation(*args, **(kwargs or {})), operation.overloadpacket.__name__
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            if name in ("mm", "mv", "bmm", "addmm", "addmv", "baddbmm", "dot", "mul"):
                products.extend(x for x in tensors if x.data_ptr() == k_shared.data_ptr())
            own = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in {
                x.untyped_storage().data_ptr() for x in tensors}
            if own and result.numel() > room:
                raise ValueError(f"makes a tensor of {result.numel()} numbers: the shared keys are copied for each request")
            if len(products) > 1:
                raise ValueError("multiplies with the shared keys more than once: they are read again for each request")
            return result

    with Watch():
        return f(q, k_shared, v_shared, k_own, v_own)

exercise(id="8.13", title="One prefix, read once", kind="write", points=3, minutes=12, difficulty=3, card="""
    `b` requests begin with the same `m` tokens and go on with `n` tokens of their own. Each has one query. Write `read_once`: attention of
    each query over the shared keys and its own, with scale $1/\\sqrt{d}$, so that the shared keys meet all queries in **one product** and
    are never copied per request. The result is that of the softmax over all `m + n` scores, also where scores are in the hundreds.

    - join the two parts by the merge of exercise 6.3, not by joining tensors
    """, given={"torch": torch, "math": math},
    forbid=("cat", "concat", "concatenate", "stack", "hstack", "repeat", "expand", "expand_as", "repeat_interleave", "tile",
            "scaled_dot_product_attention"), solution='''
    def read_once(q, k_shared, v_shared, k_own, v_own):
        """q (b, d), k_shared (m, d), v_shared (m, d_v), k_own (b, n, d), v_own (b, n, d_v) -> (b, d_v)"""
        shared = q @ k_shared.T / math.sqrt(q.shape[1])
        own = (k_own @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[1])
        m_shared, m_own = shared.amax(1, keepdim=True), own.amax(1, keepdim=True)
        m = torch.maximum(m_shared, m_own)
        p_shared, p_own = torch.exp(shared - m), torch.exp(own - m)
        out = p_shared @ v_shared + (p_own[:, None] @ v_own)[:, 0]
        return out / (p_shared.sum(1, keepdim=True) + p_own.sum(1, keepdim=True))
    ''', cases=reader_cases, call=_read_once, compare=close(atol=1e-5), misconceptions=[
        Misconception("reads the shared keys again for each request", body='''
            out = []
            for query, keys, values in zip(q, k_own, v_own):
                shared, own = k_shared @ query / math.sqrt(len(query)), keys @ query / math.sqrt(len(query))
                m = torch.maximum(shared.max(), own.max())
                p_shared, p_own = torch.exp(shared - m), torch.exp(own - m)
                out.append((p_shared @ v_shared + p_own @ values) / (p_shared.sum() + p_own.sum()))
            return torch.vstack([x[None] for x in out])
            ''', ask="With 100 requests, how often is each shared key read? What shape has a product of all queries with them?"),
        Misconception("copies the shared keys for each request", body='''
            (b, n, d), m = k_own.shape, len(k_shared)
            k, v = torch.zeros(b, m + n, d), torch.zeros(b, m + n, v_own.shape[2])
            k[:, :m], k[:, m:], v[:, :m], v[:, m:] = k_shared, k_own, v_shared, v_own
            weights = torch.softmax((k @ q[:, :, None])[:, :, 0] / math.sqrt(d), -1)
            return (weights[:, None] @ v)[:, 0]
            ''', ask="With 100 requests, how many copies of each shared key are in your tensor?"),
        Misconception("averages the two outputs", body='''
            shared = torch.softmax(q @ k_shared.T / math.sqrt(q.shape[1]), -1) @ v_shared
            own = torch.softmax((k_own @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[1]), -1)
            return (shared + (own[:, None] @ v_own)[:, 0]) / 2
            ''', ask="A part that holds nearly all of the weight counts as much as one that holds none. What says how much each holds?"),
        Misconception("weighs the parts by their number of keys", body='''
            m, n = len(k_shared), k_own.shape[1]
            shared = torch.softmax(q @ k_shared.T / math.sqrt(q.shape[1]), -1) @ v_shared
            own = torch.softmax((k_own @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[1]), -1)
            return (m * shared + n * (own[:, None] @ v_own)[:, 0]) / (m + n)
            ''', ask="A part's share is its sum of exponentials. Is that its number of keys?"),
        Misconception("gives each part its own maximum and adds the sums", change=[
            ("torch.exp(shared - m), torch.exp(own - m)", "torch.exp(shared - m_shared), torch.exp(own - m_own)")],
                      ask="Two sums were made under different maxima. By what must each be multiplied before they are added?"),
        Misconception("takes no maximum", change=[
            ("torch.exp(shared - m), torch.exp(own - m)", "torch.exp(shared), torch.exp(own)")],
                      ask="What is exp of a score in the hundreds, in float32?"),
        Misconception("takes the maximum of one part for both", change=("m = torch.maximum(m_shared, m_own)", "m = m_shared"),
                      ask="A key of the other part may score hundreds more. What is exp of the difference?"),
        Misconception("takes one maximum for all requests", change=("torch.maximum(m_shared, m_own)", "torch.maximum(m_shared, m_own).max()"),
                      ask="A request's largest score may be hundreds below that maximum. By what is its output divided then?"),
        Misconception("forgets the scale on one side", change=[("(k_own @ q[:, :, None])[:, :, 0] / math.sqrt(q.shape[1])",
                                                               "(k_own @ q[:, :, None])[:, :, 0]")],
                      ask="Both parts belong to one softmax. Are their scores scaled alike?")],
    hints=["`q @ k_shared.T` is (b, m): all queries meet the shared keys in one product. For the own keys, a product per request.",
           "One maximum for both parts: the larger of the two. Then both sums of exponentials, and both sums of values, may be added."])
