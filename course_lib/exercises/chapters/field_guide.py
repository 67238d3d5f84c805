"""The exercises of chapter 11."""
import math
from itertools import product

import torch
from torch.nn import functional as F

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, kernel_exercise, out, randn, whole


# An indexer

def choose_cases(rng):
    def case(b, h, n, d, seen, top_k, label):
        """Drawn until no query has to choose between equal scores: the relu makes several of them 0."""
        while True:
            m = seen.shape[1]
            q, k, weights = randn(rng, b, h, n, d), randn(rng, b, m, d), randn(rng, b, n, h)
            scores = torch.einsum("bhnm,bnh->bnm", torch.relu(q @ k[:, None].mT), weights)
            best = scores.masked_fill(~seen, -math.inf).sort(-1, descending=True).values
            if top_k >= m or not ((best[..., top_k - 1] == best[..., top_k]) & best[..., top_k].isfinite()).any():
                return Case(q, k, weights, seen, top_k, label=label)
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    yield case(1, 2, 3, 4, causal, 2, "3 tokens, the best 2")
    for b, h, n, d, k in ((1, 2, 8, 2, 2), (2, 4, 9, 8, 3), (1, 3, 17, 5, 4), (2, 1, 6, 8, 6)):
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        yield case(b, h, n, d, seen, k, f"{b} x {n} tokens, {h} heads, the best {k}")
    yield case(1, 4, 1, 8, torch.ones(1, 12, dtype=torch.bool), 5, "one query, 12 keys")
    yield case(1, 2, 3, 4, causal, 5, "3 tokens, the best 5")
    q, k, weights = randn(rng, 1, 2, 6, 4).abs(), 0.1 + randn(rng, 1, 6, 4).abs(), -3e4 * (1 + randn(rng, 1, 6, 2).abs())
    yield Case(q, k, weights, torch.ones(6, 6, dtype=torch.bool).tril(), 2, label="6 tokens, all scores far below zero")
    k = k.abs() * torch.tensor([-1.0, -1, 1, -1, -1, -1])[:, None]
    yield Case(q, k, -weights, torch.ones(6, 6, dtype=torch.bool).tril(), 3, label="6 tokens, all but one with the score 0")

def _choice_like(got, want, case):
    """Of equal scores any may be chosen, but only as many as there are places."""
    told = exact()(got, want, case)
    if told and isinstance(got, torch.Tensor) and (got.shape, got.dtype) == (want.shape, torch.bool):
        q, k, weights, seen = case.args[:4]
        scores = torch.einsum("bhnm,bnh->bnm", torch.relu(q @ k[:, None].mT), weights)
        mine, ours = (scores.masked_fill(~(chosen & seen), -math.inf).sort(-1).values for chosen in (got, want))
        if torch.equal(mine, ours) and torch.equal(got.sum(-1), want.sum(-1)):
            return None
    return told

CHOOSE = '''
def choose(q, k, weights, seen, top_k):
    """q (b, h, n, d), k (b, m, d), weights (b, n, h), seen (n, m) -> (b, n, m), True where a query looks"""
    scores = torch.relu(torch.einsum("bhnd,bmd->bhnm", q, k))
    scores = torch.einsum("bhnm,bnh->bnm", scores, weights)
    scores = scores.masked_fill(~seen, -math.inf)
    best = scores.topk(min(top_k, scores.shape[-1]), -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & seen
'''

