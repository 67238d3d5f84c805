"""`python -m course_lib lint [NOTEBOOK...]`: the conventions that every notebook of the course keeps.

Each rule is a generator of complaints, `rule(book) -> Iterator[str]`; `RULES` lists them. The test suite runs them all.
"""
import ast
import copy
import re
import sys
from pathlib import Path

from course_lib.tools import house, voice
from course_lib.tools.notebooks import EXERCISE_MARKS, canonical, chapter_notebooks, exercise_of, find_notebook

WORDS_A_MINUTE = 120
CORE_WORDS = 4000
CORE_MINUTES = {0: 60, 1: 120, 6: 120}          # 90 for the others
CODE_LINES, CODE_LINES_RARELY, CUDA_LINES = 15, 25, 35
COLUMNS = 120                                   # what a laptop's JupyterLab shows of a line beside the list of files
READING_MINUTES = 7                             # the longest stretch with nothing to run


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
            yield from (value for kind, value in output.data.items() if not kind.startswith("image/") and isinstance(value, str))


def begin(cell) -> str:
    return repr(cell.source.strip().split("\n")[0][:60])


# The text

def one_title(book):
    titles = [text for cell in book.markdown for level, text in headings(cell) if level == 1]
    if len(titles) != 1:
        yield f"one H1 is wanted, there are {len(titles)}: {titles}"
    elif not re.match(rf"{book.number} · ", titles[0]):
        yield f"the title is '{book.number} · ...', not {titles[0]!r}"
    if not book.cells or book.cells[0].cell_type != "markdown" or not book.cells[0].source.startswith("# "):
        yield "the first cell starts with the title"


def no_skipped_level(book):
    last = 0
    for cell in book.markdown:
        for level, text in headings(cell):
            if level > last + 1 and last:
                yield f"heading {text!r} jumps from level {last} to {level}"
            last = level


def ends_with_where_you_stand(book):
    sections = [text for cell in book.markdown for level, text in headings(cell) if level == 2]
    if book.number and (not sections or not re.search(r"Where you stand$", sections[-1])):
        yield f"the last section is 'Where you stand', not {sections[-1] if sections else None!r}"


def pictures_have_words(book):
    for cell in book.markdown:
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", cell.source):
            if not alt.strip():
                yield f"image {target} has no alternative text"
        for tag in re.findall(r"<img\b[^>]*>", cell.source):
            if not re.search(r"\balt=\"[^\"]+\"", tag):
                yield f"{tag[:60]} has no alternative text"
        if cell.get("attachments"):
            yield f"{begin(cell)}: an attached picture; draw it with course_lib.figures"
    for cell in book.code:
        outputs = cell.outputs
        for i, output in enumerate(outputs):
            if output.output_type not in ("display_data", "execute_result"):
                continue
            kinds = [kind for kind in output.data if kind.startswith("image/")]
            if not kinds:
                continue
            alt = output.metadata.get("image/png", {}).get("alt", "")
            if not alt.strip() or output.data.get("text/plain") != alt:
                yield f"{begin(cell)}: a figure without a text alternative; show it with course_lib.figures"
            caption = outputs[i + 1].get("data", {}).get("text/markdown", "") if i + 1 < len(outputs) else ""
            if not caption.startswith("*"):
                yield f"{begin(cell)}: a figure without a caption; show it with course_lib.figures"


def core_in_time(book):
    read = minutes = 0
    core = True
    by_id = declared(book)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            for level, text in headings(cell):
                if level <= 2:
                    core = not re.search(r"\bDeeper\b", text)
            ids = [id for kind, id in exercise_of(cell)]
            if core and ids:
                minutes += sum(by_id[id].minutes for id in ids if id in by_id)
            elif core:
                read += words(cell.source)
    limit = CORE_MINUTES.get(book.number, 90)
    if read > CORE_WORDS:
        yield f"the core has {read} words; {CORE_WORDS} is the limit"
    if read / WORDS_A_MINUTE + minutes > limit:
        yield (f"the core takes {read / WORDS_A_MINUTE + minutes:.0f} minutes ({read} words, {minutes:g} minutes of exercises); "
               f"{limit} is the limit")


