"""The exercises of chapter 10."""
import math
from collections import Counter

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, inout, kernel_exercise, out, randn


def pair_cases(rng):
    yield Case(["ab", "abc"], [1, 3], label="two words")
    yield Case(["aaa", "bc"], [2, 3], label="a letter three times in a word")
    yield Case(["cd", "ab", "xcd"], [1, 2, 1], label="two pairs equally often")
    yield Case(["axb", "ayb", "cd"], [1, 1, 1], label="two letters that are no neighbours")
    yield Case(["the", "then", "hen", "en"], [5, 2, 4, 6], label="pieces of words")
    yield Case(["hand", "and", "an", "na"], [1, 1, 1, 9], label="an order that matters")
    for n, letters in ((5, "abc"), (12, "abcde"), (30, "aeinrst")):
        drawn = ["".join(letters[i] for i in torch.randint(len(letters), (length,), generator=rng).tolist())
                 for length in torch.randint(1, 8, (n,), generator=rng).tolist()]
        words = list(dict.fromkeys(drawn)) + ["ab"]
        yield Case(words, torch.randint(1, 6, (len(words),), generator=rng).tolist(), label=f"{len(words)} drawn words")

exercise(id="10.1", title="The most frequent pair", kind="write", points=2, minutes=9, difficulty=2, card="""
    Again and again a byte-pair tokenizer merges the two neighbours that occur side by side most often. Write the search
    for the first merge, `best_pair(words, counts)`. Here the pieces are single characters.

    - `words` are the different words of a text, each a string; `counts[i]` says how often word `i` occurs in it
    - a pair is two **neighbouring** characters of one word, as a tuple; it occurs as often as its word does
    - `"aaa"` holds the pair `("a", "a")` twice
    - of pairs that occur equally often, return the smallest, as Python orders tuples
    """, given={"Counter": Counter}, solution='''
    def best_pair(words, counts):
        """words: list of strings, counts: list of ints -> (character, character)"""
        pairs = Counter()
        for word, count in zip(words, counts):
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        return min(pairs, key=lambda pair: (-pairs[pair], pair))
    ''', cases=pair_cases, compare=exact(), misconceptions=[
        Misconception("counts each different word once", change=("+= count", "+= 1"),
                      ask="A word that occurs a thousand times: how often does a pair in it occur?"),
        Misconception("takes any two characters of a word, neighbours or not",
                      change=("zip(word, word[1:])", "((a, b) for i, a in enumerate(word) for b in word[i + 1:])"),
                      ask="Which text would the merged token mean, if another character is between its two halves?"),
        Misconception("counts a pair once in each word", change=("zip(word, word[1:])", "set(zip(word, word[1:]))"),
                      ask='How often does "aaa" hold the pair ("a", "a")?'),
        Misconception("lets a pair reach from one word into the next", body='''
            text = "".join(word * count for word, count in zip(words, counts))
            pairs = Counter(zip(text, text[1:]))
            return min(pairs, key=lambda pair: (-pairs[pair], pair))
            ''', ask="Where two words meet, are their letters neighbours in one word?"),
        Misconception("of equal pairs takes the first in the text",
                      change=("min(pairs, key=lambda pair: (-pairs[pair], pair))", "pairs.most_common(1)[0][0]"),
                      ask="`most_common` keeps equal ones in the order of their insertion. Which order does the card want?"),
        Misconception("of equal pairs takes the largest", change=("min(pairs, key=lambda pair: (-pairs[pair], pair))",
                                                                  "max(pairs, key=lambda pair: (pairs[pair], pair))"),
                      ask="max with the key (count, pair) prefers which of two pairs with the same count?")],
    hints=["`zip(word, word[1:])` walks over the neighbours of a word.",
           "Add `count`, not 1: the word occurs that often.",
           "`min` with the key `(-how_often, pair)` prefers the most frequent, and of those the smallest."])


