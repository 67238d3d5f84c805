"""The options of `grade`."""
import argparse
import os

# (names, what argparse is told)
OPTIONS = [
    (["folder"], dict(metavar="FOLDER", help="notebooks and zip files, in folders or not, of any naming")),
    (["--out"], dict(default="results", metavar="RESULTS",
                     help="where grades.csv, the pages and the gradebooks go (default: %(default)s)")),
    (["--chapter"], dict(action="append", default=[], metavar="CHAPTER",
                         help="mark this chapter only, by number or word; may be repeated (default: every "
                         "chapter that somebody has handed in)")),
    (["--roster"], dict(metavar="CSV",
                        help="the class, with columns such as name, id and email, or a gradebook as "
                        "Canvas or Moodle exports it: who is missing, who is unknown")),
    (["--class-zip"], dict(action="append", default=[], metavar="FILE",
                           help="a zip file in FOLDER that holds a class: its inner folders name students; "
                           "may be repeated")),
    (["--depth"], dict(type=int, metavar="N",
                       help="at which level below FOLDER the students' names are (default: "
                       "the outermost folder or file that names somebody)")),
    (["--due"], dict(action="append", default=[], metavar="WHEN",
                     help="the deadline, such as 2026-05-01T23:59, or gqa=2026-05-01T23:59 for one chapter; "
                     "may be repeated")),
    (["--late"], dict(type=float, default=0.0, metavar="PERCENT",
                      help="lost per day begun after the deadline (default: a note, and no points)")),
    (["--late-days"], dict(type=int, metavar="N", help="after so many days all points are lost")),
    (["--grace"], dict(type=float, default=0.0, metavar="MINUTES", help="how late is still in time")),
    (["--exercises"], dict(metavar="DIR",
                           help="your own exercises: a folder of .py files with declarations")),
    (["--seed"], dict(type=int, metavar="N",
                      help="which cases are drawn; without it they are fresh the first time, "
                      "and the same in every later run into RESULTS")),
    (["--jobs"], dict(type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="at a time (default: "
                      "%(default)s)")),
    (["--no-sandbox"], dict(action="store_true",
                            help="mark even where a wall around students' code is missing")),
    (["--dask"], dict(metavar="ADDRESS", help="spread the work over a dask.distributed cluster"))]


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m course_lib grade",
                                     description="Mark a folder of submissions.")
    for names, told in OPTIONS:
        parser.add_argument(*names, **told)
    return parser.parse_args(argv)
