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

exercise(id="11.4", cases=choose_cases, compare=_choice_like, properties=[
    ("no query looks at more than top_k tokens", lambda got, case: bool((got.sum(-1) <= case.args[4]).all())),
    ("no query looks at a token that it does not see", lambda got, case: not bool((got & ~case.args[3]).any()))])


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

exercise(id="11.5", cases=axis_cases, compare=exact(),
    properties=[("there is one axis for each pair", lambda got, case: got.numel() == sum(case.args[0]))])


# A sink, in a kernel

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

kernel_exercise(id="11.6", cases=sink_cases, launch=lambda q, k, v, sinks: Launch(
    grid=q.shape[0], block=q.shape[1], args=[q, k, v, sinks, out(q.shape), k.shape[1], q.shape[1]]),
    expect=with_sinks, traffic=sink_traffic, compare=close(atol=1e-5))


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

exercise(id="11.7", cases=delta_cases, compare=close(atol=1e-5))


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

exercise(id="11.11", given={"torch": torch, "turned": turned}, cases=layout_cases, compare=exact())


def route_cases(rng):
    for tokens, experts, top_k in ((1, 3, 1), (4, 4, 2), (9, 16, 4), (5, 8, 8)):
        yield Case(randn(rng, tokens, 6), randn(rng, experts, 6), randn(rng, experts), top_k,
                   label=f"{tokens} tokens, the best {top_k} of {experts} experts")

exercise(id="11.12", cases=route_cases, compare=close())

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

exercise(id="11.13", cases=template_cases, compare=exact())

exercise(id="11.14", answer=60e9 / (3.4e9 + 28 * 2 * 8 * 128 * 2 * 8192), tolerance=0.15, misconceptions=[
    Misconception("forgets the cache", value=60 / 3.4, ask="What else does each step read, besides the weights?"),
    Misconception("keeps the keys and forgets the values", value=60e9 / (3.4e9 + 28 * 8 * 128 * 2 * 8192),
                  ask="A weight needs a key. What does it weigh?"),
    Misconception("reads one layer's cache", value=60e9 / (3.4e9 + 2 * 8 * 128 * 2 * 8192), ask="How many layers have a cache?"),
    Misconception("forgets the weights", value=60e9 / (28 * 2 * 8 * 128 * 2 * 8192),
                  ask="What must be read for every token, however short the text?")])
