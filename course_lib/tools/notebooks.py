"""`python -m course_lib run`: re-execute notebooks in place.

It is the only thing that changes `notebooks/`. It leaves each in one canonical form, so that a second run
without a change in between is no diff: stable cell ids, counts 1..n, no times, versions or paths."""
import argparse
import asyncio
import hashlib
import re
import sys
from pathlib import Path
from time import perf_counter

from course_lib.files import ROOT, write_whole
from course_lib.tools.clean_kernel import CELL_SECONDS, environment, use_writable_runtime_folder

NOTEBOOKS, WORK = ROOT / "notebooks", ROOT / "work"
# The id of the exercise that a cell belongs to, in its card, in its stub, in its check.
EXERCISE_MARKS = {"exercise-card": r"^### Exercise (\d+\.\d+)\b",
                  "exercise": r"^(?:#|//) EXERCISE (\d+\.\d+)\s*$", "check": r"\bcheck\(\"(\d+\.\d+)\""}
METADATA_KEPT = ("tags", "jupyter", "jp-MarkdownHeadingCollapsed")


def chapter_notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def find_notebook(name: str) -> Path:
    """A notebook by path, by number (3) or by word (gqa)."""
    if name.endswith(".ipynb"):
        path = Path(name)
        if not path.exists():
            raise LookupError(f"no notebook {name}")
        return path
    for path in chapter_notebooks():
        number, word = path.stem.split("_", 1)
        if name in (word, path.stem) or (name.isdigit() and int(name) == int(number)):
            return path
    known = ", ".join(path.stem for path in chapter_notebooks()) or "none yet"
    raise LookupError(f"no chapter {name!r}; there are: {known}")


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m course_lib run",
                                     description="Re-execute notebooks in place, in canonical form.")
    parser.add_argument("notebooks", nargs="*",
                        help="paths, numbers or words; all of notebooks/ where none is given")
    arguments = parser.parse_args(argv)
    try:
        paths = [find_notebook(name) for name in arguments.notebooks] or chapter_notebooks()
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    for path in paths:
        shown = shown_path(path)
        print(f"{shown} ...", end=" ", flush=True)
        start = perf_counter()
        try:
            changed = rerun(path)
        except CellFailed as error:
            failed += 1
            print(f"failed after {perf_counter() - start:.1f} s; the file is as it was\n{error}")
        else:
            print(f"{perf_counter() - start:.1f} s, {'changed' if changed else 'no change'}")
    return 1 if failed else 0


class CellFailed(Exception):
    pass


def rerun(path: Path) -> bool:
    """Execute a notebook and write it back in canonical form; whether that changed the file."""
    import nbformat

    before = path.read_text(encoding="utf-8")
    try:
        notebook = nbformat.reads(before, as_version=4)
    except Exception as error:
        raise CellFailed(f"{shown_path(path)} is not a notebook: {str(error).splitlines()[0]}") from None
    if path.resolve().parent == NOTEBOOKS:          # in a student's copy the exercises hold answers
        refresh_exercises(notebook)
    for cell in notebook.cells:
        cell.source = cell.source.strip("\n")
    notebook.cells = [cell for cell in notebook.cells if cell.source]
    execute(notebook, path)
    after = nbformat.writes(canonical(notebook)) + "\n"
    if after == before:
        return False
    write_whole(path, after, durable=True)
    return True


def refresh_exercises(notebook) -> None:
    """Each exercise's card, stub and check as its declaration makes them."""
    for cell in notebook.cells:
        for kind, id in exercise_of(cell):
            made = next(c for c in exercise_cells(id) if kind in c["metadata"]["tags"])
            cell.source = made["source"]
            cell.metadata["tags"] = list(made["metadata"]["tags"])
            cell["id"] = f"{kind}-{id.replace('.', '-')}"


def exercise_cells(id: str) -> list[dict]:
    from course_lib.exercises import cells

    return cells(id)


def exercise_of(cell):
    """[(kind, exercise id)] of a cell that its tags call part of an exercise."""
    for kind in cell.metadata.get("tags", []):
        if kind in EXERCISE_MARKS:
            found = re.search(EXERCISE_MARKS[kind], cell.source, re.M)
            if found is None:
                raise CellFailed(f"a cell is tagged {kind} and names no exercise: {cell.source[:60]!r}")
            yield kind, found[1]


def execute(notebook, path: Path) -> None:
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    class ThisEnvironment(KernelSpecManager):
        """Whatever the notebook calls its kernel, it is Python as it runs here."""
        def get_kernel_spec(self, kernel_name):
            return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    use_writable_runtime_folder()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisEnvironment())
    client = NotebookClient(notebook, km=manager, timeout=CELL_SECONDS, record_timing=False,
                            resources={"metadata": {"path": str(path.resolve().parent)}})
    reached = 0

    def started(cell, cell_index):
        nonlocal reached
        reached = cell_index

    client.on_cell_execute = started
    try:
        client.execute(env=environment() | {"COURSE_NARROW": "1"}, stderr=-3, stdout=-3)         # -3: subprocess.DEVNULL
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise CellFailed(f"{shown_path(path)}, under \"{heading_above(notebook, reached)}\":\n"
                         f"{error}") from None
    finally:
        asyncio.run(manager.shutdown_kernel(now=True))


def heading_above(notebook, index: int) -> str:
    for cell in reversed(notebook.cells[:index]):
        if cell.cell_type == "markdown" and (found := re.findall(r"^#{1,6} +(.+?) *$", cell.source, re.M)):
            return found[-1]
    return "top of the notebook"


def canonical(notebook):
    """The one form of an executed notebook."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    used: set[str] = set()
    count = 0
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in METADATA_KEPT if cell.metadata.get(key)}
        id = cell.get("id") or _id_of(cell.cell_type + cell.source)
        while id in used:
            id = _id_of(id)
        used.add(id)
        cell["id"] = id
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
                elif output.output_type == "error":
                    # Frames hold paths of this machine; the kind and the message are what the reader needs.
                    output.traceback = [f"\x1b[31m{output.ename}\x1b[39m: {output.evalue}"]
                elif output.output_type == "display_data":
                    output.pop("transient", None)
    return notebook


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _joined(outputs: list) -> list:
    """Pieces of one stream as one output: where they break depends on the machine's mood."""
    joined: list = []
    for output in outputs:
        last = joined[-1] if joined else None
        if (last is not None and output.output_type == last.output_type == "stream"
                and output.name == last.name):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def shown_path(path: Path) -> str:
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)
