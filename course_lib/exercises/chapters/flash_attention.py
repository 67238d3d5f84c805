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
    yield Case(torch.full((3,), 40.0), -keys, values, 1.0, label="all scores are far below zero")
    yield Case(torch.full((3,), 40.0), torch.tensor([[0.5], [-7.0]]).expand(2, 3), values[:2], 1.0,
               label="a small score, then one that is far below zero")

def _one_by_one(f, q, keys, values, scale):
    """f with pairs that come once; whoever keeps them, or copies of them, is noticed by the numbers still in memory.

    Those of tensors are counted. Those of Python (lists, floats, bytes) are noticed where values are wide: memory that
    grows from pair to pair by 2 bytes per number of a value. Torch itself grows it by some 500 bytes."""
    import statistics
    import tracemalloc
    import weakref
    from torch.utils._python_dispatch import TorchDispatchMode
    made, room = {}, 16 * (keys.shape[1] + values.shape[1]) + 64
    wide = values.shape[1] >= 1024 and not tracemalloc.is_tracing()

    class Watch(TorchDispatchMode):
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
            yield key.clone(), value.clone()

    if wide:
        tracemalloc.start()
    try:
        with Watch():
            return f(q, pairs(), scale)
    finally:
        if wide:
            tracemalloc.stop()

exercise(id="6.2", title="One pass over the keys", kind="write", points=2, minutes=8, difficulty=2, card="""
        Write `attend_once`: the attention output of one query, from keys and values that come **one pair at a time**.

        - `pairs` can be walked through once; keep none of them: in no list, no tensor, and not as plain numbers
        - the score of a key is `scale * (q @ key)`
        - remember only the largest score, a sum, and an output that is not yet divided; no `softmax`, `logsumexp` or
          `logaddexp`
        - when the largest score changes, what was summed before must be rescaled
        - scores of several hundred, of either sign, must do no harm""", given={"torch": torch, "math": math}, solution='''
        def attend_once(q, pairs, scale):
            """q (d,), pairs of key (d,) and value (v_dim,) -> output (v_dim,)"""
            m, l, o = torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0)
            for key, value in pairs:
                s = scale * (q @ key)
                m_new = torch.maximum(m, s)
                shrink, p = torch.exp(m - m_new), torch.exp(s - m_new)
                l = shrink * l + p
                o = shrink * o + p * value
                m = m_new
            return o / l
        ''', cases=_one_pass_cases, call=_one_by_one, compare=close(atol=1e-4),
    forbid=("softmax", "scaled_dot_product_attention", "logsumexp"),
    properties=[("the output is no smaller than the smallest value and no larger than the largest",
                 lambda got, case: bool((got <= case.args[2].amax(0) + 1e-3).all() and
                                        (got >= case.args[2].amin(0) - 1e-3).all()))], misconceptions=[
        Misconception("does not subtract the largest score", change=[("torch.maximum(m, s)", "torch.tensor(0.0)"),
                                                                      ("torch.tensor(-math.inf)", "torch.tensor(0.0)")],
                      ask="What is exp(300) in float32?"),
        Misconception("starts the largest score at 0, not at minus infinity",
                      change=("torch.tensor(-math.inf)", "torch.tensor(0.0)"),
                      ask="If every score is below -200, what is `exp(s - 0)` in float32, and what is your sum?"),
        Misconception("leaves out the scale", change=("s = scale * (q @ key)", "s = q @ key"),
                      ask="What does the argument `scale` multiply?"),
        Misconception("does not divide by the sum", change=("return o / l", "return o"),
                      ask="If all values are 1, what must the output be?"),
        Misconception("does not rescale the output when the largest score changes",
                      change=("o = shrink * o + p * value", "o = o + p * value"),
                      ask="Relative to which maximum was the output summed so far, and relative to which is the new term?"),
        Misconception("does not rescale the sum when the largest score changes", change=("l = shrink * l + p", "l = l + p"),
                      ask="Relative to which maximum was the sum so far, and relative to which is the new term?"),
        Misconception("keeps the pairs, in a list or in a tensor that grows", body='''
            pairs = list(pairs)
            s = scale * torch.stack([q @ key for key, _ in pairs])
            p = torch.exp(s - s.max())
            return p @ torch.stack([value for _, value in pairs]) / p.sum()
            ''', ask="For a million keys, how many numbers do you keep? How many are `m`, `l` and `o`?"),
        Misconception("keeps the scores and values as plain numbers", body='''
            kept = {}
            for key, value in pairs:
                kept[len(kept)] = float(scale * (q @ key)), value.tolist()
            s, v = (torch.tensor(x) for x in zip(*kept.values()))
            p = torch.exp(s - s.max())
            return p @ v / p.sum()
            ''', ask="Is a number outside a tensor free? For a million keys, how many do you keep?"),
        Misconception("measures each key against itself, not against the largest score so far",
                      change=("torch.maximum(m, s)", "s"),
                      ask="What happens to `exp(m - m_new)` when a score is far below the one before it?")],
    hints=["Keep `m`, `l` and `o`, starting from minus infinity, 0 and 0.",
           "A new maximum `m_new` turns `exp(s - m)` into `exp(s - m_new)`: multiply by `exp(m - m_new)`.",
           "`l` and `o` are both sums of such terms; both are rescaled, and only the end divides."])


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