exercise(id="11.4", title="An indexer", kind="write", points=3, minutes=14, difficulty=3, card=r"""
    Write the indexer of DeepSeek-V3.2. Query token $t$ gives key token $s$ the score
    $\sum_h w_{t,h}\,\mathrm{relu}(q_{t,h} \cdot k_s)$: one small key per token serves all $h$ heads. The layer then looks
    only at the `top_k` tokens with the largest scores.

    - `q` is `(b, h, n, d)`, `k` is `(b, m, d)`, `weights` is `(b, n, h)`, a projection of the token; there is no softmax and no root
    - `seen` is `(n, m)`: False is the future, which is never chosen
    - return a boolean `(b, n, m)`; a query that sees no more than `top_k` tokens looks at all of them
    - of equal scores take any, but no more than needed
    """, given={"torch": torch, "math": math}, solution=CHOOSE, cases=choose_cases, compare=_choice_like, properties=[
        (
            "no query looks at more than top_k tokens",
            lambda got, case: bool((got.sum(-1) <= case.args[4]).all())),
        (
            "no query looks at a token that it does not see",
            lambda got, case: not bool((got & ~case.args[3]).any()))], misconceptions=[
        Misconception(
            "cuts off below zero after the heads have been added", code=CHOOSE.replace(
                'torch.relu(torch.einsum("bhnd,bmd->bhnm", q, k))', 'torch.einsum("bhnd,bmd->bhnm", q, k)'
            ).replace("scores = scores.masked_fill", "scores = torch.relu(scores).masked_fill"),
            ask="A head that dislikes a token: may it take away from what another head gives?"),
        Misconception("leaves out the relu",
                      change=('torch.relu(torch.einsum("bhnd,bmd->bhnm", q, k))', 'torch.einsum("bhnd,bmd->bhnm", q, k)'),
                      ask="Without it, could the heads not be added up into one query before any key is read?"),
        Misconception("leaves out the weights of the heads",
                      change=('torch.einsum("bhnm,bnh->bnm", scores, weights)', "scores.sum(1)"),
                      ask="Which of the arguments have you not used?"),
        Misconception("chooses before it hides the future", change=("    scores = scores.masked_fill(~seen, -math.inf)\n", ""),
                      ask="If the best three tokens are all in the future, how many does the query look at in the end?"),
        Misconception("hides the future behind a score of -1,000, where minus infinity is needed",
                      change=("masked_fill(~seen, -math.inf)", "masked_fill(~seen, -1e3)"),
                      ask="Which token is among the best if every score that may be seen is below -1,000?"),
        Misconception("gives hidden tokens the score 0", change=("masked_fill(~seen, -math.inf)", "masked_fill(~seen, 0)"),
                      ask="A head may have a negative weight. Is a score of 0 then the lowest?"),
        Misconception("lets a query with a short past look into the future",
                      change=("scatter(-1, best, True) & seen", "scatter(-1, best, True)"),
                      ask="The first query sees one token. Which others are among its best `top_k`?"),
        Misconception(
            "looks at every token whose score equals the last one chosen", change=(
                "    best = scores.topk(min(top_k, scores.shape[-1]), -1).indices\n"
                "    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & seen",
                "    last = scores.topk(min(top_k, scores.shape[-1]), -1).values[..., -1:]\n"
                "    return (scores >= last) & seen"),
            ask="The relu makes many scores exactly 0. If the last one chosen is 0, how many tokens have its score?"),
        Misconception("lets every key choose its queries", change=("-1).indices", "-2).indices[:, :1].expand_as(scores)"),
                      ask="Whose choice is it: that of a row of the scores, or of a column?")],
    hints=["`torch.einsum(\"bhnd,bmd->bhnm\", q, k)` is every query head against the one key of each token.",
           "Hide first: a score of minus infinity loses against every other.",
           "`scatter` on a tensor of False writes True at the chosen places; rows with few tokens need one more `&`."])


# Axes

def axis_cases(rng):
    yield Case([2, 1, 1], False, label="4 pairs, in blocks")
    yield Case([2, 1, 1], True, label="4 pairs, in turn")
    yield Case([16, 24, 24], False, label="64 pairs, in blocks: Qwen2-VL")
    yield Case([24, 20, 20], True, label="64 pairs, in turn: Qwen3-VL")
    yield Case([11, 11, 10], True, label="32 pairs, in turn: Qwen3.5")
    yield Case([5], True, label="one axis")
    drawn = sorted((whole(rng, 3, 30) for _ in range(3)), reverse=True)
    yield Case(drawn, True, label=f"{sum(drawn)} pairs, in turn")
    yield Case(drawn, False, label=f"{sum(drawn)} pairs, in blocks")