exercise(id="10.2", title="Before the first step", kind="predict", points=1, minutes=3, difficulty=1, card=r"""
    A model that has learned nothing gives each of its 65 characters about the same probability. What is its loss, the
    mean of $-\ln p$(next character), in nats? Type it with two digits after the point.
    """, given={"math": math}, name="first_loss", answer=lambda: math.log(65), tolerance=0.02, misconceptions=[
        Misconception("measures in bits", value=lambda: math.log2(65), ask="Which logarithm gives nats?"),
        Misconception("forgets the minus", value=lambda: -math.log(65), ask="A probability is at most 1. Can -ln p be below 0?"),
        Misconception("gives the probability, not its logarithm", value=lambda: 1 / 65,
                      ask="The loss is minus the logarithm of this number. What is that?"),
        Misconception("takes the logarithm to the base 10", value=lambda: math.log10(65), ask="Which logarithm gives nats?")],
    hints=["Every character has the probability 1/65, whichever is the right one.", "$-\\ln(1/65) = \\ln 65$."])


def schedule_cases(rng):
    for step, steps, peak, warmup, label in ((0, 100, 1.0, 10, "the first step"), (9, 100, 1.0, 10, "the last of the warm-up"),
                                             (10, 100, 1.0, 10, "the peak"), (55, 100, 1.0, 10, "half way down"), (100, 100, 2.0, 10, "the end"),
                                             (3, 50, 2e-3, 0, "no warm-up"), (700, 1000, 3e-4, 100, "a long run")):
        yield Case(step, steps, peak, warmup, 0.1, label=label)
    for _ in range(4):
        steps = int(torch.randint(20, 2000, (), generator=rng))
        warmup, step = (int(steps * share * x) for share, x in zip((0.3, 1.0), torch.rand(2, generator=rng).tolist()))
        peak, floor = (1e-3 + torch.rand(2, generator=rng).double() / 2).tolist()
        yield Case(step, steps, peak, warmup, floor, label=f"step {step} of {steps}, {warmup} of warm-up, floor {floor:.2f}")

exercise(id="10.3", title="Up and down again", kind="write", points=2, minutes=7, difficulty=2, card=r"""
    The running averages of AdamW need a few steps before they mean anything. So the learning rate rises in a straight line
    for `warmup` steps, and then falls like half a cosine wave. Write it.

    - step 0 already moves: the rates of the first $w$ (`warmup`) steps are $1/w, 2/w, \dots, 1$ times the peak
    - the cosine begins at the peak in step `warmup` and reaches `floor` times the peak in step `steps`
    - half way down, the rate is midway between these two rates
    """, given={"math": math}, solution='''
    def learning_rate(step, steps, peak, warmup, floor):
        """-> the learning rate of this step; steps are counted from 0"""
        if step < warmup:
            return peak * (step + 1) / warmup
        progress = (step - warmup) / (steps - warmup)
        return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)
    ''', cases=schedule_cases, compare=close(atol=1e-9, rtol=1e-6), misconceptions=[
        Misconception("wastes the first step", change=("(step + 1) / warmup", "step / warmup"),
                      ask="With which rate is the very first step taken, in yours?"),
        Misconception("starts the cosine at step 0", change=("(step - warmup) / (steps - warmup)", "step / steps"),
                      ask="When the warm-up ends, how far has your cosine fallen already?"),
        Misconception("reaches the floor one step early", change=("/ (steps - warmup)", "/ (steps - 1 - warmup)"),
                      ask="In which step, by the card, is the rate `floor` times the peak?"),
        Misconception("falls to nothing", change=("floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2",
                                                  "(1 + math.cos(math.pi * progress)) / 2"),
                      ask="What is the rate of the last step, and what should it be?"),
        Misconception("takes floor for a rate, where it is a share of the peak",
                      change=("peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)",
                              "floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2"),
                      ask="With a peak of 2 and a floor of 0.1, which rate should the last step have?"),
        Misconception("falls towards 0 and is cut off at the floor",
                      change=("peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)",
                              "max(peak * floor, peak * (1 + math.cos(math.pi * progress)) / 2)"),
                      ask="Half way down: is yours half way between the peak and the floor?"),
        Misconception("takes a quarter of a wave",
                      change=("(1 + math.cos(math.pi * progress)) / 2", "math.cos(math.pi / 2 * progress)"),
                      ask="Half way down, is your rate midway between the peak and the floor?"),
        Misconception("falls in a straight line", change=("(1 + math.cos(math.pi * progress)) / 2", "(1 - progress)"),
                      ask="How fast does half a cosine fall at its beginning, and how fast does yours?"),
        Misconception("goes through a whole wave", change=("math.pi * progress", "2 * math.pi * progress"),
                      ask="Where on the cosine are you at the end: at its lowest point, or back at the top?")],
    hints=["Two cases: before `warmup` and after it.", "`progress` runs from 0 to 1 after the warm-up; $(1 + \\cos \\pi x)/2$ runs from 1 to 0."])


