"""The exercises of chapter 3."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out


def randn(rng, *shape):
    return torch.randn(shape, generator=rng)


exercise(
    id="3.1", title="What one token costs", kind="predict", points=1, minutes=3, difficulty=1,
    card="""
    Llama 3 70B has 80 layers, 64 query heads, 8 heads of keys and values, and a `head_dim` of 128. Its cache holds
    2 bytes a number. How many **KiB** does one token add to the cache? Type the number.
    """,
    name="kib", answer=320, tolerance=0.5,
    misconceptions=[
        Misconception("keeps the keys and forgets the values", value=160,
                      ask="The next token needs the weights, and then what is weighted. What has to be kept for each?"),
        Misconception("counts the query heads", value=2560,
                      ask="Is a query ever needed again, once its token is done?"),
        Misconception("takes 4 bytes a number", value=640, ask="In which precision is this cache kept?"),
        Misconception("gives bytes and not KiB", value=327_680, ask="How many bytes is a KiB?"),
        Misconception("takes 1,000 bytes for a KiB", value=327.68, ask="A kB is 1,000 bytes. And a KiB?"),
        Misconception("counts one layer only", value=4, ask="Does every layer keep keys and values of its own?")],
    hints=["One layer keeps one key and one value of 128 numbers for each of its 8 heads.",
           "2 x 8 x 128 numbers a layer, 2 bytes each, 80 layers, and a KiB is 1024 bytes."])


def repeat_cases(rng):
    yield Case(torch.arange(4.0).view(1, 2, 2, 1), 2, label="2 heads, groups of 2")
    yield Case(randn(rng, 2, 3, 5, 4), 2, label="a batch of 2, 3 heads, groups of 2")
    yield Case(randn(rng, 1, 1, 3, 8), 4, label="one head for everybody")
    yield Case(randn(rng, 1, 4, 3, 2), 1, label="groups of one")


exercise(
    id="3.2", title="Which head goes with which", kind="write", points=2, minutes=6, difficulty=2,
    card="""
    Write `repeat_kv(x, group_size)`: every head of keys stands `group_size` times, next to itself.

    - `(b, n_kv_heads, n, d)` becomes `(b, n_kv_heads * group_size, n, d)`
    - with two heads and groups of two, `[K1 K2]` becomes `[K1 K1 K2 K2]`
    """,
    given={"torch": torch},
    stub='''
    def repeat_kv(x, group_size):
        """(b, n_kv_heads, n, d) -> (b, n_kv_heads * group_size, n, d)"""
        raise NotImplementedError
    ''',
    solution='''
    def repeat_kv(x, group_size):
        """(b, n_kv_heads, n, d) -> (b, n_kv_heads * group_size, n, d)"""
        b, n_kv_heads, n, d = x.shape
        spread = x[:, :, None].expand(b, n_kv_heads, group_size, n, d)
        return spread.reshape(b, n_kv_heads * group_size, n, d)
    ''',
    cases=repeat_cases, compare=close(atol=0),
    misconceptions=[
        Misconception("tiles the heads, [K1 K2 K1 K2]", code='''
            def repeat_kv(x, group_size):
                return x.repeat(1, group_size, 1, 1)
            ''', ask="Query heads 0 and 1 are one group. Which key head do they find in your result, at 0 and at 1?"),
        Misconception("takes group_size for the number of heads that should come out", code='''
            def repeat_kv(x, group_size):
                return x.repeat_interleave(max(1, group_size // x.shape[1]), 1)
            ''', ask="Is group_size the number of query heads, or the number of query heads that share one key head?"),
        Misconception("repeats along the sequence", code='''
            def repeat_kv(x, group_size):
                return x.repeat_interleave(group_size, 2)
            ''', ask="Which axis of (b, n_kv_heads, n, d) counts heads?")],
    hints=["A new axis after the heads, then `expand` it to `group_size`: that copies nothing yet.",
           "`reshape` merges the two axes; the second of them runs fastest, which is what keeps a group together.",
           "`torch.repeat_interleave` does it in one call, if you give it the right axis."])


def grouped_cases(rng):
    yield Case(randn(rng, 1, 2, 2, 3), randn(rng, 1, 1, 3, 3), randn(rng, 1, 1, 3, 2), label="2 query heads, one key head")
    yield Case(randn(rng, 1, 4, 1, 8), randn(rng, 1, 2, 5, 8), randn(rng, 1, 2, 5, 8), label="one query, 4 heads on 2")
    yield Case(randn(rng, 2, 6, 3, 5), randn(rng, 2, 3, 7, 5), randn(rng, 2, 3, 7, 5), label="a batch of 2, 6 heads on 3")
    yield Case(randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), label="3 heads on 3")


GROUPED = '''
def grouped_attention(q, k, v):
    """q (b, n_heads, n, d); k, v (b, n_kv_heads, m, ...) -> (b, n_heads, n, v_dim)"""
    b, n_heads, n, d = q.shape
    n_kv_heads = k.shape[1]
    rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)
    weights = torch.softmax(rows @ k.transpose(-2, -1) / math.sqrt(d), -1)
    return (weights @ v).reshape(b, n_heads, n, v.shape[-1])
'''

exercise(
    id="3.3", title="No copy at all", kind="write", points=3, minutes=14, difficulty=3,
    card=r"""
    Write grouped attention **without** repeating a key. The queries of one group meet the same keys, so lay them one
    under the other: a group of `g` heads with `n` queries each is one matrix of `g n` rows.

    - no `repeat`, no `expand`: the keys stay as they are
    - scaled by $1/\sqrt d$; no mask here
    - the heads come back in the order in which they went in
    """,
    given={"torch": torch, "math": math},
    forbid=("scaled_dot_product_attention", "repeat", "repeat_interleave", "expand", "tile", "expand_as"),
    stub='''
    def grouped_attention(q, k, v):
        """q (b, n_heads, n, d); k, v (b, n_kv_heads, m, ...) -> (b, n_heads, n, v_dim)"""
        raise NotImplementedError
    ''',
    solution=GROUPED, cases=grouped_cases, compare=close(atol=1e-5),
    properties=[("each output lies between the smallest and the largest value of its column",
                 lambda got, case: bool((got.amax() <= case.args[2].amax() + 1e-4) & (got.amin() >= case.args[2].amin() - 1e-4)))],
    misconceptions=[
        Misconception("gives head h the keys of head h mod n_kv_heads", code=GROUPED.replace(
            "rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)",
            "rows = q.reshape(b, n_heads // n_kv_heads, n_kv_heads, n, d).transpose(1, 2).reshape(b, n_kv_heads, -1, d)").replace(
            "return (weights @ v).reshape(b, n_heads, n, v.shape[-1])",
            "out = (weights @ v).reshape(b, n_kv_heads, n_heads // n_kv_heads, n, v.shape[-1])\n"
            "    return out.transpose(1, 2).reshape(b, n_heads, n, v.shape[-1])"),
                      ask="With 4 query heads on 2 key heads, whose keys does query head 1 read: those of key head 0 or 1?"),
        Misconception("lets the group axis of q meet the heads of k", code='''
            def grouped_attention(q, k, v):
                b, n_heads, n, d = q.shape
                rows = q.reshape(b, k.shape[1], -1, n, d)
                weights = torch.softmax(rows @ k.transpose(-2, -1) / math.sqrt(d), -1)
                return (weights @ v).reshape(b, n_heads, n, -1)
            ''', ask="q has five axes here and k four, lined up from the right. Which axis of q does the head axis of k meet?"),
        Misconception("lets the rows of a group share one softmax over the queries", change=("math.sqrt(d), -1)", "math.sqrt(d), -2)"),
                      ask="Each query hands out a weight of 1 over the keys. Which axis of (g n, m) is that?"),
        Misconception("leaves out the scale", change=(" / math.sqrt(d)", ""), ask="What is the variance of q . k?"),
        Misconception("divides by the root of the number of rows", change=("math.sqrt(d)", "math.sqrt(rows.shape[-2])"),
                      ask="The scale undoes the spread of a sum of products. How many products does one score add?")],
    hints=["Heads of one group are neighbours in `q`, so a plain `reshape` puts them under one another.",
           "`q.reshape(b, n_kv_heads, g * n, d)` lines up with `k` of shape `(b, n_kv_heads, m, d)`.",
           "The result has shape `(b, n_kv_heads, g * n, v_dim)`. One more reshape undoes the first."])


exercise(
    id="3.4", title="How much busier is a byte?", kind="predict", points=1, minutes=5, difficulty=3,
    card=r"""
    One decoding step attends to $n = 64$ keys. Multi-head attention gets $I_1$ FLOPs out of each number it reads or
    writes (keys, values, queries and outputs counted); grouped attention with $g = 4$ gets $I_4$. The theorem above
    gives $I_4 / I_1$. Type it with two decimals.
    """,
    name="ratio", answer=4 * (1 + 1 / 64) / (1 + 4 / 64), tolerance=0.006,
    misconceptions=[
        Misconception("forgets queries and outputs, which do not shrink", value=4.0,
                      ask="Grouping shrinks keys and values. Do the queries and the outputs become fewer as well?"),
        Misconception("counts queries and outputs for the groups and not for single heads", value=4 / (1 + 4 / 64),
                      ask="What is I_1? Does multi-head attention read no query?"),
        Misconception("lets the FLOPs shrink with the bytes", value=1.0,
                      ask="How many scores are computed, with and without groups?"),
        Misconception("turns the fraction over", value=(1 + 4 / 64) / (4 * (1 + 1 / 64)),
                      ask="Grouped attention does the same FLOPs with fewer bytes. Is its intensity then larger or smaller?")],
    hints=["The FLOPs are the same on both sides, so the ratio of intensities is the ratio of the bytes, turned over.",
           "Bytes per query head: $2nd/g$ for keys and values, $2d$ for query and output."])


def score_cases(rng):
    yield Case(randn(rng, 2, 4), randn(rng, 1, 3, 4), label="2 query heads on one key head, 3 keys")
    yield Case(randn(rng, 4, 16), randn(rng, 2, 33, 16), label="4 heads on 2, 33 keys")
    yield Case(randn(rng, 8, 32), randn(rng, 1, 64, 32), label="8 heads on one, 64 keys")
    yield Case(randn(rng, 6, 64), randn(rng, 2, 100, 64), label="6 heads on 2, 100 keys")


def score_launch(q, k):
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    return Launch(grid=(math.ceil(n / 32), n_kv_heads), block=128, shared=4 * 32 * (d + 1),
                  args=[q, k, out((n_heads, n)), n, d, n_heads // n_kv_heads])


def score_traffic(q, k):
    """Each key once; each group's queries once a tile of 32 keys (a warp reads one number at a time: a sector)."""
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    tiles = math.ceil(n / 32)
    return 4 * k.numel() + tiles * n_heads * d * 32 + 4 * n_heads * n


