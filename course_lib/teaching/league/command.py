"""`python -m course_lib league out|mark`: the ten problems as a notebook, and the table of the scores."""
from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from course_lib.files import write_whole
from ..exam.notebook import code, markdown
from ..grade import Refused, check_walls
from ..identity import Roster
from ..submissions import collect
from . import model
from .score import PROBLEMS
from .scores import league_cells, write

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
    scores = write(results, league_cells(submissions), seed, args.jobs, not args.no_sandbox,
                   [folder, results])
    print(f"{len(scores)} students: {results / 'league.html'}")
    return 0