def training_cases(rng):
    for steps, parts, rows, d, label in ((1, 1, 2, 1, "one step, one part"), (2, 1, 2, 1, "two steps"), (1, 2, 4, 2, "a batch in two parts"),
                                         (5, 2, 6, 3, "five steps, two parts each"), (4, 3, 9, 5, "four steps, three parts each")):
        x, true = randn(rng, steps, rows, d), randn(rng, d)
        yield Case(randn(rng, d), x, x @ true + 0.1 * randn(rng, steps, rows), 0.05, parts, label=label)

TRAINING = '''
def fit(weight, xs, ys, rate, parts):
    """weight (d,), xs (steps, rows, d), ys (steps, rows) -> the weight after all steps"""
    weight = weight.clone().requires_grad_()
    for x, y in zip(xs, ys):
        weight.grad = None
        for x_part, y_part in zip(x.chunk(parts), y.chunk(parts)):
            loss = (x_part @ weight - y_part).square().mean()
            (loss / parts).backward()
        with torch.no_grad():
            weight -= rate * weight.grad
    return weight.detach()
'''

exercise(id="10.4", title="The loop that drifts", kind="repair", points=3, minutes=9, difficulty=3, card="""
    This loop fits a line. To save memory it processes each batch in `parts` equal parts, adds up their gradients, and
    then takes one step of gradient descent. It runs, the loss falls at first, and it is wrong in **two** ways.

    - the result must be that of the whole batch at once, up to rounding
    - change as little as you can
    """, given={"torch": torch}, name="fit",
    stub=TRAINING.replace("        weight.grad = None\n", "").replace("(loss / parts).backward()", "loss.backward()"),
    solution=TRAINING, cases=training_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("keeps the gradients of the steps before", change=("        weight.grad = None\n", ""),
                      ask="`backward` adds to the gradient that is stored. What is stored when the second step begins?"),
        Misconception("adds up means of parts as if they were a mean of the whole", change=("(loss / parts).backward()", "loss.backward()"),
                      ask="The mean of a batch in two halves: is it the sum of the two means?"),
        Misconception("steps to a new weight, which asks for no gradient",
                      change=("weight -= rate * weight.grad", "weight = weight - rate * weight.grad"),
                      ask="A tensor made under `no_grad` does not require a gradient. Does `-=` make a new tensor?"),
        Misconception("clears the gradient for every part", code=TRAINING.replace("        weight.grad = None\n", "").replace(
            "            loss = ", "            weight.grad = None\n            loss = "),
                      ask="Which parts still contribute to the step, if each begins by clearing?"),
        Misconception("takes a step after every part", code=TRAINING.replace(
            "        with torch.no_grad():\n            weight -= rate * weight.grad\n",
            "            with torch.no_grad():\n                weight -= rate * weight.grad\n"),
                      ask="At which weight should the gradient of the second part be taken: the old one, or one that has moved already?")],
    hints=["Print `weight.grad` before the second step. Should it be anything?",
           "With parts of equal size the mean of the batch is the mean of the means.",
           "One line clears the gradient once per step; one division repairs the sum."])