exercise(id="6.3", title="Merge two halves", kind="write", points=2, minutes=7, difficulty=2, card="""
        Two workers have each looked at some of the keys. Each hands you `(m, l, o)`: for every query the largest score,
        the sum of `exp(score - m)`, and the sum of `exp(score - m) * value`. Write `merge`, which gives the state of
        all keys together.

        - `m` and `l` have shape `(n,)`, `o` has shape `(n, v_dim)`
        - the result has the same form: nothing is divided yet
        - where a worker saw no key for a query, its state is `(-inf, 0, 0)`; no NaN may arise, even if that
          holds for both""", given={"torch": torch, "math": math}, solution='''
        def merge(a, b):
            """(m, l, o) of some keys, (m, l, o) of others -> (m, l, o) of all"""
            m = torch.maximum(a[0], b[0])
            base = torch.where(m == -math.inf, 0.0, m)
            weight_a, weight_b = torch.exp(a[0] - base), torch.exp(b[0] - base)
            l = weight_a * a[1] + weight_b * b[1]
            o = weight_a[:, None] * a[2] + weight_b[:, None] * b[2]
            return m, l, o
        ''', cases=_merge_cases, compare=close(atol=1e-5, rtol=1e-4),
    properties=[("nothing is NaN", lambda got, case: not any(bool(x.isnan().any()) for x in got))], misconceptions=[
        Misconception("adds sums that were measured from different maxima",
                      change=[("torch.exp(a[0] - base)", "torch.ones_like(m)"),
                              ("torch.exp(b[0] - base)", "torch.ones_like(m)")],
                      ask="`l` is a sum of `exp(score - m)`: with which `m`?"),
        Misconception("rescales the outputs but not the sums", change=("weight_a * a[1] + weight_b * b[1]", "a[1] + b[1]"),
                      ask="The sum is a sum of `exp(score - m)`: with which `m`?"),
        Misconception("exchanges the two weights",
                      change=("torch.exp(a[0] - base), torch.exp(b[0] - base)", "torch.exp(b[0] - base), torch.exp(a[0] - base)"),
                      ask="The side whose maximum is the new one must not change. Which of your weights is 1?"),
        Misconception("turns the difference of the maxima round",
                      change=("torch.exp(a[0] - base), torch.exp(b[0] - base)", "torch.exp(base - a[0]), torch.exp(base - b[0])"),
                      ask="The new maximum is the larger one. Should the terms of the other side grow or shrink?"),
        Misconception("takes the smaller maximum", change=("torch.maximum(a[0], b[0])", "torch.minimum(a[0], b[0])"),
                      ask="With maxima 400 apart: what is `exp` of the other side's difference?"),
        Misconception("rescales the sums but not the outputs",
                      change=("weight_a[:, None] * a[2] + weight_b[:, None] * b[2]", "a[2] + b[2]"),
                      ask="The output is a sum of `exp(score - m) * value`: with which `m`?"),
        Misconception("makes NaN out of -inf minus -inf", change=("torch.where(m == -math.inf, 0.0, m)", "m"),
                      ask="What is `m_a - m` if neither side has seen a key?"),
        Misconception("divides the output by the sum, so that the result cannot be merged again",
                      change=("return m, l, o", "return m, l, o / l[:, None]"),
                      ask="Your result is somebody else's `a`. What must its `o` be?")],
    hints=["The new maximum is the larger of the two; each side is rescaled to it, as a single key was in 6.2.",
           "`exp(-inf - m)` is 0 for every finite `m`. What could you subtract where `m` is not finite?"])


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
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            name, result = operation.overloadpacket.__name__, operation(*args, **(kwargs or {}))
            if name in ("mm", "bmm", "addmm", "baddbmm", "sum") and result.numel() > most:
                raise ValueError(f"makes {result.numel()} scores at once: a tile has {len(q) * tile_k}")
            if name in ("exp", "exp_", "exp2", "logsumexp", "sigmoid") and args[0].numel() > most:
                raise ValueError(f"takes the exponential of {args[0].numel()} scores at once: a tile has {len(q) * tile_k}")
            return result

    most = len(q) * (max(tile_k, v.shape[1]) + 1)
    with Watch():
        return f(q, k, v, scale, tile_k, causal)

def _rows_and_lse(got, want, case):
    """Within what a float32 log-sum-exp of this size, and weights made from it, can be off."""
    return close(atol=1e-4 + 2.0**-21 * float(want[1].abs().max()))(got, want, case)

