"""The index of terms: each word of the glossary, and the place where a chapter first teaches it."""
import json
import re
from functools import cache

import nbformat

from course_lib.tools.book import texts
from course_lib.tools.notebooks import chapter_notebooks

SPELT = {"cache (KV)": "KV cache", "roofline": "arithmetic intensity", "head": "many head", "paging": "page",
         "W2": "Wasserstein-2 distance", "coalescing": r"coalesc\w+", "copy-on-write": "copy[- ]on[- ]write",
         "logsumexp": "log-?sum-?exp", "query, key, value": "query"}
# Chapters in which a word first means something else: a mask's blocks, a row's padding, a softmax's state.
OTHERWISE = {"block": (5, 7, 8, 9, 10, 11), "padding": (6,), "decode": (10,), "embedding": (2, 5),
             "shuffle": (2,), "state": (6, 7, 8, 9)}


@cache
def places() -> dict[str, tuple[str, int]]:
    """term -> (notebook, cell) where it is first set off from the text, or else in a heading, or else used."""
    cells = [((path.name, n), cell) for path in chapter_notebooks()
             for n, cell in enumerate(nbformat.read(path, as_version=4).cells) if n]
    words = [(at, cell.source.partition("**Sources.**")[0]) for at, cell in cells
             if cell.cell_type == "markdown" and "exercise-card" not in cell.metadata.get("tags", [])]
    prose = [(at, texts.NO_PROSE.sub(" ", text)) for at, text in words]
    headings = [(at, "".join(re.findall(r"^## .*", text, re.M))) for at, text in words]
    found = {}
    for term in texts.terms():
        word, case = SPELT.get(term, re.escape(term)) + r"(?:s|d|ed)?", 0 if term.isupper() else re.I
        ways = ((prose, rf"(?<![*\w])\*\*?(?:an? |the )?{word}\*\*?(?![*\w])"),
                (headings, rf"\b{word}\b"), (prose, rf"\b{word}\b"))
        hits = (next((at for at, text in where if re.search(way, text, case)), None) for where, way in ways)
        found[term] = next(filter(None, hits))
    return found


def anchored(source: str, here: tuple[str, int]) -> str:
    """A cell's text with what links to its terms lead to: before it, or below its heading."""
    marks = "".join(f'<span id="{texts.place("term", term)}"></span>'
                    for term, at in places().items() if at == here)
    heading, _, rest = source.partition("\n")
    return f"{heading}\n\n{marks}\n{rest}" if marks and source.startswith("#") else f"{marks}{source}"


def page() -> str:
    """Every term with its definition and the chapter that first teaches it."""
    lines = ["# Index of terms\n\nThe number leads to where a chapter first teaches the term.\n"]
    for term, says in sorted(texts.terms().items(), key=lambda item: item[0].lower()):
        page, at = places()[term][0].replace(".ipynb", ".html"), texts.place("term", term)
        lines.append(f'- **{term}** <a href="chapters/{page}#{at}">chapter {int(page[:2])}</a>: {says}')
    return "\n".join(lines) + "\n"


def script() -> str:
    """term -> [definition, chapters that use the word so], for the script that marks it on a page."""
    table = {term: [says, [n for n in range(int(places()[term][0][:2]), len(chapter_notebooks()))
                           if n not in OTHERWISE.get(term, ())]] for term, says in texts.terms().items()}
    return f"window.courseTerms = {json.dumps(table, ensure_ascii=False)};\n"