exercise(id="10.6", title="A score for induction", kind="write", points=2, minutes=9, difficulty=3, card=r"""
    A text consists of $n$ random tokens and the same $n$ again, so position $i \ge n$ holds the token of position $i - n$.
    To predict the next token, a head should attend to the token that followed **last time**, at position $i - n + 1$.
    Write the score of a head.

    - `weights` is `(heads, 2n, 2n)`, one row per query
    - the score is the mean weight that the queries of the second copy, $n$ to $2n - 1$, give to that position
    """, given={"torch": torch}, solution='''
    def induction_score(weights, n):
        """weights (heads, 2n, 2n) -> (heads,)"""
        i = torch.arange(n, 2 * n)
        return weights[:, i, i - n + 1].mean(-1)
    ''', cases=lambda rng: [
        Case(torch.eye(4)[None].roll(1, -2).tril(), 2, label="one head, two tokens twice"),
        Case(torch.softmax(2 * randn(rng, 1, 6, 6), -1), 3, label="one head, three tokens twice"),
        Case(torch.softmax(2 * randn(rng, 3, 10, 10), -1).tril(), 5, label="three heads, five tokens twice"),
        Case(torch.softmax(3 * randn(rng, 4, 32, 32), -1), 16, label="four heads, sixteen tokens twice")],
    compare=close(atol=1e-6), misconceptions=[
        Misconception("scores a look at the same token", change=("i - n + 1", "i - n"),
                      ask="The model knows its present token. Which position tells it what follows that token?"),
        Misconception("scores a look at the position before", change=("i - n + 1", "i - 1"),
                      ask="At which position did the token of position i occur first, and at which the one that followed?"),
        Misconception("leaves the last query out", change=("torch.arange(n, 2 * n)", "torch.arange(n, 2 * n - 1)"),
                      ask="Position 2n - 1 holds the last token of the text. What followed it the first time?"),
        Misconception("begins one query too early", change=("torch.arange(n, 2 * n)", "torch.arange(n - 1, 2 * n)"),
                      ask="Does the token of position n - 1 occur before that position?"),
        Misconception("takes the mean over a square of keys and queries",
                      change=("weights[:, i, i - n + 1].mean(-1)", "weights[:, n:, 1:n + 1].mean((1, 2))"),
                      ask="How many keys count for one query?"),
        Misconception("exchanges queries and keys", change=("weights[:, i, i - n + 1]", "weights[:, i - n + 1, i]"),
                      ask="Which of the last two axes is the query, and is it early or late in the text?"),
        Misconception("takes the best query, not the mean over queries", change=(".mean(-1)", ".amax(-1)"),
                      ask="A head that copies one token of 32 by chance: what should it score?"),
        Misconception("adds up instead of taking the mean", change=(".mean(-1)", ".sum(-1)"),
                      ask="A head that does this perfectly should score 1, however long the text is. What does yours give?")],
    hints=["`weights[:, i, j]` with two lists of positions picks one entry for each pair.",
           "`i = torch.arange(n, 2 * n)`; what is `j` for each of them?"])


def _nucleus_like(got, want, case):
    """Of tokens equally likely at the edge, any may be kept, but only as many as are needed."""
    told = close(atol=1e-6)(got, want, case)
    if told and isinstance(got, torch.Tensor) and got.shape == want.shape and got.is_floating_point():
        probabilities = case.args[0]
        of_input = torch.where(got > 0, probabilities, 0)
        if not close(atol=1e-6)(got, of_input / of_input.sum()) and not close(atol=1e-6)(got.sort().values, want.sort().values):
            return None
    return told