SCORES = '''
__global__ void group_scores(const float* __restrict__ q, const float* __restrict__ k, float* __restrict__ scores,
                             int n, int d, int group_size) {
    extern __shared__ float tile[];              // 32 keys, d + 1 floats a row
    int first_key = blockIdx.x * 32, kv_head = blockIdx.y;
    int rows = min(32, n - first_key);           // the last tile may be smaller
    const float* keys = k + (size_t)(kv_head * n + first_key) * d;

    for (int e = threadIdx.x; e < rows * d; e += blockDim.x) tile[e / d * (d + 1) + e % d] = keys[e];
    __syncthreads();

    for (int pair = threadIdx.x; pair < group_size * 32; pair += blockDim.x) {
        int head = kv_head * group_size + pair / 32, row = pair % 32;
        if (row < rows) {
            float sum = 0.0f;
            for (int c = 0; c < d; ++c) sum += q[head * d + c] * tile[row * (d + 1) + c];
            scores[head * n + first_key + row] = sum;
        }
    }
}
'''

kernel_exercise(
    id="3.5", title="Fetch a key once, use it g times", points=4, minutes=18, difficulty=4, name="group_scores",
    card=r"""
    Finish the kernel: scores of one query per head against all keys, `scores[head][key] = q[head] . k[kv_head][key]`.
    A block serves **all query heads of one group** and 32 keys; its launch is `grid = (ceil(n / 32), n_kv_heads)`,
    `block = 128`.

    - bring the block's keys into `tile` once, all threads together; a row takes `d + 1` floats there
    - wait, then compute the `group_size * 32` scores from `tile`
    - head `h` belongs to group `h / group_size`; the last tile may hold fewer than 32 keys
    - budget: every key is read from global memory once
    """,
    stub='''
__global__ void group_scores(const float* __restrict__ q, const float* __restrict__ k, float* __restrict__ scores,
                             int n, int d, int group_size) {
    extern __shared__ float tile[];              // 32 keys, d + 1 floats a row
    int first_key = blockIdx.x * 32, kv_head = blockIdx.y;
    int rows = min(32, n - first_key);           // the last tile may be smaller
    const float* keys = k + (size_t)(kv_head * n + first_key) * d;

    // 1. load the rows of this tile   2. wait   3. compute group_size * 32 scores
}
''',
    solution=SCORES, cases=score_cases, launch=score_launch, compare=close(atol=1e-4), traffic=score_traffic,
    expect=lambda q, k: (q.view(k.shape[0], -1, q.shape[1]) @ k.transpose(1, 2)).reshape(q.shape[0], k.shape[1]),
    misconceptions=[
        Misconception("reads the keys anew for every head", code=SCORES.replace(
            "tile[row * (d + 1) + c]", "keys[row * d + c]"),
                      ask="Where do you fetch a key from inside the loop over the scores, and how often for one group?"),
        Misconception("starts to compute before the tile is there", change=("    __syncthreads();\n", ""),
                      ask="Row 5 of the tile is written by other threads than those that read it. What makes them wait?"),
        Misconception("gives head h the keys of head h mod n_kv_heads", change=(
            "kv_head * group_size + pair / 32", "pair / 32 * gridDim.y + kv_head"),
                      ask="Which query heads form group 0 when the group size is 2: 0 and 1, or 0 and n_kv_heads?"),
        Misconception("lets every thread load the whole tile",
                      change=("int e = threadIdx.x; e < rows * d; e += blockDim.x", "int e = 0; e < rows * d; ++e"),
                      ask="128 threads run this loop. How often is element 0 fetched?"),
        Misconception("forgets that the last tile may be smaller", change=[("min(32, n - first_key)", "32")],
                      ask="With 33 keys, which keys does the second block load?"),
        Misconception("writes scores of keys that are not there", change=("if (row < rows) {", "{"),
                      ask="A head has 32 threads here and 3 keys. What do the other 29 write?")],
    hints=["Loading: `for (int e = threadIdx.x; e < rows * d; e += blockDim.x)`; element `e` is row `e / d`, column `e % d`.",
           "Between loading and computing: `__syncthreads()`, reached by every thread of the block.",
           "Computing: `pair / 32` is the head within the group, `pair % 32` the key within the tile."])


