"""The exercises of chapter 9."""
import math

import torch
from torch.nn import functional as F

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn, whole


exercise(id="9.1", title="Moving sand", kind="write", points=2, minutes=6, difficulty=1, card=r"""
    Two heaps of sand on a line are given by the positions of their grains, `n` each. Write `w2_of_samples(a, b)`: the
    Wasserstein-2 distance between them, the square root of the smallest possible mean of squared distances.

    - the grains are listed in any order
    - on a line, the best plan sends the leftmost grain to the leftmost place, the second to the second, and so on
    """, given={"torch": torch}, solution='''
    def w2_of_samples(a, b):
        """positions of the grains, (n,) and (n,) -> the distance, a tensor without axes"""
        return (a.sort().values - b.sort().values).square().mean().sqrt()
    ''',
    cases=lambda rng: [*(Case(randn(rng, n), 3 + 2 * randn(rng, n), label=f"{n} grains") for n in (3, 1, 2, 33, 100)),
                       Case(torch.tensor([2.0, 1.0, 1.0]), torch.tensor([3.0, 0.0, 3.0]), label="grains at the same place")],
    compare=close(atol=1e-5, dtype="kind"), forbid=("cdist",), misconceptions=[
        Misconception("sends each grain where its number says, not where its place says",
                      change=("a.sort().values - b.sort().values", "a - b"),
                      ask="Swap two grains of `a` in the list. Has the heap changed? Has your distance?"),
        Misconception("sorts one heap upwards and the other downwards",
                      change=("b.sort().values", "b.sort(descending=True).values"),
                      ask="Which place does the leftmost grain get? Do two of your ways cross?"),
        Misconception("compares means and standard deviations only",
                      change=("(a.sort().values - b.sort().values).square().mean().sqrt()",
                              "((a.mean() - b.mean()).square() + (a.std(correction=0) - b.std(correction=0)).square()).sqrt()"),
                      ask="Grains at 0, 0, 3 and at 0, 3, 3 turned round have the same spread. Are the heaps the same?"),
        Misconception("takes the longest way, not the mean", change=(".square().mean().sqrt()", ".abs().max()"),
                      ask="One grain of a hundred is far off. How much should the distance of the heaps grow?"),
        Misconception("sorts one heap only", change=("b.sort().values", "b"),
                      ask="Which grain of `b` does the leftmost of `a` meet?"),
        Misconception("gives the mean square, not its root", change=(".mean().sqrt()", ".mean()"),
                      ask="Shift a heap by 3. By what should the distance grow: 3, or 9?"),
        Misconception("adds the squares up and does not average them", change=(".mean().sqrt()", ".sum().sqrt()"),
                      ask="Put a second grain on every grain of both heaps. Are the heaps further apart now?"),
        Misconception("averages the distances, not their squares", change=(".square().mean().sqrt()", ".abs().mean()"),
                      ask="That is W1, the earth mover's distance. What does the 2 in W2 stand for?")],
    hints=["`x.sort().values` is the heap from left to right.", "Square the differences, average them, take the root."])