exercise(id="10.7", title="The nucleus", kind="write", points=3, minutes=10, difficulty=3, card="""
    Top-p sampling draws only from the **nucleus**: the fewest tokens, likeliest first, whose probabilities add up to at
    least `p`. Write the distribution that it draws from.

    - the token with which the sum reaches `p` belongs to it; of equally likely ones take any, but no more than needed
    - the probabilities in the nucleus are normalised; all others are 0
    - the result is in the order of the input, not sorted
    """, given={"torch": torch}, solution='''
    def nucleus(probabilities, p):
        """(vocabulary,) -> (vocabulary,)"""
        ordered, order = probabilities.sort(descending=True)
        before = ordered.cumsum(-1) - ordered
        kept = torch.where(before < p, ordered, torch.zeros_like(ordered))
        out = torch.zeros_like(probabilities)
        out[order] = kept / kept.sum()
        return out
    ''', cases=lambda rng: [
        Case(torch.tensor([0.2, 0.5, 0.3]), 0.6, label="three tokens, p = 0.6"),
        Case(torch.tensor([0.25, 0.125, 0.5, 0.125]), 0.75, label="a sum that is exactly p"),
        Case(torch.tensor([0.1, 0.2, 0.6, 0.1]), 0.5, label="one token is enough"),
        Case(torch.tensor([0.25, 0.05, 0.4, 0.3]), 0.9, label="four tokens, p = 0.9"),
        Case(torch.tensor([0.125, 0.25, 0.5, 0.125]), 0.8, label="the last token needed is as likely as another"),
        Case(torch.softmax(2 * randn(rng, 12), -1), 0.8, label="twelve tokens"),
        Case(torch.softmax(randn(rng, 30), -1), 1.0, label="p = 1 keeps all")], compare=_nucleus_like,
    properties=[("it sums to 1", lambda got, case: abs(float(got.sum()) - 1) < 1e-5)], misconceptions=[
        Misconception("drops the token with which the sum reaches p",
                      change=("before < p", "(before + ordered <= p) | (before == 0)"),
                      ask="With 0.5, 0.3, 0.2 and p = 0.6: do the tokens you keep add up to at least 0.6?"),
        Misconception("keeps no token at all where the likeliest alone reaches p", change=("before < p", "before + ordered <= p"),
                      ask="With 0.6, 0.2, 0.1, 0.1 and p = 0.5: with which token does the sum reach p?"),
        Misconception("keeps one more where the sum is exactly p", change=("before < p", "before <= p"),
                      ask="With 0.5, 0.25, 0.25 and p = 0.5: how many tokens are enough?"),
        Misconception("keeps every token that is as likely as the last one needed", body='''
            ordered = probabilities.sort(descending=True).values
            needed = (ordered.cumsum(-1) - ordered < p).sum()
            kept = torch.where(probabilities >= ordered[needed - 1], probabilities, 0)
            return kept / kept.sum()
            ''', ask="With 0.5, 0.25, 0.125, 0.125 and p = 0.8: how many tokens are enough?"),
        Misconception("reads by the order where it should write", change=(
            "out[order] = kept / kept.sum()", "out = (kept / kept.sum())[order]"),
                      ask="`order[0]` is the place of the likeliest token. Is that where its probability ends up?"),
        Misconception("keeps tokens whose own probability is at least p",
                      change=("before < p", "(ordered >= p) | (before == 0)"),
                      ask="Is p a bar for one token, or for the sum of those that are kept?"),
        Misconception("does not normalise what is left", change=("kept / kept.sum()", "kept"),
                      ask="What should the probabilities of a distribution add up to?"),
        Misconception("leaves the tokens in sorted order", change=("out[order] = kept / kept.sum()", "out[:] = kept / kept.sum()"),
                      ask="If token 2 was the likeliest, which entry of your result is the largest?"),
        Misconception("begins with the unlikeliest", change=("descending=True", "descending=False"),
                      ask="The fewest tokens that reach p: do they begin with large or with small ones?")],
    hints=["Sort, and take the cumulative sum.",
           "A token belongs to it if everything likelier adds up to **less** than p.",
           "`sort` also gives the order; `out[order] = ...` puts everything back."])


def norm_cases(rng):
    for rows, d in ((1, 1), (1, 33), (3, 31), (2, 128), (17, 100), (40, 256)):
        yield Case(randn(rng, rows, d), 2 * randn(rng, rows, d), 1 + 0.5 * randn(rng, d), 1e-3, label=f"{rows} x {d}")
    yield Case(torch.zeros(2, 8), 1e-3 * torch.ones(2, 8), torch.ones(8), 1e-3, label="rows so small that eps matters")