def something_to_run(book):
    """Seven minutes of reading never pass without something to run."""
    read, start = 0, ""
    for cell in book.cells:
        if cell.cell_type == "code":
            read, start = 0, ""
        elif not book.is_exercise(cell):
            start = start or begin(cell)
            read += words(cell.source)
            if read > READING_MINUTES * WORDS_A_MINUTE:
                yield f"{read} words without something to run, from {start}"
                read = 0


# The code

def first_cell_imports(book):
    if not book.code:
        yield "there is no code"
        return
    lines = [line for line in book.code[0].source.split("\n") if not line.startswith("%")]
    for node in ast.parse("\n".join(lines)).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield f"the first code cell only imports; line {node.lineno} does more"


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
                yield f"{begin(cell)}: a line of {len(line)} columns; {COLUMNS} can be seen: {line.strip()[:40]}"


def code_is_portable(book):
    for cell in book.code:
        for pattern, why in [(r"\bplt\.|\bimport matplotlib|\bfrom matplotlib", "figures come from course_lib.figures"),
                             (r"%%?time\b|%%?timeit\b|perf_counter|time\.time\(", "a time differs from machine to machine"),
                             (r"[\"']\.\./", "a notebook runs from notebooks/ and from work/: let the package find its files"),
                             (r"^\s*(!|%pip|%conda|%%bash|%%sh)", "no shell in a notebook")]:
            if re.search(pattern, cell.source, re.M):
                yield f"{begin(cell)}: {why}"


def nbval_sees_everything(book):
    hiding = {"nbval-ignore-output", "nbval-skip"}
    for cell in book.code:
        if hiding & set(cell.metadata.get("tags", [])) or re.search(r"NBVAL_(IGNORE_OUTPUT|SKIP)", cell.source):
            yield f"{begin(cell)}: its output is hidden from the test suite; print something every machine agrees on"
        if "NBVAL_" in cell.source:
            yield f"{begin(cell)}: a cell that raises is tagged raises-exception; no other mark is used"


# The outputs

def outputs_are_clean(book):
    for cell in book.code:
        if cell.execution_count is None:
            yield f"{begin(cell)}: never run"
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{begin(cell)}: writes to stderr: {output.text[:60]!r}"
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                yield f"{begin(cell)}: raises {output.ename} and is not tagged raises-exception"