exercise(id="6.4", title="The tile loop", kind="write", points=3, minutes=14, difficulty=3, card="""
        Write the loop of the forward pass for one tile of queries. It reads keys and values in tiles of `tile_k`.

        - the last tile may be shorter
        - `causal`: the **last** query sees the **last** key, so query `i` sees key `j` if `j <= i + n_k - n_q`
        - every query sees key 0; a later tile may be masked whole for some queries (or all), and must then change nothing
        - scores and their exponentials exist for one tile at a time; `torch.logsumexp` of a tile is allowed, `softmax` is not
        - return the output and the log-sum-exp of each row, `m + log(l)`""", given={"torch": torch, "math": math}, solution='''
        def flash_rows(q, k, v, scale, tile_k, causal):
            """q (n_q, d), k (n_k, d), v (n_k, v_dim) -> out (n_q, v_dim), lse (n_q,)"""
            n_q, n_k = len(q), len(k)
            m = torch.full((n_q,), -math.inf)
            l, o = torch.zeros(n_q), torch.zeros(n_q, v.shape[1])
            i = torch.arange(n_q)[:, None]
            for k0 in range(0, n_k, tile_k):
                s = scale * q @ k[k0:k0 + tile_k].T
                j = torch.arange(k0, k0 + s.shape[1])
                if causal:
                    s = s.masked_fill(j > i + n_k - n_q, -math.inf)
                m_new = torch.maximum(m, s.amax(1))
                p = torch.exp(s - m_new[:, None])
                shrink = torch.exp(m - m_new)
                l = shrink * l + p.sum(1)
                o = shrink[:, None] * o + p @ v[k0:k0 + tile_k]
                m = m_new
            return o / l[:, None], m + torch.log(l)
        ''', cases=_tile_loop_cases, call=_tile_by_tile, compare=_rows_and_lse,
    forbid=("softmax", "scaled_dot_product_attention"),
    properties=[("nothing is NaN", lambda got, case: not any(bool(x.isnan().any()) for x in got))], misconceptions=[
        Misconception("forgets the running maximum and uses each tile's own",
                      change=("torch.maximum(m, s.amax(1))", "s.amax(1)"),
                      ask="What is the maximum of a tile that is masked whole, and what is `m` minus that?"),
        Misconception("makes the whole matrix of scores", body='''
            s = scale * q @ k.T
            if causal:
                s = s.masked_fill(torch.ones_like(s).triu(1 + len(k) - len(q)).bool(), -math.inf)
            p = torch.exp(s - s.amax(1, keepdim=True))
            return p @ v / p.sum(1, keepdim=True), s.amax(1) + torch.log(p.sum(1))
            ''', ask="For 100,000 keys, how many scores exist at the same time in your function, and how many in one tile?"),
        Misconception("starts the running maximum at 0, not at minus infinity",
                      change=("torch.full((n_q,), -math.inf)", "torch.zeros(n_q)"),
                      ask="If every score is below -200, what is `exp(s - 0)` in float32, and what is your sum?"),
        Misconception("hides scores behind -10,000, where -inf is needed",
                      change=("masked_fill(j > i + n_k - n_q, -math.inf)", "masked_fill(j > i + n_k - n_q, -1e4)"),
                      ask="Which key gets the weight if every score that may be seen is below -10,000?"),
        Misconception("starts the running maximum at -10,000, not at minus infinity",
                      change=("torch.full((n_q,), -math.inf)", "torch.full((n_q,), -1e4)"),
                      ask="If every score is below -11,000, what is `exp(s + 10000)` in float32, and what is your sum?"),
        Misconception("fills up the last tile with zeros, which get weight", change=[
            ("        s = scale * q @ k[k0:k0 + tile_k].T\n",
             "        here = min(tile_k, n_k - k0)\n"
             "        s = torch.zeros(n_q, tile_k)\n"
             "        s[:, :here] = scale * q @ k[k0:k0 + tile_k].T\n"),
            ("p @ v[k0:k0 + tile_k]", "p[:, :here] @ v[k0:k0 + tile_k]")], ask="What is the weight of a key whose score is 0?"),
        Misconception("applies no mask", change=("if causal:", "if False:"), ask="Which keys does the first query see?"),
        Misconception("shifts the diagonal the wrong way", change=("i + n_k - n_q", "i + n_q - n_k"),
                      ask="With 1 query and 100 keys: which keys does the last query see?"),
        Misconception("does not rescale the sum", change=("l = shrink * l + p.sum(1)", "l = l + p.sum(1)"),
                      ask="Which maximum do the terms already in `l` belong to?"),
        Misconception("takes one maximum for all queries of the tile", change=("s.amax(1)", "s.amax()"),
                      ask="One query's scores are 300, another's are 1. What is `exp(1 - 300)`, and what is the sum of that row?"),
        Misconception("masks after the maximum is taken, so that hidden scores decide it",
                      change=[("        j = torch.arange(k0,", "        highest = s.amax(1)\n        j = torch.arange(k0,"),
                              ("torch.maximum(m, s.amax(1))", "torch.maximum(m, highest)")],
                      ask="A hidden key scores 300 more than all visible ones. What is `exp(s - m)` of the visible ones?"),
        Misconception("leaves out the scale", change=("scale * q @ k", "q @ k"), ask="What does the argument `scale` multiply?"),
        Misconception("does not divide by the sum", change=("o / l[:, None]", "o"),
                      ask="If all values are 1, what must the output be?"),
        Misconception("counts the keys of each tile from 0 when it masks",
                      change=("torch.arange(k0, k0 + s.shape[1])", "torch.arange(s.shape[1])"),
                      ask="Which key is column 0 of the second tile?"),
        Misconception("counts the keys of each tile from 0 when it masks, and takes every tile as whole",
                      change=("torch.arange(k0, k0 + s.shape[1])", "torch.arange(tile_k)"),
                      ask="Which key is column 0 of the second tile, and how many columns has the last?"),
        Misconception("returns log(l) without the maximum", change=("m + torch.log(l)", "torch.log(l)"),
                      ask="`l` is a sum of exp(score - m). What is the logarithm of the sum of exp(score)?"),
        Misconception("does not rescale the output", change=("shrink[:, None] * o + p", "o + p"),
                      ask="Which maximum do the terms already in `o` belong to?"),
        Misconception("counts the keys of each tile from 0, and aligns the mask to the first key, too",
                      change=[("torch.arange(k0, k0 + s.shape[1])", "torch.arange(s.shape[1])"), ("i + n_k - n_q", "i")],
                      ask="Two mistakes. Which key is column 0 of the second tile, and which keys does the last query see?"),
        Misconception("aligns the causal mask to the first key, not to the last", change=("i + n_k - n_q", "i"),
                      ask="With 1 query and 100 keys: which keys does the last query see?"),
        Misconception("drops the last tile when it is shorter", change=("range(0, n_k, tile_k)",
                                                                         "range(0, n_k // tile_k * tile_k or n_k, tile_k)"),
                      ask="31 keys in tiles of 5: where does the last tile begin?"),
        Misconception("returns the maximum in place of the log-sum-exp", change=("m + torch.log(l)", "m"),
                      ask="What must be subtracted from a score so that its exponential is the weight?")],
    hints=["It is 6.2 with a tile in place of a key: a row of scores, their maximum, their sum, one small product.",
           "Mask with -inf before the maximum is taken.",
           "`m_new` is never below `m`. So a tile that is masked whole has weights `exp(-inf - m)`, which are 0."])


def _traffic_cases(rng):
    for n, d, tile in [(4, 1, 2), (64, 16, 16), (1024, 64, 32), (1024, 64, 512), (4096, 128, 64), (96, 24, 8),
                       ((tile := 2 ** whole(rng, 1, 6)) * whole(rng, 3, 30), whole(rng, 2, 100), tile)]:
        for order in ("standard", "query-outer", "key-outer"):
            yield Case(n, d, tile, order, label=f"n={n}, d={d}, tile={tile}, {order}")

