"""What tests of the chapters share: references of exercises, numbers with a seed, small models and caches."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.exercises.declare import find
from course_lib.language_model import Config, LanguageModel
from course_lib.paged_attention import PagedKVCache


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rand64(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def reference(id):
    """What the solution of an exercise defines, run with the given names alone."""
    exercise = find(id)
    namespace = dict(exercise.given)
    exec(exercise.solution, namespace)
    return namespace[exercise.name]


def launches_of(function):
    with cuda.profile() as report:
        function()
    return report.launches


def names_the_argument(cases, given=tuple, begin="(must|needs) "):
    """A test of {argument: calls}: with fresh inputs each is refused by a message that begins with the name."""
    @pytest.mark.parametrize("argument, call", [(name, call) for name, calls in cases.items() for call in calls])
    def test(argument, call):
        with pytest.raises(ValueError, match=f"^{argument} {begin}"):
            call(*given())
    return test


def asked(launches):
    """Bytes of global memory, loaded and stored."""
    return sum(x.global_load.bytes + x.global_store.bytes for x in launches)


def wavefronts(launches):
    return sum(x.shared_load.wavefronts + x.shared_store.wavefronts for x in launches)


def excess(launches):
    return sum(x.shared_load.excess + x.shared_store.excess for x in launches)


def same_numbers(ours, theirs, inputs, atol=None, rtol=None, slack=1):
    """Two outputs are close, and so, `slack` times as far, are the gradients of their inputs."""
    upstream = rand64(*theirs.shape, seed=9, dtype=theirs.dtype)
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=rtol)
    gradients = [torch.autograd.grad(y, inputs, upstream, retain_graph=True) for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=atol and slack * atol, rtol=rtol and slack * rtol)


def small_model(seed=0, scale=None, **sizes):
    """A language model of 11 tokens; with a scale in float64, and far from uniform: margins are wide."""
    torch.manual_seed(seed)
    model = LanguageModel(Config(**{"vocab_size": 11, "n_layers": 2, "n_heads": 2, "d_model": 16,
                                    "d_hidden": 24, "context": 32} | sizes))
    if scale:
        model.double().eval()
        for parameter in model.parameters():
            parameter.data *= scale
    return model


def filled_cache(lengths, heads=2, d=8, size=4, dtype=torch.float64, n_blocks=40, layers=2):
    """A cache whose sequences 0, 1, ... have these lengths and normal entries; what nobody holds is nan."""
    generator = torch.Generator().manual_seed(sum(lengths) + d)
    cache = PagedKVCache(n_blocks, size, layers, heads, d, dtype)
    scattered = torch.randperm(n_blocks, generator=generator).tolist()
    cache.allocator._free = scattered
    cache.keys.fill_(math.nan), cache.values.fill_(math.nan)
    for name, length in enumerate(lengths):
        cache.allocator.allocate(name, [0] * length)
        for layer in range(layers):
            k, v = torch.randn(2, length, heads, d, dtype=torch.float64, generator=generator).to(dtype)
            cache.write(layer, cache.slots(name, 0, length), k, v)
    return cache


def contiguous(cache, name, layer):
    """Keys and values (1, heads, length, d) of one sequence, position by position."""
    table, size = cache.allocator.tables[name], cache.block_size
    return [torch.stack([pool[layer, table.blocks[p // size], :, p % size] for p in range(table.length)],
                        1)[None] for pool in (cache.keys, cache.values)]