def mix_cases(rng):
    yield Case(torch.softmax(randn(rng, 2, 5), -1), randn(rng, 5, 4), label="2 heads, 5 values")
    yield Case(torch.softmax(randn(rng, 2, 70), -1), randn(rng, 70, 16), label="2 heads, 70 values")
    yield Case(torch.softmax(randn(rng, 3, 64), -1), randn(rng, 64, 33), label="3 heads, 64 values of width 33")


MIX = '''
__global__ void mix_values(const float* __restrict__ weights, const float* __restrict__ v, float* __restrict__ out,
                           int heads, int n, int d) {
    extern __shared__ float tile[];                       // 32 values of width d
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};              // this thread's outputs: element threadIdx.x + 64 * i
    for (int start = 0; start < n; start += 32) {
        int rows = min(32, n - start);
        for (int e = threadIdx.x; e < rows * d; e += blockDim.x) tile[e] = v[start * d + e];
        __syncthreads();
        for (int i = 0; i < 4; ++i) {
            int element = threadIdx.x + 64 * i;
            if (element >= heads * d) break;
            int head = element / d, column = element % d;
            for (int row = 0; row < rows; ++row)
                sum[i] += weights[head * n + start + row] * tile[row * d + column];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        int element = threadIdx.x + 64 * i;
        if (element < heads * d) out[element] = sum[i];
    }
}
'''

