"""Hostile submissions, and the private exercises that they are handed in for."""
import re

from course_lib.teaching.marks import marking
from course_lib.exercises.declare import declared

COPY = "def normalise(x):\n    return x\n"


def named(texts: str, rest: str = COPY) -> dict[str, str]:
    """{name: text} of what stands below each line `== name`; where a text defines no answer, `rest` ends it."""
    found = re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", texts, re.M)
    answers = re.compile(r"\b(normalise|attend|twice)\b")
    return {name: "\n" + text + ("" if answers.search(text) else rest) for name, text in found}


def forget_private_exercises() -> None:
    """Other tests go through the course's exercises, and these are not among them."""
    for ids in marking._loaded.values():
        for id in ids:
            declared.pop(id, None)
    marking._loaded.clear()
    marking._oracles.clear()
