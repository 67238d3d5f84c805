"""Exercises of chapter 6. The debugging gallery is one small kernel, whole in `GALLERY_KERNEL`, with one mistake each."""
import itertools
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, kernel_exercise, out, whole


def _one_pass_cases(rng):
    for n, d, v_dim, spread in [(2, 2, 1, 1.0), (1, 3, 2, 1.0), (7, 4, 3, 1.0), (100, 8, 5, 1.0), (20, 4, 4, 300.0)]:
        yield Case(spread * torch.randn(d, generator=rng), torch.randn(n, d, generator=rng),
                   torch.randn(n, v_dim, generator=rng), 0.5, label=f"{n} keys, scores of size about {spread:g}")
    yield Case(torch.randn(4, generator=rng), torch.randn(40, 4, generator=rng), torch.randn(40, 1024, generator=rng), 0.5,
               label="40 keys, values of width 1024")
    keys = torch.arange(1.0, 7.0)[:, None] * torch.ones(3)
    values = torch.randn(6, 2, generator=rng)
    yield Case(torch.full((3,), 40.0), keys, values, 1.0, label="the scores grow from key to key")
    yield Case(torch.full((3,), 40.0), keys.flip(0), values, 1.0, label="the scores fall from key to key")
    yield Case(torch.full((3,), 40.0), -2 - keys, values, 1.0, label="all scores are far below zero")
    yield Case(torch.full((3,), 40.0), torch.tensor([[0.5], [-7.0]]).expand(2, 3), values[:2], 1.0,
               label="a small score, then one that is far below zero")

