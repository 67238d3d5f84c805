"""Chapter 8: blocks, tables and kernels, and an engine that serves what the model alone would generate."""
import math
import re
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (RuleBasedStateMachine, initialize, invariant, precondition, rule,
                                 run_state_machine_as_test)

from course_lib import cuda, language_model
from course_lib.attention import scaled_dot_product_attention
from course_lib.paged_attention import (BlockAllocator, OutOfBlocks, PagedKVCache, copy_blocks_kernel,
                                        paged_attention, paged_attention_kernel, paged_prefill,
                                        paged_prefill_kernel)
from course_lib.kv_cache.sampling import next_token_probabilities
from course_lib.paged_attention.serving import Engine, Scheduler
import references
from references import contiguous, filled_cache, launches_of, names_the_argument


def test_the_prefix_used_least_recently_is_evicted():
    allocator = BlockAllocator(4, 2)
    assert not allocator.can_allocate([])                               # as allocate refuses it
    for name in ("a", "b"):
        tokens = [ord(name)] * 4
        allocator.allocate(name, tokens)
        allocator.register(name, tokens)
    for name in ("b", "a"):
        allocator.free(name)
    allocator.allocate("c", [0] * 2)  # takes the end of b, which lay longest
    assert allocator.allocate("a again", [ord("a")] * 5) == 4            # and this the beginning of b
    allocator.free("a again")
    assert allocator.allocate("b again", [ord("b")] * 3) == 0
    allocator.check()


def test_check_sees_a_lost_and_a_doubled_block():
    for damage in (lambda a: a._free.pop(), lambda a: a._free.append(0), lambda a: a.tables["a"].blocks.pop(),
                   lambda a: a.references.__setitem__(0, 2)):
        allocator = BlockAllocator(4, 2)
        allocator.allocate("a", [0] * 3)
        allocator.check()
        damage(allocator)
        with pytest.raises(AssertionError):
            allocator.check()


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (4, 2), (6, 1)])
@pytest.mark.parametrize("n", [1, 3])
def test_paged_is_contiguous_attention(heads, kv_heads, n):
    cache = filled_cache([3, 9, 16, 4], kv_heads)
    q = torch.randn(4, heads, n, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    out = paged_attention(q, cache, *cache.tables(range(4)), layer=1)
    for i in range(4):
        k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in contiguous(cache, i, 1))
        torch.testing.assert_close(out[i:i + 1], scaled_dot_product_attention(q[i:i + 1], k, v, causal=True))