exercise(id="6.5", title="What the loops move", kind="write", points=2, minutes=8, difficulty=2, card="""
        Write `elements_moved`: how many numbers go between slow memory and the chip, for one head.

        - `"standard"`: read q and k, write S; read S, write P; read P and v, write out
        - `"query-outer"`: each tile of q is read once and its tile of out is written once; for each tile of q all of k
          and v is read
        - `"key-outer"`: each tile of k and of v is read once; for each such pair of tiles all of q is read, and all of
          out, the maxima and the sums are read **and** written
        - `n` is a multiple of `tile`; return an integer""", solution='''
        def elements_moved(n, d, tile, order):
            """-> numbers read plus numbers written"""
            rounds = n // tile
            if order == "standard":
                return 4 * n * d + 4 * n * n
            if order == "query-outer":
                return 2 * n * d + rounds * 2 * n * d
            return 2 * n * d + rounds * (3 * n * d + 4 * n)
        ''', cases=_traffic_cases, compare=exact(), misconceptions=[
        Misconception("counts bytes of float32, not numbers", change=[
            ("return 4 * n * d + 4 * n * n", "return 4 * (4 * n * d + 4 * n * n)"),
            ("return 2 * n * d + rounds * 2 * n * d", "return 4 * (2 * n * d + rounds * 2 * n * d)"),
            ("return 2 * n * d + rounds * (3 * n * d + 4 * n)", "return 4 * (2 * n * d + rounds * (3 * n * d + 4 * n))")],
                      ask="How many numbers has one matrix of n rows and d columns?"),
        Misconception("counts the matrix twice, not four times", change=("4 * n * n", "2 * n * n"),
                      ask="S is written and read. And P?"),
        Misconception("forgets that out is read as well as written in each round of the key-outer order",
                      change=("3 * n * d + 4 * n", "2 * n * d + 4 * n"),
                      ask="A round adds to an output that an earlier round has left in slow memory. What must come first?"),
        Misconception("moves the maxima and sums once per round, though they are read and written",
                      change=("3 * n * d + 4 * n", "3 * n * d + 2 * n"),
                      ask="Where does a round find the maximum and the sum of the round before, and where does it leave its own?"),
        Misconception("reads what the round before left, and never writes it back", change=("3 * n * d + 4 * n", "2 * n * d + 2 * n"),
                      ask="Where does the next round find this round's output, maxima and sums?"),
        Misconception("forgets the maxima and sums", change=("3 * n * d + 4 * n", "3 * n * d"),
                      ask="What besides the output does the next round need of a row?"),
        Misconception("counts three of the four passes over the matrix", change=("4 * n * n", "3 * n * n"),
                      ask="S is written and read. And P?"),
        Misconception("reads k and v again in each round of the key-outer order",
                      change=("2 * n * d + rounds * (3 * n * d + 4 * n)", "rounds * (5 * n * d + 4 * n)"),
                      ask="What stays on the chip during a round of this order?"),
        Misconception("reads q again for each tile of keys in the query-outer order",
                      change=("2 * n * d + rounds * 2 * n * d", "n * d + rounds * 3 * n * d"),
                      ask="What stays on the chip while k and v pass by?"),
        Misconception("forgets that out is written in the query-outer order",
                      change=("return 2 * n * d + rounds * 2 * n * d", "return n * d + rounds * 2 * n * d"),
                      ask="Where is the output when the kernel has ended?"),
        Misconception("moves the maxima and sums in one round only",
                      change=("rounds * (3 * n * d + 4 * n)", "rounds * 3 * n * d + 4 * n"),
                      ask="Which round needs no maximum and no sum of the rounds before?"),
        Misconception("reads k and v once in the query-outer order", change=("+ rounds * 2 * n * d", "+ 2 * n * d"),
                      ask="How many query tiles has a head, and how many keys does each of them need?"),
        Misconception("multiplies by the tile instead of the number of tiles", change=("n // tile", "tile"),
                      ask="Do larger tiles mean more rounds or fewer?")],
    hints=["Count arrays of $n d$ numbers first: in each order, how many of them are touched once, how many once per round?",
           "There are `n // tile` rounds.", "Maximum and sum: two numbers per row, read and written."])


def _tile_count_cases(rng):
    for sizes in [(2, 2, 1, 1), (4, 4, 2, 2), (64, 64, 16, 16), (10, 10, 4, 4), (7, 7, 7, 2), (3, 9, 2, 3), (8, 4, 2, 2),
                  (1, 33, 1, 16), (100, 100, 32, 16),
                  *((whole(rng, 9, 90), whole(rng, 9, 90), whole(rng, 2, 20), whole(rng, 2, 20)) for _ in range(3))]:
        n_q, n_k, tile_q, tile_k = sizes
        yield Case(*sizes, label=f"{n_q} x {n_k} in tiles of {tile_q} x {tile_k}")

