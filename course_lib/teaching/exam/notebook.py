"""A student's exam as a notebook: the machine in words, and for each exercise a card, a stub and a trial."""
import textwrap

from .predict import QUESTIONS
from .sheets import PROBLEMS, Sheet

SETUP = """
import torch
import laptop_cuda as cuda
from laptop_cuda.only_kernels import refusal
from laptop_cuda.toolchain.declared import declared

machine = cuda.Machine(
    banks={banks}, bank_bytes={bank_bytes}, sector_bytes={sector_bytes}, shared_bytes={shared_bytes})


def used(report, kernel, **most):
    sectors, passes = 2 * [sum(launch.atomics.operations for launch in report.launches)]
    for launch in report.launches:
        sectors += launch.global_load.sectors + launch.global_store.sectors
        passes += launch.shared_load.wavefronts + launch.shared_store.wavefronts
    rooms = [declared(kernel.module.builds(), launch.kernel) for launch in report.launches]
    device, steps = rooms[0].device, sum(launch.longest_thread for launch in report.launches)
    shared = max(max(room.shared, launch.shared_bytes) for room, launch in zip(rooms, report.launches)) + device
    own = max(launch.stack_bytes * room.noted for room, launch in zip(rooms, report.launches))
    arrays = max(len(room.own) for room in rooms)
    for name, count, what in (("sectors", sectors, "sectors"),
                              ("wavefronts", passes, "passes over the banks"),
                              ("shared_bytes", shared, "bytes of shared memory per block"),
                              ("device_bytes", device, "bytes of arrays in device memory"),
                              ("longest_thread", steps, "steps of the longest thread"),
                              ("own_arrays", arrays, "arrays of a thread's own"),
                              ("own_bytes", own, "bytes for a thread's own variables")):
        print(f"{{count:,}} {{what}}", f"(at most {{most[name]:,}})" if name in most else "")
    print(refusal(kernel) or "nothing in it is refused in marking")
"""
MACHINE = """
# Exam: {name}

Your GPU is not the one of the course. On it,

- shared memory has **{banks} banks**, each of them **{bank_bytes} bytes** wide: byte `b` of a block's
  shared memory is in bank `b // {bank_bytes} % {banks}`. In one pass each bank serves one word of
  {bank_bytes} bytes, to all lanes that ask for it. A request of at most 4 bytes per lane is served as a
  whole, one of 8 bytes in two halves of the warp, one of 16 bytes in four quarters; each part takes as many
  passes as its busiest bank has different words. (A wide load in which each lane has its neighbour's address,
  or each that of the lane two further, goes in half as many parts.)
- global memory moves in **sectors of {sector_bytes} bytes**. Every array begins at a sector.
- a block has at most **{shared_bytes:,} bytes** of shared memory.

All else is as in the course: 32 lanes per warp where the exercise says no other number, the same CUDA C++,
but without functions of the C library, and without the three copies of a struct that no count sees: for
`...`, of a result that placement `new` builds in an array, and by the C++ library. Your kernels are marked on
*your* machine: the result must be right, and the counts within the budget, in which an atomic operation is a
sector and a pass. Your classmates have other machines and other numbers.

Type a number in place of each `None`, and write each kernel into its cell; keep the line with `EXERCISE`. The
cell below a kernel runs it on your machine and says whether it is right and what it uses, as often as you
like. Then save the notebook and hand in this one file.
"""


def notebook(sheet: Sheet, name: str) -> dict:
    """The notebook as nbformat's dict."""
    machine = vars(sheet.machine)
    cells = [markdown(MACHINE.format(name=name, **machine)), code(SETUP.format(**machine))]
    for question in QUESTIONS:
        exercise = question.exercise(sheet.machine, sheet.questions[question.id])
        cells += [markdown(heading(exercise)), code(exercise.cell(exercise.stub))]
    for problem in PROBLEMS:
        numbers = sheet.numbers[problem.id]
        exercise = problem.exercise(sheet.machine, numbers, sheet.choices[problem.id])
        cells += [markdown(heading(exercise)), code(exercise.cell(exercise.stub)),
                  code(problem.trial_cell(sheet.machine, numbers))]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {"nbformat": 4, "nbformat_minor": 5, "cells": cells,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}}


def heading(exercise) -> str:
    points = f"{exercise.points:g} point{'s' * (exercise.points != 1)}"
    return f"## Exercise {exercise.id}: {exercise.title} ({points})\n\n{exercise.card}"


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": textwrap.dedent(text).strip()}


def code(text: str) -> dict:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
            "source": text.strip()}
