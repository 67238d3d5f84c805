"""A notebook as a page of the book."""
import base64
import html
import math
import re
import tomllib
from pathlib import Path

import nbformat

from course_lib.exercises.declare import find
from course_lib.files import ROOT
from course_lib.tools.book import index, moving, running, texts, working
from course_lib.tools.book.texts import relinked

SHOWN = re.compile(r"\bcuda\.show\(\s*[\"']([\w/]+)[\"']|\bcuda\.load\(\s*[\"']([\w/]+)[\"']")
IMPORTED = re.compile(r"^from course_lib\.(\w+)(?:\.\w+)* import", re.M)
DOWNLOAD = ('\n\n*To work through it:* where the course is installed, this opens the chapter in JupyterLab:\n\n'
            '```bash\nmake lab ARGS={}\n```\n\n'
            'Or take <a href="../_static/notebooks/{}" download>the notebook</a> alone{}.')
COLAB = (', or open it <a href="https://colab.research.google.com/github/{}/blob/main/notebooks/{}">in '
         'Colab</a>')
PHONE = "(max-width: 520px)"        # as in course.css
CLICK = "Show a solution. It costs you the exercise: what you have read you will not find."


class Page:
    """One chapter: its cells changed for the book, its pictures as files."""

    def __init__(self, path: Path, pages: dict[str, str], compiler: bool = False):
        self.path, self.pages, self.compiler = path, pages, compiler
        self.notebook = nbformat.read(path, as_version=4)
        self.pictures: dict[str, bytes] = {}
        self.linked: set[str] = set()

    def build(self) -> nbformat.NotebookNode:
        cells, sources = [], texts.entries(self.notebook.cells)
        for number, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "markdown":
                cell.source = texts.cited(relinked(cell.source, "chapters/", self.pages), sources)
                if cell.source.startswith("# "):
                    cell.source += ways_in(self.path.name)
                cell.source = index.anchored(cell.source, (self.path.name, number))
                if "exercise-card" in cell.metadata.get("tags", []):
                    heading, _, card = cell.source.partition("\n")
                    cell.source = f"{heading}\n\n::::::{{container}} exercise-card\n{card.strip()}\n::::::"
            cells.append(cell)
            if cell.cell_type == "code":
                launches = running.after(self.path, cell)
                runs = any("course-cell" in text for text in launches)
                cell.outputs = [self._output(output, runs) for output in cell.get("outputs", [])]
                cells += self._after(cell, launches)
        self.notebook.cells = cells
        self.notebook.metadata["mystnb"] = {"execution_mode": "off"}
        return self.notebook

    def _after(self, cell, launches: list[str]) -> list:
        """What runs on the page, the solution below a check, and links to files that a cell shows."""
        worked = self.compiler and working.after(cell)
        told = launches + (worked or working.elsewhere(cell, running.command(self.path)))
        return [nbformat.v4.new_markdown_cell(text) for text in told] + self._links(cell)

    def _links(self, cell) -> list:
        if "check" in cell.metadata.get("tags", []):
            id = re.search(r'check\("([\d.]+)"', cell.source)
            return [nbformat.v4.new_markdown_cell(solution(id[1]))] if id else []
        names = [f"kernels/{a or b}.cu" for a, b in SHOWN.findall(cell.source)]
        names += [f"course_lib/{word}/__init__.py" for word in IMPORTED.findall(cell.source)]
        new = [name for name in dict.fromkeys(names) if name in self.pages and name not in self.linked]
        self.linked |= set(new)
        if not new:
            return []
        links = ", ".join(f"[{name.removesuffix('/__init__.py')}](../{self.pages[name]})" for name in new)
        return [nbformat.v4.new_markdown_cell(f"*Read the file: {links}*")]

    def _output(self, output, runs: bool):
        """A picture becomes an <img> with a real alt, a file beside the page."""
        data = output.get("data", {})
        if moving.is_moving(output):
            return nbformat.v4.new_output("display_data", data={
                "text/html": moving.shown(data["text/html"], output["metadata"], runs),
                "text/plain": data["text/plain"]})
        if "image/png" not in data:
            return output
        about = output.get("metadata", {}).get("image/png", {})
        drawn = about.get("svg")
        number = 1 + sum("narrow" not in name for name in self.pictures)
        name = f"{self.path.stem}-{number}.{'svg' if drawn else 'png'}"
        self.pictures[name] = drawn.encode() if drawn else base64.b64decode(data["image/png"])
        alt = about.get("alt") or data.get("text/plain", "")
        tag = (f'<img class="figure" src="../_static/figures/{name}" alt="{html.escape(alt, quote=True)}" '
               f'style="--narrowest: {narrowest(drawn or "")}px">')
        if narrow := about.get("narrow"):
            self.pictures[f"narrow-{name}"] = narrow.encode()
            tag = f'<picture><source media="{PHONE}" srcset="../_static/figures/narrow-{name}">{tag}</picture>'
        return nbformat.v4.new_output("display_data",
                                      data={"text/html": tag, "text/plain": data.get("text/plain", "")})


def narrowest(drawn: str) -> int:
    """Pixels of width below which the smallest letter of a drawing would have less than 9."""
    size = re.search(r'width="([\d.]+)".*?viewBox="[\d.]+ [\d.]+ ([\d.]+)', drawn)
    letters = re.findall(r"scale\(([\d.]+) -", drawn) if size else []   # of 100 units, as matplotlib writes
    least = lambda: min(float(size[1]), 9 * float(size[2]) / (100 * min(map(float, letters))))
    return math.ceil(least()) if letters else 0


def ways_in(name: str) -> str:
    """How a chapter is opened: in JupyterLab, as a file, and in Colab if pyproject.toml has an address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    github = re.match(r"https://github\.com/([\w.-]+/[\w.-]+)", project.get("urls", {}).get("Repository", ""))
    colab = COLAB.format(github[1].removesuffix(".git"), name) if github else ""
    return DOWNLOAD.format(int(name[:2]), name, colab)


def emptied(path: Path) -> str:
    """The notebook without outputs, for download: where it is opened they are computed."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook)


def solution(id: str) -> str:
    exercise = find(id)
    language = "cuda" if exercise.language == "cuda" else "python"
    text = exercise.solution.strip("\n")
    return (f"<details class=\"solution\"><summary>{CLICK}</summary>\n\n"
            f"```{language}\n{text}\n```\n\n</details>")


def chapters() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