AXES = '''
def axis_of_pair(sections, in_turn):
    """[pairs of time, of height, of width] -> (sum of them,) integers: the axis that turns each pair"""
    count = len(sections)
    if not in_turn:
        return torch.repeat_interleave(torch.arange(count), torch.tensor(sections))
    axis = torch.arange(sum(sections)) % count
    turn = torch.arange(sum(sections)) // count
    return torch.where(turn < torch.tensor(sections)[axis], axis, 0)
'''

exercise(id="11.5", title="Which axis turns which pair", kind="write", points=2, minutes=8, difficulty=3, card="""
    A token of a picture has three positions: time, height, width. The pairs of a head are dealt out to the axes, and each
    pair turns by the position of its axis. Write `axis_of_pair`.

    - `sections` has one number per axis, its pairs; there are usually three axes, but any number is allowed
    - the result has one integer per pair, 0 for the first axis
    - `in_turn=False`: all pairs of axis 0, then all of axis 1, and so on (Qwen2-VL)
    - `in_turn=True`: 0, 1, 2, 0, 1, 2, ...; axes after the first get at most their number: where the axis whose turn it is
      has all its pairs already, the pair goes to axis 0, which gets the rest (Qwen3-VL)
    - a tensor of `torch.int64`
    """, given={"torch": torch}, solution=AXES, cases=axis_cases, compare=exact(),
    properties=[("there is one axis for each pair", lambda got, case: got.numel() == sum(case.args[0]))], misconceptions=[
        Misconception("goes on taking turns when an axis has had its share",
                      change=("torch.where(turn < torch.tensor(sections)[axis], axis, 0)", "axis"),
                      ask="With sections 24, 20, 20: how many pairs does your third axis get?"),
        Misconception("gives what is left over to the last axis", change=("[axis], axis, 0)", "[axis], axis, count - 1)"),
                      ask="In Qwen3-VL time has 24 pairs and the others 20. Who gets the last four?"),
        Misconception(
            "passes the turn on to the next axis that has pairs left",
            code=AXES.split("    axis =")[0] + '''    left, out = list(sections), []
    while sum(left):
        for axis in range(count):
            if left[axis]:
                out.append(axis)
                left[axis] -= 1
    return torch.tensor(out)
''', ask="With sections 3, 3, 1 the sixth pair is the third axis' turn, which has had its pair. Who gets it, by the card?"),
        Misconception(
            "deals them out in blocks when they should take turns", change=("if not in_turn:", "if True:"),
            ask="The fast pairs are the first ones. In blocks, which axes never get a fast pair?"),
        Misconception("takes turns when they should be in blocks", change=("if not in_turn:", "if False:"),
                      ask="What does `in_turn` say?")],
    hints=["`torch.repeat_interleave` makes the blocks.",
           "In turn, with three axes: pair i is turn number i // 3 of axis i % 3.", "`torch.where(turn < share, axis, 0)`."],
)


# A sink, in a kernel

HEAD = ("__global__ void decode_with_sink(const float* q, const float* k, const float* v, const float* "
        "sinks,\n" "                                 float* out, int m, int d) {\n")
BODY = HEAD + """\
    int h = blockIdx.x, feature = threadIdx.x;
    const float* query = q + h * d;
    float largest = sinks[h], total = 1.0f, sum = 0.0f;
    for (int j = 0; j < m; ++j) {
        float score = 0.0f;
        for (int i = 0; i < d; ++i) score += query[i] * k[(h * m + j) * d + i];
        score *= rsqrtf((float)d);
        float new_largest = fmaxf(largest, score);
        float keep = expf(largest - new_largest), weight = expf(score - new_largest);
        total = total * keep + weight;
        sum = sum * keep + weight * v[(h * m + j) * d + feature];
        largest = new_largest;
    }
    out[h * d + feature] = sum / total;
}
"""
STUB = HEAD + """\
    int h = blockIdx.x, feature = threadIdx.x;
    const float* query = q + h * d;
    float largest, total, sum = 0.0f;      // before the first key: what does a sink make of them?
    for (int j = 0; j < m; ++j) {
        float score = 0.0f;
        for (int i = 0; i < d; ++i) score += query[i] * k[(h * m + j) * d + i];
        score *= rsqrtf((float)d);
        // your code
    }
    // your code
}
"""

