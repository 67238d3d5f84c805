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
