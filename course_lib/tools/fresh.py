"""`python -m course_lib fresh`: a new copy of a chapter's notebook in work/, beside the old one."""
import argparse
import os
import sys
import tempfile
from pathlib import Path

from course_lib.files import ROOT
from course_lib.tools.notebooks import WORK, chapter_notebooks, find_notebook
from course_lib.tools.student_copy import student_copy


def fresh(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m course_lib fresh",
                                     description="Lay a new copy of a chapter's notebook in work/, beside "
                                     "the old one; nothing is overwritten.")
    parser.add_argument("chapters", nargs="*", help="numbers or words")
    parser.add_argument("--missing", action="store_true", help="every notebook that work/ does not have yet")
    arguments = parser.parse_args(argv)
    if not arguments.chapters and not arguments.missing:
        parser.print_usage()
        return 2
    WORK.mkdir(exist_ok=True)
    try:
        chosen = [find_notebook(name) for name in arguments.chapters]
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    for source in chapter_notebooks() if arguments.missing else []:
        if not (WORK / source.name).exists():
            lay_copy(source, WORK / source.name)
    for source in chosen:
        target, n = WORK / source.name, 2
        while not lay_copy(source, target):
            target, n = WORK / f"{source.stem}_{n}.ipynb", n + 1
        print(target.relative_to(ROOT).as_posix())
    return 0


def lay_copy(source: Path, target: Path) -> bool:
    """A student's copy under a free name; false if it is taken, even if it was taken this very moment."""
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=".tmp")
    os.close(descriptor)
    try:
        Path(part).write_text(student_copy(source), encoding="utf-8")
        os.chmod(part, 0o644)
        try:
            os.link(part, target)       # whole or not at all, and never over an existing file
        except FileExistsError:
            return False
        except OSError:                 # a file system without links
            if target.exists():
                return False
            os.replace(part, target)
        return True
    finally:
        if os.path.exists(part):
            os.unlink(part)
