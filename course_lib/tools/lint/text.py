"""Rules on what a notebook says: titles, figures in words, the core within its minutes, printed numbers."""
import re

from course_lib.tools.lint.book import begin, headings, texts, words
from course_lib.tools.lint.exercises import declared
from course_lib.tools.notebooks import exercise_of

WORDS_PER_MINUTE = 120
CORE_WORDS = 4000
CORE_MINUTES = {0: 60, 1: 120, 3: 105, 6: 120}          # 90 for the others
READING_MINUTES = 7                             # the longest stretch with nothing to run


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


def formulas_are_drawn_everywhere(book):
    """As MathJax in JupyterLab and the book's reader both take them."""
    for cell in book.markdown:
        if re.search(r"\\text\w*\{[^}]*\\_", cell.source):
            yield rf"{begin(cell)}: \text shows the backslash of \_; \mathrm and \mathtt do not"
        if re.search(r"[^\n]\n\$\$[^$]+\$\$|^\$\$[^$]+\$\$\n[^\n]", cell.source, re.M):
            yield f"{begin(cell)}: a displayed formula wants an empty line above and below"


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
        if re.search(r"\bfigures\.\w+\([^#]*\balt=", cell.source):
            yield f"{begin(cell)}: a text alternative by hand; without `alt` it is made from what is drawn"
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
    if read / WORDS_PER_MINUTE + minutes > limit:
        yield (f"the core takes {read / WORDS_PER_MINUTE + minutes:.0f} minutes ({read} words, {minutes:g} "
               f"minutes of exercises); {limit} is the limit")


def something_to_run(book):
    """Seven minutes of reading never pass without something to run."""
    read, start = 0, ""
    for cell in book.cells:
        if cell.cell_type == "code":
            read, start = 0, ""
        elif not book.is_exercise(cell):
            start = start or begin(cell)
            read += words(cell.source)
            if read > READING_MINUTES * WORDS_PER_MINUTE:
                yield f"{read} words without something to run, from {start}"
                read = 0


FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$|`[^`]+`|<details>.*?</details>|\]\([^)]*\)|\b\d{4}\.\d{5}\b",
                     re.S)
MEASURED = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+\.\d{2,}|\d{4,})(?!\w)")
SOURCE = re.compile(r"\b(?:19|20)\d\d\b|\bdata/|\bet al\b|\bdata sheet\b|https?:")


def numbers_are_printed(book):
    """A measured number in the prose is printed by a cell, in the code, or its paragraph names a source."""
    shown = " ".join([cell.source for cell in book.code]
                     + [text for cell in book.code for text in texts(cell)])
    known = {float(n) for n in re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", shown))
             if len(n) < 16}
    for cell in book.markdown:
        if book.is_exercise(cell):
            continue
        for paragraph in FORMULA.sub(" ", cell.source).split("\n\n"):
            for number in () if SOURCE.search(paragraph) else MEASURED.findall(paragraph):
                if not printed(number.replace(",", ""), known):
                    yield (f"{begin(cell)}: says {number}, which no cell prints and for which no source "
                           "is named")


def printed(number: str, known: set[float]) -> bool:
    """Whether a known number rounds to this one."""
    digits = len(number.partition(".")[2])
    return any(abs(round(value, digits) - float(number)) < 1e-9 * max(1, abs(value)) for value in known)


RULES = [one_title, no_skipped_level, formulas_are_drawn_everywhere, ends_with_where_you_stand,
         pictures_have_words, core_in_time, something_to_run, numbers_are_printed]