kernel_exercise(
    id="3.6", title="Right today, wrong tomorrow", points=3, minutes=8, difficulty=3, name="mix_values", kind="repair",
    card="""
    This kernel mixes the values of one group, tile by tile, in shared memory. With one tile it is right; with more it depends on
    which threads are faster. Read what the sanitizer says about **both** threads, and repair the kernel.

    - one line is enough
    - every thread of the block has to reach what you add
    """,
    stub=MIX.replace("        }\n        __syncthreads();\n    }\n", "        }\n    }\n"),
    solution=MIX, cases=mix_cases, compare=close(atol=1e-5),
    launch=lambda w, v: Launch(grid=1, block=64, shared=4 * 32 * v.shape[1],
                               args=[w, v, out((w.shape[0], v.shape[1])), w.shape[0], v.shape[0], v.shape[1]]),
    expect=lambda w, v: w @ v,
    misconceptions=[
        Misconception("waits inside a branch that not every thread takes", code=MIX.replace(
            "        }\n        __syncthreads();\n    }\n", "        }\n    }\n").replace(
            "            int head = element / d,", "            if (i == 0) __syncthreads();\n            int head = element / d,"),
                      ask="Which threads leave the loop by `break` and never arrive at your barrier?"),
        Misconception("waits, but not between using a tile and filling it again", code=MIX.replace(
            "        }\n        __syncthreads();\n    }\n", "        }\n    }\n    __syncthreads();\n"),
                      ask="Which line reads the tile last, and which line fills it next? Does your barrier stand between them "
                          "in every turn of the loop?"),
        Misconception("waits for the warp only", code=MIX.replace(
            "        }\n        __syncthreads();\n    }\n", "        }\n        __syncwarp();\n    }\n"),
                      ask="The block has two warps. Does the second wait for the first at __syncwarp()?")],
    hints=["The race has two sides: one thread still reads row r of this tile; which line of which thread overwrites it?",
           "A fast warp may run on into the next turn of the loop and load the next tile, while a slow one still reads.",
           "Each shared tile needs two barriers: after it is filled, and before it is filled again."])


