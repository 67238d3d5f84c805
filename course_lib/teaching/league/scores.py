"""The scores of a class, and the files that show them."""
from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import astuple
from pathlib import Path

from course_lib.files import write_whole
from .. import marking, report
from ..batch import each
from ..submissions import Submission
from . import model
from .page import page
from .score import COUNTS, PROBLEMS, Score, bound, score

KERNELS = {problem.id: problem for problem in PROBLEMS}
Scores = dict[str, dict[str, Score]]             # {student: {problem: score}}


class Kept:
    """Scores of earlier runs, in RESULTS/league.json under everything that they depend on."""

    def __init__(self, results: Path):
        self.path = results / "league.json"
        try:
            self.known = dict(json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            self.known = {}

    def get(self, key: str) -> dict[str, Score] | None:
        try:
            return {id: Score(counts and tuple(counts), why) for id, (counts, why) in self.known[key].items()}
        except (KeyError, ValueError, TypeError, AttributeError):
            return None

    def put(self, key: str, scores: dict[str, Score]) -> None:
        self.known[key] = {id: astuple(made) for id, made in scores.items()}
        write_whole(self.path, json.dumps(self.known))


def league_cells(submissions: list[Submission]) -> dict[str, dict[str, str]]:
    """{student: {problem: source}} of everybody, with nothing for who has handed in none of the league's."""
    found: dict[str, dict[str, str]] = {}
    for made in submissions:
        theirs = {id: text for id, text in made.cells.items() if id in KERNELS or id == model.ID}
        found.setdefault(made.student, {}).update(theirs)
    return found


def table(cells: dict[str, dict[str, str]], seed: int, jobs: int, strict: bool, hide: list[Path],
          kept: Kept | None = None) -> tuple[dict[str, Score], Scores]:
    """(the scores of the plain kernels, those of each student), all found in the same way."""
    hidden = tuple(str(path.resolve()) for path in hide)
    plain = {id: problem.exercise().solution for id, problem in KERNELS.items()} | {model.ID: model.PAR}
    wanted: dict[str | None, dict] = {None: plain, **cells}
    keys = {student: _key(theirs, seed) for student, theirs in wanted.items()}
    found = {student: kept.get(keys[student]) if kept else None for student in wanted}

    def keep(student, answer) -> None:
        found[student] = _scores(answer)
        if kept and not isinstance(answer, str):
            kept.put(keys[student], answer)
    each(scores_of, {student: (wanted[student], seed, strict, hidden)
                     for student, known in found.items() if known is None}, jobs, keep)
    return found.pop(None), found


def scores_of(cells: dict[str, str], seed: int, strict: bool, hide: tuple[str, ...]) -> dict[str, Score]:
    """The scores of one student's cells. Runs in a worker."""
    sandbox = marking.warm_sandbox(strict, hide)
    found = {id: score(KERNELS[id], cells[id], seed, sandbox) for id in KERNELS if id in cells}
    return found | ({model.ID: model.score(cells[model.ID], seed, sandbox)} if model.ID in cells else {})


def _scores(answer: dict[str, Score] | str) -> dict[str, Score]:
    if isinstance(answer, str):
        failed = Score(None, f"The scoring itself failed: {answer}")
        return dict.fromkeys([*KERNELS, model.ID], failed)
    return answer


def _key(cells: dict[str, str], seed: int) -> str:
    rules = marking.fingerprint(PROBLEMS[0].exercise())             # with the code of the whole course
    text = json.dumps([seed, rules, sorted(cells.items())])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def write(results: Path, cells: dict[str, dict[str, str]], seed: int, jobs: int, strict: bool,
          hide: list[Path]) -> Scores:
    """Score what was handed in and write `league.html` and `league.csv`."""
    par, scores = table(cells, seed, jobs, strict, hide, Kept(results))
    least = {problem.id: bound(problem, seed) for problem in PROBLEMS}
    write_whole(results / "league.html", page(PROBLEMS, scores, par, least, seed))
    write_whole(results / "league.csv", _csv(scores))
    return scores


def _csv(scores: Scores) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["student", "problem", *COUNTS, "loss", "flops", "why not"])
    rows = []
    for student, theirs in scores.items():
        for problem in PROBLEMS:
            made = theirs.get(problem.id, Score(None, "not handed in"))
            rows.append([student, problem.name, *(made.counts or [""] * len(COUNTS)), "", "", made.why])
        made = theirs.get(model.ID, Score(None, "not handed in"))
        learnt = (made.counts[0] / model.UNIT, made.counts[1]) if made.counts else ("", "")
        rows.append([student, model.NAME, *[""] * len(COUNTS), *learnt, made.why])
    writer.writerows([report.safe_cell(str(value)) for value in row] for row in rows)
    return out.getvalue()
