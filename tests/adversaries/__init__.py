"""Hostile submissions, and the private exercises that they are handed in for."""
import re

from course_lib.teaching.marks import marking
from course_lib.exercises.declare import declared

MODULES = re.compile(r"\b(atexit|builtins|contextlib|ctypes|faulthandler|gc|numpy|os|pickle|"
                     r"platform|re|resource|shutil|signal|socket|struct|sys|threading|time|types)\.")
ANSWERS = re.compile(r"\b(normalise|attend|twice)\b")
COPY = "def normalise(x):\n    return x\n"


def named(texts: str, rest: str = COPY) -> dict[str, str]:
    """{name: text} of what is below each line `== name`, imports added; `rest` ends what has no answer."""
    def whole(text):
        used = dict.fromkeys(MODULES.findall(text))
        imports = f"import {', '.join(used)}\n" if used else ""
        return f"\n{imports}{text}{'' if ANSWERS.search(text) else rest}"
    return {name: whole(text) for name, text in re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", texts, re.M)}


def forget_private_exercises() -> None:
    """Other tests go through the course's exercises, and these are not among them."""
    for ids in marking._loaded.values():
        for id in ids:
            declared.pop(id, None)
    marking._loaded.clear()
    marking._oracles.clear()