TWO_PASSES = HEAD + """\
    int h = blockIdx.x, feature = threadIdx.x;
    const float* query = q + h * d;
    float largest = sinks[h], total = 0.0f, sum = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {
        for (int j = 0; j < m; ++j) {
            float score = 0.0f;
            for (int i = 0; i < d; ++i) score += query[i] * k[(h * m + j) * d + i];
            score *= rsqrtf((float)d);
            if (pass == 0) { largest = fmaxf(largest, score); continue; }
            float weight = expf(score - largest);
            total += weight;
            sum += weight * v[(h * m + j) * d + feature];
        }
    }
    out[h * d + feature] = sum / (total + expf(sinks[h] - largest));
}
"""

def with_sinks(q, k, v, sinks):
    scores = (k @ q[..., None])[..., 0] * q.shape[-1] ** -0.5
    weights = torch.softmax(torch.cat([scores, sinks[:, None]], -1), -1)[:, :-1]
    return (weights[:, None] @ v)[:, 0]

def sink_traffic(q, k, v, sinks):
    """For each product a warp reads a number of the query and one of the key; for each key also a row of values."""
    heads, m, d = k.shape
    row = d // 8 + 2
    return 32 * heads * -(-d // 32) * (2 * m * d + m * row + row + 1)

def sink_cases(rng):
    for h, m, d in ((1, 2, 4), (2, 1, 8), (3, 7, 5), (4, 33, 16), (2, 64, 32)):
        yield Case(
            randn(rng, h, d), randn(rng, h, m, d), randn(rng, h, m, d), randn(rng, h), label=f"{h} heads, {m} keys of {d}")
    yield Case(
        randn(rng, 2, 8), randn(rng, 2, 5, 8), randn(rng, 2, 5, 8), torch.tensor([90.0, -90.0]), label="sinks of 90 and -90")
    yield Case(randn(rng, 1, 8) * 30, randn(rng, 1, 9, 8) * 30, randn(rng, 1, 9, 8), torch.zeros(1), label="scores of hundreds")
    yield Case(randn(rng, 2, 8) * 10, randn(rng, 2, 9, 8) * 10, randn(rng, 2, 9, 8), torch.tensor([100.0, 150.0]),
               label="sinks and scores of hundreds")

kernel_exercise(id="11.6", title="A sink, in the online softmax", points=3, minutes=14, difficulty=3,
    name="decode_with_sink", card=r"""
    One decode step of gpt-oss: one query per head, `m` keys and values, and a learned sink that takes weight and gives no
    value. The loop over keys is written; fill in the **online** softmax of chapter 6, so that the sink costs nothing more.

    - one block per head, one thread per feature; every thread works out the same score
    - `q` and `out` are `(heads, d)`, `k` and `v` `(heads, m, d)`, `sinks` `(heads,)`
    - the weights of the `m` keys and of the sink add up to 1; scores may be in the hundreds
    - budget: one pass, which reads each key and each value once
    - `expf`, `fmaxf`, `rsqrtf` and `-INFINITY` are available
    """, stub=STUB, solution=BODY, cases=sink_cases, launch=lambda q, k, v, sinks: Launch(
        grid=q.shape[0], block=q.shape[1], args=[q, k, v, sinks, out(q.shape), k.shape[1], q.shape[1]]),
    expect=with_sinks, traffic=sink_traffic, compare=close(atol=1e-5), misconceptions=[
        Misconception("leaves the sink out", change=("largest = sinks[h], total = 1.0f", "largest = -INFINITY, total = 0.0f"),
                      ask="Measured from itself, the sink's exp(score - largest) is 1. Where is that 1 in your total?"),
        Misconception("adds the sink at the end without rescaling it",
                      change=[("largest = sinks[h], total = 1.0f", "largest = -INFINITY, total = 0.0f"), ("sum / total", "sum / (total + expf(sinks[h]))")],
                      ask="`total` is measured from the largest score. From where is expf(sinks[h]) measured?"),
        Misconception("measures every weight from the sink",
                      change=("new_largest = fmaxf(largest, score)", "new_largest = largest"),
                      ask="If the sink is -90 and a score is 1: how large is expf(score - sinks[h])?"),
        Misconception("does not rescale the sum of values", change=("sum = sum * keep +", "sum = sum +"),
                      ask="When a larger score appears, by what are the values so far weighted too much?"),
        Misconception("goes over the keys twice", code=TWO_PASSES,
                      ask="When a larger score appears, can what was added up so far be rescaled, without reading it again?"),
        Misconception("does not rescale the total", change=("total = total * keep +", "total = total +"),
                      ask="Every weight in the total was measured from the old largest score. From where is the new one?"),
        Misconception("measures the sink from 0, where its weight is measured from itself",
                      change=("total = 1.0f", "total = expf(sinks[h])"),
                      ask="`largest` begins as the sink. What is exp(score - largest) where the score is the sink?"),
        Misconception("scales the sink as if it were a product",
                      change=("largest = sinks[h]", "largest = sinks[h] * rsqrtf((float)d)"),
                      ask="Why are scores divided by the root of d? Is a learned number a sum of d products?")],
    hints=["A sink is one more key, seen before all others, whose value is 0.",
           "Start with `largest = sinks[h]`, and with the weight that the sink has when measured from itself.",
           "`keep = expf(largest - new_largest)` rescales the total and the sum of values."])


# A decay for every channel

def delta_cases(rng):
    def case(b, h, n, key_dim, value_dim, label):
        q, k = F.normalize(randn(rng, b, h, n, key_dim), dim=-1), F.normalize(randn(rng, b, h, n, key_dim), dim=-1)
        return Case(q, k, randn(rng, b, h, n, value_dim), torch.rand(b, h, n, key_dim, generator=rng),
                    torch.rand(b, h, n, generator=rng), label=label)
    yield case(1, 1, 2, 2, 2, "2 tokens, a state of 2 x 2")
    yield case(2, 3, 9, 4, 4, "9 tokens, a state of 4 x 4")
    yield case(1, 2, 17, 6, 3, "17 tokens, a state of 6 x 3")
    yield case(2, 1, 1, 3, 5, "one token, a state of 3 x 5")

DELTA = '''
def channel_delta(q, k, v, decay, beta):
    """q, k, decay (b, h, n, key_dim), v (b, h, n, value_dim), beta (b, h, n) -> (b, h, n, value_dim)"""
    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    out = []
    for t in range(k.shape[2]):
        state = state * decay[:, :, t, :, None]
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, :, t])
        new = beta[:, :, t, None] * (v[:, :, t] - known)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], new)
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]))
    return torch.stack(out, 2)
'''
DECAY = "        state = state * decay[:, :, t, :, None]\n"
KNOWN = '        known = torch.einsum("bhkv,bhk->bhv", state, k[:, :, t])\n'

exercise(id="11.7", title="Forgetting in the wrong direction", kind="repair", points=2, minutes=8, difficulty=3, card="""
    The delta rule of Kimi Linear: the state is a matrix with a row for each channel of a **key**, and each of those rows
    forgets at a speed of its own. The code below runs without an error wherever keys and values are equally wide, and it
    is wrong. Mend it.

    - first the state decays, then what it says about the new key is corrected by `beta`, then the query reads
    """, given={"torch": torch}, stub=DELTA.replace("decay[:, :, t, :, None]", "decay[:, :, t, None, :]"), solution=DELTA,
    cases=delta_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("decays by one number per head, the mean of the channels",
                      change=("decay[:, :, t, :, None]", "decay[:, :, t].mean(-1)[..., None, None]"),
                      ask="What would be left of the difference between this layer and the gated delta net?"),
        Misconception("asks what the state knows before it has decayed", change=(DECAY + KNOWN, KNOWN + DECAY),
                      ask="After the write, the state should say exactly v about this key if beta is 1. Does it, with your order?"),
        Misconception("adds and does not correct", change=("(v[:, :, t] - known)", "v[:, :, t]"),
                      ask="If the same key arrives twice, with beta 1: what should the state say about it?"),
        Misconception("corrects by all that was known, whatever beta is", change=("(v[:, :, t] - known)", "v[:, :, t] - known"),
                      ask="With beta 0 nothing is written. What does your state lose then?"),
        Misconception("decays what was just written, too", change=[(DECAY, ""), ("        out.", DECAY + "        out.")],
                      ask="Which decays: the past, or the token that is being written?")],
    hints=["The state is (b, h, key_dim, value_dim). Which of its axes does `decay` belong to?",
           "`None` in an index adds an axis of size 1 where it is written."])


