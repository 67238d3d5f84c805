"""The solutions of chapter 8's exercises against the chapter's modules, and the bug of its gallery."""
import pytest
import torch

from course_lib import cuda
from course_lib.exercises.declare import find
from course_lib.exercises.chapters.paged_attention import chain
from course_lib.paged_attention import BlockAllocator, PagedKVCache, paged_attention
from course_lib.paged_attention.serving import Request, Scheduler, Sequence
from references import reference


def scattered(n_blocks, block_size, seed):
    allocator = BlockAllocator(n_blocks, block_size)
    allocator._free = torch.randperm(n_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    return allocator


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_pages(length):
    cache = PagedKVCache(8, 16, 1, 2, 4)
    cache.allocator = scattered(8, 16, length)
    cache.allocator.allocate("a", [0] * length)
    k, v = torch.randn(2, length, 2, 4, generator=torch.Generator().manual_seed(length))
    cache.write(0, cache.slots("a", 0, length), k, v)
    read = reference("8.2")
    for head in range(2):
        assert torch.equal(read(cache.keys[0, :, head], cache.allocator.tables["a"].blocks, length),
                           k[:, head])


def test_known_blocks_are_those_that_the_allocator_shares():
    generator = torch.Generator().manual_seed(1)
    allocator = BlockAllocator(64, 3, hash_function=lambda key: chain(key[0] or 0, key[1]))
    for i in range(40):
        tokens = torch.randint(0, 2, (i % 14 + 1,), generator=generator).tolist()
        known = reference("8.3")(tokens, allocator._block_of, 3)
        assert known == allocator._known(tokens)
        if allocator.can_allocate(tokens):
            assert allocator.allocate(i, tokens) == 3 * len(known)
            allocator.register(i, tokens)
            if i % 3:
                allocator.free(i)
    allocator.check()


def test_the_plan_is_the_schedulers():
    generator = torch.Generator().manual_seed(2)
    scheduler = Scheduler(PagedKVCache(512, 4, 1, 1, 1), token_budget=9, max_running=4, share_prefixes=False)
    for i in range(12):
        prompt = torch.randint(1, 20, (), generator=generator).item()
        scheduler.add(Sequence(Request(i, [0] * prompt, 1 + i % 5), 0, [0] * prompt))
    while scheduler.waiting or scheduler.running:
        running = [len(s.tokens) - s.computed for s in scheduler.running]
        plan = reference("8.4")(running, [len(s.tokens) for s in scheduler.waiting], 9, 4)
        batch, _ = scheduler.schedule()
        assert [n for _, n in batch] == [n for n in plan if n]
        for sequence, n in batch:
            scheduler.computed(sequence, n)
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(0)
                if len(sequence.generated) == sequence.request.max_new_tokens:
                    scheduler.remove(sequence)


def test_copy_on_write():
    allocator = BlockAllocator(12, 4)
    allocator.allocate("a", [0] * 6)
    allocator.fork("a", "b"), allocator.fork("a", "c")
    tables = {name: list(table.blocks) for name, table in allocator.tables.items()}
    lengths, references, free = dict.fromkeys("abc", 6), list(allocator.references), list(allocator._free)
    for name in "bacbaaccbabc":
        if name == "a" and lengths["a"] == 8:
            allocator.fork("a", "d")
            tables["d"], lengths["d"] = list(tables["a"]), 8
            for block in tables["a"]:
                references[block] += 1
        want = allocator.append_slot(name)
        assert reference("8.8")(tables[name], lengths[name], references, free, 4) == want
        lengths[name] += 1
        assert tables[name] == allocator.tables[name].blocks
        assert (references, free) == (allocator.references, allocator._free)


def test_released_blocks_are_evicted_in_the_allocators_order():
    allocator = BlockAllocator(8, 2)
    for name, tokens in (("a", [1, 2, 3, 4, 5, 6]), ("b", [1, 2, 3, 4, 7, 8])):
        allocator.allocate(name, tokens)
        allocator.register(name, tokens)
    references = list(allocator.references)
    for name in "ab":
        before, table = list(allocator._cached), list(allocator.tables[name].blocks)
        allocator.free(name)
        assert before + reference("8.9")(table, references) == list(allocator._cached)


def one_head(d, length, size=16, seed=0):
    cache = PagedKVCache(12, size, 1, 1, d)
    cache.allocator = scattered(12, size, seed)
    cache.allocator.allocate("a", [0] * length)
    generator = torch.Generator().manual_seed(d + length)
    q, k, v = (torch.randn(n, 1, d, generator=generator) for n in (1, length, length))
    cache.write(0, cache.slots("a", 0, length), k, v)
    tables, lengths = cache.tables(["a"])
    return q[0, 0], cache.keys[0, :, 0], cache.values[0, :, 0], tables, lengths, cache


@pytest.mark.parametrize("d, length", [(32, 1), (64, 50), (96, 33), (128, 190)])
def test_the_kernel_of_the_gallery_repaired(d, length):
    q, keys, values, tables, lengths, cache = one_head(d, length)
    want = paged_attention(q.view(1, 1, 1, d), cache, tables, lengths).flatten()
    for source, right in ((find("8.6").solution, True), (find("8.6").stub, d == 32 or length <= 32)):
        got = torch.empty(d)
        with cuda.sanitize():                       # neither is an error of memory
            cuda.compile(source).paged_attend[1, d, 4 * length](q, keys, values, tables[0], got, length, d,
                                                                16, d ** -0.5)
        assert torch.allclose(got, want, atol=1e-5) == right


def test_make_room_preempts_as_the_scheduler_does():
    generator = torch.Generator().manual_seed(3)
    cache = PagedKVCache(9, 2, n_layers=1, n_kv_heads=1, head_dim=2)
    scheduler, seen = Scheduler(cache, token_budget=1000, max_running=6, share_prefixes=False), 0
    for i in range(6):
        prompt = [0] * int(torch.randint(1, 5, (), generator=generator))
        request = Request(i, prompt, 100)
        scheduler.add(Sequence(request, 0, list(prompt)))
    for _ in range(40):
        tables = [cache.allocator.tables[s.name] for s in scheduler.running]
        needs = [-(-len(s.tokens) // 2) - len(t.blocks) for s, t in zip(scheduler.running, tables)]
        before, free = len(tables), cache.allocator.n_available
        stay, left = reference("8.11")([len(t.blocks) for t in tables], needs, free)
        batch, preempted = scheduler.schedule()
        assert len(preempted) == before - stay
        if preempted:                                              # then no other sequence starts
            assert cache.allocator.n_available == left
            seen += 1
        for sequence, n in batch:
            scheduler.computed(sequence, n)
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(0)
            if len(sequence.tokens) > 14:
                scheduler.remove(sequence)
    assert seen > 2
