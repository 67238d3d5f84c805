"""Planted faults: does the suite still see what it is there to see? Not collected by pytest; run by hand.

    python tests/faults.py [NAME...] [--list] [--jobs N] [--tree FOLDER]

An entry of faults.toml is a name, a file, a text that occurs in it exactly once, what replaces it (the fault), and the tests
that must turn red: arguments of pytest, files from tests/ or from the root on, `-m slow` where only the slow
suite sees it. The tree is copied, once per job, beside a build cache that is kept; each selection must be
green without a fault.
What does not apply (a text that moved, a test of another name, a missing tool) is a failure: who renames a
test or a file renames it here too. All of it takes half an hour of one core."""
import argparse
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIME, NOT_RUN = 900, "does not apply"        # seconds for one selection; and a result
Fault = namedtuple("Fault", "name file old new tests room")
LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EVERY = [Fault(**entry, room=room) for room, entries in LISTED.items() for entry in entries]


def seconds() -> float:
    """Of processors, for the tests that have ended; with several jobs those of all of them."""
    return os.times().children_user + os.times().children_system


class Tree:
    """A copy of the tree in which one fault at a time is planted."""

    def __init__(self, tree: Path, number: int):
        self.tree = tree
        self.root = Path(tempfile.gettempdir()) / "course-faults" / tree.name / str(number)
        listed = ["git", "ls-files", "-co", "--exclude-standard"]
        names = subprocess.check_output(listed, cwd=tree, text=True).splitlines()
        files = {name for name in names if (tree / name).is_file()}
        for path in list(self.root.rglob("*")):         # builds stay; what another state of the tree had, not
            name = path.relative_to(self.root)
            if path.is_file() and name.parts[0] != ".build" and name.as_posix() not in files:
                path.unlink()
        for name in files:
            self.restore(name)

    def restore(self, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.tree / name, self.root / name)

    def test(self, selection: str) -> tuple[str, str]:
        """("green", "red", "late" or NOT_RUN, what pytest said)."""
        words = ["tests/" * (self.root / "tests" / word).is_file() + word for word in shlex.split(selection)]
        with tempfile.TemporaryFile("w+") as said:
            run = subprocess.Popen([sys.executable, "-m", "pytest", "-xqp", "no:cacheprovider", *words],
                                   cwd=self.root, stdout=said, stderr=said, start_new_session=True,
                                   env=os.environ | {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"})
            try:
                status = run.wait(TIME)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                status = run.wait()
            said.seek(0)
            text = said.read()
        passed = status == 0 and " passed" in text
        return "late" if status < 0 else "green" if passed else "red" if status in (1, 2) else NOT_RUN, text

    def plant(self, fault: Fault, green: dict[str, tuple[str, str]]) -> tuple[str, str]:
        path = self.root / fault.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(fault.old) != 1:
            return NOT_RUN, f"{fault.file} has the text {text.count(fault.old)} times"
        if fault.tests not in green:
            green[fault.tests] = self.test(fault.tests)
        if green[fault.tests][0] != "green":
            return NOT_RUN, f"without the fault the tests are {': '.join(green[fault.tests])}"
        try:
            path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            result, said = self.test(fault.tests)
        finally:
            self.restore(fault.file)
        return {"red": "caught", "green": "NOT CAUGHT"}.get(result, result), said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of `room: name`; none: all")
    parser.add_argument("--list", action="store_true", help="print the list and run nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    args = parser.parse_args()
    chosen = [f for f in EVERY if any(n in f"{f.room}: {f.name}" for n in args.names or [""])]
    if args.list:
        print(*(f"{f.room}: {f.name}\n    {f.file}\n    {f.tests}" for f in chosen), sep="\n")
        return 0
    trees, green, missed = queue.SimpleQueue(), {}, []
    for number in range(args.jobs):
        trees.put(Tree(args.tree.resolve(), number))

    def one(fault: Fault) -> None:
        tree, begin = trees.get(), seconds()
        result, said = tree.plant(fault, green)
        trees.put(tree)
        print(f"{result:14} {seconds() - begin:6.0f} s  {fault.room}: {fault.name}", flush=True)
        if result != "caught":
            missed.append(f"{result}: {fault.room}: {fault.name}")
            print("    " + said[-1500:].replace("\n", "\n    "), flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, chosen))
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught", *missed, sep="\n")
    return bool(missed or not chosen)


if __name__ == "__main__":
    sys.exit(main())
