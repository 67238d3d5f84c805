"""changes.csv: what this marking changed against the one before, row by row of grades.csv."""
import csv
from pathlib import Path

from ..reports.report import csv_text

COLUMNS = ["student", "exercise", "before", "after", "points before", "points after"]


def rows_of(path: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """(student, exercise) -> (verdict, points) of a grades.csv; nothing where there is none."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return {(row["student"], row["exercise"]): (row["verdict"], row["points"])
                    for row in csv.DictReader(file)}
    except (OSError, KeyError):
        return {}


def changes(before: dict, after: dict) -> str:
    """The lines that differ; a row that is new or gone has an empty side."""
    lines = []
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key, ("", "")), after.get(key, ("", ""))
        if was != now:
            lines.append([*key, was[0], now[0], was[1], now[1]])
    return csv_text([COLUMNS, *lines])
