"""The exercises of chapter 1."""
import math

import torch

from einops import rearrange
from torch.nn import functional as F

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn


def project_cases(rng):
    words = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    yield Case(words, *(randn(rng, 4, 2) for _ in "qkv"), label="3 tokens of width 4, projected to width 2")
    yield Case(randn(rng, 5, 4), *(randn(rng, 4, 4) for _ in "qkv"), label="5 tokens, as wide after as before")
    yield Case(randn(rng, 2, 7, 6), *(randn(rng, 6, 3) for _ in "qkv"), label="a batch of 2 sequences of 7 tokens")

exercise(id="1.1", title="From tokens to queries, keys and values", kind="write", points=1, minutes=4, difficulty=1, card=r"""
    Write `project(x, w_q, w_k, w_v)`, which returns `(q, k, v)`.

    - `x` is `(n, d_model)`, one row per token, or `(b, n, d_model)`; each matrix is `(d_model, d)`
    - `q`, `k` and `v` are `(n, d)`, or `(b, n, d)`: every token goes through the same three matrices
    """, given={"torch": torch}, solution='''
    def project(x, w_q, w_k, w_v):
        """x (..., n, d_model), each w (d_model, d) -> q, k, v, each (..., n, d)."""
        return x @ w_q, x @ w_k, x @ w_v
    ''', cases=project_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("makes keys and values from the queries' matrix", change=("x @ w_k, x @ w_v", "x @ w_q, x @ w_q"),
                      ask="What a token asks for and what it offers are two things. Which matrix makes which?"),
        Misconception("makes the keys from the queries' matrix", change=("x @ w_k", "x @ w_q"),
                      ask="Which of the three matrices does your function never use?"),
        Misconception("returns keys, queries and values, in this order", change=("x @ w_q, x @ w_k", "x @ w_k, x @ w_q"),
                      ask="In which order does the card name the three?"),
        Misconception("makes the keys and values from the queries and not from the tokens",
                      change=("return x @ w_q, x @ w_k, x @ w_v", "q = x @ w_q\n    return q, q @ w_k, q @ w_v"),
                      ask="All three are read off the same `x`. What is the shape of `w_k`, and what does it expect?"),
        Misconception("transposes the matrices, which `nn.Linear` does with its own",
                      change=[("@ w_q", "@ w_q.T"), ("@ w_k", "@ w_k.T"), ("@ w_v", "@ w_v.T")],
                      ask="`(n, d_model) @ (d_model, d)`: which axes meet, and are these equal here without a transpose?"),
        Misconception("divides the queries by the root of d already", change=("x @ w_q,", "x @ w_q / w_q.shape[1] ** 0.5,"),
                      ask="That factor belongs to the scores (section 3). What is a query without it?")],
    hints=["A row of `x` times a matrix is the row of the result: `(n, d_model) @ (d_model, d)` is `(n, d)`.",
           "Three matrix products, one per matrix. `@` treats leading axes as a batch."])


exercise(id="1.2", title="A softmax that does not overflow", kind="write", points=2, minutes=8, difficulty=2, card=r"""
    Write `softmax(x, dim=-1)`.

    - along `dim`, entries add up to 1; a score of -inf becomes 0
    - scores of 1000 do no harm, nor does a row far below the others
    - the result has the shape and the dtype of `x`
    - `torch.softmax` and `torch.logsumexp` may not be used
    """, given={"torch": torch}, forbid=("softmax", "log_softmax", "logsumexp"), solution='''
    def softmax(x, dim=-1):
        """exp(x) / sum of exp(x) along dim, any shape."""
        numerator = torch.exp(x - x.amax(dim, keepdim=True))
        return numerator / numerator.sum(dim, keepdim=True)
    ''', cases=lambda rng: [
        Case(torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]), label="2 rows of 3"),
        Case(randn(rng, 3, 5), 0, label="3 x 5, along dim 0"),
        Case(3 * randn(rng, 4, 7, 33), label="4 x 7 rows of 33"),
        Case(torch.tensor([[1000.0, 1001.0], [-2.0, 0.5]]), label="scores near 1000"),
        Case(torch.tensor([[0.0, 1.0], [-400.0, -401.0]]), label="one row far below the other"),
        Case(torch.tensor([[-math.inf, 0.0, 1.0]]), label="a score of -inf"),
        Case(randn(rng, 2, 3).double(), label="2 rows of 3, in float64")], compare=close(atol=1e-6),
    properties=[("entries add up to 1 along dim",
                 lambda got, case: bool(((got.sum(case.args[1] if len(case.args) > 1 else -1) - 1).abs() < 1e-4).all()))],
    misconceptions=[
        Misconception("takes the exponential as it is", change=("x - x.amax(dim, keepdim=True)", "x"),
                      ask="What is exp(1000) in float32, and what is inf / inf? Which number may you subtract from a "
                          "whole row without changing its softmax?"),
        Misconception("loses the axis that it reduces",
                      change=[(".amax(dim, keepdim=True)", ".amax(dim)"), (".sum(dim, keepdim=True)", ".sum(dim)")],
                      ask="For x of shape (2, 3), `amax(-1)` is (2,), and axes are lined up from the right. What does "
                          "`keepdim=True` make of it?"),
        Misconception("subtracts the mean of the row", change=("x.amax(dim, keepdim=True)", "x.mean(dim, keepdim=True)"),
                      ask="In a row of nine zeros and 1000 the mean is 100. What is exp(900) in float32?"),
        Misconception("subtracts the largest entry of the whole tensor", change=("x.amax(dim, keepdim=True)", "x.max()"),
                      ask="A row 400 below the largest entry becomes exp(-400) = 0 everywhere. What is 0 / 0?"),
        Misconception("always works along the last dimension", change=[("amax(dim,", "amax(-1,"), ("sum(dim,", "sum(-1,")],
                      ask="What does your function do with its argument `dim`?"),
        Misconception("divides by the sum over everything", change=("numerator.sum(dim, keepdim=True)", "numerator.sum()"),
                      ask="Is it each row that should add up to 1, or the whole tensor?")],
    hints=["Softmax does not change when the same number is subtracted from all entries of a row.",
           "After subtracting the row's own largest entry, the largest exponent is exp(0) = 1.",
           "`amax` and `sum` with `keepdim=True` leave an axis of size 1, which broadcasts back."])