ADD_NORM = '''
__device__ float block_sum(float value) {              // of all threads of the block; every thread gets it
    __shared__ float part[32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; warp++) sum += part[warp];
    return sum;
}

__global__ void add_norm(float* __restrict__ x, const float* __restrict__ delta, const float* __restrict__ weight,
                         float* __restrict__ out, int d, float eps) {
    extern __shared__ float row[];                     // d floats: this block's row of x + delta
    const size_t start = (size_t)blockIdx.x * d;       // where its row begins
    float squares = 0.0f;
    for (int c = threadIdx.x; c < d; c += blockDim.x) {
        const float sum = x[start + c] + delta[start + c];
        x[start + c] = row[c] = sum;
        squares += sum * sum;
    }
    const float scale = rsqrtf(block_sum(squares) / d + eps);
    for (int c = threadIdx.x; c < d; c += blockDim.x) out[start + c] = row[c] * scale * weight[c];
}
'''
_LOOPS = ADD_NORM.index("    float squares")

def _norm_expect(x, delta, weight, eps):
    stream = x + delta
    return [stream, stream * torch.rsqrt(stream.square().mean(-1, keepdim=True) + eps) * weight]

def _norm_traffic(x, delta, weight, eps):
    """x and delta read, x and out written, once each, in sectors of 32 bytes per request of a warp; the weight once."""
    rows, d = x.shape
    starts = [4 * (row * d + c) for row in range(rows) for c in range(0, d, 32)]
    ends = [4 * (row * d + min(c + 32, d)) for row in range(rows) for c in range(0, d, 32)]
    sectors = sum((end - 1) // 32 - start // 32 + 1 for start, end in zip(starts, ends))
    return 32 * (4 * sectors + -(-d // 8))

kernel_exercise(id="10.8", title="Add and normalise, fused", points=4, minutes=12, difficulty=3, name="add_norm", card=r"""
    Between two layers of the model, two things happen to each token: what the last layer computed is added to the
    stream, and the sum is normalised. Fuse them: one launch, one block per token.

    - `x += delta`, in place: the stream goes on
    - `out = x / sqrt(mean of x squared + eps) * weight`, with the new `x`: RMSNorm
    - a row has `d` numbers, any `d`; a block has 128 threads
    - read `x` and `delta` from global memory once, neighbouring threads neighbouring numbers: the row fits into shared
      memory, as `row`
    - `block_sum` is given. Every thread of the block must call it
    """, stub=ADD_NORM[:_LOOPS] + "    // your code: add, write the stream, sum the squares; then normalise\n}\n",
    solution=ADD_NORM, cases=norm_cases, compare=close(atol=1e-4, rtol=1e-4), launch=lambda x, delta, weight, eps: Launch(
        grid=len(x), block=128, shared=4 * x.shape[1],
        args=[inout(x), delta, weight, out(x.shape), x.shape[1], eps]),
    expect=_norm_expect, traffic=_norm_traffic, misconceptions=[
        Misconception("does not write the sum back into the stream", change=("x[start + c] = row[c] = sum;", "row[c] = sum;"),
                      ask="The next layer adds to x. Which x does it find?"),
        Misconception("divides by the root of the sum of squares, not of their mean", change=("block_sum(squares) / d", "block_sum(squares)"),
                      ask="For a row of d ones the result should be ones. What is yours?"),
        Misconception("normalises with the squares that one thread has seen", change=("block_sum(squares)", "squares"),
                      ask="Thread 5 sees the entries 5, 133, 261, ... Whose mean is wanted?"),
        Misconception("squares x before delta is added",
                      change=[("const float sum = x[start + c] + delta[start + c];",
                               "const float old = x[start + c], sum = old + delta[start + c];"), ("sum * sum", "old * old")],
                      ask="Which vector has length sqrt(d) after a norm: the old stream or the new one?"),
        Misconception("forgets the weight", change=(" * scale * weight[c]", " * scale"),
                      ask="With a weight of 2, how large should the entries be?"),
        Misconception("adds eps outside of the root", change=("rsqrtf(block_sum(squares) / d + eps)", "(rsqrtf(block_sum(squares) / d) + eps)"),
                      ask="What is the result for a row that is almost 0?"),
        Misconception("reads the row from global memory a second time", change=("out[start + c] = row[c] *", "out[start + c] = x[start + c] *"),
                      ask="The row was in your hands a moment ago. How many bytes does the second loop load?"),
        Misconception("gives each thread a stretch of its own",
                      change=("for (int c = threadIdx.x; c < d; c += blockDim.x) {",
                              "const int each = (d + 127) / 128;\n    for (int c = threadIdx.x * each; c < min(d, (int)(threadIdx.x + 1) * each); c++) {"),
                      ask="In one step the 32 lanes of a warp read 32 addresses. Are they neighbours, in yours?"),
        Misconception("handles only as many entries as the block has threads",
                      change=[("for (int c = threadIdx.x; c < d; c += blockDim.x) {", "if (int c = threadIdx.x; c < d) {"),
                              ("for (int c = threadIdx.x; c < d; c += blockDim.x) out", "if (int c = threadIdx.x; c < d) out")],
                      ask="A row has 256 numbers and a block 128 threads. Who takes number 200?"),
        Misconception("lets a thread without an entry skip block_sum",
                      change=("    const float scale", "    if (threadIdx.x >= d) return;\n    const float scale"),
                      ask="block_sum waits for all threads, and its shuffles want all lanes of a warp. Who is missing?")],
    hints=["Two loops `for (int c = threadIdx.x; c < d; c += blockDim.x)`, with `block_sum` between them.",
           "In the first: `const float sum = x[start + c] + delta[start + c];`, store it in `x` and in `row`, add its square.",
           "`rsqrtf(block_sum(squares) / d + eps)` is the factor for the second loop."])


def chain_cases(rng):
    yield Case(torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64), label="a fair coin")
    yield Case(torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64), label="a and b in turn")
    yield Case(torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64), label="a, then b or c, in turn")
    yield Case(torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64), label="two words, unequally often")
    yield Case(torch.tensor([[0.5, 0.5], [0.1, 0.9]], dtype=torch.float64), label="the same two words, numbered the other way")
    for n in (3, 6):
        p = torch.softmax(2 * torch.randn(n, n, generator=rng, dtype=torch.float64), -1)
        yield Case(p, label=f"{n} words")