def turn(x, positions):
    """RoPE: (n, d), positions (n,) -> each pair (2i, 2i + 1) of row t rotated by positions[t] * 10000^(-2i / d)."""
    d = x.shape[1]
    angle = positions[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(1)

def turn_cases(rng):
    for n, m, d, start in [(1, 2, 2, 0), (3, 4, 4, 0), (5, 7, 8, 100)]:
        yield Case(randn(rng, n, d), randn(rng, n, d), randn(rng, m, d), randn(rng, m, d), start + torch.arange(n),
                   start + 3 + torch.arange(m), 2.0, label=f"{n} queries, {m} keys, positions from {start}")
    same = randn(rng, 1, 4).expand(3, 4)
    yield Case(same * 0, same, same * 0, same, torch.arange(3), torch.arange(3), 1.0,
               label="the same token at three positions, means 0")

WIDTHS = '''
def positioned_scores(mu_q, raw_q, mu_k, raw_k, at_q, at_k, tau):
    """means and raw widths (n, d) and (m, d), positions (n,) and (m,) -> scores (n, m)"""
    sigma_q, sigma_k = F.softplus(raw_q), F.softplus(raw_k)
    q = torch.cat([turn(mu_q, at_q), sigma_q], -1)
    k = torch.cat([turn(mu_k, at_k), sigma_k], -1)
    return -(q[:, None] - k[None]).square().sum(-1) / tau
'''

exercise(id="9.3", title="Widths below 0", kind="repair", points=2, minutes=7, difficulty=2, card="""
    This code puts positions into W2 scores by RoPE, `turn(x, positions)`. It runs and it trains, but some of its widths
    are negative, as the cell above shows. Find what is wrong and repair it.

    - scores must depend on positions through their difference only
    - every width must stay what `softplus` made it
    """, given={"torch": torch, "F": F, "turn": turn},
    stub=WIDTHS.replace("turn(mu_q, at_q), sigma_q]", "turn(mu_q, at_q), turn(sigma_q, at_q)]").replace(
        "turn(mu_k, at_k), sigma_k]", "turn(mu_k, at_k), turn(sigma_k, at_k)]"),
    solution=WIDTHS, cases=turn_cases, compare=close(atol=1e-4), misconceptions=[
        Misconception("rotates the raw widths before softplus", change=[("F.softplus(raw_q)", "F.softplus(turn(raw_q, at_q))"),
                                                                        ("F.softplus(raw_k)", "F.softplus(turn(raw_k, at_k))")],
                      ask="The widths are positive now. Take the same token at two positions: does it have the same width at both?"),
        Misconception("rotates mean and width as one long vector",
                      change=[("torch.cat([turn(mu_q, at_q), sigma_q], -1)", "turn(torch.cat([mu_q, sigma_q], -1), at_q)"),
                              ("torch.cat([turn(mu_k, at_k), sigma_k], -1)", "turn(torch.cat([mu_k, sigma_k], -1), at_k)")],
                      ask="The second half of this vector holds the widths. Is it rotated, too?"),
        Misconception("still rotates the widths of the keys",
                      change=("turn(mu_k, at_k), sigma_k]", "turn(mu_k, at_k), turn(sigma_k, at_k)]"),
                      ask="Of queries and keys, whose widths may be rotated?"),
        Misconception("still rotates the widths of the queries",
                      change=("turn(mu_q, at_q), sigma_q]", "turn(mu_q, at_q), turn(sigma_q, at_q)]"),
                      ask="Of queries and keys, whose widths may be rotated?"),
        Misconception("cuts off what is below 0 in a rotated width",
                      change=[("at_q), sigma_q]", "at_q), turn(sigma_q, at_q).clamp(min=0)]"),
                              ("at_k), sigma_k]", "at_k), turn(sigma_k, at_k).clamp(min=0)]")],
                      ask="Take the same token at two positions: does it have the same width at both?"),
        Misconception("makes a rotated width positive by a second softplus",
                      change=[("at_q), sigma_q]", "at_q), F.softplus(turn(sigma_q, at_q))]"),
                              ("at_k), sigma_k]", "at_k), F.softplus(turn(sigma_k, at_k))]")],
                      ask="Take the same token at two positions: does it have the same width at both?"),
        Misconception("takes raw widths for widths", change=("F.softplus(raw_q), F.softplus(raw_k)", "raw_q, raw_k"),
                      ask="What makes a raw width positive?"),
        Misconception("leaves the widths out of the score",
                      change=[("torch.cat([turn(mu_q, at_q), sigma_q], -1)", "turn(mu_q, at_q)"),
                              ("torch.cat([turn(mu_k, at_k), sigma_k], -1)", "turn(mu_k, at_k)")],
                      ask="Two clouds around one point, one narrow and one wide: what is their distance?"),
        Misconception("rotates nothing", change=[("turn(mu_q, at_q)", "mu_q"), ("turn(mu_k, at_k)", "mu_k")],
                      ask="How does a query now tell two equal keys at different positions apart?"),
        Misconception("rotates the queries only", change=("turn(mu_k, at_k)", "mu_k"),
                      ask="Move the whole text by 100 positions. Do your scores stay the same?"),
        Misconception("takes the absolute value of a rotated width",
                      change=[("at_q), sigma_q]", "at_q), turn(sigma_q, at_q).abs()]"),
                              ("at_k), sigma_k]", "at_k), turn(sigma_k, at_k).abs()]")],
                      ask="A token of width (1, 0) rotated by a right angle has width (0, 1). Was this in the token?")],
    hints=["`turn` keeps the length of a vector and mixes its entries. Which entries may be negative: "
           "means, or widths?", "Rotate the means, of queries and keys. Leave the widths as they are."])


def form_cases(rng):
    for n, m, d, tau in [(1, 2, 1, 1.0), (3, 4, 2, 2.0), (5, 9, 6, 0.5), (1, 5, 3, 3.0)]:
        yield Case(randn(rng, n, d), randn(rng, m, d), tau, label=f"{n} queries, {m} keys of {d} numbers, tau = {tau}")
    yield Case(randn(rng, 2, 3), torch.tensor([1.0, 4.0])[:, None] * randn(rng, 1, 3), 1.0, label="a short key and a long one")

class _Weighed(dict):
    """What was made of two matrices, and nobody returns."""

def _weights_of(pair, case):
    """The attention weights of the two matrices, and their widths; anything else as it is."""
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(
            isinstance(x, torch.Tensor) and x.dim() == 2 and len(x) == len(c) for x, c in zip(pair, case.args))):
        return pair
    wide_q, wide_k = pair
    scores = wide_q.double() @ wide_k.double().T
    return _Weighed(weights=torch.softmax(scores, -1), width_of_wide_q=wide_q.shape[1], width_of_wide_k=wide_k.shape[1])