MACHINE = [(r"(?<![\w./:])/(?:home|Users|root|tmp|work|usr|opt|var|mnt)/\w", "a path of one machine"), (r"\b[A-Z]:\\\w", "a path of one machine"),
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


# The exercises

def declared(book) -> dict:
    from course_lib.exercises import CHAPTERS
    from course_lib.exercises.declare import load_chapter

    if book.number >= len(CHAPTERS) or CHAPTERS[book.number] != book.word:
        return {}
    return {exercise.id: exercise for exercise in load_chapter(book.word)}


def exercises_as_declared(book):
    from course_lib.exercises import cells

    by_id = declared(book)
    seen: dict[str, list[tuple[str, int]]] = {}
    for i, cell in enumerate(book.cells):
        found = list(exercise_of(cell))
        for kind, id in found:
            seen.setdefault(id, []).append((kind, i))
        for kind, pattern in EXERCISE_MARKS.items():
            if kind != "check" and not found and re.search(pattern, cell.source, re.M):
                yield f"{begin(cell)}: marked as an exercise's cell, and not tagged {kind}"
    for id in sorted(set(by_id) - set(seen)):
        yield f"exercise {id} is declared and not in the notebook"
    for id, places in seen.items():
        if id not in by_id:
            yield f"exercise {id} is in the notebook and not declared"
            continue
        kinds, where = [kind for kind, _ in places], [i for _, i in places]
        if kinds != list(EXERCISE_MARKS):
            yield f"exercise {id}: card, stub and check, each once and in this order, not {', '.join(kinds)}"
            continue
        if where[2] != where[1] + 1:
            yield f"exercise {id}: its check stands in the cell after its stub"
        for made, i in zip(cells(id), where):
            if book.cells[i].source.strip("\n") != made["source"].strip("\n"):
                yield f"exercise {id}: its {made['metadata']['tags'][0]} is not as declared: python -m course_lib run {book.path.name}"


def nothing_is_given_away(book):
    """Every exercise is unsolved, and no cell up to its check holds what its solution adds to its stub."""
    by_id = declared(book)
    ends = {}
    for i, cell in enumerate(book.cells):
        for kind, id in exercise_of(cell):
            ends[id] = i
            if kind != "check":
                continue
            verdict = " ".join(texts(cell)).lower()
            if "not attempted" not in verdict:
                yield f"exercise {id}: the notebook ships with it attempted"
            elif "use the reference" not in verdict:
                yield f"exercise {id}: its reference did not run, so the cells below it show nothing that is true"
        if cell.cell_type == "code" and re.search(r"^\s*reveal\(", cell.source, re.M):
            yield f"{begin(cell)}: reveals a solution"
        sealed = re.search(r"\.(given|solution|cases|oracle|misconceptions)\b", cell.source) if cell.cell_type == "code" else None
        if sealed:
            yield f"{begin(cell)}: `{sealed[0]}` of an exercise is not there in a handout"
    for id, end in ends.items():
        exercise = by_id.get(id)
        if exercise is None or exercise.kind in ("predict", "choose"):
            continue
        stub = squeezed(exercise.stub)
        added = [line for line in map(squeezed, exercise.solution.split("\n")) if len(line) >= 16 and line not in stub]
        for cell in book.cells[:end + 1]:
            shown = squeezed("\n".join([cell.source, *texts(cell)]))
            if added and all(line in shown for line in added):
                yield f"{begin(cell)}: holds the solution of exercise {id}"


def squeezed(code: str) -> str:
    return re.sub(r"\s+", "", re.sub(r"(#|//).*", "", code))


def kinds_of_exercises(book):
    exercises = declared(book).values()
    # Chapter 0 has its own rules, and the last chapter has no kernels of its own.
    if 0 < book.number < 10 and not any(exercise.language == "cuda" for exercise in exercises):
        yield "no exercise is a kernel"
    if book.number and not any(exercise.kind == "repair" for exercise in exercises):
        yield "no exercise is a bug to find"


RULES = [one_title, no_skipped_level, ends_with_where_you_stand, pictures_have_words, core_in_time, something_to_run,
         first_cell_imports, cells_are_short, lines_fit_the_screen, code_is_portable, nbval_sees_everything, outputs_are_clean,
         nothing_of_one_machine, canonical_form, exercises_as_declared, nothing_is_given_away, kinds_of_exercises]


def complaints(book: Book) -> list[str]:
    return [f"{rule.__name__}: {said}" for rule in RULES for said in rule(book)]


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print("usage: python -m course_lib lint [NOTEBOOK...]\n       python -m course_lib lint house\n"
              "       python -m course_lib lint voice [PATH...]")
        return 0
    if argv[:1] == ["house"]:
        return house.main()
    if argv[:1] == ["voice"]:
        return voice.main(argv[1:])
    try:
        paths = [find_notebook(name) for name in argv] or chapter_notebooks()
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    said = 0
    for path in paths:
        try:
            book = Book(path)
        except ValueError as error:         # another name, or no notebook at all
            found = [str(error).splitlines()[0]]
        else:
            found = complaints(book)
        said += len(found)
        print("\n".join([path.name, *(f"  {line}" for line in found or ["in order"])]))
    return 1 if said else 0