exercise(id="10.10", title="The floor", kind="write", points=3, minutes=12, difficulty=4, card=r"""
    A text is made by a chain: word $j$ follows word $i$ with probability $p_{ij}$. No model, however large, has an expected
    loss below the **entropy rate** $\sum_i \pi_i \sum_j -p_{ij} \ln p_{ij}$, where $\pi_i$ is the share of word $i$ in a
    long text. Compute it.

    - $\pi = \pi P$, and $\pi$ sums to 1; there is one, since every word can follow every other after some steps
    - $0 \ln 0$ is 0
    """, given={"torch": torch}, solution='''
    def entropy_rate(p):
        """p (n, n) in float64, rows sum to 1 -> nats per word, a float"""
        n = len(p)
        often = torch.linalg.lstsq(torch.cat([p.T - torch.eye(n, dtype=p.dtype), torch.ones(1, n, dtype=p.dtype)]),
                                   torch.cat([torch.zeros(n, dtype=p.dtype), torch.ones(1, dtype=p.dtype)])[:, None]).solution[:, 0]
        surprise = -torch.special.xlogy(p, p).sum(-1)
        return float(often @ surprise)
    ''', cases=chain_cases, compare=close(atol=1e-6),
    measure=lambda got, case: got.item() if isinstance(got, torch.Tensor) else got, misconceptions=[
        Misconception("multiplies by P alone, which never settles where words alternate", body='''
            often = torch.linalg.matrix_power(p, 1000)[0]
            return float(often @ -torch.special.xlogy(p, p).sum(-1))
            ''', ask="In the text ababab: with which share of b do you end after an even number of steps, and after an odd one?"),
        Misconception("takes the first eigenvector, whatever its eigenvalue", body='''
            often = torch.linalg.eig(p.T)[1][:, 0].real
            return float(often / often.sum() @ -torch.special.xlogy(p, p).sum(-1))
            ''', ask="$\\pi = \\pi P$ names an eigenvalue. Does `eig` promise to put it first?"),
        Misconception("takes all words as equally frequent", change=("float(often @ surprise)", "float(surprise.mean())"),
                      ask="If word a occurs nine times as often as word b, should the surprise after each weigh the same? "
                          "(If you solved for pi and it came out uniform: was it pi P = pi, or P pi = pi?)"),
        Misconception("forgets what the word before says", change=("float(often @ surprise)", "float(-torch.special.xlogy(often, often).sum())"),
                      ask="In the text ababab every letter is certain once you know the one before. What is its entropy rate?"),
        Misconception("measures in bits", change=("float(often @ surprise)", "float(often @ surprise) / 0.6931471805599453"),
                      ask="Which logarithm gives nats?"),
        Misconception("lets 0 ln 0 be NaN", change=("torch.special.xlogy(p, p)", "(p * p.log())"),
                      ask="What is 0 times minus infinity for a computer, and what is the limit of x ln x?")],
    hints=["$\\pi$ solves a linear system; or start anywhere and multiply by $(P + I)/2$ many times.",
           "`torch.special.xlogy(p, p)` is $p \\ln p$, with 0 where p is 0.", "The surprise after each word, weighted by how often it occurs."])