def attention_cases(rng):
    yield Case(randn(rng, 1, 1, 2, 4), randn(rng, 1, 1, 3, 4), randn(rng, 1, 1, 3, 2), label="2 queries, 3 keys")
    yield Case(*(randn(rng, 2, 3, n, 16) for n in (5, 7, 7)), label="a batch of 2, 3 heads")
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    yield Case(*(randn(rng, 1, 1, 3, 4) for _ in "qkv"), mask=causal, label="a causal mask")
    padding = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)[:, None, None, :]
    yield Case(*(randn(rng, 2, 1, 4, 8) for _ in "qkv"), mask=padding, label="padding of shape (2, 1, 1, 4)")
    some = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=torch.bool)
    yield Case(*(randn(rng, 1, 1, 3, 4) for _ in "qkv"), mask=some, label="a query with nothing to attend to")
    q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)      # scores of 100, 101, 300 and of -100, -101, -300
    q[0, 0, :, 0], k[0, 0, :, 0] = torch.tensor([2.0, -2.0]), torch.tensor([100.0, 101.0, 300.0])
    last_hidden = torch.tensor([True, True, False])
    yield Case(q, k, torch.eye(3)[None, None], mask=last_hidden, label="scores of 100 and of -100")
    yield Case(-400 * q[:, :, :1], k, torch.eye(3)[None, None], mask=last_hidden, label="scores below -10,000")

MASKED_LINES = """    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
    return weights.masked_fill(~mask, 0) @ v
"""

exercise(id="1.5", title="Attention, with a mask", kind="write", points=3, minutes=14, difficulty=3, card=r"""
    Write $\mathrm{softmax}(q k^\top / \sqrt d)\, v$ for a batch of heads. At the end of the chapter a language model
    speaks through *your* function.

    - `mask`, if given, is boolean and broadcasts to `(b, h, n, m)`; `True` means *may attend*
    - a hidden key gets weight 0, and the visible ones of a row share the weight 1
    - a query that may attend to nothing gets 0, not NaN
    - torch's own `scaled_dot_product_attention` may not be used
    """, given={"torch": torch, "math": math}, forbid=("scaled_dot_product_attention",), solution='''
    def attention(q, k, v, mask=None):
        """q (b, h, n, d), k (b, h, m, d), v (b, h, m, v_dim) -> (b, h, n, v_dim)."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is None:
            return torch.softmax(scores, -1) @ v
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
        return weights.masked_fill(~mask, 0) @ v
    ''', cases=attention_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("leaves out the factor 1/sqrt(d)", change=(" / math.sqrt(q.shape[-1])", ""),
                      ask="What is the variance of q . k when d entries are added up?"),
        Misconception("divides by d, not by its root", change=("math.sqrt(q.shape[-1])", "q.shape[-1]"),
                      ask="The variance of q . k is d. By what must one divide a number to divide its variance by d?"),
        Misconception("divides by the root of the number of keys", change=("math.sqrt(q.shape[-1])", "math.sqrt(k.shape[-2])"),
                      ask="The scale undoes the spread of a sum of products. How many products does one score add?"),
        Misconception("lets the queries share the weight of a key",
                      change=[("(scores, -1)", "(scores, -2)"), ("inf), -1)", "inf), -2)")],
                      ask="Each query hands out a weight of 1. Along which axis of (n, m) do the keys of one query run?"),
        Misconception("takes True for hidden", change=("~mask", "mask"),
                      ask="True means *may attend*. Which scores do you set to -inf?"),
        Misconception("hides keys in a copy of the scores that it does not use", change=(
            MASKED_LINES, "    scores.masked_fill(~mask, -math.inf)\n    return torch.softmax(scores, -1) @ v\n"),
                      ask="`masked_fill` returns a new tensor. Which of the two goes into your softmax?"),
        Misconception("sets hidden scores to 0",
                      change=(MASKED_LINES, "    return torch.softmax(scores.masked_fill(~mask, 0), -1) @ v\n"),
                      ask="What is exp(0)? Which score has the exponential 0?"),
        Misconception("adds the boolean mask to the scores",
                      change=(MASKED_LINES, "    return torch.softmax(scores + mask, -1) @ v\n"),
                      ask="True counts as 1 and False as 0: what is the weight of a hidden key then?"),
        Misconception("hides keys after the softmax only",
                      change=(MASKED_LINES, "    return (torch.softmax(scores, -1) * mask) @ v\n"),
                      ask="Add up a row of your weights. Where has the weight of the hidden keys gone?"),
        Misconception("multiplies the mask by -inf and adds it",
                      change=(MASKED_LINES, "    return torch.softmax(scores + (~mask) * -math.inf, -1) @ v\n"),
                      ask="At a visible key you compute 0 * -inf. What is that in floating point?"),
        Misconception("gives a query with nothing to attend to equal weights",
                      change=(MASKED_LINES, "    return torch.softmax(scores.masked_fill(~mask, -1e9), -1) @ v\n"),
                      ask="Softmax of a row in which all scores are -1e9: what is it? What should such a query get?"),
        Misconception("hides behind -10,000, where -inf is needed", change=(
            "-math.inf), -1)\n    return weights.masked_fill(~mask, 0)", "-1e4), -1)\n    return weights * mask.any(-1, keepdim=True)"),
                      ask="Which key gets the weight if the scores of all visible ones are below -10,000?"),
        Misconception("gives NaN to a query with nothing to attend to", change=(".masked_fill(~mask, 0)", ""),
                      ask="Softmax of a row of -inf is 0 / 0. What should such a query get, and where can you say so?")],
    hints=["`k.transpose(-2, -1)` turns (b, h, m, d) into (b, h, d, m), so that `q @` it is (b, h, n, m).",
           "`scores.masked_fill(~mask, -math.inf)` hides before the softmax: exp(-inf) is exactly 0.",
           "A row of -inf becomes NaN. `weights.masked_fill(~mask, 0)` sets every hidden weight to 0, those too."])