def _same_weights(got, want, case):
    if not isinstance(got, _Weighed):
        n, m = map(len, case.args[:2])
        return (f"is no pair of matrices of one width, the first with {n} rows (queries), the second with {m} (keys)"
                + ". Is there a `return`?" * (got is None))
    return close(atol=1e-5)(got, want, case)

exercise(id="9.4", title="The disguise", kind="write", points=3, minutes=9, difficulty=3, card=r"""
    Here `q` and `k` hold means and widths side by side. Write `as_dot_product`, which returns two matrices `wide_q`,
    `wide_k` with **one column more**, such that

    $$\text{softmax}(\texttt{wide\_q}\;\texttt{wide\_k}^\top) = \text{softmax}(-|q_i - k_j|^2 / \tau).$$

    - softmax does not change when a constant is added to a row
    - the plain dot product is the score: it is not divided by a root afterwards
    - a verdict shows the weights of your product and the two numbers of columns, not the matrices themselves
    """, given={"torch": torch}, solution='''
    def as_dot_product(q, k, tau):
        """q (n, d), k (m, d) -> wide_q (n, d + 1), wide_k (m, d + 1)"""
        bias = -k.square().sum(-1, keepdim=True) / tau
        return torch.cat([2 * q / tau, torch.ones_like(q[:, :1])], -1), torch.cat([k, bias], -1)
    ''', cases=form_cases, measure=_weights_of, compare=_same_weights, misconceptions=[
        Misconception("forgets the 2 of 2 q.k", change=("2 * q / tau", "q / tau"),
                      ask="Expand |q - k|^2. What is the factor of q.k?"),
        Misconception("divides the products by tau, but not the bias", change=("keepdim=True) / tau", "keepdim=True)"),
                      ask="Which of the terms of -|q - k|^2 / tau are divided by tau?"),
        Misconception("multiplies the bias by 2 / tau, too", change=("torch.cat([2 * q / tau, torch.ones_like(q[:, :1])], -1)",
                                                                     "2 / tau * torch.cat([q, torch.ones_like(q[:, :1])], -1)"),
                      ask="Which number of the query's row meets the bias, and what should it be?"),
        Misconception("adds the length of a key, not its square",
                      change=("k.square().sum(-1, keepdim=True)", "k.norm(dim=-1, keepdim=True)"),
                      ask="Expand |q - k|^2. Is its last term |k| or |k|^2?"),
        Misconception("multiplies the products by tau", change=("2 * q / tau", "2 * q * tau"),
                      ask="A small tau makes a head look at the nearest keys only. Does it in yours?"),
        Misconception("takes half of the bias", change=("keepdim=True) / tau", "keepdim=True) / tau / 2"),
                      ask="Expand |q - k|^2. Which of its terms has the factor 2?"),
        Misconception("takes the mean of a key's squares, not their sum",
                      change=("k.square().sum(-1, keepdim=True)", "k.square().mean(-1, keepdim=True)"),
                      ask="What is $|k|^2$ of a key of d numbers?"),
        Misconception("makes up for a root of d by which nothing is divided",
                      change=("2 * q / tau", "2 * q.shape[1] ** 0.5 * q / tau"),
                      ask="The card says what the product of your two matrices is: the score. Who divides it afterwards?"),
        Misconception("divides queries and keys by tau", change=("torch.cat([k, bias], -1)", "torch.cat([k / tau, bias], -1)"),
                      ask="In the product of your two matrices, how often is q.k divided by tau?"),
        Misconception("adds |k|^2 where it must be subtracted", change=("-k.square()", "k.square()"),
                      ask="Two keys have the same direction, one much further out. Which is nearer to a query close to the origin?"),
        Misconception("adds the same number for every key: none, the query's norm, or one for all",
                      change=("bias = -k.square().sum(-1, keepdim=True) / tau", "bias = torch.zeros_like(k[:, :1])"),
                      ask="|q|^2 is the same for all keys of a row and cancels in softmax. Is |k|^2 the same for all keys?"),
        Misconception("carries |q|^2 along, which cancels in softmax", body='''
            norm_q, norm_k = (-x.square().sum(-1, keepdim=True) / tau for x in (q, k))
            return (torch.cat([2 * q / tau, norm_q, torch.ones_like(norm_q)], -1),
                    torch.cat([k, torch.ones_like(norm_k), norm_k], -1))
            ''', ask="Your weights are right, and you have one column too many. Which of them is constant in every row?")],
    hints=["$-|q - k|^2 = 2\\,q \\cdot k - |k|^2 - |q|^2$. Which term does not depend on the key?",
           "A column of ones in `wide_q` meets a column with the bias in `wide_k`."])