# A model from a folder

def turned(x, layout, base=10000.0):
    """x (n, d), row p turned by position p; pair i is (i, i + d / 2), or with "interleaved" (2 i, 2 i + 1)."""
    d = x.shape[-1]
    angles = torch.arange(len(x)).float()[:, None] * base ** (-torch.arange(0, d, 2).float() / d)
    a, b = x.chunk(2, -1) if layout == "half" else (x[:, ::2], x[:, 1::2])
    pair = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
    return torch.cat(pair, -1) if layout == "half" else torch.stack(pair, -1).flatten(-2)

def layout_cases(rng):
    sizes = (1, 4, 0), (1, 4, 1), (3, 8, 1), (2, 16, 0), (4, 6, 1), (2, 8, 1), (3, 4, 0)
    for (heads, d, layer), layout in product(sizes, ("half", "interleaved")):
        width = heads * d
        weights = {f"model.layers.{n}.self_attn.{name}_proj.weight": randn(rng, rows, width) / width ** 0.5
                   for n in (0, 1) for name, rows in (("q", width), ("k", d), ("v", d))}
        x, prefix = randn(rng, 7, width), f"model.layers.{layer}.self_attn."
        q, k = (x @ weights[f"{prefix}{name}_proj.weight"].T[:, :d] for name in "qk")
        yield Case(weights, layer, x, (turned(q, layout) @ turned(k, layout).T).bfloat16().float(),
                   label=f"{heads} heads of {d}, layer {layer}, {layout}")