@pytest.mark.parametrize("window", [None, 3])
def test_chunks_of_any_length_are_attended_in_one_call(window):
    cache, counts = filled_cache([3, 9, 16, 9, 20]), (1, 5, 1, 9, 5)
    q = torch.randn(sum(counts), 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out = paged_prefill(q, cache, *cache.tables(range(5)), counts, layer=1, window=window)
    for i, (chunk, got) in enumerate(zip(q.split(counts), out.split(counts))):
        k, v = (x.repeat_interleave(2, 1) for x in contiguous(cache, i, 1))
        n, m = len(chunk), k.shape[2]
        near = torch.arange(m) > torch.arange(m - n, m)[:, None] - (window or m)
        want = scaled_dot_product_attention(chunk.transpose(0, 1)[None], k, v, near, causal=True)
        torch.testing.assert_close(got, want[0].transpose(0, 1))


def call(freed=(), **change):
    cache = filled_cache([5, 9])
    tables, lengths = cache.tables([0, 1])
    for name in freed:
        cache.allocator.free(name)
    given = dict(q=torch.ones(2, 2, 1, 8).double(), cache=cache, tables=tables, lengths=lengths)
    return paged_attention(**given | change)


test_bad_input_is_named = names_the_argument({
    "q": [lambda: call(q=torch.ones(2, 2, 1, 8)), lambda: call(q=torch.ones(2, 3, 1, 8).double()),
        lambda: call(q=torch.ones(2, 2, 1, 4).double()), lambda: kernel_call("warp", dtype=torch.float64),
        lambda: kernel_call("warp", d=6), lambda: prefill_call(q=torch.ones(55, 4, 8).double()),
        lambda: prefill_call(d=6), lambda: prefill_call(q=torch.ones(55, 3, 8)),
        lambda: prefill_call(q=torch.ones(1, 55, 4, 8))], "layer": [lambda: call(layer=2),
        lambda: call(layer="0")], "tables": [lambda: call(freed=[1]),
        lambda: call(tables=torch.tensor([[0.0, 1.0]] * 2)),
        lambda: call(tables=torch.full((2, 3), 40)), lambda: call(tables=torch.full((2, 3), -1)),
        lambda: prefill_call(tables=torch.full((4, 10), -1))],
    "lengths": [lambda: call(lengths=torch.tensor([0, 9])), lambda: call(lengths=torch.tensor([5, 13])),
        lambda: call(q=torch.ones(2, 2, 6, 8).double())], "block_size": [lambda: BlockAllocator(4, 0),
        lambda: PagedKVCache(4, "16", 1, 1, 8)], "n_blocks": [lambda: BlockAllocator(2.0, 4)],
    "head_dim": [lambda: PagedKVCache(4, 4, 1, 1, 0)],
    "dtype": [lambda: PagedKVCache(4, 4, 1, 1, 8, torch.int8)],
    "tokens": [lambda: BlockAllocator(4, 4).allocate("a", []),
        lambda: filled_cache([2]).allocator.register(0, [1, 2, 3])],
    "name": [lambda: BlockAllocator(4, 4).free("a"), lambda: BlockAllocator(4, 4).append_slot("a"),
        lambda: filled_cache([2]).allocator.allocate(0, [1])],
    "child": [lambda: filled_cache([2, 2]).allocator.fork(0, 1)],
    "start and stop": [lambda: filled_cache([2]).slots(0, 1, 3)],
    "k": [lambda: filled_cache([2]).write(0, torch.tensor([1]), torch.ones(1, 2, 8), torch.ones(1, 2, 8))],
    "slots": [lambda: filled_cache([2]).write(0, torch.tensor([-1]), *[torch.ones(1, 2, 8).double()] * 2)],
    "counts": [lambda: prefill_call(counts=(33, 1, 20, 1.0)), lambda: prefill_call(counts=(33, 1, 20, 2)),
        lambda: prefill_call(counts=(33, 1, 0, 1)), lambda: prefill_call(q=torch.ones(54, 4, 8))],
    "kernel": [lambda: kernel_call("fast")], "n_splits": [lambda: kernel_call("naive", 2)],
    "v_dim": [lambda: PagedKVCache(4, 4, 1, 1, 8, v_dim=-1)], "window": [lambda: call(window=0)],
    "cache": [lambda: copy_blocks_kernel(PagedKVCache(4, 4, 1, 1, 8, v_dim=4), [(0, 1)])],
    "pairs": [lambda: copy_blocks_kernel(filled_cache([2], dtype=torch.float32), [(0, 1), (1, 2)]),
        lambda: copy_blocks_kernel(filled_cache([2], dtype=torch.float32), [(0, 40)])]})


def kernel_call(kernel="grouped", n_splits=1, heads=4, kv_heads=2, d=8, lengths=(1, 16, 9),
                dtype=torch.float32):
    cache = filled_cache(lengths, kv_heads, d, 4, dtype)
    q, tables = torch.ones(len(lengths), heads, 1, d, dtype=dtype), cache.tables(range(len(lengths)))
    paged_attention_kernel(q, cache, *tables, layer=1, kernel=kernel, n_splits=n_splits)


def prefill_call(heads=4, kv_heads=2, d=8, lengths=(40, 9, 33, 1), counts=(33, 1, 20, 1), size=4, **change):
    cache = filled_cache(lengths, kv_heads, d, size, torch.float32)
    tables, lengths = cache.tables(range(len(counts)))
    given = dict(q=torch.ones(int(sum(counts)), heads, d), tables=tables, lengths=lengths, layer=1)
    paged_prefill_kernel(cache=cache, counts=counts, **given | change)


@pytest.mark.parametrize("heads, kv_heads, d, rows", [(4, 1, 32, 32), (2, 2, 64, 32), (4, 2, 128, 16)])
def test_prefill_reads_the_pages_once_for_each_tile_of_rows(heads, kv_heads, d, rows):
    lengths, counts, size = (64, 128), (64, 32), 16
    launch, = launches_of(lambda: prefill_call(heads, kv_heads, d, lengths, counts, size))
    group, q_bytes, asked = heads // kv_heads, sum(counts) * heads * d * 4, 0
    for length, count in zip(lengths, counts):
        tiles = range(0, count * group, rows)
        n_threads = 128 * math.ceil(max(counts) * group / rows)  # of one key head: each asks its two starts
        asked += kv_heads * n_threads * 3 * 4                            # and its length
        for row in tiles:
            seen = length - count + (min(row + rows, count * group) - 1) // group + 1
            asked += kv_heads * seen * (2 * d * 4 + 4)  # keys, values, 4 bytes of the table a key
    assert launch.global_load.bytes == asked + q_bytes and launch.global_store.bytes == q_bytes
    kv, pages = 2 * sum(lengths) * kv_heads * d * 4, sum(lengths) // size
    # 4 and 8 entries of rows of 8
    assert 32 * launch.global_load.unique_sectors == kv + 2 * 32 + q_bytes + 2 * 32
    assert pages == 12


def test_the_table_of_the_kernel_file_is_counted():
    cache = filled_cache((256, 128), 2, 64, 16, torch.float32)
    tables, counted = cache.tables([0, 1]), []
    q = torch.ones(2, 8, 1, 64)
    calls = [lambda k=kernel, n=n: paged_attention_kernel(q, cache, *tables, kernel=k, n_splits=n)
             for kernel, n in (("naive", 1), ("warp", 1), ("grouped", 1), ("grouped", 4))]
    for run in (*calls, lambda: paged_prefill_kernel(torch.ones(96, 8, 64), cache, *tables, (64, 32))):
        both = [x for launch in launches_of(run) for x in (launch.global_load, launch.global_store)]
        counted.append((f"{sum(x.bytes for x in both):,}", f"{32 * sum(x.sectors for x in both):,}"))
    assert 32 * sum(x.unique_sectors for x in both) == 786592
    text = (cuda.KERNELS / "paged_attention.cu").read_text()
    assert counted == re.findall(r"^//   [1-5] .*?([\d,]{7,}) +([\d,]{7,})$", text, re.M)


VOCABULARY, CONTEXT = 11, 24
small_model = partial(references.small_model, 8, 20, d_model=8, d_hidden=8, context=CONTEXT)
MODEL, ALONE = small_model(), {}


def fail(*_):
    raise RuntimeError("no power")


def alone(prompt, n_new, temperature, seed):
    """What the model generates without any cache."""
    key = tuple(prompt), n_new, temperature, seed
    if key not in ALONE:
        generator = torch.Generator().manual_seed(seed)
        out = MODEL.generate(torch.tensor([prompt]), n_new, temperature, generator)
        ALONE[key] = out[0, len(prompt):].tolist()
    return ALONE[key]


def poison(cache):
    """Whoever reads a block that nobody holds gets nan."""
    cache.keys[:, cache.allocator._free] = math.nan
    cache.values[:, cache.allocator._free] = math.nan


def by_definition(logits, seen, temperature, top_k=None, top_p=None, repetition_penalty=1.0):
    """What next_token_probabilities says, one token at a time."""
    logits = [x if i not in seen else x / repetition_penalty if x > 0 else x * repetition_penalty
              for i, x in enumerate(logits)]
    weights = {i: math.exp((x - max(logits)) / temperature) for i, x in enumerate(logits)}
    kept, so_far = [], 0.0
    total = sum(sorted(weights.values(), reverse=True)[:top_k])
    for i in sorted(weights, key=weights.get, reverse=True)[:top_k]:
        if top_p is None or so_far < top_p:
            kept.append(i)
        so_far += weights[i] / total
    return [weights[i] / sum(weights[j] for j in kept) if i in kept else 0.0 for i in range(len(logits))]


SAMPLINGS = [dict(temperature=2.0), dict(temperature=0.7, top_k=4), dict(temperature=3.0, top_p=0.8),
             dict(temperature=2.0, repetition_penalty=1.5),
             dict(temperature=3.0, top_k=6, top_p=0.9, repetition_penalty=0.5)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_what_is_drawn_has_the_exact_distribution(sampling):
    prompt, n = [1, 2, 3, 1], 4000
    logits = 3 * torch.randn(VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    want = torch.tensor(by_definition(logits.tolist(), prompt, **sampling), dtype=torch.float64)
    torch.testing.assert_close(next_token_probabilities(logits, **sampling, seen=torch.tensor(prompt)), want)
    engine = Engine(MODEL, 4, 4)
    engine._forward = lambda batch: logits[None]
    engine.add_request(prompt, 1, n_samples=n, **sampling)
    counts = torch.bincount(torch.tensor(engine.run()[0])[:, 0], minlength=VOCABULARY)
    assert (((counts / n - want).abs() <= 4.5 * (want * (1 - want) / n).sqrt()).all() and (counts > 0).sum()
            >= 3)


def test_a_repeated_token_loses_its_turn():
    engine, tokens = Engine(MODEL, 8, 4), [1, 2]
    engine.add_request(tokens, 9, repetition_penalty=1.5)
    engine.add_request(tokens, 9)
    (penalised,), (plain,) = engine.run().values()
    for _ in range(9):
        chances = by_definition(MODEL(torch.tensor([tokens]))[0, -1].tolist(), tokens, 1.0,
                                repetition_penalty=1.5)
        tokens = tokens + [chances.index(max(chances))]
    assert tokens[2:] == penalised and len(set(plain)) < len(set(penalised))


def test_a_shared_prefix_is_computed_once():
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    engine = Engine(MODEL, 20, 4)
    engine.add_request(prompt, 2)
    assert engine.step().scheduled == {(0, 0): 8}
    engine.add_request(prompt, 2)                     # fully cached: its last block is computed again
    engine.add_request(prompt + [9], 2)
    assert engine.step().scheduled == {(0, 0): 1, (1, 0): 4, (2, 0): 1}


def test_only_what_is_computed_is_shared():
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    engine = Engine(MODEL, 8, 2, token_budget=5)
    poison(engine.cache)
    engine.add_request(prompt, 3)
    engine.step()
    engine.scheduler.preempt(engine.scheduler.running[0])
    assert engine.step().scheduled == {(0, 0): 5}     # finds two whole blocks again: 4 of its 5 tokens
    assert engine.scheduler.running[0].computed == 9
    assert engine.run() == {0: [alone(prompt, 3, 0.0, 0)]}


def test_samples_share_the_prompt():
    engine = Engine(MODEL, 20, 4)
    engine.add_request([1, 2, 3, 4, 5, 6], 3, n_samples=4, temperature=1.0)
    engine.step()
    assert engine.cache.allocator.n_available == 18
    step = engine.step()                              # three copy the half-filled block, the last keeps it
    assert engine.cache.allocator.n_available == 15 and step.kv_bytes == 4 * 7 * 2 * 2 * 8 * 8


def test_more_samples_than_blocks_take_turns():
    engine = Engine(MODEL, 3, 4)
    engine.add_request([1, 2, 3], 8, n_samples=9, temperature=1.0)
    assert engine.run() == {0: [alone([1, 2, 3], 8, 1.0, s) for s in range(9)]}
    assert engine.cache.allocator.n_available == 3


def test_cancelling():
    engine = Engine(MODEL, 8, 4)
    first = engine.add_request([1, 2, 3], 8, n_samples=2)
    second = engine.add_request([1, 2, 3], 8, on_token=lambda i, s, t: engine.cancel(i))
    engine.step()
    assert engine.cancel(first) and not engine.cancel(first) and not engine.cancel(second)
    assert not engine.busy and engine.output(second) == [alone([1, 2, 3], 1, 0.0, 0)]
    engine.cache.allocator.check()
    assert (engine.cache.allocator.n_available == 8
            and engine.run() == {0: engine.output(0), 1: engine.output(1)})
    waiting = engine.add_request([1], 2)
    assert engine.cancel(waiting) and not engine.busy


def test_an_error_in_a_callback_loses_nothing():
    engine, heard = Engine(MODEL, 8, 4), []
    engine.add_request([1, 2, 3], 2, on_token=fail)
    engine.add_request([1, 2, 3], 2, on_token=lambda *event: heard.append(event[2]))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            engine.step()
    assert (heard == engine.output(0)[0] == engine.output(1)[0] == alone([1, 2, 3], 2, 0.0, 0)
            and not engine.busy)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_step_that_fails_can_be_taken_again(preemption, monkeypatch):
    engine = Engine(MODEL, 8, 4, token_budget=4, preemption=preemption)
    engine.add_request([1, 2, 3, 4, 5], 6, n_samples=2, temperature=1.0)
    for n_good in (0, 1, 3):
        with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="no power"):
            broken.setattr(engine, "_forward", fail)
            engine.step()
        engine.cache.allocator.check()
        engine.scheduler.preempt(engine.scheduler.running[-1])
        for _ in range(n_good):
            engine.step()
    assert engine.run() == {0: [alone([1, 2, 3, 4, 5], 6, 1.0, s) for s in range(2)]}


@pytest.mark.parametrize("kernels, n, n_new", [(False, 10, 20), (True, 3, 4)])
def test_float32_serves_the_same_where_the_best_two_differ(kernels, n, n_new):
    model, _ = language_model.pretrained()
    generator = torch.Generator().manual_seed(0)
    engine = Engine(model, 40, 16, kernels, token_budget=32, max_running=6)
    for i in range(n):
        prompt = torch.randint(20, 60, (20 + 5 * i,), generator=generator)
        engine.add_request(prompt, n_new)
    for i, (got,) in engine.run().items():
        prompt = engine.requests[i].prompt
        with torch.no_grad():
            logits = model(torch.tensor([prompt + got]))[0, len(prompt) - 1:-1]
        best = logits.topk(2).values
        sure = best[:, 0] - best[:, 1] > 1e-3
        assert torch.equal(logits.argmax(-1)[sure], torch.tensor(got)[sure]) and sure.sum() >= n_new - 2


@pytest.mark.parametrize("change",
                         [{}, dict(attention="gqa", n_kv_heads=1), dict(attention="flash"), dict(attention="w2"),
                          dict(rope=[True, False]), dict(attention="latent", latent_dim=6, rope_dim=2),
                          dict(attention=["sliding", "softmax"], window=3)],
                         ids=lambda change: "-".join(map(str, change.values())) or "softmax")
def test_served_is_what_the_model_generates_alone(change):
    """Short of pages, and up to a stop; each token is told once. The machine below shares, swaps and samples."""
    model, generator = small_model(**change), torch.Generator().manual_seed(0)
    engine, streamed = Engine(model, 7, 4, token_budget=7, max_running=5), Counter()
    prompts = [[3, 1, 4, 1, 5][:i] + torch.randint(VOCABULARY, (1 + i,), generator=generator).tolist()
               for i in range(6)]
    for i, prompt in enumerate(prompts):
        engine.add_request(prompt, 9, temperature=float(i % 2), seed=i, stop=[2],
                           on_token=lambda *event: streamed.update([event[0]]))
    n_preempted = 0
    while engine.busy:
        poison(engine.cache)
        step = engine.step()
        n_preempted += len(step.preempted)
        assert sum(step.scheduled.values()) <= 7 and len(engine.scheduler.running) <= 5
    for i, prompt in enumerate(prompts):
        want = model.generate(torch.tensor([prompt]), 9, float(i % 2), torch.Generator().manual_seed(i))
        want = want[0, len(prompt):].tolist()
        want = want[:want.index(2) + 1] if 2 in want else want
        assert engine.output(i) == [want] and streamed[i] == len(want)
    assert n_preempted > 0 and len({tuple(engine.output(i)[0]) for i in range(6)}) > 2


@pytest.mark.parametrize("change, kept",
                         [(dict(attention="gqa", n_kv_heads=1), 8), (dict(attention="w2"), 2 * 14),
                          (dict(attention="latent", latent_dim=6, rope_dim=2), 8)])
def test_the_pages_hold_what_the_attention_keeps(change, kept):
    engine = Engine(small_model(**change), 3, 4)
    assert engine.cache.bytes == 2 * 3 * 4 * kept * 8  # layers, blocks, slots, numbers, bytes of one


def test_a_window_is_all_that_is_read():
    engine = Engine(small_model(attention=["sliding", "softmax"], window=3), 8, 4)
    engine.add_request([1] * 10, 2)
    assert engine.step().kv_bytes == (10 + 10) * 2 * 8 * 8  # every key is seen by a query of the prompt
    assert engine.step().kv_bytes == (3 + 11) * 2 * 8 * 8


@pytest.mark.parametrize("change, kernels, why", [
    (dict(attention="linear"), False, "model must keep .*state of fixed size"),
    (dict(attention=["softmax", "delta"]), False, "model must keep .*layer 1, Delta"),
    (dict(attention=["softmax", "gqa"], n_kv_heads=1), False,
     r"model must keep .*\[\(1, 4, 4\), \(2, 4, 4\)\]"),
    *((change, True, "kernels must be False unless ")
      for change in (dict(), dict(attention="w2"), dict(attention="sliding")))])
def test_what_cannot_be_served_is_refused(change, kernels, why):
    model = small_model(**change)
    with pytest.raises(ValueError, match=f"^{why}"):
        Engine(model.float() if kernels and change else model, 4, 4, kernels=kernels)


def test_the_model_must_attend_by_its_own_function():
    model = small_model()
    model.set_attention(lambda q, k, v: v)
    with pytest.raises(ValueError, match="^model must attend"):
        Engine(model, 4, 4)
    model.set_attention()
    assert Engine(model, 4, 4).run() == {}


@pytest.mark.parametrize("argument, change", [
    ("prompt", dict(prompt=[])), ("prompt", dict(prompt=[1] * 17)), ("prompt", dict(max_new_tokens=16)),
    ("prompt", dict(prompt=[VOCABULARY])), ("prompt", dict(prompt=[1.0])), ("prompt", dict(prompt=7)),
    ("prompt", dict(prompt=torch.ones(1, 3, dtype=torch.long))), ("max_new_tokens", dict(max_new_tokens=0)),
    ("n_samples", dict(n_samples=0)), ("temperature", dict(temperature=-1)), ("seed", dict(seed=-1)),
    ("temperature", dict(temperature=math.nan)), ("temperature", dict(temperature="0")), ("top_k", dict(top_k=0)),
    ("top_p", dict(top_p=1.5)), ("repetition_penalty", dict(repetition_penalty=0)),
    ("on_token", dict(on_token=1)), ("stop", dict(stop=3))])
def test_bad_requests_are_named(argument, change):
    engine = Engine(MODEL, 4, 4)
    with pytest.raises(ValueError, match=rf"^{argument} must "):
        engine.add_request(**dict(prompt=[1, 2], max_new_tokens=2) | change)
    assert not engine.busy and engine.cache.allocator.n_available == 4
    with pytest.raises(ValueError, match="^request_id must "):
        engine.cancel(0)
    for argument, wrong in (("token_budget", dict(token_budget=0)), ("preemption", dict(preemption="drop"))):
        with pytest.raises(ValueError, match=f"^{argument} must "):
            Scheduler(engine.cache, **wrong)


class Blocks(RuleBasedStateMachine):
    """A cache against contiguous lists. A slot holds a number that only its whole prefix puts there."""

    @initialize(n_blocks=st.integers(3, 9), size=st.integers(1, 4), n_hashes=st.sampled_from([1, 3, 10**9]))
    def start(self, n_blocks, size, n_hashes):
        self.cache = PagedKVCache(n_blocks, size, 1, 1, 1, torch.float64)
        self.cache.allocator.hash_function = lambda prefix: hash(prefix) % n_hashes
        self.contents, self.n_names = {}, 0

    @staticmethod
    def value(tokens):
        return float(hash(tuple(tokens)) % 10**9)

    def write(self, name, start, stop):
        x = torch.tensor([self.value(self.contents[name][:p + 1]) for p in range(start, stop)],
                         dtype=torch.float64)
        self.cache.write(0, self.cache.slots(name, start, stop), x.view(-1, 1, 1), x.view(-1, 1, 1))

    def new_name(self):
        self.n_names += 1
        return self.n_names

    def some(self, data):
        return data.draw(st.sampled_from(sorted(self.contents)))

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14), register=st.booleans())
    def allocate(self, tokens, register):
        name, allocator = self.new_name(), self.cache.allocator
        if not allocator.can_allocate(tokens):
            with pytest.raises(OutOfBlocks):
                allocator.allocate(name, tokens)
            return
        known = allocator.allocate(name, tokens)
        self.contents[name] = tokens
        self.write(name, known, len(tokens))
        if register:
            allocator.register(name, tokens)

    @precondition(lambda self: self.contents)
    @rule(data=st.data(), token=st.integers(0, 1), register=st.booleans())
    def append(self, data, token, register):
        name = self.some(data)
        try:
            self.cache.append_slot(name)
        except OutOfBlocks:
            assert self.cache.allocator.n_available == 0
            return
        self.contents[name] = self.contents[name] + [token]
        n = len(self.contents[name])
        self.write(name, n - 1, n)
        if register:
            self.cache.allocator.register(name, self.contents[name])

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def fork(self, data):
        parent, child = self.some(data), self.new_name()
        self.cache.allocator.fork(parent, child)
        self.contents[child] = self.contents[parent]

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def free(self, data):
        name = self.some(data)
        self.cache.allocator.free(name)
        del self.contents[name]
        poison(self.cache)
        with pytest.raises(ValueError):
            self.cache.allocator.free(name)

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def swap(self, data):
        name, allocator = self.some(data), self.cache.allocator
        saved, tokens = self.cache.read_blocks(allocator.tables[name].blocks), self.contents.pop(name)
        allocator.free(name)
        poison(self.cache)
        if allocator.can_allocate(tokens, share=False):          # not where others still hold what it shared
            assert allocator.allocate(name, tokens, share=False) == 0
            self.cache.write_blocks(allocator.tables[name].blocks, saved)
            self.contents[name] = tokens

    @invariant()
    def same_contents(self):
        if not hasattr(self, "cache"):
            return
        self.cache.allocator.check()
        for name, tokens in self.contents.items():
            got = self.cache.keys[0].flatten()[self.cache.slots(name, 0, len(tokens))]
            assert got.tolist() == [self.value(tokens[:p + 1]) for p in range(len(tokens))]

    def teardown(self):
        if hasattr(self, "cache"):
            for name in self.contents:
                self.cache.allocator.free(name)
            self.cache.allocator.check()
            assert self.cache.allocator.n_available == self.cache.allocator.n_blocks