def causal_cases(rng):
    yield Case(3, 3, label="3 queries, 3 keys")
    drawn = torch.randint(2, 40, (2, 2), generator=rng).tolist()
    for n, m in [(2, 4), (1, 5), (4, 2), (7, 7), (3, 33), *drawn]:
        yield Case(n, m, label=f"{n} queries, {m} keys")

exercise(id="1.6", title="Which keys are in the past?", kind="write", points=1, minutes=5, difficulty=2, card=r"""
    Write `causal(n, m)`: the boolean causal mask for `n` queries and `m` keys, by the rule of this course.

    - the result is `(n, m)`; `True` means *may attend*
    - the **last** query sees the **last** key, and each query before it one key less
    - with more queries than keys, the first queries see nothing
    """, given={"torch": torch}, solution='''
    def causal(n, m):
        """(n, m) of bool: True where query i may see key j."""
        i, j = torch.arange(n)[:, None], torch.arange(m)
        return j <= i + m - n
    ''', cases=causal_cases, compare=close(), misconceptions=[
        Misconception("counts from the first key, as `is_causal` does", change=("i + m - n", "i"),
                      ask="2 new queries, 4 keys: the last query is the newest token. Which keys does your mask hide from it?"),
        Misconception("hides every token from itself", change=("j <= i", "j < i"),
                      ask="May the last query see the last key, which belongs to the same token?"),
        Misconception("writes True for hidden", change=("j <= i", "j > i"),
                      ask="True means *may attend*. May the first query see the last key?"),
        Misconception("shifts the triangle the wrong way", change=("i + m - n", "i + n - m"),
                      ask="With 2 queries and 4 keys, query 1 should see key 3. What is i + n - m for it?"),
        Misconception("hides the past and shows the future", change=("j <= i", "j >= i"),
                      ask="`triu` keeps what is above the diagonal. Are the keys above it earlier or later than the query?"),
        Misconception("returns zeros and ones of type float", change=("return j <= i + m - n", "return (j <= i + m - n).float()"),
                      ask="Section 4 showed what torch does with a floating mask of zeros and ones. Which dtype says *may attend*?"),
        Misconception("returns numbers to add to the scores", change=(
            "return j <= i + m - n", "return torch.zeros(n, m).masked_fill(j > i + m - n, -float('inf'))"),
                      ask="That is the other kind of mask, and a good one. Which dtype does the card ask for?"),
        Misconception("returns the mask of keys that look at queries", change=("return j <= i + m - n", "return (j <= i + m - n).T"),
                      ask="A row is a query. How many rows should there be?")],
    hints=["Query i is token number i + m - n of all m tokens: the last query, n - 1, is token m - 1.",
           "Compare a column of query numbers with a row of key numbers: `torch.arange(n)[:, None]` and `torch.arange(m)`.",
           "`torch.ones(n, m, dtype=torch.bool).tril(...)` works too. Which diagonal?"])