exercise(id="10.11", title="A penalty that rewards", kind="repair", points=2, minutes=7, difficulty=2, card="""
    A repetition penalty above 1 should make tokens that the text already contains **less** likely. This one is often seen,
    and for some tokens it does the opposite. Find out for which, and repair it.

    - a token is penalised once, however often it was seen
    - the input `logits` must not change
    """, given={"torch": torch}, name="penalised", stub='''
    def penalised(logits, seen, penalty):
        """logits (vocabulary,), seen (m,) tokens of the text so far -> (vocabulary,)"""
        out = logits.clone()
        out[seen] = logits[seen] / penalty
        return out
    ''', solution='''
    def penalised(logits, seen, penalty):
        """logits (vocabulary,), seen (m,) tokens of the text so far -> (vocabulary,)"""
        out = logits.clone()
        chosen = logits[seen]
        out[seen] = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
        return out
    ''', cases=lambda rng: [
        Case(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1]), 2.0, label="a seen token with a negative logit"),
        Case(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([0, 0, 1]), 1.5, label="a token that was seen twice"),
        Case(randn(rng, 8), torch.tensor([1, 2, 5]), 1.3, label="eight tokens, three seen"),
        Case(randn(rng, 20), torch.randint(20, (30,), generator=rng), 1.2, label="twenty tokens, many seen")],
    compare=close(atol=1e-6),
    properties=[("no token that was seen has become likelier", lambda got, case: bool((got <= case.args[0] + 1e-6).all()))],
    misconceptions=[
        Misconception("multiplies positive logits and divides negative ones", change=("chosen / penalty, chosen * penalty", "chosen * penalty, chosen / penalty"),
                      ask="Is 4 a smaller logit than 2?"),
        Misconception("multiplies by the penalty, whatever the sign",
                      change=("torch.where(chosen > 0, chosen / penalty, chosen * penalty)", "chosen * penalty"),
                      ask="Multiply 1 by 2. Is the result larger or smaller than 1?"),
        Misconception("penalises a token once for each time it was seen", body='''
            out = logits.clone()
            for token in seen:
                out[token] = torch.where(out[token] > 0, out[token] / penalty, out[token] * penalty)
            return out
            ''', ask="A token was seen three times. How often should its logit be divided?"),
        Misconception("penalises every token", body="return torch.where(logits > 0, logits / penalty, logits * penalty)",
                      ask="Which tokens are in `seen`, and which are not?"),
        Misconception("subtracts the penalty", change=("torch.where(chosen > 0, chosen / penalty, chosen * penalty)", "chosen - penalty"),
                      ask="With a penalty of 1 nothing should change. What does yours do then?")],
    hints=["Divide -1 by 2. Is the result larger or smaller than -1?",
           "Positive logits shrink when they are divided, negative ones when they are multiplied."])