def pool_cases(rng):
    yield Case(torch.tensor([[1.0], [3.0], [10.0], [30.0]]), 4, 2, label="4 heads of one row, into 2")
    yield Case(randn(rng, 12, 5), 4, 2, label="4 heads of 3 rows, into 2")
    yield Case(randn(rng, 12, 5), 6, 1, label="6 heads of 2 rows, into 1")
    yield Case(randn(rng, 8, 3), 4, 4, label="as many as before")


POOL = '''
def pool_heads(weight, n_heads, n_kv_heads):
    """(n_heads * d, d_model) -> (n_kv_heads * d, d_model)"""
    d = weight.shape[0] // n_heads
    heads = weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1)
    return heads.mean(1).reshape(n_kv_heads * d, -1)
'''

exercise(
    id="3.7", title="From trained heads to groups", kind="write", points=2, minutes=8, difficulty=2,
    card="""
    A trained layer has a key projection for every head, stacked: rows `0..d-1` are head 0, rows `d..2d-1` head 1, and so on.
    Write `pool_heads(weight, n_heads, n_kv_heads)`: each new head is the **mean** of the heads of its group.
    """,
    given={"torch": torch},
    stub='''
    def pool_heads(weight, n_heads, n_kv_heads):
        """(n_heads * d, d_model) -> (n_kv_heads * d, d_model)"""
        raise NotImplementedError
    ''',
    solution=POOL, cases=pool_cases, compare=close(atol=1e-6),
    misconceptions=[
        Misconception("adds the heads and does not divide", change=("mean(1)", "sum(1)"),
                      ask="What happens to the size of every score when a key is the sum of its group?"),
        Misconception("pools heads that are n_kv_heads apart", code=POOL.replace(
            "weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1)",
            "weight.reshape(n_heads // n_kv_heads, n_kv_heads, d, -1).transpose(0, 1)"),
                      ask="Which query heads will read new key head 0? Those are the heads to average."),
        Misconception("keeps the first head of each group", change=("mean(1)", "select(1, 0)"),
                      ask="What do the other heads of the group find, if only the first one's keys are kept?"),
        Misconception("averages neighbouring rows inside a head", code=POOL.replace(
            "weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1)",
            "weight.reshape(n_kv_heads, d, n_heads // n_kv_heads, -1)").replace("mean(1)", "mean(2)"),
                      ask="Row 0 and row 1 belong to the same head. Which row of head 1 should row 0 be averaged with?")],
    hints=["Give the rows three axes: group, head within the group, row within the head.",
           "`reshape(n_kv_heads, group_size, d, d_model)`, then a mean over axis 1, then back to two axes."])


