"""Every kernel of the course once more: inputs, launch, the answer in float64, how far off it may be.

A module per chapter, each with a list CASES. `make gpu-check` runs them on a card, the ordinary tests run
them on the CPU engine with the small shapes, and `make gpu-bench` times only kernels whose cases are right.
"""
from importlib import import_module

from course_lib.gpu.case import BF16, F32, Case
from course_lib.gpu.results import CHAPTERS

CASES: tuple[Case, ...] = tuple(case for word in CHAPTERS
                                for case in import_module(f"{__name__}.{word}").CASES)


def case_of(kernel: str, dtype=BF16, note: str = "") -> Case:
    """The first case of a kernel in a type whose note holds `note`."""
    return next(case for case in CASES
                if kernel in case.kernels and case.dtype == dtype and note in case.note)


__all__ = ["BF16", "CASES", "Case", "F32", "case_of"]
