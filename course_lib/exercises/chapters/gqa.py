"""The exercises of chapter 3."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn, whole


exercise(id="3.3", title="Which head goes with which", kind="write", points=2, minutes=6, difficulty=2, card="""
    Write `repeat_kv(x, group_size)`: every head of keys occurs `group_size` times, the copies next to each other.

    - `(b, n_kv_heads, n, d)` becomes `(b, n_kv_heads * group_size, n, d)`
    - with two heads and groups of two, `[K0 K1]` becomes `[K0 K0 K1 K1]`
    """, given={"torch": torch}, solution='''
    def repeat_kv(x, group_size):
        """(b, n_kv_heads, n, d) -> (b, n_kv_heads * group_size, n, d)"""
        b, n_kv_heads, n, d = x.shape
        spread = x[:, :, None].expand(b, n_kv_heads, group_size, n, d)
        return spread.reshape(b, n_kv_heads * group_size, n, d)
    ''', cases=lambda rng: [
        Case(torch.arange(4.0).view(1, 2, 2, 1), 2, label="2 heads, groups of 2"),
        Case(randn(rng, 2, 3, 5, 4), 2, label="a batch of 2, 3 heads, groups of 2"),
        Case(randn(rng, 1, 1, 3, 8), 4, label="one head for all"),
        Case(randn(rng, 1, 4, 3, 2), 1, label="groups of one")], compare=close(atol=0), misconceptions=[
        Misconception("tiles the heads, [K0 K1 K0 K1]", body="return x.repeat(1, group_size, 1, 1)",
                      ask="Query heads 0 and 1 are one group. Which key head do they find in your result, at 0 and at 1?"),
        Misconception("takes group_size for the number of heads that should come out",
                      body="return x.repeat_interleave(max(1, group_size // x.shape[1]), 1)",
                      ask="Is group_size the number of query heads, or the number of query heads that share one key head?"),
        Misconception("repeats along the features", body="return x.repeat_interleave(group_size, -1)",
                      ask="Which axis of (b, n_kv_heads, n, d) counts heads?"),
        Misconception("repeats along the sequence", body="return x.repeat_interleave(group_size, 2)",
                      ask="Which axis of (b, n_kv_heads, n, d) counts heads?")],
    hints=["A new axis after the heads, then `expand` it to `group_size`: that copies nothing yet.",
           "`reshape` merges the two axes; the second of them runs fastest, which is what keeps a group together.",
           "`torch.repeat_interleave` does it in one call, if you give it the right axis."])


def with_largest(f, q, k, v):
    """What f returns, and the number of elements of the largest array that it makes."""
    made = [0]

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                made.append(result.untyped_storage().nbytes() // max(1, result.element_size()))
            return result

    with Watch():
        output = f(q, k, v)
    return {"result": output, "numbers in the largest array": max(made)}

def equal_without_copies(got, want, case):
    """The output, and how it was made: repeated keys would be larger than all that is needed."""
    (got, largest), (want, least) = got.values(), want.values()
    told = close(atol=1e-5)(got, want, case)
    if told:
        return told
    q, k, v = case.args
    (b, h, n, d), (m, v_dim) = q.shape, v.shape[2:]
    needed, repeated = max(b * h * n * max(m, d, v_dim), k.numel(), v.numel()), b * h * m * min(d, v_dim)
    if largest <= least or largest < repeated or repeated <= needed:
        return None
    return (f"makes an array of {largest} numbers, though its result is right and the largest array that is needed has {needed}. Keys "
            f"repeated for every query head have {b * h * m * d}; indexing, stacking and the broadcasting of `@` copy them too")

GROUPED = '''
def grouped_attention(q, k, v):
    """q (b, n_heads, n, d); k, v (b, n_kv_heads, m, ...) -> (b, n_heads, n, v_dim)"""
    b, n_heads, n, d = q.shape
    n_kv_heads = k.shape[1]
    rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)
    weights = torch.softmax(rows @ k.transpose(-2, -1) / math.sqrt(d), -1)
    return (weights @ v).reshape(b, n_heads, n, v.shape[-1])
'''

exercise(id="3.4", title="No copy at all", kind="write", points=3, minutes=17, difficulty=3, card=r"""
    Write grouped attention **without** repeating a key. The queries of one group are multiplied by the same keys, so stack
    them: a group of `g` heads with `n` queries each is one matrix of `g n` rows.

    - keys and values stay as they are: the check looks at the largest array that you make, and `@` copies what it broadcasts
    - calls that do it for you (`repeat_interleave`, torch's own attention) are refused
    - scaled by $1/\sqrt d$; no mask here
    - the heads of the result are in the order of the heads of `q`
    """, given={"torch": torch, "math": math},
    forbid=("scaled_dot_product_attention", "repeat", "repeat_interleave", "expand", "tile", "expand_as"),
    solution=GROUPED, cases=lambda rng: [
        Case(randn(rng, 1, 2, 2, 3), randn(rng, 1, 1, 3, 3), randn(rng, 1, 1, 3, 2), label="2 query heads, one key head"),
        Case(randn(rng, 1, 4, 1, 8), randn(rng, 1, 2, 5, 8), randn(rng, 1, 2, 5, 8), label="one query, 4 heads on 2"),
        Case(randn(rng, 2, 6, 3, 5), randn(rng, 2, 3, 7, 5), randn(rng, 2, 3, 7, 5), label="a batch of 2, 6 heads on 3"),
        Case(randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), label="3 heads on 3")],
    compare=equal_without_copies, call=with_largest,
    limit=20,                                    # the first use of a dispatch mode loads much of torch
    misconceptions=[
        Misconception("gives head h the keys of head h mod n_kv_heads", code=GROUPED.replace(
            "rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)",
            "rows = q.reshape(b, n_heads // n_kv_heads, n_kv_heads, n, d).transpose(1, 2).reshape(b, n_kv_heads, -1, d)").replace(
            "return (weights @ v).reshape(b, n_heads, n, v.shape[-1])",
            "out = (weights @ v).reshape(b, n_kv_heads, n_heads // n_kv_heads, n, v.shape[-1])\n"
            "    return out.transpose(1, 2).reshape(b, n_heads, n, v.shape[-1])"),
                      ask="With 4 query heads on 2 key heads, whose keys does query head 1 read: those of key head 0 or 1?"),
        Misconception("puts the rows of a group in the order of the tokens, and reads them back in the order of the heads", code=GROUPED.replace(
            "rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)",
            "rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads, n, d).transpose(2, 3).reshape(b, n_kv_heads, -1, d)"),
                      ask="With 2 heads of 3 queries in a group: is row 1 of your matrix query 1 of the first head, or query 0 of the second?"),
        Misconception("stacks every n_kv_heads-th head, and does not put the results back in order", code=GROUPED.replace(
            "rows = q.reshape(b, n_kv_heads, n_heads // n_kv_heads * n, d)",
            "rows = q.reshape(b, n_heads // n_kv_heads, n_kv_heads, n, d).transpose(1, 2).reshape(b, n_kv_heads, -1, d)"),
                      ask="With 4 query heads on 2 key heads, which two heads of `q` are in your first matrix: 0 and 1, or 0 and 2?"),
        Misconception("lets the group axis of q meet the heads of k", body='''
            b, n_heads, n, d = q.shape
            rows = q.reshape(b, k.shape[1], -1, n, d)
            weights = torch.softmax(rows @ k.transpose(-2, -1) / math.sqrt(d), -1)
            return (weights @ v).reshape(b, n_heads, n, -1)
            ''', ask="q has five axes here and k four, lined up from the right. Which axis of q does the head axis of k meet?"),
        Misconception("repeats the keys by another name", body='''
            of_head = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
            weights = torch.softmax(q @ k[:, of_head].transpose(-2, -1) / math.sqrt(q.shape[-1]), -1)
            return weights @ v[:, of_head]
            ''', ask="How many numbers does `k[:, of_head]` hold, and how many does `k`?"),
        Misconception("lets the rows of a group share one softmax over the queries", change=("math.sqrt(d), -1)", "math.sqrt(d), -2)"),
                      ask="Each query hands out a weight of 1 over the keys. Which axis of (g n, m) is that?"),
        Misconception("leaves out the scale", change=(" / math.sqrt(d)", ""), ask="What is the variance of q . k?"),
        Misconception("divides by the root of the number of rows", change=("math.sqrt(d)", "math.sqrt(rows.shape[-2])"),
                      ask="The scale undoes the spread of a sum of products. How many products does one score add?")],
    hints=["Heads of one group are neighbours in `q`, so a plain `reshape` puts them under one another.",
           "`q.reshape(b, n_kv_heads, g * n, d)` lines up with `k` of shape `(b, n_kv_heads, m, d)`.",
           "The result has shape `(b, n_kv_heads, g * n, v_dim)`. One more reshape undoes the first."])


exercise(id="3.5", title="FLOPs per byte, in groups", kind="predict", points=1, minutes=5, difficulty=3, card=r"""
    One decoding step attends to $n = 64$ keys. Each query head makes $4nd$ FLOPs. At 2 bytes per number it reads its query and writes its
    output ($4d$ bytes), and it reads $n$ keys and $n$ values ($4nd$ bytes), which in grouped attention are read once for $g$ heads. By what
    factor do the FLOPs per byte grow from $g = 1$ to $g = 4$? Type it with two decimals.
    """, name="ratio", answer=4 * (1 + 1 / 64) / (1 + 4 / 64), tolerance=0.006, misconceptions=[
        Misconception("forgets queries and outputs, which do not shrink", value=4.0,
                      ask="Grouping shrinks keys and values. Do the queries and the outputs become fewer as well?"),
        Misconception("counts queries and outputs for the groups and not for single heads", value=4 / (1 + 4 / 64),
                      ask="Does a single head, g = 1, read no query?"),
        Misconception("lets the FLOPs shrink with the bytes", value=1.0,
                      ask="How many scores are computed, with and without groups?"),
        Misconception("turns the fraction over", value=(1 + 4 / 64) / (4 * (1 + 1 / 64)),
                      ask="Grouped attention does the same FLOPs with fewer bytes. Is its intensity then larger or smaller?")],
    hints=["The FLOPs are the same on both sides, so the ratio of intensities is the ratio of the bytes, turned over.",
           "Bytes per query head: $4nd/g$ for keys and values, $4d$ for query and output."])


def score_launch(q, k):
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    return Launch(grid=(math.ceil(n / 32), n_kv_heads), block=128, shared=4 * 32 * (d + 1),
                  args=[q, k, out((n_heads, n)), n, d, n_heads // n_kv_heads])

def score_traffic(q, k):
    """Each key once; each group's queries once per tile of 32 keys (a warp reads one number at a time: a sector)."""
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    tiles = math.ceil(n / 32)
    return 4 * k.numel() + tiles * n_heads * d * 32 + 4 * n_heads * n

GROUP_SCORES = '''
__global__ void group_scores(const float* __restrict__ q, const float* __restrict__ k, float* __restrict__ scores,
                             int n, int d, int group_size) {
    extern __shared__ float tile[];              // 32 keys, d + 1 floats per row
    int first_key = blockIdx.x * 32, kv_head = blockIdx.y;
    int rows = min(32, n - first_key);           // the last tile may be smaller
    const float* keys = k + (size_t)(kv_head * n + first_key) * d;

@}
'''

kernel_exercise(id="3.6", title="Fetch a key once, use it g times", points=4, minutes=24, difficulty=4, name="group_scores",
    card=r"""
    Finish the kernel: scores of one query per head against all `n` keys, `scores[head][key] = q[head] . k[kv_head][key]`,
    without a scale. `q` is `(n_heads, d)`, `k` is `(n_kv_heads, n, d)`, `scores` is `(n_heads, n)`.
    A block serves **all query heads of one group** and 32 keys; its launch is `grid = (ceil(n / 32), n_kv_heads)`,
    `block = 128`.

    - bring the block's keys into `tile` once, all threads together, neighbouring threads neighbouring floats; a row takes `d + 1` floats
      there (with `d`, the 32 entries of a column may all be in one bank)
    - wait, then compute the `group_size * 32` scores from `tile`
    - head `h` belongs to group `h / group_size`; the last tile may hold fewer than 32 keys
    - its third launch number, the bytes of `tile`, is `32 * (d + 1) * 4`
    - budget: each sector of the keys is moved from global memory once, and shared memory needs at most 2 wavefronts per request
    """, stub=GROUP_SCORES.replace("@", "    // 1. load the rows of this tile   2. wait   3. compute group_size * 32 scores\n"),
    solution=GROUP_SCORES.replace("@", '''
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
'''[1:]), cases=lambda rng: [
        Case(randn(rng, 2, 4), randn(rng, 1, 3, 4), label="2 query heads on one key head, 3 keys"),
        Case(randn(rng, 4, 16), randn(rng, 2, 33, 16), label="4 heads on 2, 33 keys"),
        Case(randn(rng, 8, 32), randn(rng, 1, 64, 32), label="8 heads on one, 64 keys"),
        Case(randn(rng, 6, 64), randn(rng, 2, 100, 64), label="6 heads on 2, 100 keys")],
    launch=score_launch, compare=close(atol=1e-4), traffic=score_traffic, wavefronts=2,
    expect=lambda q, k: (q.view(k.shape[0], -1, q.shape[1]) @ k.transpose(1, 2)).reshape(q.shape[0], k.shape[1]),
    misconceptions=[
        Misconception("reads the keys anew for every head", change=("tile[row * (d + 1) + c]", "keys[row * d + c]"),
                      ask="Where do you fetch a key from inside the loop over the scores, and how often for one group?"),
        Misconception("gives neighbouring threads different heads", change=(
            "pair / 32, row = pair % 32", "pair % group_size, row = pair / group_size"),
                      ask="Scores of one head and neighbouring keys are neighbours in memory. Which scores do the lanes of your warp write?"),
        Misconception("divides by the root of d", change=("= sum;", "= sum / sqrtf(d);"),
                      ask="What does the card say about the scale?"),
        Misconception("starts to compute before the tile is there", change=("    __syncthreads();\n", ""),
                      ask="Row 5 of the tile is written by other threads than those that read it. What makes them wait?"),
        Misconception("gives head h the keys of head h mod n_kv_heads", change=(
            "kv_head * group_size + pair / 32", "pair / 32 * gridDim.y + kv_head"),
                      ask="Which query heads form group 0 when the group size is 2: 0 and 1, or 0 and n_kv_heads?"),
        Misconception("forgets which group the block serves", change=("kv_head * group_size + pair / 32", "pair / 32"),
                      ask="Blocks with kv_head 0 and 1 both write `scores[0]`. Which query heads does group 1 begin with?"),
        Misconception("loads the tile column by column", change=(
            "tile[e / d * (d + 1) + e % d] = keys[e]", "tile[e % rows * (d + 1) + e / rows] = keys[e % rows * d + e / rows]"),
                      ask="How far apart are the addresses of two neighbouring threads, and how many sectors does a warp then touch?"),
        Misconception("lets every thread load the whole tile",
                      change=("int e = threadIdx.x; e < rows * d; e += blockDim.x", "int e = 0; e < rows * d; ++e"),
                      ask="128 threads run this loop. How often is element 0 fetched?"),
        Misconception("keeps the rows of the tile d floats apart",
                      change=[("e / d * (d + 1)", "e / d * d"), ("row * (d + 1)", "row * d")],
                      ask="With d = 64, in which banks are the first floats of rows 0, 1 and 2 (chapter 0)?"),
        Misconception("waits inside the loop that loads",
                      change=[("tile[e / d * (d + 1) + e % d] = keys[e];\n    __syncthreads();",
                               "{ tile[e / d * (d + 1) + e % d] = keys[e]; __syncthreads(); }")],
                      ask="Do all 128 threads go through the loop equally often, when rows * d is not a multiple of 128?"),
        Misconception("forgets that the last tile may be smaller", change=[("min(32, n - first_key)", "32")],
                      ask="With 33 keys, which keys does the second block load?"),
        Misconception("writes scores of keys that are not there", change=("if (row < rows) {", "{"),
                      ask="A head has 32 threads here and 3 keys. What do the other 29 write?")],
    hints=["Loading: `for (int e = threadIdx.x; e < rows * d; e += blockDim.x)`; element `e` is row `e / d`, column `e % d`.",
           "Between loading and computing: `__syncthreads()`, reached by every thread of the block.",
           "Computing: `pair / 32` is the head within the group, `pair % 32` the key within the tile."])


VALUES = '''
__global__ void mix_values(const float* __restrict__ weights, const float* __restrict__ v, float* __restrict__ out,
                           int heads, int n, int d) {
    extern __shared__ float shared[];
    float* tile = shared;                        // [32][d + 1]
    float* weight = tile + 32 * (d + 1);         // [heads][32]
    for (int e = threadIdx.x; e < n * d; e += blockDim.x) tile[e / d * (d + 1) + e % d] = v[e];
    for (int e = threadIdx.x; e < heads * n; e += blockDim.x) weight[e / n * 32 + e % n] = weights[e];
    __syncthreads();

    for (int e = threadIdx.x; e < heads * d; e += blockDim.x) {
        float sum = 0.0f;
        for (int row = 0; row < n; ++row) sum += weight[e / d * 32 + row] * tile[row * (d + 1) + e % d];
        out[e] = sum;
    }
}
'''

kernel_exercise(
    id="3.7", title="Two arrays in one", points=3, minutes=8, difficulty=3, name="mix_values", kind="repair", card="""
    One block mixes the values of a group: `n` values, at most 32, and the weights of `heads` query heads, both brought to shared memory first.
    With few values it is right; with 31 or 32 it is not. Read what the sanitizer says about **both** threads, and repair the kernel.

    - one line is enough
    - the launch reserves `4 * (32 * (d + 1) + heads * 32)` bytes of shared memory
    """, stub=VALUES.replace("tile + 32 * (d + 1);         // [heads]", "tile + 32 * d;               // [heads]"),
    solution=VALUES, cases=lambda rng: [
        Case(torch.softmax(randn(rng, 2, 5), -1), randn(rng, 5, 4), label="2 heads, 5 values"),
        Case(torch.softmax(randn(rng, 4, 32), -1), randn(rng, 32, 16), label="4 heads, 32 values"),
        Case(torch.softmax(randn(rng, 3, 31), -1), randn(rng, 31, 33), label="3 heads, 31 values of width 33")],
    compare=close(atol=1e-5),
    launch=lambda w, v: Launch(grid=1, block=64, shared=4 * (32 * (v.shape[1] + 1) + w.shape[0] * 32),
                               args=[w, v, out((w.shape[0], v.shape[1])), w.shape[0], v.shape[0], v.shape[1]]),
    expect=lambda w, v: w @ v, misconceptions=[
        Misconception("waits between the two loads, and lets the second still overwrite the first", code=VALUES.replace(
            "tile + 32 * (d + 1);         // [heads]", "tile + 32 * d;               // [heads]").replace(
            "= v[e];\n    for", "= v[e];\n    __syncthreads();\n    for"),
                      ask="A barrier decides which of the two writes comes last. Does the cell hold both numbers afterwards?"),
        Misconception("leaves room for one more float, not for one per row", change=("tile + 32 * (d + 1);", "tile + 32 * d + 1;  "),
                      ask="How many floats does a row of the tile take, and how many rows are there?"),
        Misconception("begins the weights one row too early", change=("tile + 32 * (d + 1);", "tile + 31 * (d + 1);"),
                      ask="Rows are numbered 0 to 31. At which float does the row after the last begin?"),
        Misconception("begins the weights beyond what was reserved", change=("tile + 32 * (d + 1);", "tile + 64 * (d + 1);"),
                      ask="How many bytes did the launch reserve, and where do they end?")],
    hints=["Write down the first and the last float of `tile`, and the first of `weight`, for d = 16.",
           "A row of the tile takes `d + 1` floats. The last row is number 31 and begins at `31 * (d + 1)`.",
           "`weight` must begin after 32 whole rows."])


def layer_cases(rng):
    full, window = {"kind": "full", "kv_heads": 2, "head_dim": 4}, {"kind": "window", "kv_heads": 2, "head_dim": 4, "window": 3}
    latent = {"kind": "latent", "latent_dim": 6, "rope_dim": 2}
    linear = {"kind": "linear", "heads": 2, "key_dim": 4, "value_dim": 5}
    yield Case([full], 5, label="one full layer, 5 tokens")
    yield Case([window], 5, label="one window of 3, 5 tokens")
    yield Case([window], 2, label="one window of 3, 2 tokens")
    yield Case([latent, linear], 7, label="a latent and a linear layer, 7 tokens")
    yield Case([linear], 0, label="one linear layer, no token yet")
    heads, d, n = whole(rng, 1, 9), whole(rng, 2, 99), whole(rng, 9, 999)
    yield Case([{"kind": "window", "kv_heads": heads, "head_dim": d, "window": whole(rng, 5, 600)}, latent], n,
               label=f"a window and a latent layer, {n} tokens")
    big = {"kv_heads": 16, "head_dim": 128}
    yield Case([{"kind": "window", "window": 1024, **big}] * 5 + [{"kind": "full", **big}], 131072, label="five windows and a full layer, 131,072 tokens")

exercise(id="3.9", title="A cache, layer by layer", kind="write", points=3, minutes=10, difficulty=3, card="""
    Write `cache_size(layers, tokens)`: the bytes, an integer, that one sequence of `tokens` tokens keeps in a model whose layers differ.

    - `{"kind": "full", "kv_heads": 8, "head_dim": 128}` keeps a key and a value per head and token, 2 bytes per number
    - `{"kind": "window", "window": 1024, "kv_heads": ..., "head_dim": ...}` keeps the last 1,024 of them
    - `{"kind": "latent", "latent_dim": 512, "rope_dim": 64}` keeps one latent and one rotary key per token, 2 bytes per number
    - `{"kind": "linear", "heads": 32, "key_dim": 128, "value_dim": 128}` keeps a matrix of key_dim x value_dim per head, 4 bytes per number,
      whatever the number of tokens
    """, given={}, solution='''
    def cache_size(layers, tokens):
        """layers: a list of dicts -> bytes of one sequence's cache"""
        total = 0
        for layer in layers:
            if layer["kind"] == "latent":
                total += 2 * tokens * (layer["latent_dim"] + layer["rope_dim"])
            elif layer["kind"] == "linear":
                total += 4 * layer["heads"] * layer["key_dim"] * layer["value_dim"]
            else:
                kept = min(tokens, layer["window"]) if layer["kind"] == "window" else tokens
                total += 2 * 2 * kept * layer["kv_heads"] * layer["head_dim"]
        return total
    ''', cases=layer_cases, compare=close(atol=0, rtol=0, dtype=False), misconceptions=[
        Misconception("keeps every key in a window layer", change=('min(tokens, layer["window"]) if layer["kind"] == "window" else tokens', "tokens"),
                      ask="A token can never again be read once `window` newer ones have come. Must it be kept?"),
        Misconception("fills a window that is not full yet", change=("min(tokens, layer[\"window\"])", "layer[\"window\"]"),
                      ask="After 2 tokens, how many keys are in a window of 3?"),
        Misconception("keeps the keys and forgets the values", change=("total += 2 * 2 * kept", "total += 2 * kept"),
                      ask="The next token needs the weights, and then what is weighted. What is kept for each?"),
        Misconception("keeps a latent for the keys and another one for the values", change=("total += 2 * tokens", "total += 2 * 2 * tokens"),
                      ask="Keys and values are both unfolded from the same latent. How often must it be kept?"),
        Misconception("forgets the rotary key of a latent layer", change=('(layer["latent_dim"] + layer["rope_dim"])', 'layer["latent_dim"]'),
                      ask="Where does a layer with a latent keep the position of a token?"),
        Misconception("counts numbers and not bytes", change=[("total += 2 * tokens", "total += tokens"), ("total += 4 *", "total += 1 *"),
                                                              ("total += 2 * 2", "total += 2")],
                      ask="How many bytes has one number of a key, and how many one of a state?"),
        Misconception("adds the two sides of the matrix", change=('layer["key_dim"] * layer["value_dim"]', '(layer["key_dim"] + layer["value_dim"])'),
                      ask="How many numbers has a matrix of 128 rows and 128 columns?"),
        Misconception("lets the state of a linear layer grow with the text", change=("total += 4 * layer[\"heads\"]", "total += 4 * tokens * layer[\"heads\"]"),
                      ask="How large is the matrix after 7 tokens, and how large after 70?"),
        Misconception("takes 2 bytes per number for the state as well", change=("total += 4 *", "total += 2 *"),
                      ask="In which precision is the state of a linear layer kept?"),
        Misconception("returns the last layer only", change=[("total += 2 * tokens", "total = 2 * tokens"), ("total += 4 *", "total = 4 *"),
                                                            ("total += 2 * 2", "total = 2 * 2")],
                      ask="What happens to the first layer's bytes when the second is counted?")],
    hints=["One loop over the layers, one branch per kind, one sum.",
           "A window layer keeps `min(tokens, window)` keys and as many values."])


exercise(id="3.10", title="Absorb the up-projection", kind="write", points=2, minutes=8, difficulty=3, card=r"""
    Head $h$ unfolds a latent $c$ to a key $W_h c$. Its score with a query is $q \cdot (W_h c)$. Write `fold_query(q, k_up)`,
    which moves $W_h$ to the side of the query: its result, multiplied with the latents themselves, gives the same scores.
    """, given={"torch": torch}, solution='''
    def fold_query(q, k_up):
        """q (h, n, d), k_up (h, d, c) -> (h, n, c), so that fold_query(q, k_up) @ latents.T == q @ keys.T for each head"""
        return q @ k_up
    ''', cases=lambda rng: [
        Case(randn(rng, 1, 2, 2), randn(rng, 1, 2, 3), label="one head, d = 2, a latent of 3"),
        Case(randn(rng, 4, 5, 8), randn(rng, 4, 8, 12), label="4 heads, d = 8, a latent of 12"),
        Case(randn(rng, 3, 1, 6), randn(rng, 3, 6, 6), label="3 heads, a latent as wide as a head")],
    compare=close(atol=1e-5), misconceptions=[
        Misconception("uses the same matrix for all heads", change=("@ k_up", "@ k_up[0]"),
                      ask="Each head unfolds the latent in its own way. Which head's matrix does your second head use?"),
        Misconception("multiplies with the transposed matrix", body="return q @ k_up.transpose(-2, -1)",
                      ask="A query is a row of d numbers, and `k_up[h]` is (d, c). Which of its two axes meets the query?"),
        Misconception("inverts the up-projection", change=("@ k_up", "@ torch.linalg.pinv(k_up).transpose(-2, -1)"),
                      ask="q . (W c) = (W^T q) . c. Does an inverse appear anywhere?"),
        Misconception("adds up the heads", change=("q @ k_up", "(q @ k_up).sum(0, keepdim=True).expand(len(q), -1, -1)"),
                      ask="Every head has scores of its own. May they be added before the softmax?")],
    hints=["Write the score as a sum over rows and columns of $W_h$ and change the order of the two sums.",
           r"$q^\top (W c) = (W^\top q)^\top c$; with queries as rows this is one matrix product."])


POOL = '''
def pool_heads(weight, n_heads, n_kv_heads):
    """(n_heads * d, d_model) -> (n_kv_heads * d, d_model)"""
    d = weight.shape[0] // n_heads
    heads = weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1)
    return heads.mean(1).reshape(n_kv_heads * d, -1)
'''

exercise(id="3.11", title="From trained heads to groups", kind="write", points=2, minutes=8, difficulty=2, card="""
    A trained layer has a key projection for every head, stacked: rows `0..d-1` are head 0, rows `d..2d-1` head 1, and so on.
    Write `pool_heads(weight, n_heads, n_kv_heads)`: each new head is the **mean** of the heads of its group.
    """, given={"torch": torch}, solution=POOL, cases=lambda rng: [
        Case(torch.tensor([[1.0], [3.0], [10.0], [30.0]]), 4, 2, label="4 heads of one row, into 2"),
        Case(randn(rng, 12, 5), 4, 2, label="4 heads of 3 rows, into 2"),
        Case(randn(rng, 12, 5), 6, 1, label="6 heads of 2 rows, into 1"),
        Case(randn(rng, 8, 3), 4, 4, label="as many as before")], compare=close(atol=1e-6), misconceptions=[
        Misconception("adds the heads and does not divide", change=("mean(1)", "sum(1)"),
                      ask="What happens to the size of every score when a key is the sum of its group?"),
        Misconception("pools heads that are n_kv_heads apart",
                      change=("weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1)",
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


def latent_launch(q, tokens, latent_dim):
    (heads, width), n = q.shape, len(tokens)
    return Launch(grid=1, block=128, shared=4 * (32 * (width + 1) + heads * 32),
                  args=[q, tokens, out((heads, latent_dim)), heads, n, latent_dim, width - latent_dim])

def latent_traffic(q, tokens, latent_dim):
    """Each token once; a warp reads one number of a query at a time: a sector. Two warps may share a head."""
    return 4 * tokens.numel() + 32 * q.numel() * (2 if len(tokens) % 32 else 1) + 4 * len(q) * latent_dim

LATENT_HEADS = '''
__global__ void latent_heads(const float* __restrict__ q, const float* __restrict__ tokens, float* __restrict__ out,
                             int heads, int n, int latent_dim, int rope_dim) {
    extern __shared__ float shared[];
    int width = latent_dim + rope_dim, pitch = width + 1;
    float* tile = shared;                        // [32][pitch]
    float* weight = tile + 32 * pitch;           // [heads][32]

    for (int e = threadIdx.x; e < n * width; e += blockDim.x) tile[e / width * pitch + e % width] = tokens[e];
    __syncthreads();

    for (int pair = threadIdx.x; pair < heads * 32; pair += blockDim.x) {
        int head = pair / 32, row = pair % 32;
        if (row < n) {
            float score = 0.0f;
            for (int c = 0; c < width; ++c) score += q[head * width + c] * tile[row * pitch + c];
            weight[pair] = score;
        }
    }
    __syncthreads();

    for (int h = threadIdx.x; h < heads; h += blockDim.x) {      // scores become weights: one thread per head
        float largest = -INFINITY, sum = 0.0f;
        for (int row = 0; row < n; ++row) largest = fmaxf(largest, weight[h * 32 + row]);
        for (int row = 0; row < n; ++row) sum += weight[h * 32 + row] = expf(weight[h * 32 + row] - largest);
        for (int row = 0; row < n; ++row) weight[h * 32 + row] /= sum;
    }
    __syncthreads();

    for (int e = threadIdx.x; e < heads * latent_dim; e += blockDim.x) {
        int head = e / latent_dim, c = e % latent_dim;
        float sum = 0.0f;
        for (int row = 0; row < n; ++row) sum += weight[head * 32 + row] * tile[row * pitch + c];
        out[e] = sum;
    }
}
'''
LATENT_LOAD = "    for (int e = threadIdx.x; e < n * width; e += blockDim.x) tile[e / width * pitch + e % width] = tokens[e];\n"

kernel_exercise(id="3.13", title="Key and value at once", points=3, minutes=15, difficulty=4, name="latent_heads", card="""
    One decoding step on latents, in one block of 128 threads: `heads` query heads attend to `n` tokens, at most 32. A row of `tokens` holds
    the latent (`latent_dim` numbers), then the rotated key (`rope_dim`). A row of `q`, with $W_h$ already on its side, is as wide.
    A score is the product of both whole rows, without a scale; a value is the latent alone. `out` is `(heads, latent_dim)`.

    - the softmax is written; write the three steps around it
    - `score` of head `h` and token `row` belongs at `weight[h * 32 + row]`
    - its third launch number, the bytes of both arrays, is `4 * (32 * (latent_dim + rope_dim + 1) + heads * 32)`
    - budget: each sector of the tokens is moved from global memory once, for keys and values of all heads
    """, stub=LATENT_HEADS[:LATENT_HEADS.index("    for (int e")]
    + "    // 1. bring the tokens into `tile`   2. wait   3. the scores of heads * n pairs, from `tile`\n    __syncthreads();\n\n"
    + LATENT_HEADS[LATENT_HEADS.index("    for (int h"):LATENT_HEADS.index("    for (int e = threadIdx.x; e < heads")]
    + "    // 4. heads * latent_dim sums of weighted latents, from `tile` again\n}\n",
    solution=LATENT_HEADS, cases=lambda rng: [
        Case(randn(rng, 2, 3), randn(rng, 4, 3), 2, label="2 heads, 4 tokens, a latent of 2 and a rotated key of 1"),
        Case(randn(rng, 5, 12), randn(rng, 31, 12), 8, label="5 heads, 31 tokens, a latent of 8 and a rotated key of 4"),
        Case(randn(rng, 16, 32) / 4, randn(rng, 32, 32), 24, label="16 heads, 32 tokens, a latent of 24 and a rotated key of 8")],
    launch=latent_launch, compare=close(atol=1e-5), traffic=latent_traffic,
    expect=lambda q, tokens, latent_dim: torch.softmax(q @ tokens.T, -1) @ tokens[:, :latent_dim], misconceptions=[
        Misconception("reads the latents again for the values", change=(
            "weight[head * 32 + row] * tile[row * pitch + c]", "weight[head * 32 + row] * tokens[row * width + c]"),
                      ask="Where is the latent of this token already, since its score was computed?"),
        Misconception("scores by the latents and leaves the positions out", change=(
            "c < width; ++c) score", "c < latent_dim; ++c) score"),
                      ask="A score is a sum of two products. Which part of the row knows where the token is?"),
        Misconception("starts to score before the tile is there", change=(LATENT_LOAD + "    __syncthreads();\n", LATENT_LOAD),
                      ask="Token 5 is written by other threads than those that score it. What makes them wait?"),
        Misconception("gives every head the weights of head 0", change=("sum += weight[head * 32 + row] *", "sum += weight[row] *"),
                      ask="All heads share the latents. Do they share the weights?"),
        Misconception("takes the rotated key for the value", change=("tile[row * pitch + c];\n        out", "tile[row * pitch + rope_dim + c];\n        out"),
                      ask="Which numbers of a row are the latent: the first or the last `latent_dim`?")],
    hints=["Loading is as in exercise 3.6, for rows of `width` numbers that are `width + 1` apart in `tile`.",
           "`pair / 32` is the head, `pair % 32` the token; skip tokens from `n` on.",
           "Step 4: element `e` of `out` is head `e / latent_dim`, column `e % latent_dim`; its sum runs over the `n` rows of `tile`."])
