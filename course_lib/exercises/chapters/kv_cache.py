"""Exercises of chapter 7."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, kernel_exercise, out, randn, whole


def row_cache_cases(rng):
    for capacity, heads, d, cuts in [(2, 1, 1, [1, 1]), (5, 1, 2, [3, 1]), (8, 2, 3, [4, 1, 1, 2]), (33, 3, 4, [1] * 9), (4, 2, 2, [4])]:
        yield Case(capacity, [(randn(rng, heads, n, d), randn(rng, heads, n, d)) for n in cuts],
                   label=f"room for {capacity}, then appends of {cuts}")
    pieces = [(randn(rng, 2, n, 3), randn(rng, 2, n, 3)) for n in (3, 2, 1)]
    for x in pieces[0]:
        x[:, 2] = math.nan
    yield Case(8, pieces, label="the third token is all NaN itself, and others follow")

def _use_row_cache(f, capacity, pieces):
    """What the cache shows after each append. Refused: an append that makes the room anew or leaves it as it was, a
    view that writes or copies."""
    # over the guide: its source goes to the process that runs the answer, so it can call no other function of ours
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            own = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in {
                x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
            if own and result.numel() > 2 * k.numel() + capacity:
                raise ValueError(f"an append of {k.numel()} numbers makes {result.numel()}: it copies the cache")
            return result

    def room():
        return cache.k.clone(), cache.v.clone()

    def alike(x, y):
        return torch.equal(x.isnan(), y.isnan()) and torch.equal(x.nan_to_num(), y.nan_to_num())

    heads, _, d = pieces[0][0].shape
    cache = f(capacity, heads, d)
    before, seen, length = [x.data_ptr() for x in (cache.k, cache.v)], [], 0
    wanted = torch.empty(2, heads, sum(k.shape[1] for k, _ in pieces), d)
    for k, v in pieces:
        old = room()
        with Watch():
            cache.append(k, v)
        if [x.data_ptr() for x in (cache.k, cache.v)] != before:
            raise ValueError("an append puts the cache into another place of memory: it copies the cache")
        new = room()
        if any(map(alike, old, new)):
            raise ValueError("after an append the room holds what it held before: the new tokens are not in it")
        first, got = cache.view(), cache.view()                                # a stale one would differ
        made = got if got is None else tuple(x.clone() for x in got)
        seen.append({"keys": made[0], "values": made[1]} if made and len(made) == 2 else made)
        if first is not None and got is not None and not all(map(alike, first, got)):
            raise ValueError("`view` shows something else when it is called a second time")
        if not all(map(alike, new, room())):
            raise ValueError("`view` writes into the room; only `append` may")
        wanted[0, :, length:length + k.shape[1]], wanted[1, :, length:length + k.shape[1]] = k, v
        length += k.shape[1]
        if got is not None and all(map(alike, got, wanted[:, :, :length])) and any(
                x.untyped_storage().data_ptr() != own.untyped_storage().data_ptr() for x, own in zip(got, (cache.k, cache.v))):
            raise ValueError("what `view` returns is a copy, in memory of its own")
    return {f"append {i + 1}": shown for i, shown in enumerate(seen)}

ROW_CACHE = '''
class RowCache:
    def __init__(self, capacity, heads, d):
        self.k, self.v = (torch.full((heads, capacity, d), math.nan) for _ in "kv")
        self.length = 0

    def append(self, k, v):
        """k, v (heads, n, d): the next n tokens"""
        here = slice(self.length, self.length + k.shape[1])
        self.k[:, here], self.v[:, here] = k, v
        self.length += k.shape[1]

    def view(self):
        """-> k, v (heads, length, d): all that was appended, oldest first"""
        return self.k[:, :self.length], self.v[:, :self.length]
'''

exercise(id="7.2", title="Room for all of it", kind="write", points=2, minutes=8, difficulty=2, card="""
    Finish `RowCache`. Its room is reserved once, filled with NaN so that an unwritten slot is noticed; `length` says how many
    tokens are stored (a stored one may hold NaN too).

    - `append` writes the new tokens behind those already stored, in place and at once
    - `view` returns what was appended, and nothing else: a slice of the room, no copy
    - no `cat`: an append touches its own rows only
    """, given={"torch": torch, "math": math},
    stub=ROW_CACHE[:ROW_CACHE.index("        here =")] + '''        raise NotImplementedError

    def view(self):
        """-> k, v (heads, length, d): all that was appended, oldest first"""
        raise NotImplementedError
''', solution=ROW_CACHE, cases=row_cache_cases, call=_use_row_cache, compare=close(atol=0),
    forbid=("cat", "concat", "stack", "hstack", "vstack"), misconceptions=[
        Misconception("writes every append to the front", change=("slice(self.length, self.length + k.shape[1])",
                                                                  "slice(0, k.shape[1])"),
                      ask="Which slot is free after three tokens?"),
        Misconception("returns the empty slots too", change=("self.k[:, :self.length], self.v[:, :self.length]",
                                                              "self.k, self.v"),
                      ask="What would a query do with a key that nobody wrote?"),
        Misconception("stores the keys where the values belong", change=("= k, v\n        self.length", "= k, k\n        self.length"),
                      ask="Of the two arguments, which one does your cache of values hold?"),
        Misconception("returns the newest token first",
                      change=("self.k[:, :self.length], self.v[:, :self.length]",
                              "self.k[:, :self.length].flip(1), self.v[:, :self.length].flip(1)"),
                      ask="In which order should the rows be: in the order of their appends, or turned round?"),
        Misconception("copies the whole cache to append to it", change=(
            "        self.k[:, here], self.v[:, here] = k, v\n",
            "        self.k, self.v = self.k.clone(), self.v.clone()\n        self.k[:, here], self.v[:, here] = k, v\n"),
                      ask="How many bytes does an append of one token write when a thousand are stored already?"),
        Misconception("collects the pieces in a list, and writes them when they are viewed", change=[
            ("        self.length = 0\n", "        self.length, self.pieces = 0, []\n"),
            ("        here = slice(self.length, self.length + k.shape[1])\n        self.k[:, here], self.v[:, here] = k, v\n"
             "        self.length += k.shape[1]\n", "        self.pieces.append((k, v))\n"),
            ("        return self.k[", "        for k, v in self.pieces:\n            here = slice(self.length, self.length + k.shape[1])\n"
             "            self.k[:, here], self.v[:, here] = k, v\n            self.length += k.shape[1]\n"
             "        self.pieces = []\n        return self.k[")],
                      ask="Between an append and the next view, where are the new tokens: in the room, or beside it?"),
        Misconception("returns a copy of what is stored", change=("self.k[:, :self.length], self.v[:, :self.length]",
                                                                  "self.k[:, :self.length].clone(), self.v[:, :self.length].clone()"),
                      ask="A view is asked for at every token. How many bytes does yours write when a thousand are stored?"),
        Misconception("searches for the first slot that holds NaN", change=(
            "        here = slice(self.length, self.length + k.shape[1])\n",
            "        free = int(self.k[0, :, 0].isnan().int().argmax())\n        here = slice(free, free + k.shape[1])\n"),
                      ask="What does your search find if a stored token itself is NaN, and what does `length` say?"),
        Misconception("counts appends, not tokens", change=("self.length += k.shape[1]", "self.length += 1"),
                      ask="A prompt of four tokens arrives in one append. Where does the next token go?"),
        Misconception("keeps the newest tokens only", change=("self.k[:, :self.length], self.v[:, :self.length]",
                                                                "self.k[:, :self.length][:, -1:], self.v[:, :self.length][:, -1:]"),
                      ask="Which keys does the newest query look at?")],
    hints=["A slice of a tensor can be assigned to: `self.k[:, a:b] = k`.",
           "`a` is `self.length`, and afterwards the length grows by the number of new tokens, `k.shape[1]`."])


def rotate(x, positions):
    """Rotary positions (chapter 2): rows of x (n, d) turned by their positions (n,)."""
    angle = positions[:, None] * 10000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)

def step_cases(rng):
    for d, cuts in [(2, [1, 1]), (2, [2, 1, 1]), (4, [3, 2]), (8, [5, 1, 1, 3, 1]), (8, [13]), (6, [1] * 7)]:
        n = sum(cuts)
        yield Case(3 * randn(rng, n, d), randn(rng, n, d), randn(rng, n, d), cuts, label=f"{n} tokens in pieces of {cuts}")

def _in_pieces(f, q, k, v, cuts):
    outs, past_k, past_v = [], k[:0], v[:0]
    for q_new, k_new, v_new in zip(q.split(cuts), k.split(cuts), v.split(cuts)):
        got, past_k, past_v = f(q_new, k_new, v_new, past_k, past_v)
        outs.append(got)
    return {"output": torch.cat(outs), "keys": past_k, "values": past_v}

STEP = '''
def attend_with_cache(q, k, v, past_k, past_v):
    """n new tokens after m cached: q, k, v (n, d), past (m, d) -> out (n, d), keys and values (m + n, d)"""
    n, total = len(q), len(past_k) + len(q)
    positions = torch.arange(total - n, total)
    keys = torch.cat((past_k, rotate(k, positions)))
    values = torch.cat((past_v, v))
    scores = rotate(q, positions) @ keys.T / math.sqrt(q.shape[1])
    seen = torch.ones(n, total, dtype=torch.bool).tril(total - n)
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ values, keys, values
'''
_RIGHT_POSITIONS = "    positions = torch.arange(total - n, total)\n"
_WRONG_POSITIONS = """    if len(past_k) == 0:
        positions = torch.arange(n)
    else:
        positions = torch.arange(total, total + n)