exercise(id="11.11", title="Which pairs a checkpoint turns", kind="write", points=2, minutes=8, difficulty=3, card="""
    Two layouts of RoPE are in use, and few configurations say which: pairs `(i, i + d / 2)`, called `"half"`, or
    `(2 i, 2 i + 1)`, called `"interleaved"`. You have the weights of a file and scores of the published code. Write
    `layout_of`.

    - `weights` leads from names to tensors, as in published files: `model.layers.0.self_attn.q_proj.weight` and so on;
      a weight has a row per output, as in `nn.Linear`
    - the layer has several heads of queries and **one** head of keys, `d` wide; a head's rows are next to each other
    - `x` (n, d_model) is what the layer reads; `scores` (n, n) are head 0's, before scale and mask,
      rounded to bfloat16
    - `turned(x, layout)`, with x (n, d), is given: it turns row p by position p
    """, given={"torch": torch, "turned": turned}, solution='''
    def layout_of(weights, layer, x, scores):
        """-> "half" or "interleaved": which of them gives these scores"""
        q, k = (x @ weights[f"model.layers.{layer}.self_attn.{name}_proj.weight"].T for name in "qk")
        q = q[:, :k.shape[-1]]
        wrong = {layout: (turned(q, layout) @ turned(k, layout).T - scores).abs().max() for layout in ("half", "interleaved")}
        return min(wrong, key=wrong.get)
    ''', cases=layout_cases, compare=exact(), misconceptions=[
        Misconception("takes the weights of layer 0 whatever the layer", change=("layers.{layer}.", "layers.0."),
                      ask="Which name has the weights of the layer that was asked for?"),
        Misconception("takes the last head's rows for head 0", change=("q[:, :k.shape[-1]]", "q[:, -k.shape[-1]:]"),
                      ask="Which rows of the weight make head 0?"),
        Misconception("asks for equal scores, and finds none", change=("- scores).abs().max()", "!= scores).any()"),
                      ask="`scores` was rounded to bfloat16. Does the right layout give exactly these numbers?"),
        Misconception("looks at each token's score with itself alone", change=("- scores).abs()", "- scores).diagonal().abs()"),
                      ask="Query and key at one position are turned by one angle. What does that change in their product?"),
        Misconception("turns the queries and not the keys", change=("turned(k, layout).T", "k.T"),
                      ask="A score depends on the distance of two tokens only if both are turned. Are they?")],
    hints=["`x @ weight.T` is what `nn.Linear` computes.", "Turn queries and keys both ways and compare with `scores`."])