exercise(id="1.7", title="Whose features are these?", kind="repair", points=2, minutes=8, difficulty=3, card=r"""
    This function should hand each head its slice of every token's features: head 0 the first `head_dim`, head 1 the
    next, and so on. It returns the right **shape**, no error appears, and a model trained with it learns worse.
    Repair it. (`torch.arange(12.).view(1, 2, 6)` is small enough to look at.)
    """, given={"torch": torch}, stub='''
    def split_heads(x, n_heads):
        """(b, n, n_heads * head_dim) -> (b, n_heads, n, head_dim)."""
        b, n, width = x.shape
        return x.view(b, n_heads, n, width // n_heads)
    ''', solution='''
    def split_heads(x, n_heads):
        """(b, n, n_heads * head_dim) -> (b, n_heads, n, head_dim)."""
        b, n, width = x.shape
        return x.view(b, n, n_heads, width // n_heads).transpose(1, 2)
    ''', cases=lambda rng: [
        Case(torch.arange(12.0).view(1, 2, 6), 2, label="1 sequence of 2 tokens, 2 heads of 3 features"),
        Case(randn(rng, 2, 3, 8), 2, label="2 sequences of 3 tokens, 2 heads of 4 features"),
        Case(randn(rng, 3, 7, 12), 4, label="3 sequences of 7 tokens, 4 heads of 3 features"),
        Case(randn(rng, 1, 5, 6), 1, label="one head")], compare=close(atol=0, rtol=0),
    properties=[("head 0 of token 0 has the first features of token 0",
                 lambda got, case: torch.equal(got[0, 0, 0], case.args[0][0, 0, :got.shape[-1]]))], misconceptions=[
        Misconception("reads the memory in the old order under a new shape",
                      change=("view(b, n, n_heads, width // n_heads).transpose(1, 2", "reshape(b, n_heads, n, -1"),
                      ask="No number was moved. After how many numbers does the next token begin in memory, "
                          "and after how many does your head 1 begin?"),
        Misconception("deals the features out in turn, like cards",
                      change=("x.view(b, n, n_heads, width // n_heads).transpose(1, 2)",
                              "x.view(b, n, width // n_heads, n_heads).permute(0, 3, 1, 2)"),
                      ask="Should head 0 have features 0, 1, 2 or features 0, n_heads, 2 n_heads?"),
        Misconception("leaves the tokens before the heads", change=(".transpose(1, 2)", ""),
                      ask="Which axis should come second, so that each head multiplies its own (n, head_dim)?")],
    hints=["In memory a token's features are stored together. Cut each token's `width` features first: which view does that?",
           "`x.view(b, n, n_heads, head_dim)` cuts the features. Now two axes are in the wrong order.",
           "`transpose(1, 2)` exchanges them by changing strides; it moves nothing."])


def layer_cases(rng):
    def weights(width):
        return [width ** -0.5 * randn(rng, width, width) for _ in range(4)]

    yield Case(randn(rng, 1, 2, 4), *weights(4), 2, label="2 tokens of width 4, 2 heads")
    yield Case(randn(rng, 2, 5, 12), *weights(12), 3, label="2 sequences of 5 tokens, 3 heads of width 4")
    yield Case(randn(rng, 3, 7, 8), *weights(8), 1, label="one head")
    yield Case(randn(rng, 1, 33, 16), *weights(16), 4, label="33 tokens, 4 heads of width 4")

exercise(id="1.8", title="A whole layer", kind="write", points=3, minutes=12, difficulty=3, card=r"""
    Write causal multi-head self-attention, from tokens to tokens.

    - project `x` to queries, keys and values; head 0 gets the first `d_model / n_heads` features of each, and so on
    - each head attends on its own; attention itself is given: `F.scaled_dot_product_attention(q, k, v, is_causal=True)`
      takes and returns `(b, h, n, d)`
    - put the heads side by side again, in their order, and mix them with `w_o`
    - `rearrange`, or `view` and `transpose`: as you like
    """, given={"torch": torch, "F": F, "rearrange": rearrange, "math": math}, solution='''
    def multi_head(x, w_q, w_k, w_v, w_o, n_heads):
        """x (b, n, d_model), each w (d_model, d_model) -> (b, n, d_model)."""
        q, k, v = (rearrange(x @ w, "b n (h d) -> b h n d", h=n_heads) for w in (w_q, w_k, w_v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return rearrange(heads, "b h n d -> b n (h d)") @ w_o
    ''', cases=layer_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("leaves the heads unmixed", change=(' @ w_o', ""), ask="Which of the four matrices did you not use?"),
        Misconception("multiplies with the transposed matrices, as `nn.Linear` keeps them",
                      change=[("x @ w,", "x @ w.T,"), ("@ w_o", "@ w_o.T")],
                      ask="The card multiplies rows of `x` by a matrix (d_model, d_model). Which of its axes meets the features of `x`?"),
        Misconception("attends with one wide head", change=("h=n_heads)", "h=1)"),
                      ask="How many sets of weights does each token have in your function, and how many should it have?"),
        Misconception("deals the features out in turn, like cards", change=[("(h d) -> b h", "(d h) -> b h")],
                      ask="In `(h d)` the last letter runs fastest. Which features does head 0 get from `(d h)`?"),
        Misconception("puts the features of the heads in turn when it joins them", change=("-> b n (h d)", "-> b n (d h)"),
                      ask="The first d features of the result should be head 0. Which letter runs fastest in `(d h)`?"),
        Misconception("joins the heads without moving them behind the tokens",
                      change=('rearrange(heads, "b h n d -> b n (h d)")', "heads.reshape(x.shape)"),
                      ask="`heads` is (b, h, n, d). Which numbers are neighbours in memory, and which should be?"),
        Misconception("cuts heads out of the sequence and not out of each token", change=(
            'rearrange(x @ w, "b n (h d) -> b h n d", h=n_heads)',
            '(x @ w).reshape(x.shape[0], n_heads, x.shape[1], -1)'),
                      ask="That is the mistake of exercise 1.7. Where in memory does head 1 of token 0 begin?"),
        Misconception("leaves the tokens before the heads", change=[
            ("-> b h n d", "-> b n h d"), ('"b h n d -> b n (h d)"', '"b n h d -> b n (h d)"')],
                      ask="Attention compares entries along the axis before the last. Which axis is that in (b, n, h, d)?"),
        Misconception("divides by the root of d once more", change=("attention(q, k", "attention(q / math.sqrt(q.shape[-1]), k"),
                      ask="`F.scaled_dot_product_attention` is *scaled*: by what has it divided the scores already?"),
        Misconception("lets every token see the future", change=(", is_causal=True", ""),
                      ask="Change the last token of `x`. Which rows of your result change, and which may?")],
    hints=["Three steps: split (b, n, h d) into (b, h, n, d), attend, join again. Exercise 1.7 was the first.",
           '`rearrange(x @ w_q, "b n (h d) -> b h n d", h=n_heads)`, and the same pattern backwards.',
           "At the end `@ w_o`, once for all heads together."])