exercise(
    id="3.8", title="A cache of latents", kind="predict", points=1, minutes=4, difficulty=2,
    card="""
    DeepSeek-V3 keeps, in each of its 61 layers, a latent of 512 numbers and a shared rotary key of 64 numbers a token, 2 bytes
    each; it has 128 heads. How many **KiB** does a token add? One decimal is enough.
    """,
    name="kib", answer=61 * 576 * 2 / 1024, tolerance=0.06,
    misconceptions=[
        Misconception("keeps a latent for the keys and another one for the values", value=61 * 1152 * 2 / 1024,
                      ask="Keys and values are both unfolded from the same latent. How often must it be kept?"),
        Misconception("gives bytes and not KiB", value=61 * 576 * 2, ask="How many bytes is a KiB?"),
        Misconception("takes 1,000 bytes for a KiB", value=61 * 576 * 2 / 1000, ask="A kB is 1,000 bytes. And a KiB?"),
        Misconception("forgets the rotary key", value=61 * 512 * 2 / 1024,
                      ask="Why can position not travel inside the latent, and where does it travel instead?"),
        Misconception("keeps a latent for each head", value=61 * 576 * 2 * 128 / 1024,
                      ask="Which part of the layer tells the heads apart: the latent, or the matrices that unfold it?")],
    hints=["One latent a token and layer serves keys and values of all heads.", "61 x (512 + 64) numbers, 2 bytes each."])


def absorb_cases(rng):
    yield Case(randn(rng, 1, 2, 2), randn(rng, 1, 2, 3), label="one head, d = 2, a latent of 3")
    yield Case(randn(rng, 4, 5, 8), randn(rng, 4, 8, 12), label="4 heads, d = 8, a latent of 12")
    yield Case(randn(rng, 3, 1, 6), randn(rng, 3, 6, 6), label="3 heads, a latent as wide as a head")


exercise(
    id="3.9", title="Absorb the up-projection", kind="write", points=2, minutes=8, difficulty=3,
    card=r"""
    Head $h$ unfolds a latent $c$ to a key $W_h c$. Its score with a query is $q \cdot (W_h c)$. Write `fold_query(q, k_up)`,
    which moves $W_h$ to the side of the query: its result, multiplied with the latents themselves, gives the same scores.
    """,
    given={"torch": torch},
    stub='''
    def fold_query(q, k_up):
        """q (h, n, d), k_up (h, d, c) -> (h, n, c), so that fold_query(q, k_up) @ latents.T == q @ keys.T for each head"""
        raise NotImplementedError
    ''',
    solution='''
    def fold_query(q, k_up):
        """q (h, n, d), k_up (h, d, c) -> (h, n, c), so that fold_query(q, k_up) @ latents.T == q @ keys.T for each head"""
        return q @ k_up
    ''',
    cases=absorb_cases, compare=close(atol=1e-5),
    misconceptions=[
        Misconception("uses the same matrix for all heads", code='''
            def fold_query(q, k_up):
                return q @ k_up[0]
            ''', ask="Each head unfolds the latent in its own way. Which head's matrix does your second head use?"),
        Misconception("inverts the up-projection", code='''
            def fold_query(q, k_up):
                return q @ torch.linalg.pinv(k_up).transpose(-2, -1)
            ''', ask="q . (W c) = (W^T q) . c. Does an inverse appear anywhere?"),
        Misconception("adds up the heads", code='''
            def fold_query(q, k_up):
                return (q @ k_up).sum(0, keepdim=True).expand(len(q), -1, -1)
            ''', ask="Every head has scores of its own. May they be added before the softmax?")],
    hints=["Write the score as a sum over rows and columns of $W_h$ and change the order of the two sums.",
           r"$q^\top (W c) = (W^\top q)^\top c$; with queries as rows this is one matrix product."])