def score_cases(rng):
    for n, m in [(2, 3), (16, 16), (33, 20), (1, 50), (40, 31)]:
        yield Case(randn(rng, n, 16), randn(rng, n, 16), randn(rng, m, 16), randn(rng, m, 16), 4.0,
                   label=f"{n} queries, {m} keys")
    yield Case(randn(rng, 5, 16), 40 * randn(rng, 5, 16), randn(rng, 6, 16), 40 * randn(rng, 6, 16), 100.0,
               label="raw widths of 100 and more")

SCORES = '''
__device__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__global__ void w2_tile(const float* __restrict__ mu_q, const float* __restrict__ raw_q,
                        const float* __restrict__ mu_k, const float* __restrict__ raw_k,
                        float* __restrict__ s, int n_q, int n_k, float tau) {
    constexpr int TILE = 16, D = 16;
    __shared__ float q[TILE][2 * D + 1], k[TILE][2 * D + 1];    // a row: 16 means, then 16 widths
    const int tx = threadIdx.x, ty = threadIdx.y;               // 16 x 16 threads
    const int q0 = blockIdx.y * TILE, k0 = blockIdx.x * TILE;   // first query and first key of this block
    if (q0 + ty < n_q) {
        q[ty][tx] = mu_q[(q0 + ty) * D + tx];
        q[ty][D + tx] = softplus(raw_q[(q0 + ty) * D + tx]);
    }
    if (k0 + ty < n_k) {
        k[ty][tx] = mu_k[(k0 + ty) * D + tx];
        k[ty][D + tx] = softplus(raw_k[(k0 + ty) * D + tx]);
    }
    __syncthreads();
    if (q0 + ty < n_q && k0 + tx < n_k) {
        float sum = 0.0f;
        for (int c = 0; c < 2 * D; c++) {
            const float difference = q[ty][c] - k[tx][c];
            sum += difference * difference;
        }
        s[(q0 + ty) * n_k + k0 + tx] = -sum / tau;
    }
}
'''

_HEAD, _BODY = SCORES.split("    if (q0 + ty < n_q) {\n", 1)
_LOAD_K = "    if (k0 + ty < n_k) {\n"

def _score_expect(mu_q, raw_q, mu_k, raw_k, tau):
    means, widths = mu_q[:, None] - mu_k, F.softplus(raw_q)[:, None] - F.softplus(raw_k)
    return -(means.square() + widths.square()).sum(-1) / tau

