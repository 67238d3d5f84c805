"""What the sanitizer finds in a changed kernel is not proved: each change of changed_kernels.yaml that reaches one of the
kernels of course_lib/studies/for_every_n.toml. A change that only makes values wrong is not the solver's to see."""
import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from changed_kernels import CLAIMS, changed_kernels, proved
from test_changed_kernels import CASES, CHANGES, judges_of

from course_lib import cuda
from course_lib.studies import for_every_n

pytest.importorskip("z3")
pytest.importorskip("clang.cindex")
ASKED = tomllib.loads(for_every_n.DATA.read_text(encoding="utf-8"))
KERNELS = {name: told for name, told in for_every_n.asked().items() if "/" in name}
FUNCTION = re.compile(r"(?m)^(?!\s|//|#|\})[^;{}]*?\b(?!__launch_bounds__)(\w+)\([^;{]*\{")


def of_word(files: str) -> list[str]:
    return [name for name in KERNELS if name.rpartition("/")[0] == files.split()[0]]


def word_of(name: str) -> str:
    return re.match(r"\w+", name.rpartition("/")[2])[0]


def functions(text: str) -> dict[str, str]:
    starts = [(m[1], m.start()) for m in FUNCTION.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return {name: text[start:end] for (name, start), end in zip(starts, ends)}


def reached(made: dict[str, str], name: str, seen: set) -> set[str]:
    """The functions that a kernel may call."""
    seen.add(name)
    for word in set(re.findall(r"\w+", made[name])) & made.keys() - seen:
        reached(made, word, seen)
    return seen


def changed_texts(folder, files: str, before: str, after: str):
    """The kernels' folder with one change, and those kernels of the table that it reaches."""
    kernels, (word, *beside) = shutil.copytree(cuda.KERNELS, folder / "kernels"), files.split()
    piece, old, new = r"\s+".join(map(re.escape, before.split())), {}, {}
    for path in (kernels / f"{word}.cu", *(kernels / name for name in beside)):
        text = path.read_text()
        old |= functions(text)
        path.write_text(re.sub(piece, lambda _: after, text))
        new |= functions(path.read_text())
    differ = {name for name in old if old[name] != new.get(name)}
    names = [name for name in of_word(files) if reached(new, word_of(name), set()) & differ]
    return kernels, names


def found_by_running(judges) -> set[str]:
    """The faults that the sanitizer names, each judge run for itself, and "values" where one is wrong."""
    said = set()
    for case, shape in judges:
        try:
            with cuda.sanitize():
                said |= set() if case.error(shape) <= case.tolerance else {"values"}
        except cuda.KernelError as error:
            said.add(f"{error.kind} in {error.kernel}")
    return said


def own(name: str) -> list:
    """Cases of a kernel: a change is judged by one, and may reach others."""
    cases = [case for case in CASES if word_of(name) in case.kernels and case.chapter == name.split("/")[0]]
    return [(case, shape) for case in cases[:3] for shape in case.small[:2]]


def runs(files, folder, kernels=KERNELS.keys(), more=lambda name: []):
    """Of each change that reaches a kernel: what is changed, what a run finds, the file, the kernel."""
    word, *beside = files.split()
    groups, load, number = CHANGES[files], cuda.load, 0
    with cuda.sanitize():
        changed = changed_kernels(folder / "all", word, [c for g in groups for c in g["changes"]], *beside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "load", lambda name: changed if name == word else load(name))
        for group in groups:
            judges = judges_of(**group)
            for change in group["changes"]:
                changed.globals["chosen"] = number = number + 1
                texts, names = changed_texts(folder / str(number), files, *change)
                said = found_by_running(judges) if kernels & set(names) else set()
                for name in kernels & set(names):
                    yield change, said | found_by_running(more(name)), texts / f"{word}.cu", name


def text_of(path: Path, name: str) -> tuple[str, str, Path]:
    return path.read_text(), name.rpartition("/")[2], path.parent


@pytest.mark.slow
@pytest.mark.parametrize("files", [files for files in CHANGES if ASKED.keys() & of_word(files)])
def test_what_the_sanitizer_finds_is_not_proved(files, tmp_path):
    for change, said, path, name in runs(files, tmp_path, ASKED.keys()):
        for kind in (kind for kind in CLAIMS if f"{kind} in {name.rpartition('/')[2]}" in said):
            held = proved(text_of(path, name), CLAIMS[kind], seconds=3, **KERNELS[name])
            assert held < CLAIMS[kind], (name, change, kind)


if __name__ == "__main__":     # [KERNEL...]: a line for each change of each kernel; counts as in docs/for_every_n_others.md
    counts, asked = Counter(), set(sys.argv[1:]) or KERNELS.keys()
    for files in (files for files in CHANGES if asked & set(of_word(files))):
        for change, said, path, name in runs(files, Path(tempfile.mkdtemp()), asked, own):
            proof = cuda.prove(text_of(path, name), seconds=2, **KERNELS[name])
            found = {f.claim: f.verdict for f in proof.findings}
            bug = any(kind in CLAIMS and word_of(at) == word_of(name) for kind, _, at in (s.partition(" in ") for s in said))
            left = {verdict for claim, verdict in found.items() if claim != "banks"} - {"proved"}
            how = "fails" if "fails" in left else "open" if left else "proved"
            counts["in the test" if name in ASKED else "left out", "fault" if bug else "values", how] += 1
            print(json.dumps([name, *change, sorted(said), found]), flush=True)
    print(*counts.items(), sep="\n")