def route_cases(rng):
    for tokens, experts, top_k in ((1, 3, 1), (4, 4, 2), (9, 16, 4), (5, 8, 8)):
        yield Case(randn(rng, tokens, 6), randn(rng, experts, 6), randn(rng, experts), top_k,
                   label=f"{tokens} tokens, the best {top_k} of {experts} experts")

ROUTE = '''
def route(x, router, correction, top_k):
    """x (tokens, d), router (experts, d), correction (experts,) -> weights, experts: (tokens, top_k), best first"""
    scores = torch.sigmoid(x @ router.T)
    chosen = (scores + correction).topk(top_k, -1).indices
    weights = scores.gather(-1, chosen)
    return weights / weights.sum(-1, keepdim=True), chosen
'''

exercise(id="11.12", title="A bias that is no weight", kind="repair", points=2, minutes=6, difficulty=3, card="""
    A mixture of experts as DeepSeek-V3 has it: a token goes to its `top_k` best experts. So that all experts get work
    without another loss, each has a `correction`, raised while it is idle. It says **who is chosen** and leaves alone
    **how much** each counts. The code below builds, runs, and gives logits that are a little wrong. Mend it.

    - scores are sigmoids; `experts` are the best by the corrected score, the best first
    - the weights of a token's chosen experts sum to 1
    """, given={"torch": torch},
    stub=ROUTE.replace("    chosen = (scores + correction).topk(top_k, -1).indices\n    weights = scores.gather(-1, chosen)\n",
                       "    weights, chosen = (scores + correction).topk(top_k, -1)\n"),
    solution=ROUTE, cases=route_cases, compare=close(), misconceptions=[
        Misconception("leaves the correction out of the choice", change=("(scores + correction)", "scores"),
                      ask="An idle expert's correction grows. What can it change, if nobody looks at it when choosing?"),
        Misconception("weighs all experts before it chooses",
                      change=("return weights / weights.sum(-1, keepdim=True)", "return weights / scores.sum(-1, keepdim=True)"),
                      ask="What do the weights of one token's chosen experts sum to?"),
        Misconception("takes a softmax of the chosen scores",
                      change=("return weights / weights.sum(-1, keepdim=True)", "return weights.softmax(-1)"),
                      ask="A sigmoid is between 0 and 1 already. Which operation makes two of them sum to 1 and keeps their ratio?")],
    hints=["`topk` returns values and indices. Of which scores are the values?",
           "`scores.gather(-1, chosen)` are the scores of the chosen, uncorrected."])

TEMPLATE = '''
{{- "<s>" }}
{%- for m in messages if m.role != "system" %}
{{- "<turn " + ("model" if m.role == "assistant" else m.role) + ">" }}
{{- messages[0].content + "\\n" if loop.first and messages[0].role == "system" }}
{{- m.content | trim + "</turn>\\n" }}
{%- endfor %}
{{- "<turn model>" if add_generation_prompt }}
'''

def template_cases(rng):
    def said(*turns):
        return [{"role": role, "content": content} for role, content in turns]
    yield Case(said(("user", "Hi")), True, label="one question")
    yield Case(said(("user", " Hi\n"), ("assistant", "Hello. ")), False, label="an answer, nothing asked for")
    yield Case(said(("system", " Be brief. "), ("assistant", "Ask."), ("user", "Why?")), True, label="an assistant first")
    yield Case(said(("system", "Be brief.")), True, label="a system message alone")
    yield Case(said(("system", "Be brief."), ("user", "Why?"), ("assistant", "Because."), ("user", "And?")), True,
               label="a system message, two questions")
    turns = [("user" if n % 2 == 0 else "assistant", f"number {whole(rng, 1, 99)} ") for n in range(whole(rng, 3, 7))]
    yield Case(said(*turns), bool(len(turns) % 2), label=f"{len(turns)} turns")

