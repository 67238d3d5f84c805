"""The exercises of chapter 3."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn, whole


exercise(id="3.3", cases=lambda rng: [
    Case(torch.arange(4.0).view(1, 2, 2, 1), 2, label="2 heads, groups of 2"),
    Case(randn(rng, 2, 3, 5, 4), 2, label="a batch of 2, 3 heads, groups of 2"),
    Case(randn(rng, 1, 1, 3, 8), 4, label="one head for all"),
    Case(randn(rng, 1, 4, 3, 2), 1, label="groups of one")], compare=close(atol=0))


def with_largest(f, q, k, v):
    """What f returns, and the number of elements of the largest array that it makes."""
    from course_lib.exercises.running.watch import OperationMode
    made = [0]

    class Watch(OperationMode):
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

exercise(id="3.4", cases=lambda rng: [
    Case(randn(rng, 1, 2, 2, 3), randn(rng, 1, 1, 3, 3), randn(rng, 1, 1, 3, 2), label="2 query heads, one key head"),
    Case(randn(rng, 1, 4, 1, 8), randn(rng, 1, 2, 5, 8), randn(rng, 1, 2, 5, 8), label="one query, 4 heads on 2"),
    Case(randn(rng, 2, 6, 3, 5), randn(rng, 2, 3, 7, 5), randn(rng, 2, 3, 7, 5), label="a batch of 2, 6 heads on 3"),
    Case(randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), randn(rng, 2, 3, 4, 5), label="3 heads on 3")],
    compare=equal_without_copies, call=with_largest)


exercise(id="3.5", answer=4 * (1 + 1 / 64) / (1 + 4 / 64), tolerance=0.006, misconceptions=[
    Misconception("forgets queries and outputs, which do not shrink", value=4.0,
                  ask="Grouping shrinks keys and values. Do the queries and the outputs become fewer as well?"),
    Misconception("counts queries and outputs for the groups and not for single heads", value=4 / (1 + 4 / 64),
                  ask="Does a single head, g = 1, read no query?"),
    Misconception("lets the FLOPs shrink with the bytes", value=1.0,
                  ask="How many scores are computed, with and without groups?"),
    Misconception("turns the fraction over", value=(1 + 4 / 64) / (4 * (1 + 1 / 64)),
                  ask="Grouped attention does the same FLOPs with fewer bytes. Is its intensity then larger or smaller?")])


def score_launch(q, k):
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    return Launch(grid=(math.ceil(n / 32), n_kv_heads), block=128, shared=4 * 32 * (d + 1),
                  args=[q, k, out((n_heads, n)), n, d, n_heads // n_kv_heads])

def score_traffic(q, k):
    """Each key once; each group's queries once per tile of 32 keys (a warp reads one number at a time: a sector)."""
    (n_heads, d), (n_kv_heads, n, _) = q.shape, k.shape
    tiles = math.ceil(n / 32)
    return 4 * k.numel() + tiles * n_heads * d * 32 + 4 * n_heads * n

kernel_exercise(id="3.6", cases=lambda rng: [
        Case(randn(rng, 2, 4), randn(rng, 1, 3, 4), label="2 query heads on one key head, 3 keys"),
        Case(randn(rng, 4, 16), randn(rng, 2, 33, 16), label="4 heads on 2, 33 keys"),
        Case(randn(rng, 8, 32), randn(rng, 1, 64, 32), label="8 heads on one, 64 keys"),
        Case(randn(rng, 6, 64), randn(rng, 2, 100, 64), label="6 heads on 2, 100 keys")], launch=score_launch,
    compare=close(atol=1e-4), traffic=score_traffic, wavefronts=2,
    expect=lambda q, k: (q.view(k.shape[0], -1, q.shape[1]) @ k.transpose(1, 2)).reshape(q.shape[0], k.shape[1]))

kernel_exercise(id="3.7", cases=lambda rng: [
    Case(torch.softmax(randn(rng, 2, 5), -1), randn(rng, 5, 4), label="2 heads, 5 values"),
    Case(torch.softmax(randn(rng, 4, 32), -1), randn(rng, 32, 16), label="4 heads, 32 values"),
    Case(torch.softmax(randn(rng, 3, 31), -1), randn(rng, 31, 33), label="3 heads, 31 values of width 33")],
    compare=close(atol=1e-5),
    launch=lambda w, v: Launch(grid=1, block=64, shared=4 * (32 * (v.shape[1] + 1) + w.shape[0] * 32),
                               args=[w, v, out((w.shape[0], v.shape[1])), w.shape[0], v.shape[0], v.shape[1]]),
    expect=lambda w, v: w @ v)


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

exercise(id="3.9", cases=layer_cases, compare=close(atol=0, rtol=0, dtype=False))


exercise(id="3.10", cases=lambda rng: [
    Case(randn(rng, 1, 2, 2), randn(rng, 1, 2, 3), label="one head, d = 2, a latent of 3"),
    Case(randn(rng, 4, 5, 8), randn(rng, 4, 8, 12), label="4 heads, d = 8, a latent of 12"),
    Case(randn(rng, 3, 1, 6), randn(rng, 3, 6, 6), label="3 heads, a latent as wide as a head")],
    compare=close(atol=1e-5))

exercise(id="3.11", cases=lambda rng: [
    Case(torch.tensor([[1.0], [3.0], [10.0], [30.0]]), 4, 2, label="4 heads of one row, into 2"),
    Case(randn(rng, 12, 5), 4, 2, label="4 heads of 3 rows, into 2"),
    Case(randn(rng, 12, 5), 6, 1, label="6 heads of 2 rows, into 1"),
    Case(randn(rng, 8, 3), 4, 4, label="as many as before")], compare=close(atol=1e-6))


def latent_launch(q, tokens, latent_dim):
    (heads, width), n = q.shape, len(tokens)
    return Launch(grid=1, block=128, shared=4 * (32 * (width + 1) + heads * 32),
                  args=[q, tokens, out((heads, latent_dim)), heads, n, latent_dim, width - latent_dim])

def latent_traffic(q, tokens, latent_dim):
    """Each token once; a warp reads one number of a query at a time: a sector. Two warps may share a head."""
    return 4 * tokens.numel() + 32 * q.numel() * (2 if len(tokens) % 32 else 1) + 4 * len(q) * latent_dim

kernel_exercise(id="3.13", cases=lambda rng: [
    Case(randn(rng, 2, 3), randn(rng, 4, 3), 2, label="2 heads, 4 tokens, a latent of 2 and a rotated key of 1"),
    Case(randn(rng, 5, 12), randn(rng, 31, 12), 8, label="5 heads, 31 tokens, a latent of 8 and a rotated key of 4"),
    Case(randn(rng, 16, 32) / 4, randn(rng, 32, 32), 24, label="16 heads, 32 tokens, a latent of 24 and a rotated key of 8")],
    launch=latent_launch, compare=close(atol=1e-5), traffic=latent_traffic,
    expect=lambda q, tokens, latent_dim: torch.softmax(q @ tokens.T, -1) @ tokens[:, :latent_dim])