SIGNATURE = ("__global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ out, "
             "int rows, int columns) {\n")
ONLINE = SIGNATURE + """\
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float largest = -INFINITY, total = 0.0f;
    for (int c = 0; c < columns; ++c) {
        float entry = x[row * columns + c];
        float new_largest = fmaxf(largest, entry);
        total = total * expf(largest - new_largest) + expf(entry - new_largest);
        largest = new_largest;
    }
    for (int c = 0; c < columns; ++c)
        out[row * columns + c] = expf(x[row * columns + c] - largest) / total;
}
"""

def row_cases(rng):
    yield Case(torch.tensor([[0.0, 2.0, 1.0]]), label="1 row of 3")
    for rows, columns in [(2, 1), (2, 3), (33, 31), (63, 64), (100, 33)]:
        yield Case(3 * randn(rng, rows, columns), label=f"{rows} rows of {columns}")
    yield Case(torch.tensor([[1000.0, 1001.0, 999.0], [-900.0, -901.0, -1000.0]]), label="scores near 1000 and -900")
    yield Case(torch.tensor([[-3e38, -3e38], [0.0, -3e38]]), label="a row of nothing but -3e38")

def launch_rows(x):
    rows, columns = x.shape
    return Launch(grid=-(-rows // 32), block=32, args=[x, out(x.shape), rows, columns])

kernel_exercise(id="1.10", title="Softmax in two passes", points=3, minutes=15, difficulty=4, name="softmax_rows", card=r"""
    Write the **online** softmax: one thread makes one row. It may read the row twice, no more: once to find the
    largest entry and the sum *together*, once for the result.

    - `x` and `out` are `(rows, columns)`; entry `c` of a row is `x[row * columns + c]`
    - when a larger entry appears, the sum so far was measured from the wrong largest entry: rescale it
    - entries may be as low as -3e38, which some libraries write where a key is hidden
    - `expf`, `fmaxf` and `-INFINITY` can be used; the grid may have more threads than the matrix has rows
    - a third reading of the row is over the traffic budget; `x[c]` written twice in a line counts as two readings
    """, stub=SIGNATURE + """\
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    // your code
}
""", solution=ONLINE, cases=row_cases, launch=launch_rows, expect=lambda x: torch.softmax(x, -1), compare=close(atol=1e-5),
    # A third reading of rows of 8 entries or more costs a third more, which is over the slack of a quarter.
    traffic=lambda x: sum(32 * 3 * x.shape[1] for _ in range(x.shape[0])), misconceptions=[
        Misconception("leaves the exponentials undivided", change=(" / total;", ";"),
                      ask="What does each row of the result add up to, and what should it?"),
        Misconception("does not rescale the sum when a larger entry comes",
                      change=("total * expf(largest - new_largest)", "total"),
                      ask="The sum so far holds exp(entry - old largest). By what factor is it off after the largest grows?"),
        Misconception("turns the factor over by which the sum is rescaled",
                      change=("expf(largest - new_largest)", "expf(new_largest - largest)"),
                      ask="Every term of the sum is exp(entry - largest). When the largest grows, do the terms grow or shrink?"),
        Misconception("takes the exponential as it is", code=SIGNATURE + """\
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float total = 0.0f;
    for (int c = 0; c < columns; ++c) total += expf(x[row * columns + c]);
    for (int c = 0; c < columns; ++c) out[row * columns + c] = expf(x[row * columns + c]) / total;
}
""", ask="What is expf(1000.0f), and what is that divided by itself?"),
        Misconception("writes x[row, c], as in Python", change=("[row * columns + c]", "[row, c]"),
                      ask="In C++ the comma throws `row` away and leaves `x[c]`. What is the number of entry c of this row?"),
        Misconception("walks down a column and not along a row", change=("[row * columns + c]", "[row + c * rows]"),
                      ask="Two entries of one row are neighbours in memory. How far apart are yours?"),
        Misconception("keeps the last entry and not the largest", change=("fmaxf(largest, entry)", "entry"),
                      ask="After the row 1000, 0 your `largest` is 0. What is exp(1000 - 0)?"),
        Misconception("starts the search for the largest at a finite number, such as -1e9", change=("largest = -INFINITY", "largest = -1e9f"),
                      ask="What is the largest of two entries of -3e38, and what does your loop find?"),
        Misconception("starts the search for the largest at 0", change=("largest = -INFINITY", "largest = 0.0f"),
                      ask="What is found in a row whose entries are all near -900?"),
        Misconception("reads every entry three times", code=SIGNATURE + """\
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float largest = -INFINITY, total = 0.0f;
    for (int c = 0; c < columns; ++c) largest = fmaxf(largest, x[row * columns + c]);
    for (int c = 0; c < columns; ++c) total += expf(x[row * columns + c] - largest);
    for (int c = 0; c < columns; ++c) out[row * columns + c] = expf(x[row * columns + c] - largest) / total;
}
""", ask="The result is right. Does one loop look for the largest and the next add up, or is `x[c]` written twice in a line? "
         "Two loops are enough, and in each a variable can keep the entry."),
        Misconception("works on rows past the end", change=("    if (row >= rows) return;\n", ""),
                      ask="With 33 rows and blocks of 32 there are 64 threads. What does thread 40 do?")],
    hints=["Three lines in the first loop: the new largest, the sum, then remember the new largest.",
           "`total = total * expf(largest - new_largest) + expf(entry - new_largest)`",
           "At the first entry `largest` is `-INFINITY` and `total` is 0: `0 * expf(-INFINITY)` is 0. Good."])


BLOCK = """\
__global__ void softmax_row(const float* __restrict__ x, float* __restrict__ out, int columns) {
    __shared__ float part[64];
    int t = threadIdx.x;
    const float* row = x + blockIdx.x * columns;

    float largest = -INFINITY;
    for (int c = t; c < columns; c += 64) largest = fmaxf(largest, row[c]);
    part[t] = largest;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) part[t] = fmaxf(part[t], part[t + half]);
        __syncthreads();
    }
    largest = part[0];
@
    float total = 0.0f;
    for (int c = t; c < columns; c += 64) total += expf(row[c] - largest);
    part[t] = total;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    total = part[0];
    for (int c = t; c < columns; c += 64) out[blockIdx.x * columns + c] = expf(row[c] - largest) / total;
}
"""

def block_cases(rng):
    for rows, columns in [(1, 64), (1, 1), (3, 100), (2, 200)]:
        yield Case(3 * randn(rng, rows, columns), label=f"{rows} rows of {columns}")

kernel_exercise(
    id="1.11", title="Two reductions, one array", kind="repair", points=2, minutes=10, difficulty=3, name="softmax_row",
    card=r"""
    One block of 64 threads makes one row; the largest entry and the sum are found by halving, in shared memory. On a
    GPU this kernel may well give the right answer. The cell above ran it under the sanitizer, which names two lines.
    Repair the kernel by **one** line in the right place.
    """, stub=BLOCK.replace("@\n", "\n"), solution=BLOCK.replace("@\n", "    __syncthreads();\n\n"),
    cases=block_cases, launch=lambda x: Launch(grid=x.shape[0], block=64, args=[x, out(x.shape), x.shape[1]]),
    expect=lambda x: torch.softmax(x, -1), compare=close(atol=1e-5), misconceptions=[
        Misconception("lets only some threads come to the barrier",
                      code=BLOCK.replace("@\n", "    if (t < 32) __syncthreads();\n\n"),
                      ask="A barrier waits for every thread of the block. Which threads never come to yours?"),
        Misconception("takes a barrier away in place of adding one",
                      code=BLOCK.replace("@\n", "\n").replace("    part[t] = total;\n    __syncthreads();\n",
                                                             "    part[t] = total;\n"),
                      ask="Thread 0 reads `part[32]`. Which barrier makes sure that thread 32 has written it?"),
        Misconception("does not make all threads wait between the two lines that race",
                      code=BLOCK.replace("    largest = part[0];\n@\n", "    __syncthreads();\n    largest = part[0];\n\n"),
                      ask="After the first loop, which line reads `part[0]` and which writes it next? Do all threads wait "
                          "between those two? (A barrier is a call, `__syncthreads();`, and a fence is none.)")],
    hints=["A race has two sides: one thread reads `part[0]`, another writes it, and nothing orders the two.",
           "Thread 0 may run ahead: it can have stored its part of the sum before thread 40 has read the largest entry.",
           "Everybody must have read `part[0]` before anybody stores a new `part[t]`."])


exercise(id="1.12", title="Draw what a head looks at", kind="write", points=2, minutes=8, difficulty=2, card=r"""
    Return what `figures.heatmap` needs to draw one head of a causal model: a dict with

    - `weights`: the `(n, n)` weights of this head, each row adding up to 1, nothing of the future
    - `rows` and `columns`: the characters of the text, one label per position

    `q` and `k` are `(1, n_heads, n, d)`. The next cell draws it.
    """, given={"torch": torch, "math": math}, forbid=("scaled_dot_product_attention",), solution='''
    def head_map(q, k, head, text):
        """-> {"weights": (n, n), "rows": list of n, "columns": list of n}."""
        q, k = q[0, head], k[0, head]
        scores = q @ k.T / math.sqrt(q.shape[-1])
        visible = torch.ones(len(q), len(k), dtype=torch.bool).tril()
        weights = torch.softmax(scores.masked_fill(~visible, -math.inf), -1)
        return {"weights": weights, "rows": list(text), "columns": list(text)}
    ''', cases=lambda rng: [
        Case(randn(rng, 1, 2, 3, 4), randn(rng, 1, 2, 3, 4), 1, "abc", label="3 characters, 2 heads, head 1"),
        Case(randn(rng, 1, 4, 8, 16), randn(rng, 1, 4, 8, 16), 0, "to sleep", label="8 characters, 4 heads, head 0"),
        Case(randn(rng, 1, 4, 11, 16), randn(rng, 1, 4, 11, 16), 3, "O, my lord!", label="11 characters, head 3")],
    compare=close(atol=1e-5), properties=[("nothing above the diagonal", lambda got, case: not isinstance(got, dict)
                                           or bool((got["weights"].triu(1) == 0).all()))], misconceptions=[
        Misconception("lets every character see the future", change=("scores.masked_fill(~visible, -math.inf)", "scores"),
                      ask="The model guesses the next character. Which keys may query i see?"),
        Misconception("draws the scores and not the weights", change=(
            "torch.softmax(scores.masked_fill(~visible, -math.inf), -1)", "scores.masked_fill(~visible, 0)"),
                      ask="Do your rows add up to 1?"),
        Misconception("hides the future after the softmax only", change=(
            "torch.softmax(scores.masked_fill(~visible, -math.inf), -1)", "torch.softmax(scores, -1) * visible"),
                      ask="Add up a row of your weights. Where has the weight of the hidden keys gone?"),
        Misconception("draws the first head, whichever is asked for", change=("q[0, head], k[0, head]", "q[0, 0], k[0, 0]"),
                      ask="What does your function do with its argument `head`?"),
        Misconception("puts the keys in the rows", change=("q @ k.T", "k @ q.T"),
                      ask="A row is one query's attention. Whose vector is on the left of the product?"),
        Misconception("forgets to divide by the root of d", change=(" / math.sqrt(q.shape[-1])", ""),
                      ask="The model divides its scores by sqrt(d). Does your picture?")],
    hints=["`q[0, head]` is the (n, d) of one head.",
           "This is exercise 1.5 for one head, without the product with v.",
           "`list(\"abc\")` is `[\"a\", \"b\", \"c\"]`."])


def largest_made(f, p, g):
    """The result, and how many entries the largest tensor has that was made on the way."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
            return result

    with Watch() as watch:
        result = f(p, g)
    return {"gradient": result, "entries of the largest tensor": watch.largest}

def same_without_the_matrix(got, want, case):
    made, enough = (result["entries of the largest tensor"] for result in (got, want))
    return close(atol=1e-5)(got["gradient"], want["gradient"]) or (
        f"is right, but a tensor with {made} entries was made; {enough} are enough" if made > enough else None)

def backward_cases(rng):
    for shape in [(1, 3), (4, 5), (2, 3, 33)]:
        p = torch.softmax(2 * randn(rng, *shape), -1)
        yield Case(p, randn(rng, *shape), label=f"shape {shape}")

exercise(id="1.13", title="The gradient through softmax", kind="write", points=2, minutes=8, difficulty=3, card=r"""
    `p = softmax(x)` and `g` is the gradient of the loss with respect to `p`. Return the gradient with respect to `x`,
    **without** building the matrix $\mathrm{diag}(p) - p p^\top$ and without autograd. Any shape; softmax is along the
    last axis. (The check looks at the largest tensor that you make.)
    """, given={"torch": torch}, forbid=("autograd", "backward"), call=largest_made, solution='''
    def softmax_backward(p, g):
        """p, g (..., n) -> (..., n)."""
        return p * (g - (p * g).sum(-1, keepdim=True))
    ''', cases=backward_cases, compare=same_without_the_matrix,
    properties=[("the entries of a row add up to 0: a shift of the scores changes nothing",
                 lambda got, case: bool((got["gradient"].sum(-1).abs() < 1e-4).all()))], misconceptions=[
        Misconception("uses the derivative of the sigmoid", change=("p * (g - (p * g).sum(-1, keepdim=True))",
                                                                    "p * (1 - p) * g"),
                      ask="p_1 depends on x_2 as well. Where is that in your formula?"),
        Misconception("forgets that the probabilities are coupled", change=("(g - (p * g).sum(-1, keepdim=True))", "g"),
                      ask="Raise all scores by the same number: p stays. Does your gradient add up to 0?"),
        Misconception("leaves out the factor p in front", change=("p * (g - (p * g)", "(g - (p * g)"),
                      ask="A token with p = 0 has no part in the output. What does your gradient say of its score?"),
        Misconception("turns the sign round", change=("p * (g - (p * g).sum(-1, keepdim=True))", "p * ((p * g).sum(-1, keepdim=True) - g)"),
                      ask="If the loss falls when p_1 grows, should x_1 grow or shrink?"),
        Misconception("does not multiply the sum by p", change=("p * (g - (p * g).sum(-1, keepdim=True))",
                                                                "p * g - (p * g).sum(-1, keepdim=True)"),
                      ask="In p * g - p (p^T g) both terms have the factor p. What do the entries of your gradient add up to?"),
        Misconception("adds up g without its weights", change=("(p * g).sum(-1, keepdim=True)", "g.sum(-1, keepdim=True)"),
                      ask="p^T g is a weighted mean of g. Where are the weights in your sum?"),
        Misconception("sums over all rows together", change=(".sum(-1, keepdim=True)", ".sum()"),
                      ask="Two rows are two separate softmaxes. Which entries belong to the p^T g of one row?"),
        Misconception("builds the matrix", body='''
            matrix = p[..., None] * torch.eye(p.shape[-1]) - p[..., None] * p[..., None, :]
            return (matrix @ g[..., None]).squeeze(-1)
            ''', ask="The result is right, from n x n numbers per row. Multiply (diag(p) - p p^T) g out: which two "
                     "vectors are left?"),
        Misconception("loses the axis of the sum", change=(".sum(-1, keepdim=True)", ".sum(-1)"),
                      ask="For p of shape (4, 5) the sum is (4,), and axes are lined up from the right. What does "
                          "`keepdim=True` make of it?"),
        Misconception("subtracts the plain mean of g", change=("(p * g).sum(-1, keepdim=True)", "g.mean(-1, keepdim=True)"),
                      ask="The average of g in p^T g is weighted. By what?")],
    hints=["$(\\mathrm{diag}(p) - p p^\\top)\\, g = p \\odot g - p\\,(p^\\top g)$.",
           "$p^\\top g$ is one number per row: a sum with `keepdim=True`."])


exercise(id="1.14", title="A place to look at nothing", kind="write", points=2, minutes=8, difficulty=3, card=r"""
    Give every row one more score, the same learned number `sink`, whose weight goes to no value at all:
    $p_j = e^{s_j} / (e^{\text{sink}} + \sum_i e^{s_i})$. A head that finds nothing can then say so.

    - the result has the shape of `scores`: the sink takes weight but has no column
    - safe against overflow, whichever is largest
    - a score of a hidden key is -inf; where all keys of a row are hidden, the sink takes all the weight
    """, given={"torch": torch, "math": math}, solution='''
    def sink_softmax(scores, sink):
        """scores (..., m), sink a number -> (..., m); rows add up to less than 1."""
        column = torch.full_like(scores[..., :1], sink)
        return torch.softmax(torch.cat((scores, column), -1), -1)[..., :-1]
    ''', cases=lambda rng: [
        Case(torch.tensor([[0.0, 0.0]]), 0.0, label="two equal scores and a sink of the same height"),
        Case(2 * randn(rng, 3, 5), 1.0, label="3 rows of 5"),
        Case(randn(rng, 2, 4, 33), -2.0, label="2 x 4 rows of 33, a low sink"),
        Case(torch.tensor([[900.0, 899.0]]), 1.0, label="scores near 900"),
        Case(torch.tensor([[-300.0, -301.0]]), 0.0, label="a sink far above all scores"),
        Case(torch.tensor([[0.0, 1.0], [-400.0, -401.0]]), -500.0, label="one row far below the other, the sink lower still"),
        Case(torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]]), 0.5, label="a row with nothing to see")],
    compare=close(atol=1e-6), misconceptions=[
        Misconception("adds the sink to every score", body="return torch.softmax(scores + sink, -1)",
                      ask="What does softmax do when every score of a row grows by the same number?"),
        Misconception("puts the sink first and throws the last weight away", change=("(scores, column)", "(column, scores)"),
                      ask="In which column of your softmax is the sink's weight, and which column do you leave out?"),
        Misconception("keeps a column for the sink", change=("[..., :-1]", ""),
                      ask="There is no value to multiply the sink's weight with. What shape should come out?"),
        Misconception("takes exponentials of the scores as they are", body='''
            e = torch.exp(scores)
            return e / (math.exp(sink) + e.sum(-1, keepdim=True))
            ''', ask="What is exp(900) in float32?"),
        Misconception("measures every row from the largest score of all", body='''
            largest = scores.max()
            e = torch.exp(scores - largest)
            return e / (torch.exp(sink - largest) + e.sum(-1, keepdim=True))
            ''', ask="A row 400 below the largest score becomes exp(-400) = 0 everywhere. What is 0 / 0?"),
        Misconception("leaves the sink out of the largest score", body='''
            largest = scores.amax(-1, keepdim=True)
            e = torch.exp(scores - largest)
            return e / (torch.exp(sink - largest) + e.sum(-1, keepdim=True))
            ''', ask="The sink is a score like the others. What is the largest of a row whose keys are all hidden, "
                     "and what is -inf - -inf?"),
        Misconception("subtracts the largest score from the scores but not from the sink", body='''
            e = torch.exp(scores - scores.amax(-1, keepdim=True))
            return e / (math.exp(sink) + e.sum(-1, keepdim=True))
            ''', ask="If every score is measured from the largest, from where must the sink be measured?")],
    hints=["It is an ordinary softmax over m + 1 scores, of which the last weight is thrown away.",
           "`torch.cat((scores, column), -1)` with a column made by `torch.full_like(scores[..., :1], sink)`."])