exercise(id="11.13", title="A chat template, read by hand", kind="write", points=2, minutes=8, difficulty=3, card="""
    A model has learned one form of a conversation; its folder says which, as a Jinja template. Any other form is a text
    unlike those it was trained on. `-` eats the blanks and newlines beside a tag; `trim` those at both ends of a text. Write
    `render`, which gives the same text as

    ```jinja""" + TEMPLATE.replace("\n", "\n    ") + """```

    - `messages`: dicts with "role" ("system", at most once and first, "user" or "assistant") and "content"
    """, solution=r'''
    def render(messages, add_generation_prompt):
        """-> the text that the model reads"""
        said, first = "<s>", messages[0]["content"] + "\n" if messages[0]["role"] == "system" else ""
        for m in messages:
            if m["role"] != "system":
                said += f"<turn {m['role'].replace('assistant', 'model')}>{first}{m['content'].strip()}</turn>\n"
                first = ""
        return said + "<turn model>" * add_generation_prompt
    ''', cases=template_cases, compare=exact(), misconceptions=[
        Misconception("gives the system message a turn of its own",
                      change=('said, first = "<s>", messages[0]["content"] + "\\n" if messages[0]["role"] == "system" else ""',
                              'said, first = "<s>", ""\n    messages = messages if messages[0]["role"] != "system" else '
                              '[{"role": "user", "content": messages[0]["content"]}, *messages[1:]]'),
                      ask="The loop goes over messages *if* their role is not system. Where is the system message written?"),
        Misconception("writes the system message into every turn", change=('            first = ""\n', ""),
                      ask="What is `loop.first` in the second turn?"),
        Misconception("begins the answer where none is asked for",
                      change=('"<turn model>" * add_generation_prompt', '"<turn model>"'),
                      ask="When is the last line of the template empty?"),
        Misconception("trims the system message, too", change=('messages[0]["content"] +', 'messages[0]["content"].strip() +'),
                      ask="Which text does the template trim, and which does it join to the newline as it is?"),
        Misconception("keeps the blanks around a message", change=(".strip()", ""), ask="What does `trim` do?"),
        Misconception("calls the answering side assistant", change=(".replace('assistant', 'model')", ""),
                      ask="Which word does the template write for that role?")],
    hints=["Go through the template once for one user message, by hand.", "`str.strip()` is Jinja's `trim`."])

exercise(id="11.14", title="Tokens per second of a folder", kind="predict", points=1, minutes=5, difficulty=2, card="""
    A folder holds 1.7 billion weights of 2 bytes, all read for each token; its 28 layers have 8 heads of keys and
    values, 128 wide, at 2 bytes per number. Your machine reads 60 GB per second. One text of 8,192 tokens goes on, one
    token per step. **How many tokens per second** can it write at most?
    """, name="tokens_per_second", answer=60e9 / (3.4e9 + 28 * 2 * 8 * 128 * 2 * 8192), tolerance=0.15, misconceptions=[
        Misconception("forgets the cache", value=60 / 3.4, ask="What else does each step read, besides the weights?"),
        Misconception("keeps the keys and forgets the values", value=60e9 / (3.4e9 + 28 * 8 * 128 * 2 * 8192),
                      ask="A weight needs a key. What does it weigh?"),
        Misconception("reads one layer's cache", value=60e9 / (3.4e9 + 2 * 8 * 128 * 2 * 8192), ask="How many layers have a cache?"),
        Misconception("forgets the weights", value=60e9 / (28 * 2 * 8 * 128 * 2 * 8192),
                      ask="What must be read for every token, however short the text?")],
    hints=["Bytes per step: the weights, and every key and value of 8,192 tokens in 28 layers.", "60e9 / those bytes."])
