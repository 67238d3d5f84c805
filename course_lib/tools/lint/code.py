"""Rules on a notebook's code and on the outputs that are committed with it."""
import ast
import copy
import re

from course_lib.tools.lint.book import begin, texts
from course_lib.tools.notebooks import canonical

CODE_LINES, CODE_LINES_RARELY, CUDA_LINES = 15, 25, 35
COLUMNS = 120                           # what a laptop's JupyterLab shows of a line beside the list of files


def first_cell_imports(book):
    if not book.code:
        yield "there is no code"
        return
    lines = [line for line in book.code[0].source.split("\n") if not line.startswith("%")]
    for node in ast.parse("\n".join(lines)).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield f"the first code cell only imports; line {node.lineno} does more"
    torch, ours = (next((i for i, line in enumerate(lines) if re.match(rf"(import|from) {name}\b", line)), len(lines))
                   for name in ("torch", "course_lib"))
    if torch < ours:
        yield f"line {torch + 1} loads torch before course_lib, which says what one waits for and how torch's threads wait"


def cells_are_short(book):
    long = []
    for cell in book.code:
        if book.is_exercise(cell):
            continue
        count = len(cell.source.split("\n"))
        limit = CUDA_LINES if cell.source.startswith("%%cuda") else CODE_LINES_RARELY
        if count > limit:
            yield f"{begin(cell)}: {count} lines; {limit} is the limit"
        elif count > CODE_LINES and limit != CUDA_LINES:
            long.append(begin(cell))
    if len(long) > max(1, len(book.code) // 8):
        yield f"cells are rarely longer than {CODE_LINES} lines, here {len(long)} are: {', '.join(long)}"


def lines_fit_the_screen(book):
    for cell in book.code:
        for line in cell.source.split("\n"):
            if len(line) > COLUMNS:
                yield (f"{begin(cell)}: a line of {len(line)} columns; {COLUMNS} can be seen: "
                       f"{line.strip()[:40]}")


def code_is_portable(book):
    for cell in book.code:
        for pattern, why in [(r"\bplt\.|\bimport matplotlib|\bfrom matplotlib",
                              "figures come from course_lib.figures"),
                             (r"%%?time\b|%%?timeit\b|perf_counter|time\.time\(",
                              "a time differs from machine to machine"),
                             (r"[\"']\.\./", "a notebook runs from notebooks/ and from work/: let the "
                              "package find its files"),
                             (r"^\s*(!|%pip|%conda|%%bash|%%sh)", "no shell in a notebook")]:
            if re.search(pattern, cell.source, re.M):
                yield f"{begin(cell)}: {why}"


def nbval_sees_everything(book):
    hiding = {"nbval-ignore-output", "nbval-skip"}
    for cell in book.code:
        if (hiding & set(cell.metadata.get("tags", []))
                or re.search(r"NBVAL_(IGNORE_OUTPUT|SKIP)", cell.source)):
            yield (f"{begin(cell)}: its output is hidden from the test suite; print something every machine "
                   "agrees on")
        if "NBVAL_" in cell.source:
            yield f"{begin(cell)}: a cell that raises is tagged raises-exception; no other mark is used"


def outputs_are_clean(book):
    for cell in book.code:
        if cell.execution_count is None:
            yield f"{begin(cell)}: never run"
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{begin(cell)}: writes to stderr: {output.text[:60]!r}"
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                yield f"{begin(cell)}: raises {output.ename} and is not tagged raises-exception"


MACHINE = [(r"(?<![\w./:])/(?:home|Users|root|tmp|work|usr|opt|var|mnt)/\w", "a path of one machine"),
           (r"\b[A-Z]:\\\w", "a path of one machine"),
           (r"site-packages", "a path of one machine"), (r"\b0x(?!f{8}\b)[0-9a-f]{6,}\b", "an address")]
UNSTABLE = [(r"(?<![\w.])-?\d+\.\d{6,}", "more digits than machines agree on"),
            (r"\d(?:\.\d+)?e-(?:0[6-9]|[1-9]\d)\b", "a rounding error, which differs between machines")]


def nothing_of_one_machine(book):
    for cell in book.cells:
        shown = list(texts(cell))
        for text in [cell.source, *shown]:
            for pattern, why in MACHINE:
                if found := re.search(pattern, text):
                    yield f"{begin(cell)}: {why}: {text[max(0, found.start() - 10):found.end() + 20]!r}"
        for text in shown:
            for pattern, why in UNSTABLE:
                if found := re.search(pattern, text):
                    yield f"{begin(cell)}: prints {found[0]}: {why}"


def canonical_form(book):
    import nbformat

    again = nbformat.writes(canonical(copy.deepcopy(book.notebook))) + "\n"
    if again.strip() != book.text.strip():
        yield f"not in canonical form: python -m course_lib run {book.path.name}"


RULES = [first_cell_imports, cells_are_short, lines_fit_the_screen, code_is_portable, nbval_sees_everything,
         outputs_are_clean, nothing_of_one_machine, canonical_form]
