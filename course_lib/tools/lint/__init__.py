"""`python -m course_lib lint [NOTEBOOK...]`: the conventions that every notebook of the course keeps.

Each rule is a generator of complaints, `rule(book) -> Iterator[str]`; `RULES` lists them, and the test suite
runs them all. `lint house` measures the tree (house.py), `lint voice` looks for riddles (voice.py)."""
import sys

from course_lib.tools.lint import code, exercises, house, text, voice
from course_lib.tools.lint.book import Book, headings, words
from course_lib.tools.notebooks import chapter_notebooks, find_notebook

RULES = text.RULES + code.RULES + exercises.RULES

__all__ = ["RULES", "Book", "complaints", "headings", "main", "words"]


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