exercise(id="6.6", title="Skip the future", kind="write", points=2, minutes=8, difficulty=3, card="""
        Under a causal mask some tiles need no work, some need no mask, and only the rest need both. Write `count_tiles`.

        - *skipped*: no query of the tile sees any key of it
        - *full*: every query of the tile sees every key of it
        - *diagonal*: all others
        - query `i` sees key `j` if `j <= i + n_k - n_q`; tiles at the edges may be smaller
        - return `(skipped, diagonal, full)`""", given={"torch": torch, "math": math}, solution='''
        def count_tiles(n_q, n_k, tile_q, tile_k):
            """-> (skipped, diagonal, full)"""
            skipped = diagonal = full = 0
            for q0 in range(0, n_q, tile_q):
                last_query = min(q0 + tile_q, n_q) - 1
                for k0 in range(0, n_k, tile_k):
                    last_key = min(k0 + tile_k, n_k) - 1
                    if k0 > last_query + n_k - n_q:
                        skipped += 1
                    elif last_key <= q0 + n_k - n_q:
                        full += 1
                    else:
                        diagonal += 1
            return skipped, diagonal, full
        ''', cases=_tile_count_cases, compare=exact(), misconceptions=[
        Misconception("aligns the mask to the first key",
                      change=[("last_query + n_k - n_q", "last_query"), ("q0 + n_k - n_q", "q0")],
                      ask="Which key does the last query see when there are more keys than queries?"),
        Misconception("asks the tile's first query whether the tile can be skipped",
                      change=("k0 > last_query + n_k - n_q", "k0 > q0 + n_k - n_q"),
                      ask="Which query of the tile sees the most keys?"),
        Misconception("asks the tile's last query whether the tile is full",
                      change=("last_key <= q0 + n_k - n_q", "last_key <= last_query + n_k - n_q"),
                      ask="Which query of the tile sees the fewest keys?"),
        Misconception("shifts the diagonal the wrong way",
                      change=[("last_query + n_k - n_q", "last_query + n_q - n_k"), ("q0 + n_k - n_q", "q0 + n_q - n_k")],
                      ask="Which key does the last query see when there are more keys than queries?"),
        Misconception("skips a tile of which the last query sees just the first key",
                      change=("k0 > last_query + n_k - n_q", "k0 >= last_query + n_k - n_q"),
                      ask="May query `i` look at the key at its own place?"),
        Misconception("forgets that the tiles at the edge are smaller",
                      change=[("min(q0 + tile_q, n_q) - 1", "q0 + tile_q - 1"),
                              ("min(k0 + tile_k, n_k) - 1", "k0 + tile_k - 1")],
                      ask="10 keys in tiles of 4: what is the last key of the last tile?"),
        Misconception("counts a tile that just touches the diagonal as not full", change=("last_key <= q0", "last_key < q0"),
                      ask="May query `i` look at the key at its own place?")],
    hints=["A tile can be skipped if its *last* query does not even see its *first* key.",
           "A tile is full if its *first* query sees its *last* key."])


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

_BEFORE, _REST = GALLERY_KERNEL.split("        float s[TILE], m_new = m;\n")
_INNER, _AFTER = _REST.split("        m = m_new;\n        __syncthreads();\n")
_AFTER = "        __syncthreads();\n" + _AFTER

kernel_exercise(id="6.7", title="The inner loop of a flash kernel", points=4, minutes=18, difficulty=4, name="flash", card="""
        Tiles of keys and values are already in shared memory. Finish the loop body: the scores of this thread's query
        with the tile (`scale` times the dot product), the running maximum, the rescaled sum and output.

        - query `i` sees key `k0 + j` if `k0 + j <= i`
        - read `q_tile`, `k_tile` and `v_tile`, never `q`, `k` and `v` themselves
        - a tile that is masked whole must leave `m`, `l` and `o` as they are
        - no further barrier is needed; a local array `float s[TILE]` is allowed""",
    stub=_BEFORE + "        // your code: update m, l and o with this tile\n" + _AFTER,
    solution=GALLERY_KERNEL, cases=_kernel_cases, launch=_kernel_launch, expect=_kernel_expect,
    compare=close(atol=1e-4), traffic=_kernel_traffic, misconceptions=[
        Misconception("forgets the running maximum: each tile starts again from -inf", change=_MISTAKES["a"],
                      ask="What is the maximum of a tile that is masked whole?"),
        Misconception("does not rescale the output", change=_MISTAKES["e"],
                      ask="Which maximum do the terms already in `o` belong to?"),
        Misconception("does not rescale the sum", change=("        l *= shrink;\n", ""),
                      ask="Which maximum do the terms already in `l` belong to?"),
        Misconception("takes the maximum over keys that the query may not see",
                      change=[("s[j] = k0 + j <= i ? scale * s[j] : -INFINITY;", "s[j] *= scale;"),
                              ("const float p = expf(s[j] - m_new);", "const float p = k0 + j <= i ? expf(s[j] - m_new) : 0.0f;")],
                      ask="Query 0 sees key 0 alone. What becomes of its one weight if key 9 scores 500 more?"),
        Misconception("turns the factor of the rescaling round", change=("expf(m - m_new)", "expf(m_new - m)"),
                      ask="When a larger score arrives, should what was summed before grow or shrink?"),
        Misconception("weighs the keys, not the values", change=("p * v_tile[j][c]", "p * k_tile[j][c]"),
                      ask="What is weighted: keys or values?"),
        Misconception("applies no mask", change=("k0 + j <= i ? scale * s[j] : -INFINITY", "scale * s[j]"),
                      ask="Which keys does query 0 see?"),
        Misconception("hides scores behind -10,000, where -INFINITY is needed",
                      change=("scale * s[j] : -INFINITY", "scale * s[j] : -1e4f"),
                      ask="Which key gets the weight if every score that may be seen is below -10,000?"),
        Misconception("gives hidden keys the score 0", change=("scale * s[j] : -INFINITY", "scale * s[j] : 0.0f"),
                      ask="What is the weight of a key whose score is 0?"),
        Misconception("does not store the new maximum in `m`", change=("        m = m_new;\n", ""),
                      ask="From which maximum does the next tile rescale?"),
        Misconception("leaves out the scale", change=("scale * s[j]", "s[j]"), ask="What does the argument `scale` multiply?"),
        Misconception("applies the scale twice", change=_MISTAKES["d"],
                      ask="Where is a score multiplied by `scale`, and is it multiplied again later?"),
        Misconception("lets no query see the key at its own place", change=("k0 + j <= i", "k0 + j < i"),
                      ask="Which keys does query 0 see?"),
        Misconception("counts the keys of each tile from 0 when it masks", change=("k0 + j <= i", "j <= i"),
                      ask="Which key is `j = 0` of the second tile?"),
        Misconception("reads keys from global memory although the tile is there",
                      change=("* k_tile[j][c]", "* (k0 + j < n ? k[(k0 + j) * D + c] : 0.0f)"),
                      ask="How often is each key read now, and how often was it copied into the tile?")],
    hints=["Three steps: scores with their maximum; rescale `l` and `o`; add the tile's terms.",
           "Start `m_new` from `m`, not from -inf.",
           "`shrink = expf(m - m_new)`; for the first tile that is `expf(-INFINITY)`, which is 0."])


