"""What the sanitizer finds in a changed kernel is not proved: each change of changed_kernels.yaml that reaches one of the
kernels of course_lib/studies/for_every_n.toml. A change that only makes values wrong is not the solver's to see."""
import re
import shutil
import tempfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from changed_kernels import changed_kernels
from test_changed_kernels import CHANGES, judges_of

from course_lib import cuda
from course_lib.studies import for_every_n

pytest.importorskip("z3")
pytest.importorskip("clang.cindex")
ASKED = tomllib.loads(for_every_n.DATA.read_text(encoding="utf-8"))
CLAIMS = {"out of bounds": {"inside"}, "misaligned": {"inside"}, "race": {"stores", "races"},
          "barrier divergence": {"barriers"}, "deadlock": {"barriers"}}
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


def found_by_running(judges) -> str:
    """The kind of fault that the sanitizer names, or "values", or "nothing"."""
    try:
        with cuda.sanitize():
            return "nothing" if all(case.error(shape) <= case.tolerance for case, shape in judges) else "values"
    except cuda.KernelError as error:
        return f"{error.kind} in {error.kernel}"


def runs(files, folder):
    """Of each change that reaches a kernel: what is changed, what a run finds, the file, the kernels."""
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
                kernels, names = changed_texts(folder / str(number), files, *change)
                if names:
                    yield change, found_by_running(judges), kernels / f"{word}.cu", names


def verdicts(path: Path, name: str, seconds: float) -> dict[str, str]:
    text, instance = path.read_text(), name.rpartition("/")[2]
    proof = cuda.prove((text, instance, path.parent), seconds=seconds, **KERNELS[name])
    return {f.claim: f.verdict for f in proof.findings}


@pytest.mark.slow
@pytest.mark.parametrize("files", [files for files in CHANGES if ASKED.keys() & of_word(files)])
def test_what_the_sanitizer_finds_is_not_proved(files, tmp_path):
    proved = []
    for change, said, path, names in runs(files, tmp_path):
        kind, _, at = said.partition(" in ")
        for name in ASKED.keys() & names if kind in CLAIMS else ():
            if at == name.rpartition("/")[2]:
                found = verdicts(path, name, 3)
                if all(found[claim] == "proved" for claim in CLAIMS[kind]):
                    proved.append((name, change, said))
    assert not proved


if __name__ == "__main__":          # each change of each kernel: counts as in docs/for_every_n_others.md
    counts = defaultdict(Counter)
    for files in filter(of_word, CHANGES):
        for _, said, path, names in runs(files, Path(tempfile.mkdtemp())):
            for name in names:
                found = {verdict for claim, verdict in verdicts(path, name, 2).items() if claim != "banks"}
                how = "fails" if "fails" in found else "open" if found != {"proved"} else "proved"
                kind, _, at = said.partition(" in ")
                counts[name][kind in CLAIMS and at == name.rpartition("/")[2], how] += 1
    for name, n in counts.items():
        print("|", name, *(f"| {n[bug, how]}" for bug in (True, False) for how in ("fails", "open", "proved")), "|")
