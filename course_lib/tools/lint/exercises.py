"""Rules on exercises: as declared, none solved, nothing given away before its check."""
import re

from course_lib.exercises import CHAPTERS, cells
from course_lib.exercises.declare import load_chapter
from course_lib.tools.lint.book import begin, texts
from course_lib.tools.notebooks import EXERCISE_MARKS, exercise_of


def declared(book) -> dict:
    if book.number >= len(CHAPTERS) or CHAPTERS[book.number] != book.word:
        return {}
    return {exercise.id: exercise for exercise in load_chapter(book.word)}


def exercises_as_declared(book):
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
            yield f"exercise {id}: its check follows its stub directly"
        for made, i in zip(cells(id), where):
            if book.cells[i].source.strip("\n") != made["source"].strip("\n"):
                yield (f"exercise {id}: its {made['metadata']['tags'][0]} is not as declared: "
                       f"python -m course_lib run {book.path.name}")


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
                yield (f"exercise {id}: its reference did not run, so the cells below it show nothing that "
                       "is true")
        if cell.cell_type == "code" and re.search(r"^\s*reveal\(", cell.source, re.M):
            yield f"{begin(cell)}: reveals a solution"
        sealed = (re.search(r"\.(given|solution|cases|oracle|misconceptions)\b", cell.source)
                  if cell.cell_type == "code" else None)
        if sealed:
            yield f"{begin(cell)}: `{sealed[0]}` of an exercise is missing in a handout"
    for id, end in ends.items():
        exercise = by_id.get(id)
        if exercise is None or exercise.kind in ("predict", "choose"):
            continue
        stub = squeezed(exercise.stub)
        added = [line for line in map(squeezed, exercise.solution.split("\n"))
                 if len(line) >= 16 and line not in stub]
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


RULES = [exercises_as_declared, nothing_is_given_away, kinds_of_exercises]