def _two_exchanged():
    """Answers with three letters right and two exchanged, except those that the exercise names by what was confused."""
    named = {"dabec", "edbac", "decab"}
    for one, other in itertools.combinations(range(5), 2):
        letters = list(_ORDER)
        letters[one], letters[other] = letters[other], letters[one]
        if "".join(letters) not in named:
            yield Misconception(f"exchanges the mistakes of kernels {one + 1} and {other + 1}", value="".join(letters),
                                ask="Which three letters rest on what the sanitizer or a NaN says, and which two on the numbers?")

exercise(id="6.8", title="Five kernels, five mistakes", kind="predict", points=3, minutes=12, difficulty=3, name="mistakes",
    card="""
        Each kernel of the gallery differs from the one of 6.7 in one place. Which kernel has which mistake?

        - `a` the running maximum is forgotten
        - `b` a barrier (`__syncthreads()`) is missing
        - `c` a loop runs into the column that pads a tile
        - `d` the scale is applied twice
        - `e` what was summed before is not rescaled when the maximum changes
        - type five letters, for kernels 1 to 5, as one word""",
    answer=_ORDER, misconceptions=[*_two_exchanged(),
        Misconception("confuses the forgotten maximum with the sums that are not rescaled", value="dabec",
                      ask="One of the two makes NaN out of a tile that is masked whole. Which?"),
        Misconception("confuses the scale applied twice with the sums that are not rescaled", value="edbac",
                      ask="Which of the two does no harm when the scale is 1?"),
        Misconception("confuses the missing barrier with the loop that is one too long", value="decab",
                      ask="The sanitizer has two kinds for these: who wrote last, and whether anybody ever wrote. Which is which?")],
    hints=["Begin with what the sanitizer says: a race, and a read that nobody wrote.",
           "Three are left, and the sanitizer is silent on them. One of them makes NaN.",
           "Of the last two, one is right when `scale` is 1, the other when the largest score comes first."])


kernel_exercise(id="6.9", title="Repair the maximum", kind="repair", points=2, minutes=8, difficulty=3, name="flash", card="""
        This kernel is the one that makes NaN. Repair it.

        - change as little as you can
        - it must be right for scores of any size, and whatever the order of the keys""",
    stub=gallery(_ORDER.index("a") + 1), solution=GALLERY_KERNEL, cases=_kernel_cases, launch=_kernel_launch,
    expect=_kernel_expect, compare=close(atol=1e-4), misconceptions=[
        Misconception("skips tiles that are masked whole, but still lets the maximum fall",
                      change=[_MISTAKES["a"], ("        const float shrink = expf(m - m_new);\n",
                                               "        if (m_new == -INFINITY) m_new = m;\n"
                                               "        const float shrink = expf(m - m_new);\n")],
                      ask="If a later tile has only small scores, what is `expf(m - m_new)`?"),
        Misconception("hides the NaN behind a 0", change=[_MISTAKES["a"],
                                                           ("out[i * D + c] = o[c] / l",
                                                            "out[i * D + c] = l > 0.0f ? o[c] / l : 0.0f")],
                      ask="Did these rows see no key at all, or was what they had seen lost?"),
        Misconception("starts each tile's maximum at 0", change=("float s[TILE], m_new = m;", "float s[TILE], m_new = 0.0f;"),
                      ask="After a tile with a score of 100 comes one that is masked whole. What is `expf(m - m_new)`?"),
        Misconception("still starts each tile's maximum far below the largest score so far, at -inf or at a large negative number",
                      change=[("float s[TILE], m_new = m;", "float s[TILE], m_new = -1e9f;")],
                      ask="When a tile is masked whole: what are `m - m_new` and `s[j] - m_new`, if `m` is 3?")],
    hints=["A maximum that can fall is not a running maximum.",
           "From where should `m_new` start, so that a tile that is masked whole changes nothing?"])


def _fragment_cases(rng):
    for lane, register, half in [(0, 0, 0), (0, 0, 1), (1, 0, 0), (4, 0, 0), (0, 1, 0), (0, 2, 0), (31, 3, 1), (22, 1, 1), (13, 2, 0)]:
        yield Case(lane, register, half, label=f"lane {lane}, register {register}, half {half}")
    for lane, register, half in zip(*(torch.randint(0, n, (24,), generator=rng).tolist() for n in (32, 4, 2))):
        yield Case(lane, register, half, label=f"lane {lane}, register {register}, half {half}")

exercise(id="6.11", title="Which lane brings which number", kind="write", points=2, minutes=8, difficulty=3, card="""
        Write `element`: the row and the column of $A$ (16 x 16) that a lane holds in one half of one register.

        - lane 0 to 31, register 0 to 3, half 0 (the lower 16 bits) or 1
        - the figure above is the definition: in each 8 x 8 piece lane $x$ has row $\\lfloor x / 4 \\rfloor$ and the columns
          $2 (x \\bmod 4)$ and the next
        - mind the order of the four pieces""", given={"torch": torch, "math": math}, solution='''
        def element(lane, register, half):
            """-> (row, column)"""
            row = lane // 4 + 8 * (register % 2)
            column = 2 * (lane % 4) + half + 8 * (register // 2)
            return row, column
        ''', cases=_fragment_cases, compare=exact(), misconceptions=[
        Misconception("lets register 1 lie to the right of register 0, not below it",
                      change=[("8 * (register % 2)", "8 * (register // 2)"), ("half + 8 * (register // 2)", "half + 8 * (register % 2)")],
                      ask="In which order are the four pieces of $A$ numbered?"),
        Misconception("exchanges row and column", change=("return row, column", "return column, row"),
                      ask="Lane 0 holds two numbers side by side. Which of the two indices differs?"),
        Misconception("divides with /, which gives a float", change=("lane // 4", "lane / 4"),
                      ask="What is 7 / 4 in Python, and what is 7 // 4?"),
        Misconception("gives both halves of a register the same column", change=(" + half", ""),
                      ask="A register holds two numbers. Which two of the row are they?"),
        Misconception("gives a lane one column, not two neighbours", change=("2 * (lane % 4) + half", "lane % 4 + 4 * half"),
                      ask="Two numbers share a register. Where in the row do they lie?"),
        Misconception("counts lanes down a column, not along a row",
                      change=[("lane // 4", "lane % 8"), ("lane % 4", "lane // 8")],
                      ask="Lane 1 has the same row as lane 0. Does yours?"),
        Misconception("gives every register the same piece",
                      change=[(" + 8 * (register % 2)", ""), (" + 8 * (register // 2)", "")],
                      ask="Four registers, two numbers each, 32 lanes: how many numbers is that, and how many has $A$?")],
    hints=["Eight groups of four lanes: the group is the row, the place in the group is the pair of columns.",
           "Register 1 is eight rows below register 0; register 2 is eight columns to its right."])


