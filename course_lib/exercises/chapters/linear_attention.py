"""The exercises of chapter 4."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn


def positive(rng, *shape):
    return randn(rng, *shape).abs() + 0.1

def watched(f, q, k, v, *size):
    """f(q, k, v, *size), refused a tensor of all queries by all keys, where nothing else has that shape; without chunks,
    refused to meet the keys once for every query; with chunks of a size, refused a step for every token, and a product
    over more tokens than a chunk has."""
    products = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "inner", "einsum", "tensordot", "addmm", "baddbmm",
                "mul", "__mul__", "__rmul__", "sum")
    square, steps, met = (q.shape[-2], k.shape[-2]), 0, 0
    limit = max(len(q), 80 * math.ceil(len(q) / size[0])) if size else math.inf
    queries = range(size[0] + 1, len(q)) if size and len(q) >= 3 * size[0] else ()

    def lengths(*values):                                   # of all axes of the tensors in values
        for x in values:
            yield from x.shape if isinstance(x, torch.Tensor) else lengths(*x) if isinstance(x, (list, tuple)) else ()

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal steps, met
            steps, met = steps + 1, met + (k.shape[-2] in lengths(args))
            if steps > limit:
                raise ValueError("this takes a step for every token, and the exercise asks for one loop, over chunks")
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.shape[-2:] == square and min(square) > max(q.shape[-1], *size, 0):
                raise ValueError("this makes a matrix of all queries by all keys, which the exercise is to avoid")
            if not size and met > 50 + 10 * k.shape[-2]:
                raise ValueError("this goes through the keys for every query, and the exercise asks for one sum over them, before any query")
            if func.__name__ in products and any(n in queries for n in lengths(args)):
                raise ValueError("this goes through the earlier keys " + ("for every query of a chunk" if any(
                    n in queries for n in lengths(made)) else "again, in place of adding to the state that they made"))
            return made

    with Watch():
        return f(q, k, v, *size)

exercise(id="4.1", title="Keys first", kind="write", points=2, minutes=8, difficulty=2, card=r"""
    `q` and `k` hold **features** already, all positive. Write linear attention without a mask:
    $o_i = \sum_j (q_i \cdot k_j)\, v_j \,/ \sum_j q_i \cdot k_j$.

    - never build the matrix of all queries by all keys: multiply keys and values first
    - the denominator needs the sum of the keys, which is one vector for all queries
    """, given={"torch": torch}, solution='''
    def attend(q, k, v):
        """features q (..., n, m), k (..., l, m), values v (..., l, d) -> (..., n, d)"""
        state = k.transpose(-2, -1) @ v
        normaliser = k.sum(-2)
        return (q @ state) / (q @ normaliser[..., None])
    ''', cases=lambda rng: [
        Case(positive(rng, 2, 2), positive(rng, 3, 2), randn(rng, 3, 1), label="2 queries, 3 keys, 2 features"),
        Case(positive(rng, 2, 5, 4), positive(rng, 2, 7, 4), randn(rng, 2, 7, 3), label="2 heads, 5 queries, 7 keys"),
        Case(positive(rng, 3, 9, 8), positive(rng, 3, 4, 8), randn(rng, 3, 4, 8), label="3 heads, more queries than keys"),
        Case(positive(rng, 400, 4), positive(rng, 7, 4), randn(rng, 7, 3), label="400 queries, 7 keys")],
    call=watched, compare=close(atol=1e-5),
    properties=[("each output is between the smallest and the largest value",
                 lambda got, case: bool((got.amax() <= case.args[2].amax() + 1e-4) & (got.amin() >= case.args[2].amin() - 1e-4)))],
    misconceptions=[
        Misconception("does not divide", change=(" / (q @ normaliser[..., None])", ""),
                      ask="What should the weights of one query add up to? What do they add up to here?"),
        Misconception("divides by the number of keys", change=("(q @ normaliser[..., None])", "k.shape[-2]"),
                      ask="Softmax divides by the sum of a query's weights. Is that the same number for every query?"),
        Misconception("divides by the sum of the keys' features, whatever the query",
                      change=("(q @ normaliser[..., None])", "normaliser.sum(-1)[..., None, None]"),
                      ask="Below the line stands a sum over j of q_i . k_j. Where is the query in your denominator?"),
        Misconception("multiplies queries and keys first", body='''
            weights = q @ k.transpose(-2, -1)
            return weights @ v / weights.sum(-1, keepdim=True)
            ''', ask="How many numbers has your matrix for 100,000 queries and keys, and how many has k^T v?"),
        Misconception("takes the queries one by one, and goes through all keys for each", body='''
            rows = []
            for i in range(q.shape[-2]):
                weights = (q[..., i:i + 1, :] * k).sum(-1, keepdim=True)
                rows.append((weights * v).sum(-2) / weights.sum(-2))
            return torch.stack(rows, -2)
            ''', ask="For 100,000 queries you go through the keys 100,000 times. Which sum over the keys is the same for all queries?"),
        Misconception("puts a softmax on the queries and one on the keys",
                      body="return torch.softmax(q, -1) @ (torch.softmax(k, -2).transpose(-2, -1) @ v)",
                      ask="The features are given and positive. Which function turns their products into weights here?")],
    hints=["$\\sum_j (q_i \\cdot k_j) v_j = q_i \\cdot \\sum_j k_j v_j^\\top$: the sum does not contain $i$.",
           "`k.transpose(-2, -1) @ v` has shape `(m, d)`; `k.sum(-2)` has shape `(m,)`.",
           "The denominator is `q @ normaliser[..., None]`, one number per query."])


exercise(id="4.9", title="Positive random features", kind="write", points=2, minutes=8, difficulty=3, card=r"""
    Write Performer's features: for each direction $w_r$, $\phi_r(x) = e^{w_r \cdot x - |x|^2/2} / \sqrt m$.

    - $m$ is the number of directions
    - the product of two feature vectors must be a **mean** over the directions
    """, given={"torch": torch, "math": math}, solution='''
    def random_features(x, w):
        """x (..., n, d), directions w (m, d) -> (..., n, m)"""
        exponent = x @ w.T - x.square().sum(-1, keepdim=True) / 2
        return exponent.exp() / math.sqrt(w.shape[0])
    ''', cases=lambda rng: [
        Case(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]), label="one vector, two directions"),
        Case(randn(rng, 5, 4) / 2, randn(rng, 8, 4), label="5 vectors of 4, 8 directions"),
        Case(randn(rng, 2, 3, 6) / 2, randn(rng, 3, 6), label="2 heads of 3 vectors, 3 directions")], compare=close(atol=1e-5),
    properties=[("every feature is positive", lambda got, case: bool((got > 0).all()))], misconceptions=[
        Misconception("divides by m, not by its root", change=("math.sqrt(w.shape[0])", "w.shape[0]"),
                      ask="Two feature vectors are multiplied. How often is your factor in the product?"),
        Misconception("adds over the directions and does not average", change=(" / math.sqrt(w.shape[0])", ""),
                      ask="The product of two feature vectors is a sum of m terms, each of which estimates exp(q . k). How large is the sum?"),
        Misconception("leaves out the |x|^2 / 2", change=(" - x.square().sum(-1, keepdim=True) / 2", ""),
                      ask="E[exp(w . x)] is exp(|x|^2 / 2). What has to be taken away to leave exp(q . k)?"),
        Misconception("takes away |x|^2 and not its half", change=("keepdim=True) / 2", "keepdim=True)"),
                      ask="What is the mean of exp(w . x) for a normal w: exp(|x|^2), or less?"),
        Misconception("takes |x| for |x|^2", change=("x.square().sum(-1, keepdim=True)", "x.norm(dim=-1, keepdim=True)"),
                      ask="What is the mean of exp(w . x): exp of half the length, or of half its square?"),
        Misconception("divides by the root of d", change=("math.sqrt(w.shape[0])", "math.sqrt(w.shape[1])"),
                      ask="The estimate is a mean. Over how many terms?")],
    hints=["`x @ w.T` holds all the $w_r \\cdot x$.", "$|x|^2$ for every row: `x.square().sum(-1, keepdim=True)`."])


exercise(id="4.2", title="One step of the recurrence", kind="write", points=2, minutes=8, difficulty=2, card=r"""
    One token arrives: features `q`, `k` and a value `v`. Write the step that adds it to the state and answers.

    - $S \leftarrow S + k v^\top$, $z \leftarrow z + k$, and the answer $q^\top S / q^\top z$
    - a token sees itself, as under a causal mask
    - do not change what was handed in: return new tensors
    """, given={"torch": torch}, solution='''
    def step(state, normaliser, q, k, v):
        """state (m, d), normaliser (m,), features q and k (m,), value v (d,) -> output (d,), new state, new normaliser"""
        state = state + k[:, None] * v[None, :]
        normaliser = normaliser + k
        return (q @ state) / (q @ normaliser), state, normaliser
    ''', cases=lambda rng: [
        Case(torch.zeros(2, 1), torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]), torch.tensor([4.0]),
             label="the first token, 2 features"),
        Case(randn(rng, 4, 3), positive(rng, 4), positive(rng, 4), positive(rng, 4), randn(rng, 3), label="4 features, values of 3"),
        Case(randn(rng, 3, 8), positive(rng, 3), positive(rng, 3), positive(rng, 3), randn(rng, 8), label="3 features, values of 8")],
    compare=close(atol=1e-5), misconceptions=[
        Misconception("answers before it adds the token", body='''
            answer = (q @ state) / (q @ normaliser)
            return answer, state + k[:, None] * v[None, :], normaliser + k
            ''', ask="Under a causal mask query t sees keys 0 .. t. What does the very first token see in your version?"),
        Misconception("does not divide", change=("(q @ state) / (q @ normaliser)", "q @ state"),
                      ask="What do the weights of the past tokens add up to in your answer?"),
        Misconception("adds q v^T to the state", change=("k[:, None] * v", "q[:, None] * v"),
                      ask="The state is a sum over past tokens. Which of their three vectors will a later query be compared with?"),
        Misconception("replaces the normaliser instead of adding to it", change=("normaliser = normaliser + k", "normaliser = k"),
                      ask="Below the line is the sum over all past keys. How many keys are in your normaliser?"),
        Misconception("divides by the normaliser of the tokens before", body='''
            state = state + k[:, None] * v[None, :]
            return (q @ state) / (q @ normaliser), state, normaliser + k
            ''', ask="The new state holds the token's own value. Is the token's own weight in your sum?"),
        Misconception("writes v k^T and reads it as if it were k v^T", body='''
            state = state + (v[:, None] * k[None, :]).reshape(state.shape)
            normaliser = normaliser + k
            return (q @ state) / (q @ normaliser), state, normaliser
            ''', ask="Row i of the state belongs to feature i. Which vector runs along its rows?")],
    hints=["The outer product: `k[:, None] * v[None, :]` has shape `(m, d)`.",
           "First add, then read: the new state answers."])


WALK = '''
__global__ void walk_tokens(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                            float* __restrict__ out, int n, int d, int d_v) {
    extern __shared__ float state[];             // d rows of d_v floats, then two rows of d for q and k
    float* q_row = state + d * d_v;
    float* k_row = q_row + d;
    int c = threadIdx.x;                         // this thread's column; blockDim.x >= d_v
    if (c < d_v)
        for (int i = 0; i < d; ++i) state[i * d_v + c] = 0.0f;

@}
'''

kernel_exercise(id="4.7", title="The state stays on the chip", points=4, minutes=16, difficulty=4, name="walk_tokens", card=r"""
    Finish the kernel: one block walks the tokens of one head, without a normaliser: $S \leftarrow S + k_t v_t^\top$, then
    $o_t = q_t^\top S$. Launch: `grid = 1`, `block` a multiple of 32 of at least `d_v` threads. `q` and `k` are `(n, d)` and
    hold features, `v` and `out` are `(n, d_v)`.

    - thread `c` owns column `c` of the state and writes column `c` of the output; threads beyond `d_v` only help loading
    - for each token: bring its `q` and `k` to `q_row` and `k_row` together, wait, add, read, wait
    - budget: every number of `q`, `k` and `v` is read once, every number of `out` written once; the state never goes to global memory
    """, stub=WALK.replace("@", "    // for each token: 1. load q_row and k_row   2. wait   3. update column c and read it with q_row   4. wait\n"),
    solution=WALK.replace("@", '''
    for (int t = 0; t < n; ++t) {
        for (int i = c; i < d; i += blockDim.x) {
            q_row[i] = q[t * d + i];
            k_row[i] = k[t * d + i];
        }
        __syncthreads();
        if (c < d_v) {
            float value = v[t * d_v + c], sum = 0.0f;
            for (int i = 0; i < d; ++i) {
                float s = state[i * d_v + c] + k_row[i] * value;
                state[i * d_v + c] = s;
                sum += q_row[i] * s;
            }
            out[t * d_v + c] = sum;
        }
        __syncthreads();
    }
'''[1:]), cases=lambda rng: [
        Case(positive(rng, 3, 2), positive(rng, 3, 2), randn(rng, 3, 1), label="3 tokens, 2 features, values of 1"),
        Case(positive(rng, 17, 8), positive(rng, 17, 8), randn(rng, 17, 8), label="17 tokens, 8 features, values of 8"),
        Case(positive(rng, 20, 16), positive(rng, 20, 16), randn(rng, 20, 33), label="20 tokens, 16 features, values of 33"),
        Case(positive(rng, 9, 40), positive(rng, 9, 40), randn(rng, 9, 24), label="9 tokens, 40 features, values of 24")],
    compare=close(atol=1e-3, rtol=1e-4),
    launch=lambda q, k, v: Launch(grid=1, block=32 * math.ceil(v.shape[1] / 32), shared=4 * (q.shape[1] * (v.shape[1] + 2)),
                                  args=[q, k, v, out(v.shape), q.shape[0], q.shape[1], v.shape[1]]),
    expect=lambda q, k, v: (q @ k.T).tril() @ v,
    traffic=lambda q, k, v: sum(32 * math.ceil(4 * width / 32 + (4 * width % 32 > 0)) * q.shape[0]
                                for width in (q.shape[1], q.shape[1], v.shape[1], v.shape[1])), misconceptions=[
        Misconception("answers before it adds the token",
                      change=[("sum += q_row[i] * s;", ""),
                              ("float s = state[i * d_v + c] + k_row[i] * value;",
                               "sum += q_row[i] * state[i * d_v + c];\n                float s = state[i * d_v + c] + k_row[i] * value;")],
                      ask="Query t sees keys 0 .. t. Is key t in the state when you multiply by the query?"),
        Misconception("writes with the query and reads with the key", change=[("+ k_row[i] * value", "+ q_row[i] * value"), ("q_row[i] * s;", "k_row[i] * s;")],
                      ask="Which of the two does a token leave behind in the state?"),
        Misconception("reads q_row and k_row before they have been loaded",
                      change=("        }\n        __syncthreads();\n        if (c < d_v) {", "        }\n        if (c < d_v) {"),
                      ask="Thread 0 loads q_row[0], thread 1 loads q_row[1]. When may thread 0 read q_row[1]?"),
        Misconception("lets the next token's rows arrive while others still read",
                      change=("            out[t * d_v + c] = sum;\n        }\n        __syncthreads();\n",
                              "            out[t * d_v + c] = sum;\n        }\n"),
                      ask="Thread 0 finishes token t and loads token t + 1 into k_row. Who may still be reading it?"),
        Misconception("fetches its value anew for every row of the state", change=("k_row[i] * value", "k_row[i] * v[t * d_v + c]"),
                      ask="How many times does thread c read v[t * d_v + c]? In what can it keep the number?"),
        Misconception("fetches q and k from global memory in every thread",
                      change=[("k_row[i] * value", "k[t * d + i] * value"), ("q_row[i] * s", "q[t * d + i] * s")],
                      ask="What does one request for a single number move? How many of them do you make for a token?"),
        Misconception("waits inside `if (c < d_v)`",
                      change=[("            out[t * d_v + c] = sum;\n        }\n        __syncthreads();\n",
                               "            out[t * d_v + c] = sum;\n            __syncthreads();\n        }\n")],
                      ask="Which threads of the block never reach your barrier?")],
    hints=["Loading: `for (int i = c; i < d; i += blockDim.x)` for both rows; then `__syncthreads()` for everybody.",
           "In column c: `float s = state[i * d_v + c] + k_row[i] * value;`, keep it, and add `q_row[i] * s` to the answer.",
           "The second barrier belongs at the end of the loop, outside of any `if`."])


PREFIX = '''
__global__ void final_state(const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ out,
                            int n, int d, int d_v) {
    extern __shared__ float state[];                          // d rows of d_v floats
    for (int e = threadIdx.x; e < d * d_v; e += blockDim.x) state[e] = 0.0f;
    for (int t = 0; t < n; ++t) {
        for (int e = threadIdx.x; e < d * d_v; e += blockDim.x)
            state[e] += k[t * d + e / d_v] * v[t * d_v + e % d_v];
    }
    for (int e = threadIdx.x; e < d * d_v; e += blockDim.x) out[e] = state[e];
}
'''

ZEROING = "    for (int e = threadIdx.x; e < d * d_v; e += blockDim.x) state[e] = 0.0f;\n"

kernel_exercise(id="4.8", title="A state from nowhere", points=3, minutes=8, difficulty=2, name="final_state", kind="repair",
    card="""
    This kernel sums up `k v^T` over all tokens in shared memory. Its author tried it on a machine whose shared memory
    happened to hold zeros, and it was right. Run it under the sanitizer (the cell above does), read what it says, and repair
    it.

    - the state may be larger than the block: `d * d_v` entries, 64 threads
    - all of them must be right, whatever shared memory held before
    """, stub=PREFIX.replace(ZEROING, ""), solution=PREFIX, cases=lambda rng: [
        Case(positive(rng, 3, 2), randn(rng, 3, 3), label="3 tokens, 2 features, values of 3"),
        Case(positive(rng, 20, 7), randn(rng, 20, 5), label="20 tokens, 7 features, values of 5"),
        Case(positive(rng, 16, 16), randn(rng, 16, 16), label="16 tokens, 16 features, values of 16")],
    compare=close(atol=1e-4),
    launch=lambda k, v: Launch(grid=1, block=64, shared=4 * k.shape[1] * v.shape[1],
                               args=[k, v, out((k.shape[1], v.shape[1])), k.shape[0], k.shape[1], v.shape[1]]),
    expect=lambda k, v: k.T @ v, misconceptions=[
        Misconception("clears one entry per thread, not all of them",
                      change=(ZEROING, "    if (threadIdx.x < d * d_v) state[threadIdx.x] = 0.0f;\n"),
                      ask="A state of 16 x 16 has 256 entries and the block 64 threads. Who clears entry 100?"),
        Misconception("overwrites the state at every token instead of adding",
                      change=[(ZEROING, ""), ("state[e] += k[", "state[e] = k[")],
                      ask="After the last token, which tokens are in your state?"),
        Misconception("lets one thread clear everything while the others already add",
                      change=(ZEROING, "    if (threadIdx.x == 0) for (int e = 0; e < d * d_v; ++e) state[e] = 0.0f;\n"),
                      ask="Thread 40 adds to its entries at once. Has thread 0 cleared them by then?")],
    hints=["Which read does the sanitizer name, and which line should have written there before it?",
           "Clear with the loop that adds: the same thread, the same entries. Then nobody has to wait."])


CHUNKED = '''
def in_chunks(q, k, v, size):
    """features q, k (n, m), values v (n, d) -> (n, d), causal, normalised"""
    v = torch.cat([v, torch.ones_like(v[:, :1])], -1)
    state = torch.zeros(k.shape[1], v.shape[1])
    rows = []
    for start in range(0, len(q), size):
        a, b, c = (x[start:start + size] for x in (q, k, v))
        rows.append((a @ b.T).tril() @ c + a @ state)
        state = state + b.T @ c
    rows = torch.cat(rows)
    return rows[:, :-1] / rows[:, -1:]
'''

exercise(id="4.3", title="In chunks", kind="write", points=3, minutes=15, difficulty=3, card=r"""
    Write causal linear attention chunk by chunk: inside a chunk the masked product, between chunks the state.

    - the last chunk may be smaller; a chunk may be longer than the text
    - numerator **and** denominator have a part from inside and a part from before
    - one loop over chunks, none over tokens; no `cumsum`, and no $n \times n$ matrix
    """, given={"torch": torch}, forbid=("cumsum",), solution=CHUNKED, cases=lambda rng: [
        Case(positive(rng, 4, 2), positive(rng, 4, 2), randn(rng, 4, 1), 2, label="4 tokens in chunks of 2"),
        Case(positive(rng, 7, 3), positive(rng, 7, 3), randn(rng, 7, 2), 3, label="7 tokens in chunks of 3, the last of 1"),
        Case(positive(rng, 33, 5), positive(rng, 33, 5), randn(rng, 33, 4), 8, label="33 tokens in chunks of 8"),
        Case(positive(rng, 5, 4), positive(rng, 5, 4), randn(rng, 5, 3), 64, label="fewer tokens than a chunk"),
        Case(positive(rng, 300, 4), positive(rng, 300, 4), randn(rng, 300, 3), 100, label="300 tokens in 3 chunks")],
    call=watched, compare=close(atol=1e-4), misconceptions=[
        Misconception("adds a chunk to the state before its own queries read it", code=CHUNKED.replace(
            "        rows.append((a @ b.T).tril() @ c + a @ state)\n        state = state + b.T @ c\n",
            "        state = state + b.T @ c\n        rows.append((a @ b.T).tril() @ c + a @ state)\n"),
                      ask="A key inside the chunk is met in the masked product. Where is it met a second time?"),
        Misconception("never reads the state", change=(" + a @ state", ""),
                      ask="The first token of the second chunk sees the whole first chunk. Where does it meet those keys?"),
        Misconception("forgets the mask inside the chunk", change=(".tril()", ""),
                      ask="Does the first token of a chunk see the last one of the same chunk?"),
        Misconception("makes one chunk of the whole text", body='''
            weights = (q @ k.T).tril()
            return weights @ v / weights.sum(-1, keepdim=True)
            ''', ask="How large is your matrix for a text of 100,000 tokens? How large may it be with chunks of `size`?"),
        Misconception("lets every chunk meet all keys before it, and carries no state", body='''
            rows = []
            for start in range(0, len(q), size):
                end = start + size
                weights = (q[start:end] @ k[:end].T).tril(start)
                rows.append(weights @ v[:end] / weights.sum(-1, keepdim=True))
            return torch.cat(rows)
            ''', ask="The last of 1,000 chunks meets the keys of all. Which matrix holds what it needs of the first 999?"),
        Misconception("makes the state anew for every chunk", body='''
            v = torch.cat([v, torch.ones_like(v[:, :1])], -1)
            rows = []
            for start in range(0, len(q), size):
                a, b, c = (x[start:start + size] for x in (q, k, v))
                rows.append((a @ b.T).tril() @ c + a @ (k[:start].T @ v[:start]))
            rows = torch.cat(rows)
            return rows[:, :-1] / rows[:, -1:]
            ''', ask="Before chunk 999 you add up 998 chunks again. What was the state before chunk 998?"),
        Misconception("walks token by token, whatever the size of a chunk", body='''
            state, normaliser, rows = torch.zeros(k.shape[1], v.shape[1]), torch.zeros(k.shape[1]), []
            for t in range(len(q)):
                state = state + k[t][:, None] * v[t]
                normaliser = normaliser + k[t]
                rows.append(q[t] @ state / (q[t] @ normaliser))
            return torch.stack(rows)
            ''', ask="With 300 tokens in chunks of 100, how many times should your loop run?"),
        Misconception("divides by the weights inside the chunk only", body='''
            state, rows = torch.zeros(k.shape[1], v.shape[1]), []
            for start in range(0, len(q), size):
                a, b, c = (x[start:start + size] for x in (q, k, v))
                weights = (a @ b.T).tril()
                rows.append((weights @ c + a @ state) / weights.sum(-1, keepdim=True))
                state = state + b.T @ c
            return torch.cat(rows)
            ''', ask="The numerator holds keys of earlier chunks. Does your denominator?"),
        Misconception("does not carry the state from chunk to chunk", change=("state = state + b.T @ c", "state = b.T @ c"),
                      ask="With three chunks, what does the third know of the first?"),
        Misconception("adds two averages", body='''
            v = torch.cat([v, torch.ones_like(v[:, :1])], -1)
            state, rows = torch.zeros(k.shape[1], v.shape[1]), []
            for start in range(0, len(q), size):
                a, b, c = (x[start:start + size] for x in (q, k, v))
                inside, before = (a @ b.T).tril() @ c, a @ state
                rows.append(inside[:, :-1] / inside[:, -1:])
                if start:
                    rows[-1] = rows[-1] + before[:, :-1] / before[:, -1:]
                state = state + b.T @ c
            return torch.cat(rows)
            ''', ask="The weights inside the chunk and those before it share the weight 1. To what do yours add up?"),
        Misconception("drops the smaller chunk at the end", change=("range(0, len(q), size)", "range(0, len(q) - size + 1, size)"),
                      ask="With 7 tokens in chunks of 3, which chunk holds token 6?"),
        Misconception("hides the token itself", change=(".tril()", ".tril(-1)"),
                      ask="Under the causal rule of this course, does a query see its own key?")],
    hints=["Give `v` one more column of ones: its output is the denominator, so both sums are made by the same two products.",
           "Inside: `(a @ b.T).tril() @ c`. Before: `a @ state`. Then the state takes the chunk in."])


def delta_cases(rng):
    unit = torch.nn.functional.normalize
    yield Case(torch.zeros(2, 1), torch.tensor([1.0, 0.0]), torch.tensor([3.0]), 1.0, 1.0, label="an empty state")
    yield Case(randn(rng, 4, 3), unit(randn(rng, 4), dim=0), randn(rng, 3), 1.0, 1.0, label="beta 1: overwrite")
    yield Case(randn(rng, 4, 3), unit(randn(rng, 4), dim=0), randn(rng, 3), 0.4, 1.0, label="beta 0.4: part of the way")
    yield Case(randn(rng, 3, 5), unit(randn(rng, 3), dim=0), randn(rng, 5), 0.7, 0.8, label="beta 0.7, decay 0.8")
    yield Case(randn(rng, 3, 2), 0.5 * unit(randn(rng, 3), dim=0), randn(rng, 2), 1.0, 1.0, label="a key of length 0.5")

exercise(id="4.6", title="Replace, do not pile up", kind="write", points=2, minutes=8, difficulty=3, card=r"""
    Write one update of the delta rule with a *gate* $a \le 1$, by which the old state fades first:
    $S \leftarrow a S$, then $S \leftarrow S + \beta\, k\, (v - k^\top S)$. In the code `decay` is $a$.

    - with $|k| = 1$, $\beta = 1$ and $a = 1$ the new state returns exactly $v$ for $k$
    - the state fades **before** it is asked what it returns for $k$
    - return a new state; do not change the one that was handed in
    """, given={"torch": torch}, solution='''
    def overwrite(state, k, v, beta, decay):
        """state (m, d), key k (m,), value v (d,), beta, decay: numbers -> the new state (m, d)"""
        state = decay * state
        return state + beta * k[:, None] * (v - k @ state)[None, :]
    ''', cases=delta_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("adds without correcting", change=("(v - k @ state)", "v"),
                      ask="The state may return something for this key already. What does it return after your update?"),
        Misconception("asks the state before it fades", change=("state = decay * state\n    return", "return decay *"),
                      ask="With decay 0.8, what does the faded state still return for k? Is that what you subtract?"),
        Misconception("lets the new value fade as well", body="return decay * (state + beta * k[:, None] * (v - k @ state)[None, :])",
                      ask="With beta = 1 and |k| = 1 the new state should return exactly v for k. What does yours return with decay 0.8?"),
        Misconception("does not let the state fade", change=("state = decay * state", "state = state.clone()"),
                      ask="What does your function do with its argument `decay`?"),
        Misconception("divides by the length of the key", change=("beta * k[:, None]", "beta / (k @ k) * k[:, None]"),
                      ask="Is there a |k| in the formula? What does a short key write?"),
        Misconception("corrects with the sign turned round", change=("(v - k @ state)", "(k @ state - v)"),
                      ask="After the update the state should return v for k. In which direction must it move?"),
        Misconception("writes all of the difference, whatever beta is", change=("beta * k[:, None]", "k[:, None]"),
                      ask="With beta = 0 nothing should be written. What does your update do then?"),
        Misconception("scales the value by beta, but not the correction", change=(
            "beta * k[:, None] * (v - k @ state)", "k[:, None] * (beta * v - k @ state)"),
                      ask="With beta = 0 nothing should be written. What does your update do then?")],
    hints=["`k @ state` is what the state returns for `k`, shape `(d,)`.",
           "The difference to `v`, times `beta`, goes in at `k`: an outer product."])


exercise(id="4.11", title="How long does a state remember?", kind="predict", points=1, minutes=4, difficulty=2, card=r"""
    A gated state fades by the factor $a = 0.98$ at every token. After how many tokens is **half** of what was written left?
    The nearest whole number will do.
    """, name="half_life", answer=34, tolerance=0.5, given={"math": math}, misconceptions=[
        Misconception("lets it fade in a straight line", value=25,
                      ask="After one token 0.98 is left, after two 0.98 times 0.98. Is 0.02 lost at every token?"),
        Misconception("gives the mean memory 1 / (1 - a)", value=50,
                      ask="At 1 / (1 - a) tokens the fraction 1/e is left. Is that a half?"),
        Misconception("rounds up, to the first token after which less than half is left", value=35,
                      ask="After 34 tokens 0.503 is left, after 35 tokens 0.493. Which of them is nearer to a half?"),
        Misconception("takes a logarithm to base 2 for the natural one", value=math.log(2) / -math.log2(0.98),
                      ask="Solve 0.98^t = 1/2: is the logarithm on both sides one and the same?")],
    hints=["Solve $a^t = 1/2$.", "$t = \\ln 2 / (-\\ln 0.98)$, and $-\\ln 0.98$ is a little more than 0.02."])


def gate_cases(rng):
    half = torch.full((3, 1), 0.5)
    yield Case(torch.ones(3, 1), torch.ones(3, 1), half, label="one channel that halves at every token")
    yield Case(randn(rng, 5, 3), randn(rng, 5, 3), 0.9 + 0.1 * torch.rand(5, 3, generator=rng), label="gates near 1")
    yield Case(randn(rng, 64, 4), randn(rng, 64, 4), torch.tensor([0.02, 0.5, 0.99, 1.0]).expand(64, 4),
               label="a chunk of 64, one gate of 0.02")
    yield Case(randn(rng, 33, 2), randn(rng, 33, 2), 1e-4 ** torch.rand(33, 2, generator=rng), label="gates down to 0.0001")
    yield Case(randn(rng, 64, 2), randn(rng, 64, 2), torch.tensor([1e-9, 0.9]).expand(64, 2),
               label="a chunk of 64, one gate of 1e-9: the product is 0 in float64 too")

exercise(id="4.12", title="A quotient that overflows", kind="repair", points=3, minutes=10, difficulty=4, card=r"""
    With a gate per channel, token $s$ weighs $\sum_i q_t[i]\,(A_t[i] / A_s[i])\,k_s[i]$ for a query $t \ge s$, where $A_t$ is the product
    of the gates up to token $t$, its own included. The function below is this sum, divided among two factors. While gates are near 1
    it is right. With strong gates it returns infinities or NaN. Repair it.

    - gates may be so strong that their product over the chunk is 0, in float64 too
    - a token does not fade at its own place: the weight of $s = t$ is $q_t \cdot k_t$
    - an array of (n, n, d) numbers is fine here
    """, given={"torch": torch}, stub='''
    def products(q, k, gates):
        """q, k (n, d), gates (n, d) in (0, 1] -> (n, n): what token s still weighs for query t; 0 for s > t"""
        total = gates.cumprod(0)
        return ((q * total) @ (k / total).T).tril()
    ''', solution='''
    def products(q, k, gates):
        """q, k (n, d), gates (n, d) in (0, 1] -> (n, n): what token s still weighs for query t; 0 for s > t"""
        logs = gates.log().cumsum(0)
        seen = torch.ones(len(q), len(q), dtype=torch.bool).tril()[..., None]
        faded = (logs[:, None] - logs[None]).masked_fill(~seen, -torch.inf).exp()
        return (q[:, None] * faded * k[None]).sum(-1)
    ''', cases=gate_cases, compare=close(atol=1e-4), misconceptions=[
        Misconception("keeps the quotient from overflowing by a smallest number", body='''
            total = gates.cumprod(0)
            return ((q * total) @ (k / total.clamp(min=1e-20)).T).tril()
            ''', ask="Two neighbours late in the chunk: what is A_t / A_s, and what is it if both are replaced by the same smallest number?"),
        Misconception("takes float64 and keeps the quotient", body='''
            total = gates.double().cumprod(0)
            return ((q * total) @ (k / total).T).tril().float()
            ''', ask="A gate of 1e-9 at each of 64 tokens makes 1e-576. What is that in float64?"),
        Misconception("takes one gate for all channels", change=("gates.log()", "gates.mean(-1, keepdim=True).log()"),
                      ask="One channel has a gate of 0.02, another of 1. What is left of each after ten tokens?"),
        Misconception("lets a token fade at its own place", change=("logs[None])", "logs[None] + gates.log()[None])"),
                      ask="A token is written after the state has faded. What does it weigh for its own query?"),
        Misconception("shows later tokens", change=(".masked_fill(~seen, -torch.inf)", ""),
                      ask="For s > t the difference of logarithms is positive. Does query t see token s?"),
        Misconception("subtracts the logarithms the wrong way round", change=("logs[:, None] - logs[None]", "logs[None] - logs[:, None]"),
                      ask="A weight should shrink with the distance. Which logarithm is the smaller one, the query's or the earlier token's?")],
    hints=["$A_t / A_s$ itself is at most 1. Only its two halves leave the range of floats.",
           "`logs[:, None] - logs[None]` has shape (n, n, d): query, token, channel. Take the exponential last.",
           "Set the difference to -inf where s > t, before the exponential."])
