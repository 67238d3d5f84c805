"""Exercises of chapter 7."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, kernel_exercise, out, randn, whole


def row_cache_cases(rng):
    for capacity, heads, d, cuts in [(2, 1, 1, [1, 1]), (5, 1, 2, [3, 1]), (8, 2, 3, [4, 1, 1, 2]), (33, 3, 4, [1] * 9), (4, 2, 2, [4])]:
        yield Case(capacity, [{name: randn(rng, heads, n, d) for name in "kv"} for n in cuts],
                   label=f"room for {capacity}, then appends of {cuts}")
    pieces = [{name: randn(rng, 2, n, 3) for name in "kv"} for n in (3, 2, 1)]
    for x in pieces[0].values():
        x[:, 2] = math.nan
    yield Case(8, pieces, label="the third token is all NaN itself, and others follow")

def _use_row_cache(f, capacity, pieces):
    """What the cache shows after each append. Refused: an append that makes the room anew or leaves it as it was, a
    view that writes or copies."""
    # over the guide: its source goes to the process that runs the answer, so it can call no other function of ours
    from course_lib.exercises.running.watch import OperationMode

    class Watch(OperationMode):
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

    heads, _, d = pieces[0]["k"].shape
    cache = f(capacity, heads, d)
    before, seen, length = [x.data_ptr() for x in (cache.k, cache.v)], [], 0
    wanted = torch.empty(2, heads, sum(piece["k"].shape[1] for piece in pieces), d)
    for k, v in ((piece["k"], piece["v"]) for piece in pieces):
        old = room()
        with Watch():
            cache.append(k, v)
        if [x.data_ptr() for x in (cache.k, cache.v)] != before:
            raise ValueError("an append puts the cache into another place of memory: it copies the cache")
        new = room()
        if any(map(alike, old, new)):
            raise ValueError("after an append the room holds what it held before: the new tokens are not in it")
        first, got = cache.view(), cache.view()                                # a stale one would differ
        if got is None or len(got) != 2:
            raise ValueError("`view` returns two tensors, the keys and the values")
        seen.append({"keys": got[0].clone(), "values": got[1].clone()})
        if not all(map(alike, first, got)):
            raise ValueError("`view` shows something else when it is called a second time")
        if not all(map(alike, new, room())):
            raise ValueError("`view` writes into the room; only `append` may")
        wanted[0, :, length:length + k.shape[1]], wanted[1, :, length:length + k.shape[1]] = k, v
        length += k.shape[1]
        if all(map(alike, got, wanted[:, :, :length])) and any(
                x.untyped_storage().data_ptr() != own.untyped_storage().data_ptr() for x, own in zip(got, (cache.k, cache.v))):
            raise ValueError("what `view` returns is a copy, in memory of its own")
    return {f"append {i + 1}": shown for i, shown in enumerate(seen)}

exercise(id="7.2", cases=row_cache_cases, call=_use_row_cache, compare=close(atol=0))


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

exercise(id="7.3", given={"torch": torch, "math": math, "rotate": rotate}, cases=step_cases, call=_in_pieces,
    compare=close(atol=1e-4))


exercise(id="7.5", answer=32 * 4.8e12 / (15e9 + 32 * 1.07e9), rtol=0.03, misconceptions=[
    Misconception("reads the weights and no cache", value=32 * 4.8e12 / 15e9,
                  ask="How many bytes do 32 caches have together, beside 15 GB of weights?"),
    Misconception("reads the caches and no weights", value=4.8e12 / 1.07e9,
                  ask="Each step multiplies with every weight. From where do they come?"),
    Misconception("reads the weights once per sequence", value=4.8e12 / 16.07e9,
                  ask="All 32 sequences are in one step. How often does that step read the weights?"),
    Misconception("gives the steps per second, the rate of one sequence", value=4.8e12 / (15e9 + 32 * 1.07e9),
                  ask="A step gives each of the 32 sequences a token. How many tokens is that?"),
    Misconception("reads one cache, not 32", value=32 * 4.8e12 / 16.07e9,
                  ask="Does a sequence read the cache of another? How many different caches are read?")])

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

kernel_exercise(id="7.7", cases=part_cases, launch=part_launch, expect=part_expect,
    compare=close(atol=1e-4, rtol=1e-4),
    traffic=lambda q, k, v, keys, scale: 4 * 2 * k.numel() + -(-len(k) // keys) * (128 + 64 + 128),
    wavefronts=0)

def score_cases(rng):
    for n, d in [(2, 2), (3, 20), (4, 32), (5, 1), (3, 31), (2, 24)]:
        yield Case(randn(rng, d), randn(rng, n, d), label=f"{n} keys of width {d}")

kernel_exercise(id="7.8", cases=score_cases, compare=close(atol=1e-5),
    launch=lambda q, k: Launch(grid=len(k), block=32, args=[q, k, out((len(k),)), len(q)]),
    expect=lambda q, k: k @ q, traffic=lambda q, k: len(k) * 32 * (2 * -(-len(q) // 8) + 1), wavefronts=0)


def rolling_cases(rng):
    for t, window, n_sink in [(0, 1, 0), (3, 2, 0), (3, 2, 1), (1, 4, 2), (9, 4, 2), (20, 5, 3), (6, 7, 0), (7, 6, 2), (1, 3, 4),
                              (whole(rng, 30, 90), whole(rng, 6, 20), whole(rng, 1, 5))]:
        for reindexed in (False, True):
            yield Case(t, window, n_sink, reindexed, label=f"token {t}, window {window}, {n_sink} sink{'s' * (n_sink != 1)}, reindexed {reindexed}")

exercise(id="7.9", cases=rolling_cases, compare=exact())


def quantize_cases(rng):
    for n, d, bits, dim, loud in [(2, 2, 4, 0, 1), (2, 3, 8, 1, 1), (16, 8, 4, 0, 30), (16, 8, 4, 1, 30), (33, 5, 8, 0, 100), (7, 9, 2, 1, 1)]:
        x = randn(rng, n, d) + 1
        x[:, 0] *= loud
        yield Case(x, bits, dim, label=f"{n} x {d}, {bits} bits, one step along dim {dim}")

exercise(id="7.10", cases=quantize_cases, compare=close(atol=1e-4, rtol=1e-4),
    properties=[("no entry errs by more than half a step", lambda got, case: bool(
        ((got[2] + got[1] * got[0] - case.args[0]).abs() <= 0.501 * got[1]).all()))])


def beam_cases(rng):
    for beams, vocabulary, keep in [(1, 3, 2), (2, 2, 2), (2, 5, 3), (4, 11, 4), (3, 7, 1)]:
        yield Case(4 * randn(rng, beams), (3 * randn(rng, beams, vocabulary)).log_softmax(-1), keep,
                   label=f"{beams} beam{'s' * (beams != 1)}, {vocabulary} tokens, keep {keep}")

exercise(id="7.11", cases=beam_cases, compare=close(atol=1e-5))


def keep_cases(rng):
    for n in (2, 3, 5, 9):
        yield Case((2 * randn(rng, n)).softmax(0), (2 * randn(rng, n)).softmax(0), label=f"{n} tokens")
    yield Case(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5]), label="the draft likes a token that the target never draws")

exercise(id="7.12", cases=keep_cases, compare=close(atol=1e-5),
    properties=[("what is kept and what replaces it add up to the target", lambda got, case: bool(torch.allclose(
        case.args[1] * got[0] + (1 - (case.args[1] * got[0]).sum()) * got[1], case.args[0], atol=1e-4)))])


exercise(id="7.13", answer=(1 - 0.8**5) / (1 - 0.8), tolerance=0.011, misconceptions=[
    Misconception("counts a token as kept even after a refusal", value=1 + 4 * 0.8,
                  ask="The second token was refused. Can the third still be used?"),
    Misconception("counts a token as kept even after a refusal, and forgets that of the pass", value=3.2,
                  ask="How likely is the third to be used, if the two before it have to be kept as well?"),
    Misconception("drafts without an end, 1 / (1 - 0.8)", value=5,
                  ask="Only four tokens are drafted. Which power of 0.8 is the last of the sum?"),
    Misconception("forgets the token that the pass adds itself", value=0.8 + 0.8**2 + 0.8**3 + 0.8**4,
                  ask="If all four are refused, does the pass yield nothing?"),
    Misconception("counts only the passes in which all four are kept", value=1 + 4 * 0.8**4,
                  ask="Three kept tokens are worth something too. How many come on average?")])


exercise(id="7.15", cases=lambda rng: [
    Case(torch.arange(4.0)[:, None], torch.tensor([10, 11, 12, 13]), 1, label="4 tokens, one ahead"),
    Case(randn(rng, 9, 3), torch.randint(50, (9,), generator=rng), 1, label="9 tokens, one ahead"),
    Case(randn(rng, 8, 2), torch.randint(50, (8,), generator=rng), 3, label="8 tokens, three ahead")],
    compare=close(atol=0, rtol=0))