"""
_LATE, _CORNER = (_RIGHT_POSITIONS, _WRONG_POSITIONS), (".tril(total - n)", ".tril()")

exercise(id="7.3", title="Right without a cache, wrong with one", kind="repair", points=3, minutes=10, difficulty=3, card="""
    `attend_with_cache` is right for a whole prompt and wrong for the tokens after it. It has **two** mistakes: one in the
    positions, one in the mask. Find them and repair them.

    - `rotate(x, positions)` is the rotation of chapter 2
    - the new tokens come directly after the cached ones
    - the **last** query sees the **last** key, and each query before it one key less
    - the text may come in pieces of any length; its tokens count from 0, and a key is kept as its own number turns it
    """, given={"torch": torch, "math": math, "rotate": rotate},
    stub=STEP.replace(*_LATE).replace(*_CORNER), solution=STEP, cases=step_cases, call=_in_pieces, compare=close(atol=1e-4),
    misconceptions=[
        Misconception("has the right mask, but positions of new tokens that are too large", change=_LATE,
                      ask="Four tokens are cached, numbered 0 to 3. What is the number of the next one?"),
        Misconception("has the right positions, but a mask aligned to the first key", change=_CORNER,
                      ask="One new query and 100 keys: which keys does the first row of `tril()` show it?"),
        Misconception("begins one place too early", change=[(_RIGHT_POSITIONS, _WRONG_POSITIONS.replace(
            "torch.arange(total, total + n)", "torch.arange(total - n - 1, total - 1)"))],
                      ask="The last cached token has number m - 1. May the first new one have the same?"),
        Misconception("shifts all positions by one: the output is the same, the cache is not", change=(
            "torch.arange(total - n, total)", "torch.arange(total - n - 1, total - 1)"),
                      ask="The first token of a text is number 0. Which number do you turn its key by?"),
        Misconception("is right for one new token, but not for several", change=[(_RIGHT_POSITIONS, _WRONG_POSITIONS.replace(
            "torch.arange(total, total + n)", "torch.arange(total - 1, total - 1 + n)"))],
                      ask="Three tokens follow ten cached ones. `total` is 13: what number does the first of the three have?"),
        Misconception("rotates the cached keys a second time", change=(
            "torch.cat((past_k, rotate(k, positions)))", "rotate(torch.cat((past_k, k)), torch.arange(total))"),
                      ask="The keys in `past_k` were returned by an earlier call. Has nobody rotated them yet?"),
        Misconception("moves the diagonal one column too far", change=(".tril(total - n)", ".tril(total - n + 1)"),
                      ask="With nothing cached: which keys does the first query see?"),
        Misconception("moves the diagonal by the number of new tokens", change=(".tril(total - n)", ".tril(n)"),
                      ask="Two new queries and ten cached keys: how many keys does the first of the two see?"),
        Misconception("counts the positions of every piece from 0",
                      change=("torch.arange(total - n, total)", "torch.arange(n)"),
                      ask="Four tokens are cached, numbered 0 to 3. What is the number of the next one?"),
        Misconception("shows every new query all keys", change=(".tril(total - n)", ""),
                      ask="May the first of three new queries see the key of the third?")],
    hints=["Print `positions` and `seen` for two cached and two new tokens, and compare them with the last two rows of a pass "
           "over all four.", "`total` already counts the new tokens. The cached ones are `total - n`.",
           "`tril(c)` moves the diagonal by `c` columns to the right."])


exercise(id="7.5", title="Tokens per second", kind="predict", points=1, minutes=5, difficulty=2, name="tokens_per_second",
    card="""
    Llama 3 8B decodes on an H200, which reads $4.8 \\cdot 10^{12}$ bytes per second. A step reads $15 \\cdot 10^9$ bytes
    of weights, and the cache of a sequence of 8,192 tokens takes $1.07 \\cdot 10^9$. 32 such sequences decode together, and
    each gets one token per step. How many tokens per second does the server produce **at most**? Within 3 %.
    """, answer=32 * 4.8e12 / (15e9 + 32 * 1.07e9), tolerance=93, misconceptions=[
        Misconception("reads the weights and no cache", value=32 * 4.8e12 / 15e9,
                      ask="How many bytes do 32 caches have together, beside 15 GB of weights?"),
        Misconception("reads the caches and no weights", value=4.8e12 / 1.07e9,
                      ask="Each step multiplies with every weight. From where do they come?"),
        Misconception("reads the weights once per sequence", value=4.8e12 / 16.07e9,
                      ask="All 32 sequences are in one step. How often does that step read the weights?"),
        Misconception("gives the steps per second, the rate of one sequence", value=4.8e12 / (15e9 + 32 * 1.07e9),
                      ask="A step gives each of the 32 sequences a token. How many tokens is that?"),
        Misconception("reads one cache, not 32", value=32 * 4.8e12 / 16.07e9,
                      ask="Does a sequence read the cache of another? How many different caches are read?")],
    hints=["First the bytes of a step: the weights once, and 32 caches.",
           "Steps per second are $4.8 \\cdot 10^{12}$ divided by these bytes; a step gives 32 tokens."])


PART = '''
constexpr int D = 32;                  // a lane for each entry of a row
constexpr unsigned ALL = 0xffffffff;

// One head, one query. Block b: keys b * keys_a_part up to the next part or n. Writes what chapter 6 calls a state.
__global__ void attend_part(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                            float* __restrict__ part_max, float* __restrict__ part_sum, float* __restrict__ part_out,
                            int n, int keys_a_part, float scale) {
    int lane = threadIdx.x, part = blockIdx.x;
    int first = part * keys_a_part, end = min(first + keys_a_part, n);
    float query = scale * q[lane];
    float m = -INFINITY, l = 0.0f, o = 0.0f;      // o: this lane's entry of the output, not divided yet

    for (int j = first; j < end; ++j) {
        float score = query * k[j * D + lane];
        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(ALL, score, step);
        float m_new = fmaxf(m, score);
        float shrink = expf(m - m_new), p = expf(score - m_new);
        l = l * shrink + p;
        o = o * shrink + p * v[j * D + lane];
        m = m_new;
    }

    if (lane == 0) {
        part_max[part] = m;
        part_sum[part] = l;
    }
    part_out[part * D + lane] = o;
}
'''
_LOOP = PART[PART.index("    for (int j"):PART.index("    if (lane == 0)")]

def part_cases(rng):
    for n, keys, spread in [(2, 2, 1.0), (5, 4, 1.0), (33, 32, 1.0), (64, 16, 3.0), (40, 32, 1.0)]:
        yield Case(spread * randn(rng, 32), randn(rng, n, 32), randn(rng, n, 32), keys, 0.18, label=f"{n} keys, {keys} per part")
    rising = torch.arange(20.0)[:, None] * torch.ones(32)
    yield Case(torch.full((32,), 2.0), rising, randn(rng, 20, 32), 10, 1.0, label="the scores grow from key to key")

def part_launch(q, k, v, keys, scale):
    parts = -(-len(k) // keys)
    return Launch(grid=parts, block=32, args=[q, k, v, out((parts,)), out((parts,)), out((parts, 32)), len(k), keys, scale])

def part_expect(q, k, v, keys, scale):
    parts = []
    for key, value in zip(k.split(keys), v.split(keys)):
        s = scale * key @ q
        m = s.max()
        p = (s - m).exp()
        parts.append((m, p.sum(), p @ value))
    return tuple(torch.stack(x) for x in zip(*parts))

kernel_exercise(
    id="7.7", title="One warp, one part of the keys", points=4, minutes=20, difficulty=4, name="attend_part", card="""
    Finish the loop of a decoding kernel. A warp serves one query and one part of the keys; lane `i` holds entry `i` of the
    query, and of each key and value.

    - a score is a sum over **lanes**: add up with shuffles, without shared memory, so that every lane has it
    - then the online softmax of chapter 6, in every lane alike: `m`, `l`, and this lane's entry `o` of the output
    - scores of a hundred must do no harm
    - budget: every key and every value is read from global memory once
    """,
    stub=PART.replace(_LOOP, "    for (int j = first; j < end; ++j) {\n        // your code: the score of key j, then m, l and o\n    }\n\n"),
    solution=PART, cases=part_cases, launch=part_launch, expect=part_expect, compare=close(atol=1e-4, rtol=1e-4),
    traffic=lambda q, k, v, keys, scale: 4 * 2 * k.numel() + -(-len(k) // keys) * (128 + 64 + 128), wavefronts=0,
    misconceptions=[
        Misconception("does not add up over the lanes", change=(
            "        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(ALL, score, step);\n", ""),
                      ask="`query * k[j * D + lane]` is one of 32 products. Who has the other 31?"),
        Misconception("sums so that lane 0 alone has the score", change=("__shfl_xor_sync", "__shfl_down_sync"),
                      ask="After `__shfl_down_sync`, which lane holds the sum of all 32?"),
        Misconception("does not rescale the output when a larger score comes", change=("o = o * shrink", "o = o"),
                      ask="From which maximum are the terms measured that are already in `o`?"),
        Misconception("does not rescale the sum when a larger score comes", change=("l = l * shrink", "l = l"),
                      ask="From which maximum are the terms measured that are already in `l`?"),
        Misconception("adds up with one shuffle too few", change=("int step = 16", "int step = 8"),
                      ask="After steps 8, 4, 2 and 1, how many lanes are in each sum?"),
        Misconception("does not store the new maximum", change=("        m = m_new;\n", ""),
                      ask="From which maximum does the next key rescale?"),
        Misconception("turns the factor of the rescaling round", change=("expf(m - m_new)", "expf(m_new - m)"),
                      ask="When a larger score arrives, should what was summed before grow or shrink?"),
        Misconception("takes the value from the keys", change=("p * v[j", "p * k[j"), ask="What is weighted: keys or values?"),
        Misconception("overwrites the old maximum before it is used", change=(
            "float m_new = fmaxf(m, score);", "float m_new = m = fmaxf(m, score);"),
                      ask="When `shrink` is computed, which maximum is in `m`: the old one or the new one?"),
        Misconception("does not subtract the maximum", change=("shrink = expf(m - m_new), p = expf(score - m_new)",
                                                               "shrink = 1.0f, p = expf(score)"), ask="What is `expf(100)`?"),
        Misconception("scales twice", change=("query * k[j", "scale * query * k[j"),
                      ask="By what was `query` multiplied when it was read?"),
        Misconception("lets every lane read every entry of a key", change=(
            "        float score = query * k[j * D + lane];\n"
            "        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(ALL, score, step);\n",
            "        float score = 0.0f;\n        for (int c = 0; c < D; ++c) score += scale * q[c] * k[j * D + c];\n"),
                      ask="A request in which all lanes want the same number moves 32 bytes. How many requests does your key take?"),
        Misconception("adds up through shared memory", change=(
            "        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(ALL, score, step);\n",
            "        __shared__ float products[32];\n        products[lane] = score;\n        __syncwarp();\n        score = 0.0f;\n"
            "        for (int c = 0; c < 32; ++c) score += products[c];\n        __syncwarp();\n"),
                      ask="Your lanes store a product and load 32. With shuffles, how many numbers does a lane get from other lanes?"),
        Misconception("divides by the sum, so that the parts cannot be merged", change=(
            "part_out[part * D + lane] = o;", "part_out[part * D + lane] = o / l;"),
                      ask="Your part will be merged with others. By which sum will that output be divided?")],
    hints=["`score = query * k[j * D + lane]` is this lane's product. Five shuffles add up the warp's.",
           "`for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(ALL, score, step);`",
           "The rest is exercise 6.2 with `v[j * D + lane]` as the value."])


SCORES = '''
// The scores of one query with n keys of width d <= 32: one warp, and so one block, per key.
__global__ void key_scores(const float* __restrict__ q, const float* __restrict__ k, float* __restrict__ scores,
                           int d) {
    int lane = threadIdx.x, j = blockIdx.x;
    float sum = lane < d ? q[lane] * k[j * d + lane] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    __syncwarp();                                 // all lanes go on together
    if (lane == 0) scores[j] = sum;
}
'''
_GUARDED = '''    float sum = 0.0f;
    if (lane < d) {
        sum = q[lane] * k[j * d + lane];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    }
'''
_FROM, _TO = SCORES.index("    float sum"), SCORES.index("    __syncwarp();")

def score_cases(rng):
    for n, d in [(2, 2), (3, 20), (4, 32), (5, 1), (3, 31), (2, 24)]:
        yield Case(randn(rng, d), randn(rng, n, d), label=f"{n} keys of width {d}")

kernel_exercise(
    id="7.8", title="A shuffle that not everyone reaches", kind="repair", points=3, minutes=8, difficulty=3, name="key_scores",
    card="""
    This kernel is right for a width of 32 and wrong for every other. Read what the sanitizer says, and repair it.

    - widths from 1 to 32
    - all 32 lanes have to reach a shuffle that names all 32
    - a lane without an entry must not read one, and must not spoil the sum
    - budget: one request reads a key, another the query; no shared memory
    """, stub=SCORES[:_FROM] + _GUARDED + SCORES[_TO:], solution=SCORES, cases=score_cases, compare=close(atol=1e-5),
    launch=lambda q, k: Launch(grid=len(k), block=32, args=[q, k, out((len(k),)), len(q)]), expect=lambda q, k: k @ q,
    traffic=lambda q, k: len(k) * 32 * (2 * -(-len(q) // 8) + 1), wavefronts=0, misconceptions=[
        Misconception("lets lanes beyond the width read", change=("lane < d ? q[lane] * k[j * d + lane] : 0.0f",
                                                                  "q[lane] * k[j * d + lane]"),
                      ask="With d = 20: which entry does lane 25 read, and whose is it?"),
        Misconception("lets the lanes beyond the width add the last entry again",
                      change=("lane < d ? q[lane] * k[j * d + lane] : 0.0f", "q[min(lane, d - 1)] * k[j * d + min(lane, d - 1)]"),
                      ask="Which number changes no sum?"),
        Misconception("lets lane 0 add up alone", code=(
            SCORES[:_FROM] + "    float sum = 0.0f;\n    if (lane == 0)\n"
            "        for (int c = 0; c < d; ++c) sum += q[c] * k[j * d + c];\n" + SCORES[_TO:]),
                      ask="A request moves whole sectors of 32 bytes. How many requests does lane 0 make, and how many would 32 lanes?"),
        Misconception("starts the shuffles at half of the width", change=("int step = 16", "int step = d / 2"),
                      ask="With d = 20: which lanes does lane 0 reach in steps of 10, 5, 2 and 1?"),
        Misconception("still lets only the lanes that have an entry take part in the shuffles", code=(
            SCORES[:_FROM] + _GUARDED.replace("0xffffffff", "d < 32 ? (1u << d) - 1 : 0xffffffff") + SCORES[_TO:]),
                      ask="In the first step lane 5 reads from lane 5 ^ 16 = 21. Does lane 21 take part when d = 20?")],
    hints=["Which lanes go into the branch, and which lanes does `0xffffffff` wait for?",
           "Take the sum out of the branch: each lane has a product, or 0.",
           "`float sum = lane < d ? ... : 0.0f;`"])


def rolling_cases(rng):
    for t, window, n_sink in [(0, 1, 0), (3, 2, 0), (3, 2, 1), (1, 4, 2), (9, 4, 2), (20, 5, 3), (6, 7, 0), (7, 6, 2), (1, 3, 4),
                              (whole(rng, 30, 90), whole(rng, 6, 20), whole(rng, 1, 5))]:
        for reindexed in (False, True):
            yield Case(t, window, n_sink, reindexed, label=f"token {t}, window {window}, {n_sink} sinks, reindexed {reindexed}")

exercise(id="7.9", title="Positions in a rolling cache", kind="write", points=2, minutes=7, difficulty=3, card="""
    A rolling cache holds the first `n_sink` tokens and the last `window`, the newest included. Write `rolling_positions`
    for the moment at which token `t` (counted from 0) has just been appended: the position of its query, and the list of
    the positions of all keys held, oldest first.

    - absolute (`reindexed` False): every token keeps its own number
    - `reindexed` True: those held are counted 0, 1, 2, ... anew, and the query has the number of its own key
    - sinks are held in addition to the window; early on the two overlap, and no token is held twice
    """, solution='''
    def rolling_positions(t, window, n_sink, reindexed):
        """-> query position, [key positions]"""
        held = [j for j in range(t + 1) if j < n_sink or j > t - window]
        if not reindexed:
            return t, held
        return len(held) - 1, list(range(len(held)))
    ''', cases=rolling_cases, compare=exact(), misconceptions=[
        Misconception("holds one token too many", change=("j > t - window", "j >= t - window"),
                      ask="A window of 1 holds the newest token. Does yours hold any other?"),
        Misconception("forgets the sinks", change=("j < n_sink or j > t - window", "j > t - window"),
                      ask="Which tokens are held however long the text grows?"),
        Misconception("holds a token twice that is a sink and in the window", change=(
            "[j for j in range(t + 1) if j < n_sink or j > t - window]",
            "[*range(min(n_sink, t + 1)), *range(max(0, t - window + 1), t + 1)]"),
                      ask="After two tokens, with two sinks and a window of four: how many tokens can there be?"),
        Misconception("gives the query the number after its own key", change=("len(held) - 1, list", "len(held), list"),
                      ask="The query's own key is among those held. Which number has it?"),
        Misconception("renumbers the query and leaves the keys at their old places", change=("list(range(len(held)))", "held"),
                      ask="After re-indexing, how far is the query from its own key?"),
        Misconception("takes the sinks out of the window", change=("j > t - window", "j > t - window + n_sink"),
                      ask="With a window of 4 and 2 sinks, how many tokens are held?"),
        Misconception("renumbers the keys and leaves the query at its old place", change=("len(held) - 1, list", "t, list"),
                      ask="After re-indexing, how far is the query from its own key?")],
    hints=["First the tokens: which `j` from 0 to `t` are a sink, or among the last `window`?",
           "Re-indexed, the keys are `range(len(held))`. The query's own key is the last of them."])


def quantize_cases(rng):
    for n, d, bits, dim, loud in [(2, 2, 4, 0, 1), (2, 3, 8, 1, 1), (16, 8, 4, 0, 30), (16, 8, 4, 1, 30), (33, 5, 8, 0, 100), (7, 9, 2, 1, 1)]:
        x = randn(rng, n, d) + 1
        x[:, 0] *= loud
        yield Case(x, bits, dim, label=f"{n} x {d}, {bits} bits, one step along dim {dim}")

exercise(id="7.10", title="Fewer bits", kind="write", points=2, minutes=8, difficulty=3, card="""
    Write `quantize`: the entries along `dim` share a lowest value and a step. An entry is kept as the whole number of steps
    above the lowest, $x \\approx \\text{low} + \\text{step} \\cdot \\text{code}$.

    - codes run from 0 to $2^{bits} - 1$; the lowest entry gets 0, the highest the top
    - round to the nearest code, so that no entry errs by more than half a step
    - return `codes` (left in the floating point of `x`), `step` and `low`; the last two have size 1 along `dim`
    - in no group are all entries alike: no step is 0
    """, given={"torch": torch}, solution='''
    def quantize(x, bits, dim):
        """x (n, d) -> codes (n, d), step and low with size 1 along dim"""
        low, high = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
        step = (high - low) / (2**bits - 1)
        return ((x - low) / step).round(), step, low
    ''', cases=quantize_cases, compare=close(atol=1e-4, rtol=1e-4),
    properties=[("no entry errs by more than half a step", lambda got, case: bool(
        ((got[2] + got[1] * got[0] - case.args[0]).abs() <= 0.501 * got[1]).all()))], misconceptions=[
        Misconception("counts one code too many", change=("2**bits - 1", "2**bits"),
                      ask="What is the highest number that 4 bits can hold?"),
        Misconception("cuts off instead of rounding", change=(".round()", ".floor()"),
                      ask="By how much can an entry err when 6.9 steps become 6?"),
        Misconception("does not subtract the lowest", change=("((x - low) / step).round()", "(x / step).round()"),
                      ask="Which code should the lowest entry get?"),
        Misconception("takes a range that is symmetric around 0", body='''
            step = x.abs().amax(dim, keepdim=True) / (2**(bits - 1) - 1)
            return (x / step).round(), step, torch.zeros_like(step)
            ''', ask="All entries of a channel are above 0. How many of your codes does it use?"),
        Misconception("shares one step among all entries", change=("amin(dim, keepdim=True), x.amax(dim, keepdim=True)", "min(), x.max()"),
                      ask="One channel is 30 times as loud as the others. How many codes are left for those?"),
        Misconception("shares along the other dimension", change=[("x.amin(dim, keepdim=True)", "x.amin(1 - dim, keepdim=True)"),
                                                                    ("x.amax(dim, keepdim=True)", "x.amax(1 - dim, keepdim=True)")],
                      ask="With `dim=0`, a column shares a step. What shape must `step` have?")],
    hints=["`x.amin(dim, keepdim=True)` and `amax` give the two ends of each group.",
           "The step divides the range into $2^{bits} - 1$ pieces."])


def beam_cases(rng):
    for beams, vocabulary, keep in [(1, 3, 2), (2, 2, 2), (2, 5, 3), (4, 11, 4), (3, 7, 1)]:
        yield Case(4 * randn(rng, beams), (3 * randn(rng, beams, vocabulary)).log_softmax(-1), keep,
                   label=f"{beams} beams, {vocabulary} tokens, keep {keep}")

exercise(id="7.11", title="A step of beam search", kind="write", points=2, minutes=6, difficulty=2, card="""
    Beam search keeps the `keep` likeliest texts. Write one step: each beam has a score (the log probability of its text so
    far), and `log_p` the log probabilities of its next token.

    - a text's new score is the sum of both
    - the best `keep` are chosen among **all** beams and tokens
    - return for each survivor, best first: `parent` (the beam it continues, which is the index that the cache is reordered
      by), `token`, and its new score
    """, given={"torch": torch}, solution='''
    def beam_step(scores, log_p, keep):
        """scores (b,), log_p (b, vocabulary) -> parent (keep,), token (keep,), scores (keep,)"""
        best, index = (scores[:, None] + log_p).flatten().topk(keep)
        return index // log_p.shape[1], index % log_p.shape[1], best
    ''', cases=beam_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("takes the parent for the token", change=("index // log_p.shape[1], index % log_p.shape[1]",
                                                                  "index % log_p.shape[1], index // log_p.shape[1]"),
                      ask="Flattened, beam 1 begins at index `vocabulary`. Which of // and % gives 1 there?"),
        Misconception("follows only the best token of each beam", body='''
            best, token = (scores[:, None] + log_p).max(1)
            best, parent = best.topk(keep)
            return parent, token[parent], best
            ''', ask="May one beam have two children while another has none?"),
        Misconception("adds the score of a beam to a token", change=("scores[:, None] + log_p", "scores + log_p"),
                      ask="`log_p` has one row per beam. Along which of its axes must `scores` lie?"),
        Misconception("forgets what the text has cost so far", change=("scores[:, None] + log_p", "log_p"),
                      ask="Is a likely token worth much at the end of an unlikely text?"),
        Misconception("returns the probability of the token alone as the new score",
                      change=("index % log_p.shape[1], best", "index % log_p.shape[1], log_p.flatten()[index]"),
                      ask="What did the beginning of the text cost, and where is it in the score?"),
        Misconception("divides by the number of beams", change=("index // log_p.shape[1], index % log_p.shape[1]",
                                                                 "index // log_p.shape[0], index % log_p.shape[0]"),
                      ask="How many entries does one beam take up in the flattened row?")],
    hints=["`scores[:, None] + log_p` has one row per beam. Flatten it, and `topk`.",
           "An index into the flattened row is `parent * vocabulary + token`."])


def keep_cases(rng):
    for n in (2, 3, 5, 9):
        yield Case((2 * randn(rng, n)).softmax(0), (2 * randn(rng, n)).softmax(0), label=f"{n} tokens")
    yield Case(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5]), label="the draft likes a token that the target never draws")

exercise(id="7.12", title="Keep or replace", kind="write", points=3, minutes=8, difficulty=4, card="""
    A draft model has drawn a token from `draft`; the large model would have drawn from `target`. Write
    `keep_and_replace`, which makes up for the difference.

    - `keep[x]`: with what probability a drafted token `x` is kept
    - `instead[x]`: with what probability a **refused** token is replaced by `x`; it sums to 1
    - together: $\\text{draft}(x)\\,\\text{keep}(x) + P(\\text{refused})\\,\\text{instead}(x) = \\text{target}(x)$, and as much is kept as possible
    - `target` and `draft` differ, and `draft` is nowhere 0
    """, given={"torch": torch}, solution='''
    def keep_and_replace(target, draft):
        """probabilities (vocabulary,) each -> keep (vocabulary,), instead (vocabulary,)"""
        keep = (target / draft).clamp(max=1)
        missing = (target - draft).clamp(min=0)
        return keep, missing / missing.sum()
    ''', cases=keep_cases, compare=close(atol=1e-5),
    properties=[("what is kept and what replaces it add up to the target", lambda got, case: bool(torch.allclose(
        case.args[1] * got[0] + (1 - (case.args[1] * got[0]).sum()) * got[1], case.args[0], atol=1e-4)))], misconceptions=[
        Misconception("replaces a refused token from the target itself", change=("return keep, missing / missing.sum()",
                                                                              "return keep, target"),
                      ask="Tokens that the draft likes too much are already kept as often as they should come. How often may they also replace?"),
        Misconception("keeps with a probability above 1", change=(".clamp(max=1)", ""),
                      ask="A token that the target likes twice as much as the draft: can it be kept more often than always?"),
        Misconception("gives what is kept in all, not how likely a drafted token is kept",
                      change=("(target / draft).clamp(max=1)", "torch.minimum(target, draft)"),
                      ask="min(target, draft) is draft(x) times keep(x). What is keep(x)?"),
        Misconception("replaces also by tokens that come too often", change=("(target - draft).clamp(min=0)", "(target - draft).abs()"),
                      ask="Which tokens come too rarely from the draft, and have to be made up for?"),
        Misconception("turns the ratio round", change=("target / draft", "draft / target.clamp(min=1e-9)"),
                      ask="Which tokens must be refused: those that the draft draws too often, or too rarely?"),
        Misconception("forgets to normalise", change=("missing / missing.sum()", "missing"),
                      ask="What is the sum of the probabilities from which a refused token is replaced?"),
        Misconception("replaces by what the draft draws too often", change=("(target - draft)", "(draft - target)"),
                      ask="Which tokens come too rarely from the draft, and have to be made up for?")],
    hints=["Draw the two as bars side by side. The part that both have can be kept.",
           "Kept mass at x is min(target, draft): what `keep` makes draft(x) keep(x) just that?",
           "What is missing at x is max(target - draft, 0); a replacement is drawn in proportion to it."])


exercise(id="7.13", title="Tokens for a pass", kind="predict", points=1, minutes=4, difficulty=3, name="tokens", card="""
    Four tokens are drafted, and each is kept with probability 0.8, if all before it were kept. A pass of the large model
    yields those that were kept and one more. How many tokens is that on average? Two decimals.
    """, answer=(1 - 0.8**5) / (1 - 0.8), tolerance=0.011, misconceptions=[
        Misconception("counts a token as kept even after a refusal", value=1 + 4 * 0.8,
                      ask="The second token was refused. Can the third still be used?"),
        Misconception("counts a token as kept even after a refusal, and forgets that of the pass", value=3.2,
                      ask="How likely is the third to be used, if the two before it have to be kept as well?"),
        Misconception("forgets the token that the pass adds itself", value=0.8 + 0.8**2 + 0.8**3 + 0.8**4,
                      ask="If all four are refused, does the pass yield nothing?"),
        Misconception("counts only the passes in which all four are kept", value=1 + 4 * 0.8**4,
                      ask="Three kept tokens are worth something too. How many come on average?")],
    hints=["The third token is kept if the first two were as well: with probability $0.8^3$.",
           "$1 + 0.8 + 0.8^2 + 0.8^3 + 0.8^4$."])


exercise(id="7.15", title="One token further", kind="write", points=2, minutes=8, difficulty=3, card="""
    A model has read a text: `states[i]` is its state after token `i`, from which it predicts token `i + 1` itself. A multi-token head
    gets a state and **one later token** and learns the token after that. Write what it learns from: with `ahead = 1`, state `i` goes with
    token `i + 1`, and the target is token `i + 2`; with `ahead = 2`, for a second head, each is one token later.

    - three tensors of equal length, one row per example
    - every example that has a state, a token and a target; no other
    """, given={"torch": torch}, solution='''
    def lesson(states, tokens, ahead):
        """states (n, d), tokens (n,) -> states (m, d), tokens beside them (m,), targets (m,)"""
        m = len(tokens) - ahead - 1
        return states[:m], tokens[ahead:ahead + m], tokens[ahead + 1:]
    ''', cases=lambda rng: [
        Case(torch.arange(4.0)[:, None], torch.tensor([10, 11, 12, 13]), 1, label="4 tokens, one ahead"),
        Case(randn(rng, 9, 3), torch.randint(50, (9,), generator=rng), 1, label="9 tokens, one ahead"),
        Case(randn(rng, 8, 2), torch.randint(50, (8,), generator=rng), 3, label="8 tokens, three ahead")],
    compare=close(atol=0, rtol=0), misconceptions=[
        Misconception("hands over the token that is to be predicted", change=("tokens[ahead:ahead + m]", "tokens[ahead + 1:]"),
                      ask="When the head drafts, does it know the token that it is to predict?"),
        Misconception("predicts what the model predicts already", body='''
            m = len(tokens) - ahead
            return states[:m], tokens[ahead - 1:ahead - 1 + m], tokens[ahead:]
            ''', ask="State i predicts token i + 1 without any head. Which token does your head add?"),
        Misconception("exchanges the token beside the state and the target",
                      change=("tokens[ahead:ahead + m], tokens[ahead + 1:]", "tokens[ahead + 1:], tokens[ahead:ahead + m]"),
                      ask="Which of the two is known when the head drafts?"),
        Misconception("takes the states later, too", change=("return states[:m]", "return states[ahead:ahead + m]"),
                      ask="With `ahead` = 1, which token has the state beside token 1 read last?"),
        Misconception("leaves out the last example", change=[("len(tokens) - ahead - 1", "len(tokens) - ahead - 2"),
                                                              ("tokens[ahead + 1:]", "tokens[ahead + 1:ahead + 1 + m]")],
                      ask="Four tokens, one ahead: which states have a token and a target?"),
        Misconception("puts a state beside its own token", change=("tokens[ahead:ahead + m]", "tokens[:m]"),
                      ask="The state has read token i. What does the head learn from being told that token again?"),
        Misconception("gives the next token, whatever `ahead` is", change=("tokens[ahead:ahead + m]", "tokens[1:1 + m]"),
                      ask="With `ahead` = 3, which tokens lie between state and target? Which is the last of them?")],
    hints=["Write out four tokens: which states have a token after them and one more?",
           "There are `len(tokens) - ahead - 1` examples: the last ones have no target."])