def _one_by_one(f, q, keys, values, scale):
    """f with pairs that come once; whoever keeps them, or copies of them, is noticed by the numbers still in memory.

    Those of tensors are counted; those of Python show where values are wide, as 2 bytes per number (torch itself: 500)."""
    import statistics
    import tracemalloc
    import weakref
    from course_lib.exercises.running.watch import OperationMode
    made, room = {}, 16 * (keys.shape[1] + values.shape[1]) + 64
    wide = values.shape[1] >= 1024 and not tracemalloc.is_tracing()

    class Watch(OperationMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                made[id(result)] = weakref.ref(result)          # one tensor, however often it is changed in place
            return result

    def pairs():
        sizes = []
        for key, value in zip(keys, values):
            for number in [number for number, old in made.items() if old() is None]:
                del made[number]
            if wide:
                sizes.append(tracemalloc.get_traced_memory()[0])
            grows = len(sizes) > 30 and statistics.median(b - a for a, b in zip(sizes[9:], sizes[10:])) >= 2 * len(value)
            if grows or sum(kept.numel() for kept in (old() for old in made.values()) if kept is not None) > room:
                raise ValueError("numbers of the pairs that came before are still kept")
            yield (shown := (key.clone(), value.clone()))
            if not (shown[0].equal(key) and shown[1].equal(value)):
                raise ValueError("this changes a key or a value in place, and it may be somebody else's")

    if wide:
        tracemalloc.start()
    try:
        with Watch():
            return f(q, pairs(), scale)
    finally:
        if wide:
            tracemalloc.stop()

exercise(id="6.2", cases=_one_pass_cases, call=_one_by_one, compare=close(atol=1e-4),
    properties=[("the output is no smaller than the smallest value and no larger than the largest",
                 lambda got, case: bool((got <= case.args[2].amax(0) + 1e-3).all() and
                                        (got >= case.args[2].amin(0) - 1e-3).all()))])


def _merge_cases(rng):
    def state(n, v_dim, empty=()):
        m, l = 5 * torch.randn(n, generator=rng), 1 + torch.rand(n, generator=rng)
        o = torch.randn(n, v_dim, generator=rng)
        for i in empty:
            m[i], l[i], o[i] = -math.inf, 0.0, 0.0
        return m, l, o
    yield Case(state(1, 1), state(1, 1), label="one query")
    yield Case(state(4, 3), state(4, 3), label="four queries")
    yield Case(state(3, 2, empty=[0]), state(3, 2, empty=[1]), label="queries that one side has shown no key")
    yield Case(state(3, 2, empty=[0, 2]), state(3, 2, empty=[0]), label="a query that neither side has shown a key")
    m, l, o = state(2, 2)
    yield Case((m + 400, l, o), state(2, 2), label="maxima 400 apart")

exercise(id="6.3", cases=_merge_cases, compare=close(atol=1e-5, rtol=1e-4),
    properties=[("nothing is NaN", lambda got, case: not any(bool(x.isnan().any()) for x in got))])


def _tile_loop_cases(rng):
    for n_q, n_k, d, tile, causal in [(1, 2, 1, 1, False), (2, 4, 2, 2, True), (3, 7, 4, 2, False), (5, 5, 3, 2, True),
                                      (4, 33, 8, 16, True), (9, 20, 5, 32, True), (6, 31, 4, 5, False), (3, 40, 4, 4, False)]:
        q, k, v = (torch.randn(n, d, generator=rng) for n in (n_q, n_k, n_k))
        yield Case(3 * q, k, v, 0.7, tile, causal,
                   label=f"{n_q} queries, {n_k} keys in tiles of {tile}{', causal' if causal else ''}")
    q, v = 10 + torch.rand(4, 3, generator=rng), torch.randn(6, 2, generator=rng)
    yield Case(torch.tensor([[1.0], [300.0]]), torch.ones(2, 1), v[:2], 1.0, 2, False, label="one query scores far more than the other")
    k = torch.rand(6, 3, generator=rng)
    yield Case(q, k - 20, v, 0.7, 2, False, label="all scores are far below zero")
    k[-1] += 20
    yield Case(q, k, v, 0.7, 3, True, label="causal, and the last key has by far the largest score")
    yield Case(torch.full((4, 1), 128.0), torch.full((6, 1), -128.0), v, 1.0, 2, True, label="causal, and every score is -16,384")

def _tile_by_tile(f, q, k, v, scale, tile_k, causal):
    """f, watched: more scores, or exponentials of scores, than one tile has are refused."""
    from course_lib.exercises.running.watch import OperationMode

    class Watch(OperationMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            name, result = operation.overloadpacket.__name__, operation(*args, **(kwargs or {}))
            if name in ("mm", "bmm", "addmm", "baddbmm", "sum") and result.numel() > most:
                raise ValueError(f"this makes {result.numel()} scores at once: a tile has {len(q) * tile_k}")
            if name in ("exp", "exp_", "exp2", "logsumexp", "sigmoid") and args[0].numel() > most:
                raise ValueError(f"this takes the exponential of {args[0].numel()} scores at once: a tile has {len(q) * tile_k}")
            return result

    most = len(q) * (max(tile_k, v.shape[1]) + 1)
    with Watch():
        return f(q, k, v, scale, tile_k, causal)

def _rows_and_lse(got, want, case):
    """Within what a float32 log-sum-exp of this size, and weights made from it, can be off."""
    return close(atol=1e-4 + 2.0**-21 * float(want[1].nan_to_num(0, 0, 0).abs().max()))(got, want, case)

exercise(id="6.4", cases=_tile_loop_cases, call=_tile_by_tile, compare=_rows_and_lse,
    properties=[("nothing is NaN", lambda got, case: not any(bool(x.isnan().any()) for x in got))])


def _traffic_cases(rng):
    for n, d, tile in [(4, 1, 2), (64, 16, 16), (1024, 64, 32), (1024, 64, 512), (4096, 128, 64), (96, 24, 8),
                       ((tile := 2 ** whole(rng, 1, 6)) * whole(rng, 3, 30), whole(rng, 2, 100), tile)]:
        for order in ("standard", "query-outer", "key-outer"):
            yield Case(n, d, tile, order, label=f"n={n}, d={d}, tile={tile}, {order}")

exercise(id="6.5", cases=_traffic_cases, compare=exact())


def _tile_count_cases(rng):
    for sizes in [(2, 2, 1, 1), (4, 4, 2, 2), (64, 64, 16, 16), (10, 10, 4, 4), (7, 7, 7, 2), (3, 9, 2, 3), (8, 4, 2, 2),
                  (1, 33, 1, 16), (100, 100, 32, 16),
                  *((whole(rng, 9, 90), whole(rng, 9, 90), whole(rng, 2, 20), whole(rng, 2, 20)) for _ in range(3))]:
        n_q, n_k, tile_q, tile_k = sizes
        yield Case(*sizes, label=f"{n_q} x {n_k} in tiles of {tile_q} x {tile_k}")

exercise(id="6.6", cases=_tile_count_cases, compare=exact())


GALLERY_KERNEL = """\
constexpr int D = 8, TILE = 16;

// A tile of rows of x, side by side threads reading side by side numbers; rows beyond n become 0.
__device__ void load(float (*tile)[D + 1], const float* __restrict__ x, int first, int n)
{
    for (int e = threadIdx.x; e < TILE * D; e += TILE) {
        const int row = e / D, c = e % D;
        tile[row][c] = first + row < n ? x[(first + row) * D + c] : 0.0f;
    }
}

// Causal attention for one head of n rows. Grid n / TILE, block TILE: thread `row` has query i.
__global__ void flash(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                      float* __restrict__ out, int n, float scale)
{
    __shared__ float q_tile[TILE][D + 1], k_tile[TILE][D + 1], v_tile[TILE][D + 1];
    const int row = threadIdx.x, i = blockIdx.x * TILE + row;
    load(q_tile, q, blockIdx.x * TILE, n);
    float m = -INFINITY, l = 0.0f, o[D] = {};

    for (int k0 = 0; k0 < n; k0 += TILE) {
        load(k_tile, k, k0, n);
        load(v_tile, v, k0, n);
        __syncthreads();
        float s[TILE], m_new = m;
        for (int j = 0; j < TILE; j++) {
            s[j] = 0.0f;
            for (int c = 0; c < D; c++) s[j] += q_tile[row][c] * k_tile[j][c];
            s[j] = k0 + j <= i ? scale * s[j] : -INFINITY;
            m_new = fmaxf(m_new, s[j]);
        }
        const float shrink = expf(m - m_new);
        l *= shrink;
        for (int c = 0; c < D; c++) o[c] *= shrink;
        for (int j = 0; j < TILE; j++) {
            const float p = expf(s[j] - m_new);
            l += p;
            for (int c = 0; c < D; c++) o[c] += p * v_tile[j][c];
        }
        m = m_new;
        __syncthreads();
    }
    if (i < n)
        for (int c = 0; c < D; c++) out[i * D + c] = o[c] / l;
}
"""

_MISTAKES = {                           # letter of the list in 6.8 -> what was changed
    "a": ("float s[TILE], m_new = m;", "float s[TILE], m_new = -INFINITY;"),
    "b": ("        m = m_new;\n        __syncthreads();\n", "        m = m_new;\n"),
    "c": ("for (int c = 0; c < D; c++) s[j] +=", "for (int c = 0; c <= D; c++) s[j] +="),
    "d": [("expf(m - m_new)", "expf(scale * (m - m_new))"), ("expf(s[j] - m_new)", "expf(scale * (s[j] - m_new))")],
    "e": ("        for (int c = 0; c < D; c++) o[c] *= shrink;\n", "")}
_ORDER = "debac"                        # kernel 1 has mistake d, and so on

def gallery(number: int) -> str:
    """The source of kernel 1 to 5 of the debugging gallery, each with one mistake; 0 is the correct kernel."""
    text = GALLERY_KERNEL
    if number:
        changes = _MISTAKES[_ORDER[number - 1]]
        for old, new in [changes] if isinstance(changes[0], str) else changes:
            text = text.replace(old, new)
    return text

def _kernel_cases(rng):
    for n, spread in [(3, 1.0), (16, 1.0), (33, 1.0), (48, 2.0), (64, 1.0)]:
        q, k, v = (torch.randn(n, 8, generator=rng) for _ in range(3))
        yield Case(spread * q, k, v, 0.35, label=f"{n} rows")
    q, k, v = torch.full((40, 8), 4.0), torch.arange(40.0)[:, None] * torch.ones(8), torch.randn(40, 8, generator=rng)
    yield Case(q, k, v, 0.35, label="the scores grow from key to key")
    yield Case(q, -k, v, 0.35, label="the scores fall from key to key")
    yield Case(torch.full((20, 8), 64.0), torch.full((20, 8), -32.0), v[:20], 1.0, label="every score is -16,384")

def _kernel_launch(q, k, v, scale):
    return Launch(grid=-(-len(q) // 16), block=16, args=[q, k, v, out(q.shape), len(q), scale])

def _kernel_expect(q, k, v, scale):
    scores = scale * q.double() @ k.double().T
    return (scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf).softmax(-1) @ v.double()).float()

def _kernel_traffic(q, k, v, scale):
    rounds = -(-len(q) // 16)
    return 4 * (q.numel() + 2 * rounds * q.numel()) + 32 * q.numel()        # out is written with a stride

_BEFORE = GALLERY_KERNEL.partition("        float s[TILE]")[0]
_AFTER = GALLERY_KERNEL.partition("        m = m_new;\n")[2]

kernel_exercise(id="6.7", stub=_BEFORE + "        // your code: update m, l and o with this tile\n" + _AFTER,
    solution=GALLERY_KERNEL, cases=_kernel_cases, launch=_kernel_launch, expect=_kernel_expect,
    compare=close(atol=1e-4), traffic=_kernel_traffic)


def _two_exchanged():
    """Answers with three letters right and two exchanged, except those that the exercise names by what was confused."""
    named = {"dabec", "edbac", "decab"}
    for one, other in itertools.combinations(range(5), 2):
        letters = list(_ORDER)
        letters[one], letters[other] = letters[other], letters[one]
        if "".join(letters) not in named:
            yield Misconception(f"exchanges the mistakes of kernels {one + 1} and {other + 1}", value="".join(letters),
                                ask="Which three letters rest on what the sanitizer or a NaN says, and which two on the numbers?")

exercise(id="6.8", answer=_ORDER, misconceptions=[*_two_exchanged(),
    Misconception("confuses the forgotten maximum with the sums that are not rescaled", value="dabec",
                  ask="One of the two makes NaN out of a tile that is masked whole. Which?"),
    Misconception("confuses the scale applied twice with the sums that are not rescaled", value="edbac",
                  ask="Which of the two does no harm when the scale is 1?"),
    Misconception("confuses the missing barrier with the loop that is one too long", value="decab",
                  ask="The sanitizer has two kinds for these: who wrote last, and whether anybody ever wrote. Which is which?")])


kernel_exercise(id="6.9", stub=gallery(_ORDER.index("a") + 1), solution=GALLERY_KERNEL, cases=_kernel_cases,
    launch=_kernel_launch, expect=_kernel_expect, compare=close(atol=1e-4))


def _fragment_cases(rng):
    for lane, register, half in [(0, 0, 0), (0, 0, 1), (1, 0, 0), (4, 0, 0), (0, 1, 0), (0, 2, 0), (31, 3, 1), (22, 1, 1), (13, 2, 0)]:
        yield Case(lane, register, half, label=f"lane {lane}, register {register}, half {half}")
    for lane, register, half in zip(*(torch.randint(0, n, (24,), generator=rng).tolist() for n in (32, 4, 2))):
        yield Case(lane, register, half, label=f"lane {lane}, register {register}, half {half}")

exercise(id="6.11", cases=_fragment_cases, compare=exact())


def _backward_cases(rng):
    for n_q, n_k, d, v_dim in [(1, 2, 1, 1), (2, 3, 2, 2), (5, 4, 3, 6), (8, 33, 16, 7)]:
        q, k, grad_out = (torch.randn(*size, generator=rng) for size in ((n_q, d), (n_k, d), (n_q, v_dim)))
        lse = (0.6 * q @ k.mT).logsumexp(-1)
        yield Case(q, k, grad_out, lse, 0.6, label=f"{n_q} queries, {n_k} keys")
    yield Case(q, k[8:16].clone(), grad_out, lse, 0.6, label="8 queries, a tile of 8 of 33 keys")
    q, k, grad_out = (at + torch.randn(n, 2, generator=rng) for n, at in ((3, 15), (5, 10), (3, 0)))
    yield Case(q, k, grad_out, (0.6 * q @ k.mT).logsumexp(-1), 0.6, label="scores of a hundred and more")

exercise(id="6.12", cases=_backward_cases, compare=close(atol=1e-4))


def _score_gradient_cases(rng):
    for n_q, n_k, tile, v_dim in [(1, 2, 1, 1), (2, 3, 2, 2), (5, 4, 4, 3), (7, 33, 16, 16)]:
        p = (2 * torch.randn(n_q, n_k, generator=rng)).softmax(-1)
        v, grad_out = torch.randn(n_k, v_dim, generator=rng), torch.randn(n_q, v_dim, generator=rng)
        yield Case(p[:, :tile].clone(), v[:tile].clone(), p @ v, grad_out,
                   label=f"{n_q} queries, a tile of {tile} of {n_k} keys")

exercise(id="6.13", cases=_score_gradient_cases, compare=close(atol=1e-5))


def _backward_moved_cases(rng):
    for n, d, tile in [(4, 1, 4), (4, 2, 2), (64, 16, 16), (96, 8, 32), (1024, 64, 256)]:
        yield Case(n, d, tile, label=f"n = {n}, d = {d}, tiles of {tile}")
    tile, tiles, d = (int(torch.randint(2, 40, (), generator=rng)) for _ in range(3))
    yield Case(tile * tiles, d, tile, label=f"n = {tile * tiles}, d = {d}, tiles of {tile}")

exercise(id="6.14", cases=_backward_moved_cases, compare=exact())
