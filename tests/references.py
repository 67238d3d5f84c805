"""What tests of the chapters share: references of exercises, and numbers drawn with a seed."""
import pytest
import torch

from course_lib import cuda
from course_lib.exercises.declare import find


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