def _backward_cases(rng):
    for n_q, n_k, d, v_dim in [(1, 2, 1, 1), (2, 3, 2, 2), (5, 4, 3, 6), (8, 33, 16, 7)]:
        q, k, grad_out = (torch.randn(*size, generator=rng) for size in ((n_q, d), (n_k, d), (n_q, v_dim)))
        lse = (0.6 * q @ k.mT).logsumexp(-1)
        yield Case(q, k, grad_out, lse, 0.6, label=f"{n_q} queries, {n_k} keys")
    yield Case(q, k[8:16].clone(), grad_out, lse, 0.6, label="8 queries, a tile of 8 of 33 keys")
    q, k, grad_out = (at + torch.randn(n, 2, generator=rng) for n, at in ((3, 15), (5, 10), (3, 0)))
    yield Case(q, k, grad_out, (0.6 * q @ k.mT).logsumexp(-1), 0.6, label="scores of a hundred and more")

exercise(id="6.12", title="The gradient of the values", kind="write", points=2, minutes=8, difficulty=3, card="""
        The weights were never stored. Make them again from the scores and the saved log-sum-exp, and write `grad_v`.

        - the weights are $P_{ij} = \\exp(s_{ij} - \\mathrm{lse}_i)$: no maximum, no sum
        - `k` may be one tile of the keys; `lse` is always that of the whole row
        - $dV = P^T dO$""", given={"torch": torch, "math": math}, solution='''
        def grad_v(q, k, grad_out, lse, scale):
            """q (n_q, d), k (n_k, d), grad_out (n_q, v_dim), lse (n_q,) -> (n_k, v_dim)"""
            p = torch.exp(scale * q @ k.T - lse[:, None])
            return p.T @ grad_out
        ''', cases=_backward_cases, compare=close(atol=1e-4), forbid=("softmax", "autograd", "backward"), misconceptions=[
        Misconception("normalises the weights of the tile anew", change=(
            "torch.exp(scale * q @ k.T - lse[:, None])", "(scale * q @ k.T).exp() / (scale * q @ k.T).exp().sum(1, keepdim=True)"),
                      ask="Do the weights of one tile of the keys sum to 1?"),
        Misconception("takes the exponentials of the score and of the log-sum-exp, and then divides",
                      change=(" - lse[:, None])", ") / lse[:, None].exp()"), ask="What is `exp(180)` in float32?"),
        Misconception("adds the log-sum-exp", change=(" - lse[:, None]", " + lse[:, None]"),
                      ask="What is $e^s / e^{\\mathrm{lse}}$ as one exponential?"),
        Misconception("leaves out the log-sum-exp", change=(" - lse[:, None]", ""),
                      ask="Do the rows of your weights sum to 1?"),
        Misconception("leaves out the scale", change=("scale * q @ k.T", "q @ k.T"),
                      ask="Which scores was the log-sum-exp made from?"),
        Misconception("multiplies by P, not by its transpose", change=("p.T @ grad_out", "p @ grad_out"),
                      ask="Row j of $dV$ collects from which queries: from row j of $P$, or from column j?"),
        Misconception("subtracts the log-sum-exp along the keys, where a number belongs to each row",
                      change=(" - lse[:, None]", " - lse"),
                      ask="The scores are (n_q, n_k) and `lse` is (n_q,): which axis do they have in common?"),
        Misconception("divides by the log-sum-exp after exponentiating",
                      change=("torch.exp(scale * q @ k.T - lse[:, None])", "torch.exp(scale * q @ k.T) / lse[:, None]"),
                      ask="What is $e^s / e^{\\mathrm{lse}}$ as one exponential?")],
    hints=["One line for the weights, one for the product.", "The log-sum-exp belongs to a row: `lse[:, None]`."])


def _score_gradient_cases(rng):
    for n_q, n_k, tile, v_dim in [(1, 2, 1, 1), (2, 3, 2, 2), (5, 4, 4, 3), (7, 33, 16, 16)]:
        p = (2 * torch.randn(n_q, n_k, generator=rng)).softmax(-1)
        v, grad_out = torch.randn(n_k, v_dim, generator=rng), torch.randn(n_q, v_dim, generator=rng)
        yield Case(p[:, :tile].clone(), v[:tile].clone(), p @ v, grad_out,
                   label=f"{n_q} queries, a tile of {tile} of {n_k} keys")