def _score_traffic(mu_q, raw_q, mu_k, raw_k, tau):
    """Every tile of queries meets every tile of keys; a row is two times 64 bytes.
    64 bytes of a row of scores may touch 3 sectors."""
    n, m = len(mu_q), len(mu_k)
    return 128 * (n * -(-m // 16) + m * -(-n // 16)) + 96 * n * -(-m // 16)

kernel_exercise(id="9.6", title="Fused on the way in", points=4, minutes=15, difficulty=3, name="w2_tile", card=r"""
    Means and **raw** widths are in memory. Write the scores $-(|\mu_i - \mu_j|^2 + |\sigma_i - \sigma_j|^2)/\tau$ with
    $\sigma = \text{softplus}(\text{raw})$, without ever writing $\sigma$ to memory: apply `softplus` while the tile is
    loaded.

    - `mu_q` and `raw_q` are `(n_q, 16)`, `mu_k` and `raw_k` `(n_k, 16)`, and `s` is `(n_q, n_k)`, all row by row
    - each block has 16 x 16 threads and computes 16 x 16 scores
    - thread `(ty, tx)` loads entry `tx` of four rows: query `q0 + ty` and key `k0 + ty`, mean and width
    - then it makes one score: query `q0 + ty` with key `k0 + tx`
    - rows past the end do not exist, so guard the loads; every thread must reach the barrier
    """, stub=_HEAD + "    // your code: load both tiles, wait, then one score per thread\n}\n",
    solution=SCORES, cases=score_cases, compare=close(atol=1e-3, rtol=1e-4),
    launch=lambda mu_q, raw_q, mu_k, raw_k, tau: Launch(
        grid=(-(-len(mu_k) // 16), -(-len(mu_q) // 16)), block=(16, 16),
        args=[mu_q, raw_q, mu_k, raw_k, out((len(mu_q), len(mu_k))), len(mu_q), len(mu_k), tau]),
    expect=_score_expect, traffic=_score_traffic, misconceptions=[
        Misconception("fills row ty of the key tile with key k0 + tx",
                      change=[(_LOAD_K, "    if (k0 + tx < n_k) {\n"),
                              ("mu_k[(k0 + ty) * D + tx]", "mu_k[(k0 + tx) * D + ty]"),
                              ("raw_k[(k0 + ty) * D + tx]", "raw_k[(k0 + tx) * D + ty]")],
                      ask="Row ty of the tile should be one key. Which key is it in your load, and which of its entries?"),
        Misconception("takes the raw widths of the keys for widths",
                      change=("softplus(raw_k[(k0 + ty) * D + tx])", "raw_k[(k0 + ty) * D + tx]"),
                      ask="A query and a key come from the same kind of projection. Which of them got its softplus?"),
        Misconception("takes all raw widths for widths",
                      change=[("softplus(raw_q[(q0 + ty) * D + tx])", "raw_q[(q0 + ty) * D + tx]"),
                              ("softplus(raw_k[(k0 + ty) * D + tx])", "raw_k[(k0 + ty) * D + tx]")],
                      ask="What makes a raw width positive?"),
        Misconception("forgets the minus", change=("-sum / tau", "sum / tau"), ask="Should a near key score higher or lower than a far one?"),
        Misconception("multiplies by tau", change=("-sum / tau", "-sum * tau"), ask="By what is the squared distance divided?"),
        Misconception("takes the root of the squared distance", change=("-sum / tau", "-sqrtf(sum) / tau"),
                      ask="Is the score minus the distance, or minus its square?"),
        Misconception("writes the scores transposed", change=("s[(q0 + ty) * n_k + k0 + tx]", "s[(k0 + tx) * n_q + q0 + ty]"),
                      ask="`s` is (n_q, n_k), row by row. How far apart are two keys of one query?"),
        Misconception("takes the number of queries for the length of a row of scores",
                      change=("s[(q0 + ty) * n_k", "s[(q0 + ty) * n_q"), ask="`s` is (n_q, n_k). How many numbers has one of its rows?"),
        Misconception("multiplies queries and keys", change=("sum += difference * difference", "sum += q[ty][c] * k[tx][c]"),
                      ask="Which square is added up in a squared distance?"),
        Misconception("compares row tx of the queries with row ty of the keys",
                      change=("q[ty][c] - k[tx][c]", "q[tx][c] - k[ty][c]"),
                      ask="Which query and which key belong to the score that thread (ty, tx) writes?"),
        Misconception("compares row ty of the queries with row ty of the keys",
                      change=("q[ty][c] - k[tx][c]", "q[ty][c] - k[ty][c]"),
                      ask="A block makes 16 x 16 scores. How many different ones are in a row of yours?"),
        Misconception("loads keys past the end", change=(_LOAD_K, "    {\n"),
                      ask="The last tile may have fewer than 16 keys. Which thread must not load?"),
        Misconception("writes scores past the end", change=("    if (q0 + ty < n_q && k0 + tx < n_k) {\n", "    {\n"),
                      ask="With 2 queries and 3 keys, how many of the 256 threads have a score?"),
        Misconception("does not wait for the tiles", change=("    __syncthreads();\n", ""),
                      ask="Thread (0, 5) reads key row 5. Who wrote it, and when?"),
        Misconception("skips the keys whose row of threads has no query",
                      change=(_LOAD_K, "    if (q0 + ty < n_q && k0 + ty < n_k) {\n"),
                      ask="With 2 queries and 3 keys, which row of threads loads the third key?"),
        Misconception("reads the means from global memory for every score",
                      change=[("q[ty][c] - k[tx][c];", "(c < D ? mu_q[(q0 + ty) * D + c] - mu_k[(k0 + tx) * D + c] "
                                                          ": q[ty][c] - k[tx][c]);")],
                      ask="How often is each mean read now, and how often was it copied into the tile?"),
        Misconception("leaves the widths out of the sum", change=("c < 2 * D", "c < D"), ask="How long is a row of the tile?")],
    hints=["Two guarded loads per tile: `q[ty][tx]` from `mu_q`, `q[ty][D + tx]` from `softplus(raw_q[...])`; "
           "the same for `k` with `k0 + ty`.",
           "Put the barrier outside of every `if`.", "The score compares row `ty` of `q` with row `tx` of `k`."])


exercise(id="9.7", title="The lowest possible loss", kind="predict", points=1, minutes=4, difficulty=2, card="""
    In the benchmark a sequence is 64 random tokens out of 1,024, followed by the same 64 again. At each of 127
    positions the model predicts the next token. The first 63 answers are random; a perfect model knows the other 64.
    What is its mean loss, in nats? Type it with two digits after the point.
    """, given={"math": math}, name="floor", answer=63 / 127 * math.log(1024), tolerance=0.005, misconceptions=[
        Misconception("takes half of the answers for unknown", value=round(math.log(1024) / 2, 4),
                      ask="How many of the 127 answers are random?"),
        Misconception("counts the first token among the answers", value=round(64 / 127 * math.log(1024), 4),
                      ask="The first token is read, not asked for. How many of the random tokens are asked for?"),
        Misconception("gives the loss of a blind guess", value=round(math.log(1024), 4), ask="Which answers can be copied?"),
        Misconception("counts in bits", value=round(63 / 127 * 10, 4), ask="Which logarithm does a cross-entropy in nats use?"),
        Misconception("thinks that a perfect model has no loss", value=0,
                      ask="What can any model know about a random token before it has seen it?")],
    hints=["A random token out of 1,024 costs ln 1024 nats, whatever the model.",
           "63 such answers, 64 that cost nothing, one mean."])


def seed_cases(rng):
    for n, t in ((5, 2.776), (2, 12.706), (3, 4.303), (5, 4.315), (10, 2.262)):
        shared, own = randn(rng, n), 0.1 * randn(rng, 2, n)
        yield Case((2 + shared + own[0]).tolist(), (2.1 + shared + own[1]).tolist(), t, label=f"{n} seeds, t = {t}")

def _two_numbers(got, want, case):
    if isinstance(got, (tuple, list)):
        got = tuple(x.item() if isinstance(x, torch.Tensor) and x.numel() == 1 else x for x in got)
    return close(atol=1e-6, rtol=1e-5)(got, want, case)

exercise(id="9.9", title="An interval for a difference", kind="write", points=2, minutes=7, difficulty=2, card=r"""
    Two mechanisms were trained with the same `n` seeds: runs `a[i]` and `b[i]` saw the same batches. Write
    `paired_interval(a, b, t)`. It returns the mean of the differences `a[i] - b[i]` and half the width of its interval,
    $t\,s/\sqrt n$.

    - $s$ is the standard deviation of the `n` differences, with $n - 1$ in the denominator
    - $t$ is given: Student's t for the wanted level
    """, given={"math": math, "torch": torch}, solution='''
    def paired_interval(a, b, t):
        """two lists of n losses, n at least 2, and a number -> (mean difference, half the width)"""
        differences = [x - y for x, y in zip(a, b)]
        n = len(differences)
        mean = sum(differences) / n
        s = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
        return mean, t * s / math.sqrt(n)
    ''', cases=seed_cases, compare=_two_numbers, misconceptions=[
        Misconception("treats the two lists as independent, and does not pair them", body='''
            n = len(a)
            variance = lambda x: sum((y - sum(x) / n) ** 2 for y in x) / (n - 1)
            return sum(a) / n - sum(b) / n, t * math.sqrt((variance(a) + variance(b)) / n)
            ''', ask="One seed draws easy batches, another hard ones. Does that change a, b, or a - b?"),
        Misconception("takes the sizes of the differences", change=("[x - y for", "[abs(x - y) for"),
                      ask="If a is better with half of the seeds and worse with the others, what should the mean difference be?"),
        Misconception("takes the variance for the standard deviation",
                      change=("math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))",
                              "sum((d - mean) ** 2 for d in differences) / (n - 1)"),
                      ask="Measure the losses in thousandths: by what should the width grow, 1,000 or a million?"),
        Misconception("returns the two ends of the interval",
                      change=("return mean, t * s / math.sqrt(n)",
                              "return mean - t * s / math.sqrt(n), mean + t * s / math.sqrt(n)"),
                      ask="The card asks for two numbers. Which ones?"),
        Misconception("divides by n - 1 twice", change=("t * s / math.sqrt(n)", "t * s / math.sqrt(n - 1)"),
                      ask="The n - 1 is in s already. The variance of a mean of n runs is s^2 divided by what?"),
        Misconception("divides by n in the standard deviation", change=("/ (n - 1))", "/ n)"),
                      ask="The mean was computed from the same n differences. How many of them are still free?"),
        Misconception("gives the spread of the runs, not of their mean", change=("t * s / math.sqrt(n)", "t * s"),
                      ask="With a hundred seeds, how precisely is the mean known: as precisely as one run?"),
        Misconception("divides the spread by n", change=("t * s / math.sqrt(n)", "t * s / n"),
                      ask="The variance of a mean of n runs is s^2 / n. What is its root?"),
        Misconception("gives the whole width", change=("t * s / math.sqrt(n)", "2 * t * s / math.sqrt(n)"),
                      ask="The interval is mean ± half. Which of the two is asked for?"),
        Misconception("subtracts a from b", change=("x - y for", "y - x for"),
                      ask="If a has the lower losses, what is the sign of a - b?"),
        Misconception("uses the normal distribution whatever t is", change=("return mean, t *", "return mean, 1.96 *"),
                      ask="1.96 is right for very many seeds. How many are there here?")],
    hints=["First the list of differences, then its mean, then its standard deviation.",
           "`math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))`"])


def far_cases(rng):
    for n, m, d, at in [(2, 2, 2, 0.0), (3, 5, 4, 1000.0), (20, 33, 16, 1000.0), (7, 7, 8, -3000.0)]:
        yield Case(randn(rng, n, d) + at, randn(rng, m, d) + at, label=f"{n} x {m}, tokens around {at:g}")
    corner = 1000.0 * (-1) ** torch.arange(6)
    yield Case(randn(rng, 5, 6) + corner, randn(rng, 4, 6) + corner, label="5 x 4, tokens around 1000, -1000, 1000, ...")
    x = 3 * randn(rng, 64, 33) + 500
    yield Case(x, x, label="64 tokens against themselves, around 500")

def _watched(f, q, k):
    """The result, the most axes that any array on the way to it has, and whether a matrix product was made."""
    axes, products = [0], []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                axes.append(result.dim())
            if function.__name__ in ("matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "einsum", "linear", "tensordot", "inner"):
                products.append(function)
            return result

    with Watch():
        result = f(q, k)
    return result, max(axes), bool(products)

def _near_and_not_below_0(got, want, case):
    (found, axes, product), (wanted, their_axes, their_product) = got, want
    told = close(atol=1e-3, rtol=1e-4)(found, wanted, case)
    if told is None and bool((found < 0).any()) != bool((wanted < 0).any()):
        told = "has distances below 0"
    if told is None and (axes > 2) != (their_axes > 2):
        told = "is right, but an array with a number for every query, key and feature was made on the way"
    if told is None and product != their_product:
        told = "is right, but no matrix product was made on the way"
    return told

exercise(id="9.11", title="A negative distance", kind="repair", points=2, minutes=7, difficulty=2, card=r"""
    A squared distance by one matrix product: $|q|^2 + |k|^2 - 2\,q\cdot k$. Where all tokens are far from the origin
    the result is wrong, and sometimes even below 0. Repair it.

    - keep the matrix product: no array of `(n, m, d)` numbers
    - stay in float32
    - nothing may be below 0
    """, given={"torch": torch}, forbid=("cdist", "double", "float64", "numpy"), stub='''
    def squared_distances(q, k):
        """q (n, d), k (m, d) -> (n, m)"""
        return q.square().sum(-1)[:, None] + k.square().sum(-1)[None] - 2 * q @ k.T
    ''', solution='''
    def squared_distances(q, k):
        """q (n, d), k (m, d) -> (n, m)"""
        centre = k.mean(0)
        q, k = q - centre, k - centre
        return (q.square().sum(-1)[:, None] + k.square().sum(-1)[None] - 2 * q @ k.T).clamp_min(0)
    ''', cases=far_cases, call=_watched, compare=_near_and_not_below_0, misconceptions=[
        Misconception("moves the origin by one number, the same for all features", change=("k.mean(0)", "k.mean()"),
                      ask="Tokens around (1000, -1000): which point is the middle of them, and what is the mean of its two numbers?"),
        Misconception("takes the differences key by key, without a matrix product",
                      body="return torch.stack([(q - key).square().sum(-1) for key in k], 1)",
                      ask="Which of the three terms is a matrix product, and what did it save?"),
        Misconception("only hides what is below 0", change=[("    centre = k.mean(0)\n", ""),
                              ("    q, k = q - centre, k - centre\n", "")],
                      ask="Two tokens a distance of 2 apart, around 1000: which digits of |q|^2 does float32 keep?"),
        Misconception("makes what is below 0 positive", change=[("    centre = k.mean(0)\n", ""),
                              ("    q, k = q - centre, k - centre\n", ""),
                                                                (".clamp_min(0)", ".abs()")],
                      ask="If rounding gives -3 where 0.2 is right, is 3 any better?"),
        Misconception("forms every difference, without a matrix product", body="return (q[:, None] - k[None]).square().sum(-1)",
                      ask="With 4,096 queries and keys of 128 numbers: how many numbers does q[:, None] - k[None] hold?"),
        Misconception("moves queries and keys by different vectors",
                      change=("q - centre, k - centre", "q - q.mean(0), k - centre"),
                      ask="Which changes leave q - k as it is?"),
        Misconception("centres, but lets rounding go below 0", change=(".clamp_min(0)", ""),
                      ask="A token against itself: is the result exactly 0?")],
    hints=["A distance does not change if the origin moves, as long as it moves for both.",
           "Around its own centre a cloud has small norms: nothing large is left to cancel.",
           "The last rounding may still fall below 0: clamp."])


def _at_two_scales(f, scale):
    return f(scale), f(2.0 * scale)

def _steepness(pair, case):
    """From the tokens at a scale s and at 2s: the largest entry by s, the growth of the Jacobian, and the Jacobian's norm."""
    if not (isinstance(pair, tuple) and all(isinstance(x, torch.Tensor) and x.shape == (3, 2) for x in pair)):
        return pair
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)

    def slope(x):
        x = x.double()

        def last(token):
            tokens = torch.cat([x[:2], token[None]])
            return torch.softmax(-(swap @ token - tokens).square().sum(-1), -1) @ tokens

        return torch.autograd.functional.jacobian(last, x[2]).norm()

    single, double = map(slope, pair)
    return float(pair[0].abs().max() / case.args[0]), float(double / single), float(single)

def _steep(got, want, case):
    """Against the solution any growth of 4 will do; against a usual mistake all three numbers must agree."""
    if len(got) != 3:
        return "is not three tokens of two numbers"
    (largest, growth, norm), (their_largest, their_growth, their_norm) = got, want
    if not abs(growth - their_growth) < 0.3:
        return f"is not steep enough: doubling the scale multiplies the Jacobian by {growth:.3g}; 4 is wanted"
    if not largest < 1.001:
        return f"has an entry of {largest:.3g} times the scale; at most 1 is allowed"
    if their_growth < 3.7 and not (abs(largest - their_largest) < 0.01 and abs(norm - their_norm) < 0.01 * their_norm):
        return "differs from the expected tokens"

exercise(id="9.12", title="Steeper without end", kind="write", points=3, minutes=12, difficulty=4, card=r"""
    One layer on tokens of two numbers: keys and values are the tokens themselves, the query of a token is the token
    with its two numbers **exchanged** (so queries and keys are not tied), and $\tau = 1$. Write `steep_tokens(scale)`:
    three tokens, with no entry larger than `scale`, such that the Jacobian of the last token's output with respect to
    the last token grows as `scale` squared.

    - doubling the scale must multiply the Jacobian's norm by 4
    - a weight is sensitive where two keys are equally near
    """, given={"torch": torch}, solution='''
    def steep_tokens(scale):
        """a number -> (3, 2) tokens"""
        return scale * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 0.0]])
    ''', cases=lambda rng: (Case(s, label=f"scale {s:g} and {2 * s:g}") for s in (4.0, 8.0, 16.0, whole(rng, 20, 90) / 4)),
    call=_at_two_scales, measure=_steepness, compare=_steep, misconceptions=[
        Misconception("lets the last token be the key nearest to its own query",
                      body="return scale * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]])",
                      ask="Where is the query of (0, 0), where is its key, and who gets all the weight?"),
        Misconception("keeps the tokens where they are, whatever the scale", body="return torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 0.0]])",
                      ask="The Jacobian holds a product of two differences. Which two must grow?"),
        Misconception("puts the query nearer to one key than to the other", body="return scale * torch.tensor([[1.0, 1.0], [-1.0, 0.5], [1.0, 0.0]])",
                      ask="What are the two weights when one key is much nearer?"),
        Misconception("leaves the two keys as near to each other as they were",
                      body="return torch.stack([torch.tensor([1.0, scale]), torch.tensor([-1.0, scale]), torch.tensor([scale, 0.0])])",
                      ask="The keys' distance does not grow with the scale. What multiplies it in the Jacobian?")],
    hints=["With two keys at equal distance the weights are 1/2 and 1/2, and the output's slope is "
           "(k1 - k2) times (v1 - v2), times 1/2.",
           "Put two keys at (s, s) and (-s, s). Which query is half way between them, and which token has this query?",
           "The last token's own key must be further from its query than the other two."])
