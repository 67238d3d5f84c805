"""`python -m course_lib league out|mark`: the ten problems as a notebook, and the table of the scores."""
from __future__ import annotations

import argparse
import csv
import io
import json
import os
import secrets
import sys
from pathlib import Path

from course_lib.files import write_whole
from ..batch import each
from ..exam.notebook import code, markdown
from ..grade import Refused, check_walls
from ..identity import Roster
from .. import marking, report
from ..submissions import Submission, collect
from . import model
from .page import page
from .score import COUNTS, PROBLEMS, Score, bound, score

INTRO = """
# The league

Ten kernels, one model, and no clock. For a kernel decide, in this order: the sectors that it moves, its
passes over the banks of shared memory, its barriers, its shared memory. The numbers are exact and the same on
every machine. Each kernel is run on shapes that you do not know, small and ragged ones among them, and
sanitized; a wrong result has no score. The launch is fixed. A kernel may not use functions of the C library,
nor pass or return a struct by value straight from or to an array, since such a copy is not counted. An atomic
operation counts as a sector and a pass per lane.
"""


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    try:
        return _out(args) if args.action == "out" else _mark(args)
    except (Refused, ValueError) as error:
        print(f"league: {error}", file=sys.stderr)
        return 2


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m course_lib league",
                                     description="Kernels ranked by exact counts.")
    actions = parser.add_subparsers(dest="action", required=True)
    out = actions.add_parser("out", help="write the notebook with the problems")
    out.add_argument("--out", default="league.ipynb", metavar="FILE")
    mark = actions.add_parser("mark", help="score what was handed in")
    mark.add_argument("folder", metavar="FOLDER", help="notebooks and zip files, as for grade")
    mark.add_argument("--out", required=True, metavar="DIR", help="where league.html and league.csv go")
    mark.add_argument("--roster", metavar="CSV", help="the class, as for grade")
    mark.add_argument("--seed", type=int, metavar="N",
                      help="which shapes are drawn: keep it for a season (default: a fresh one, printed)")
    mark.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N")
    mark.add_argument("--no-sandbox", action="store_true",
                      help="score even where a wall around students' code is missing")
    return parser.parse_args(argv)


def _out(args: argparse.Namespace) -> int:
    cells = [markdown(INTRO)]
    for problem in PROBLEMS:
        exercise = problem.exercise()
        cells += [markdown(f"## Exercise {exercise.id}: {exercise.title}\n\n{exercise.card}"),
                  code(exercise.cell(exercise.stub))]
    cells += [markdown(f"## Exercise {model.ID}: {model.TITLE}\n\n{model.CARD}"), code(model.SETUP),
              code(f"# EXERCISE {model.ID}\n{model.STUB.strip()}"), code(model.TRIAL)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    cells[1:1] = [code("import laptop_cuda as cuda") | {"id": "setup"}]
    made = {"nbformat": 4, "nbformat_minor": 5, "cells": cells, "metadata": {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}}
    write_whole(args.out, json.dumps(made, indent=1) + "\n")
    print(f"{args.out}: {len(PROBLEMS)} kernels and a model")
    return 0


def _mark(args: argparse.Namespace) -> int:
    folder, results = Path(args.folder), Path(args.out)
    if not folder.is_dir():
        raise Refused(f"{folder} is not a folder")
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    if not args.no_sandbox:
        check_walls([folder, results])
    submissions = collect(folder, roster=Roster.read(Path(args.roster)) if args.roster else None)
    results.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}", file=sys.stderr)
    par, scores = table(submissions, seed, args.jobs, not args.no_sandbox, [folder, results])
    least = {problem.id: bound(problem, seed) for problem in PROBLEMS}
    write_whole(results / "league.html", page(PROBLEMS, scores, par, least, seed))
    write_whole(results / "league.csv", _csv(scores))
    print(f"{len(scores)} students: {results / 'league.html'}")
    return 0


def table(submissions: list[Submission], seed: int, jobs: int, strict: bool,
          hide: list[Path]) -> tuple[dict[str, Score], dict[str, dict[str, Score]]]:
    """(the scores of the plain kernels, {student: {problem: score}}), all found in the same way."""
    hidden = tuple(str(path.resolve()) for path in hide)
    cells = {None: {problem.id: problem.exercise().solution for problem in PROBLEMS} | {model.ID: model.PAR}}
    cells |= {made.student: made.cells for made in submissions}
    tasks = {student: (theirs, seed, strict, hidden) for student, theirs in cells.items()}
    answers = each(scores_of, tasks, jobs)
    found = {student: _scores(answers[student]) for student in cells}
    return found.pop(None), found


def scores_of(cells: dict[str, str], seed: int, strict: bool, hide: tuple[str, ...]) -> dict[str, Score]:
    """The scores of one student's cells. Runs in a worker."""
    sandbox = marking.warm_sandbox(strict, hide)
    found = {p.id: score(p, cells[p.id], seed, sandbox) for p in PROBLEMS if p.id in cells}
    return found | ({model.ID: model.score(cells[model.ID], seed, sandbox)} if model.ID in cells else {})


def _scores(answer: dict[str, Score] | str) -> dict[str, Score]:
    if isinstance(answer, str):
        failed = Score(None, f"The scoring itself failed: {answer}")
        return {p.id: failed for p in PROBLEMS} | {model.ID: failed}
    return answer


def _csv(scores: dict[str, dict[str, Score]]) -> str:
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
