"""What the sanitizer finds in a changed kernel is not proved: each change of changed_kernels.yaml that reaches one of the
kernels of course_lib/studies/for_every_n.toml. A change that only makes values wrong is not the solver's to see."""
import re
import shutil
import tomllib

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
KERNELS = {name: told for name, told in for_every_n.asked().items() if "/" in name and name in ASKED}
FUNCTION = re.compile(r"(?m)^(?!\s|//|#|\}).*?\b(\w+)\([^;{]*\{")


def of_word(files: str) -> list[str]:
    return [name for name in KERNELS if name.rpartition("/")[0] == files.split()[0]]


def functions(text: str) -> dict[str, str]:
    starts = [(m[1], m.start()) for m in FUNCTION.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return {name: text[start:end] for (name, start), end in zip(starts, ends)}


def reached(made: dict[str, str], name: str, seen: set) -> set[str]:
    """The functions that a kernel may call."""
    seen.add(name)
    for word in set(re.findall(r"\w+", made.get(name, ""))) & made.keys() - seen:
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
    names = [name for name in of_word(files) if reached(new, re.search(r"\w+", name.rpartition("/")[2])[0], set()) & differ]
    return kernels, names


def found_by_running(judges) -> str:
    """The kind of fault that the sanitizer names, or "values", or "nothing"."""
    try:
        with cuda.sanitize():
            return "nothing" if all(case.error(shape) <= case.tolerance for case, shape in judges) else "values"
    except cuda.KernelError as error:
        return f"{error.kind} in {error.kernel}"


@pytest.mark.slow
@pytest.mark.parametrize("files", [files for files in CHANGES if of_word(files)])
def test_what_the_sanitizer_finds_is_not_proved(files, tmp_path, monkeypatch):
    word, *beside = files.split()
    groups, load = CHANGES[files], cuda.load
    with cuda.sanitize():
        changed = changed_kernels(tmp_path / "all", word, [c for g in groups for c in g["changes"]], *beside)
    monkeypatch.setattr(cuda, "load", lambda name: changed if name == word else load(name))
    number, proved = 0, []
    for group in groups:
        judges = judges_of(**group)
        for change in group["changes"]:
            changed.globals["chosen"] = number = number + 1
            said = found_by_running(judges)
            kind, _, at = said.partition(" in ")
            if kind not in CLAIMS:
                continue
            kernels, names = changed_texts(tmp_path / str(number), files, *change)
            for name in names:
                text, instance = (kernels / f"{word}.cu").read_text(), name.rpartition("/")[2]
                if at.partition("<")[0] == instance.partition("<")[0]:
                    found = cuda.prove((text, instance, (kernels / word).parent), seconds=3, **KERNELS[name]).findings
                    verdicts = {f.claim: f.verdict for f in found}
                    if all(verdicts[claim] == "proved" for claim in CLAIMS[kind]):
                        proved.append((name, change, said))
    assert not proved
