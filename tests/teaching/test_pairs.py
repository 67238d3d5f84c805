"""Similarity between hand-ins: how often honest students are shown, and how often copies are."""
import itertools
import random

from adversaries import honest
from course_lib.exercises.judging.verdict import PASSED, Verdict
from course_lib.teaching.reports.class_page import class_page
from course_lib.teaching.copies.pairs import pairs
from course_lib.teaching.reports.report import Mark
from course_lib.teaching.copies.similarity import likeness, pieces

CLASS = 40


def class_of(seed: int, size: int = CLASS) -> list[dict[str, str]]:
    return [honest.answers(random.Random(1000 * seed + i)) for i in range(size)]


def marks_of(students: list[dict[str, str]]) -> list[Mark]:
    return [Mark(f"student {i:02d}", "attention", task, task, "write", Verdict(task, task, PASSED, ""),
                 source=source) for i, sources in enumerate(students) for task, source in sources.items()]


def shown(students: list[dict[str, str]], **more) -> list[tuple[str, str]]:
    return [pair.students for pair in pairs(marks_of(students), **more)]


def test_few_honest_pairs_are_shown_and_copies_are():
    """The rates that docs/marking.md states, on one class of them."""
    students = class_of(1)
    honest_pairs = len(shown(students))
    rng = random.Random(5)
    for copy, original in ((38, 3), (39, 21)):
        students[copy] = {task: honest.disguised(source, rng) for task, source in students[original].items()}
    found = shown(students)
    assert (honest_pairs <= 8 and ("student 03", "student 38") in found
            and ("student 21", "student 39") in found)
    assert "Pairs that agree more often than chance" in class_page(marks_of(students))


def test_an_answer_that_all_have_says_nothing():
    assert not shown([honest.answers(random.Random(1))] * CLASS, enough=0.1)


def test_the_class_page_has_one_line_for_code_that_many_share():
    marks = marks_of([honest.answers(random.Random(1))] * 12)[::6]
    for mark in marks:
        mark.flags = ("same code as many",)
    page = class_page(marks)
    assert page.count("student 03") == 2 and "<td>12</td>" in page        # in the grid, and in that line


def test_likeness():
    one = "def f(x):\n    y = x + 1\n    return y * 2\n"
    assert likeness(pieces(one), pieces(one.replace("y", "z") + "# z")) == 1
    assert likeness(pieces(one), pieces(one.replace("    return", "    pass\n    return"))) > 0.7
    assert (likeness(pieces(one), pieces("def f(x):\n    return 2 * (x + 1)\n")) < 0.6
            and likeness(pieces(""), pieces(one)) == 0)


def rates(classes: int, enough: float) -> tuple[float, float]:
    """(share of honest pairs that are shown, share of disguised copies that are)"""
    false = copies = 0
    for seed in range(classes):
        students = class_of(seed)
        false += len(shown(students, enough=enough))
        rng = random.Random(seed)
        originals = rng.sample(range(36), 4)
        for copy, original in zip(range(36, 40), originals):
            students[copy] = {task: honest.disguised(source, rng)
                              for task, source in students[original].items()}
        found = shown(students, enough=enough)
        copies += sum((f"student {a:02d}", f"student {b:02d}") in found
                      for a, b in zip(originals, range(36, 40)))
    return false / (classes * len(list(itertools.combinations(range(CLASS), 2)))), copies / (4 * classes)


if __name__ == "__main__":
    for enough in (7, 9, 11, 13, 15):
        false, found = rates(20, enough)
        print(f"from {enough} bits: {100 * false:.2f} % of honest pairs, {100 * found:.0f} % of disguised "
              "copies")