class Serving(RuleBasedStateMachine):
    """An engine short of blocks against the model alone."""
    happened = Counter()

    @initialize(n_blocks=st.integers(5, 10), size=st.integers(2, 4), budget=st.integers(1, 9),
                max_running=st.integers(1, 6), preemption=st.sampled_from(["recompute", "swap"]),
                share=st.booleans())
    def start(self, n_blocks, size, budget, max_running, preemption, share):
        self.engine = Engine(MODEL, n_blocks, size, token_budget=budget, max_running=max_running,
                             preemption=preemption, share_prefixes=share)
        self.asked = {}

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12), n_new=st.integers(1, 12),
          n_samples=st.integers(1, 3), temperature=st.sampled_from([0.0, 1.0]), seed=st.integers(0, 3))
    def add(self, prompt, n_new, n_samples, temperature, seed):
        allocator = self.engine.cache.allocator
        case = dict(prompt=prompt, max_new_tokens=n_new, n_samples=n_samples, temperature=temperature,
                    seed=seed)
        if len(prompt) + n_new - 1 > min(allocator.n_blocks * allocator.block_size, CONTEXT):
            self.happened["refused"] += 1
            with pytest.raises(ValueError, match="^prompt must leave room"):
                self.engine.add_request(**case)
        else:
            self.asked[self.engine.add_request(**case)] = case

    @rule()
    def step(self):
        poison(self.engine.cache)
        done = self.engine.step()
        self.happened.update(steps=1, tokens=len(done.tokens), out_of_blocks=len(done.preempted))

    @rule(n=st.integers(2, 6))
    def steps(self, n):
        for _ in range(n):
            self.step()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data):
        request = data.draw(st.sampled_from(sorted(self.asked)))
        was_finished = self.engine.requests[request].finished
        self.happened["cancelled"] += not was_finished
        assert self.engine.cancel(request) != was_finished and not self.engine.cancel(request)

    @precondition(lambda self: hasattr(self, "engine") and self.engine.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data):
        running = self.engine.scheduler.running
        self.happened["preempted"] += 1
        self.engine.scheduler.preempt(running[data.draw(st.integers(0, len(running) - 1))])

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "engine"):
            return
        self.engine.cache.allocator.check()
        assert set(self.engine.cache.allocator.tables) == {s.name for s in self.engine.scheduler.running}
        self.compare(prefix=True)

    def compare(self, prefix=False):
        for request, case in self.asked.items():
            cancelled = self.engine.requests[request].cancelled
            outputs = self.engine.output(request)
            assert prefix or cancelled or len(outputs) == case["n_samples"]
            for sample, got in enumerate(outputs):
                want = alone(case["prompt"], case["max_new_tokens"], case["temperature"],
                             case["seed"] + sample)
                assert got == (want[:len(got)] if prefix or cancelled else want)

    def teardown(self):
        if hasattr(self, "engine"):
            while self.engine.busy:
                self.step()
            self.compare()
            for request in self.engine.requests.values():
                self.happened.update(forked=len(request.samples) - 1, finished=not request.cancelled)
            self.engine.cache.allocator.check()
            assert self.engine.cache.allocator.n_available == self.engine.cache.allocator.n_blocks


def drive(machine, examples, steps):
    run_state_machine_as_test(machine, settings=settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck)))


def test_a_machine_drives_the_blocks():
    drive(Blocks, examples=15, steps=25)


def test_a_machine_drives_the_engine():
    drive(Serving, examples=10, steps=12)


@pytest.mark.slow
def test_ten_thousand_steps():
    drive(Blocks, examples=60, steps=70)
    Serving.happened.clear()
    drive(Serving, examples=120, steps=60)
    happened = Serving.happened
    assert happened["steps"] >= 10_000
    kinds = "refused", "forked", "cancelled", "preempted", "out_of_blocks", "finished"
    assert min(happened[kind] for kind in kinds) >= 30, happened