exercise(id="6.13", title="The gradient of the scores", kind="write", points=3, minutes=10, difficulty=4, card="""
        Write `grad_scores`: $dS$ for one **tile of keys**, from the tile's weights and values and the whole output.

        - $dP = dO\\,V^T$
        - through softmax: $dS_{ij} = P_{ij}\\,(dP_{ij} - \\sum_t P_{it}\\,dP_{it})$, with $t$ over **all** keys
        - `p` and `v` hold one tile, so you cannot add up the whole row; make the inner sum **from `out` and `grad_out`**,
          as one number per row""", given={"torch": torch, "math": math}, solution='''
        def grad_scores(p, v, out, grad_out):
            """p (n_q, tile), v (tile, v_dim), out and grad_out (n_q, v_dim) -> (n_q, tile)"""
            delta = (grad_out * out).sum(1)
            return p * (grad_out @ v.T - delta[:, None])
        ''', cases=_score_gradient_cases, compare=close(atol=1e-5), misconceptions=[
        Misconception("adds up P * dP over the tile alone", change=("(grad_out * out).sum(1)", "(p * (grad_out @ v.T)).sum(1)"),
                      ask="The inner sum runs over all keys. How many of them does `p` hold?"),
        Misconception("leaves out the factor P", change=("return p * (grad_out @ v.T - delta[:, None])",
                                                          "return grad_out @ v.T - delta[:, None]"),
                      ask="What is the gradient of the score of a key whose weight is 0?"),
        Misconception("multiplies dP by P, but not the inner sum", change=("return p * (grad_out @ v.T - delta[:, None])",
                                                                           "return p * (grad_out @ v.T) - delta[:, None]"),
                      ask="What is the gradient of the score of a key whose weight is 0?"),
        Misconception("makes one inner sum for all rows",
                      change=("(grad_out * out).sum(1)", "(grad_out * out).sum().expand(len(p))"),
                      ask="Does the gradient of one query's scores depend on the outputs of the others?"),
        Misconception("adds up the output without its gradient", change=("(grad_out * out).sum(1)", "out.sum(1)"),
                      ask="$\\sum_t P_{it}\\,(dO_i \\cdot v_t) = dO_i \\cdot$ what?"),
        Misconception("leaves out the inner sum", change=(" - delta[:, None]", ""),
                      ask="Adding a number to all scores of a row changes nothing. What must a whole row of dS sum to?"),
        Misconception("adds the inner sum", change=(" - delta[:, None]", " + delta[:, None]"),
                      ask="What must a whole row of dS sum to?"),
        Misconception("takes the mean of dO * O, not its sum", change=("(grad_out * out).sum(1)", "(grad_out * out).mean(1)"),
                      ask="$\\sum_t P_{it}\\,(dO_i \\cdot v_t) = dO_i \\cdot$ what?"),
        Misconception("sums dP over the row without its weights", change=("(grad_out * out).sum(1)", "(grad_out @ v.T).sum(1)"),
                      ask="By which weights is $dP_{it}$ multiplied in the inner sum?")],
    hints=["$\\sum_t P_{it}\\,dP_{it} = \\sum_t P_{it}\\,(dO_i \\cdot v_t)$: pull $dO_i$ out of the sum.",
           "What remains in the sum is $O_i$."])


def _backward_moved_cases(rng):
    for n, d, tile in [(4, 1, 4), (4, 2, 2), (64, 16, 16), (96, 8, 32), (1024, 64, 256)]:
        yield Case(n, d, tile, label=f"n = {n}, d = {d}, tiles of {tile}")
    tile, tiles, d = (int(torch.randint(2, 40, (), generator=rng)) for _ in range(3))
    yield Case(tile * tiles, d, tile, label=f"n = {tile * tiles}, d = {d}, tiles of {tile}")

exercise(id="6.14", title="Bytes of the backward pass", kind="write", points=2, minutes=8, difficulty=3, card="""
        Write `backward_moved`: how many numbers the key-outer backward pass of the first FlashAttention moves between
        slow memory and the chip, for one head.

        - before the loops, one pass reads $O$ and $dO$ and writes $\\delta$, one number per row
        - each tile of $k$ and $v$ is read once, and its tiles of $dK$ and $dV$ are written once
        - for **each** key tile all of $q$ and $dO$ is read, with two numbers per row ($\\mathrm{lse}$ and $\\delta$), and all
          of $dQ$ is read **and** written
        - `n` is a multiple of `tile`; return an integer""", given={}, solution='''
        def backward_moved(n, d, tile):
            """-> numbers read plus numbers written"""
            first = 2 * n * d + n
            once = 4 * n * d
            again = 4 * n * d + 2 * n
            return first + once + n // tile * again
        ''', cases=_backward_moved_cases, compare=exact(), misconceptions=[
        Misconception("reads q and dO once, as if they stayed on the chip", change=("n // tile * again", "again"),
                      ask="Only a tile of keys stays. What passes by it, and how many key tiles are there?"),
        Misconception("counts three passes over n x d numbers in each round, where there are four",
                      change=("again = 4 * n * d + 2 * n", "again = 3 * n * d + 2 * n"),
                      ask="Which of $q$, $dO$ and $dQ$ are read in a round, and which is written?"),
        Misconception("counts one statistic per row, where two are read",
                      change=("again = 4 * n * d + 2 * n", "again = 4 * n * d + n"),
                      ask="From what is $P$ made again, and from what $dS$?"),
        Misconception("leaves out the two statistics of each row", change=[("again = 4 * n * d + 2 * n", "again = 4 * n * d")],
                      ask="From what is $P$ made again, and from what $dS$?"),
        Misconception("forgets that delta is written before the loops", change=("first = 2 * n * d + n", "first = 2 * n * d"),
                      ask="$\\delta$ is read in each round. Who wrote it?"),
        Misconception("multiplies by the tile instead of the number of tiles", change=("n // tile * again", "tile * again"),
                      ask="Do larger tiles mean more rounds or fewer?"),
        Misconception("counts bytes of float32, not numbers",
                      change=("return first + once + n // tile * again", "return 4 * (first + once + n // tile * again)"),
                      ask="How many numbers has one matrix of n rows and d columns?"),
        Misconception("leaves out the pass that makes delta", change=("return first + once", "return once"),
                      ask="$\\delta$ is read in each round. Who wrote it, and from what?"),
        Misconception("reads k and v and forgets that dK and dV are written", change=("once = 4 * n * d", "once = 2 * n * d"),
                      ask="Two arrays are read once. Which two are written once?"),
        Misconception("reads k and v again in each round",
                      change=[("once = 4 * n * d", "once = 2 * n * d"), ("again = 4 * n * d + 2 * n", "again = 6 * n * d + 2 * n")],
                      ask="What stays on the chip during a round?")],
    hints=["Three terms: the pass before the loops, what is touched once, and what is touched in each of `n // tile` rounds.",
           "A round: $q$, $dO$, $dQ$ twice, and two numbers per row: $4nd + 2n$."])
