"""A notebook with what the rules ask of it."""
import re
from pathlib import Path

from course_lib.tools.notebooks import EXERCISE_MARKS


class Book:
    """A notebook with what the rules ask of it."""

    def __init__(self, path: Path, text: str | None = None):
        import nbformat

        self.path = Path(path)
        if not re.match(r"\d\d_", self.path.name):
            raise ValueError("a chapter's notebook is named NN_word.ipynb")
        self.text = self.path.read_text(encoding="utf-8") if text is None else text
        self.notebook = nbformat.reads(self.text, as_version=4)
        self.cells = self.notebook.cells
        self.markdown = [cell for cell in self.cells if cell.cell_type == "markdown"]
        self.code = [cell for cell in self.cells if cell.cell_type == "code"]
        self.number = int(self.path.name[:2])
        self.word = self.path.stem[3:]

    def is_exercise(self, cell) -> bool:
        return any(tag in EXERCISE_MARKS for tag in cell.metadata.get("tags", []))


def headings(cell) -> list[tuple[int, str]]:
    """[(level, text)] of a markdown cell, code fences left out."""
    source = re.sub(r"^(```|~~~).*?^\1", "", cell.source, flags=re.M | re.S)
    return [(len(marks), text) for marks, text in re.findall(r"^(#{1,6}) +(.+?) *#* *$", source, re.M)]


def words(source: str) -> int:
    """Words to read: a formula counts as one, folded hints and code as none."""
    source = re.sub(r"<details>.*?</details>|^```.*?^```|<!--.*?-->", " ", source, flags=re.S | re.M)
    source = re.sub(r"\$\$.*?\$\$|\$[^$]+\$|`[^`]+`", " formula ", source, flags=re.S)
    source = re.sub(r"\]\([^)]*\)|<[^>]+>", " ", source)
    return len(re.findall(r"[^\W_][\w'’-]*", source))


def texts(cell):
    """Every text that a cell's outputs show."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.ename, output.evalue, *output.traceback])
        else:
            yield from (value for kind, value in output.data.items()
                        if not kind.startswith("image/") and isinstance(value, str))


def begin(cell) -> str:
    return repr(cell.source.strip().split("\n")[0][:60])
