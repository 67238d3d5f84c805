"""One table that every chapter adds its row to: what its mechanism does to loss, cache and traffic."""
import json
from pathlib import Path

from course_lib.datasets import DATA

ROWS = Path(DATA) / "growing_table.json"


def growing_table(word, *, loss=None, cache_bytes=None, moved_bytes=None):
    """Print the rows of the chapters so far, the last of them made of the numbers given, which were just measured.

    loss         validation loss of the tiny model with this mechanism, in nats a character
    cache_bytes  what the tiny model keeps for each token it has seen, at 2 bytes a number
    moved_bytes  the least that memory moves for one head of 128 tokens of width 32 (32 x unique sectors, all launches)

    None stands where a column does not apply. The committed table must say the same, so that it cannot go stale.
    """
    rows = json.loads(ROWS.read_text())
    measured = {"loss": loss, "cache_bytes": cache_bytes, "moved_bytes": moved_bytes}
    if word not in rows:
        raise ValueError(f"word must be a chapter with a row in {ROWS.name}; got {word!r}. The row: {measured}")
    for column, value in measured.items():
        committed = rows[word][column]
        tolerance = 0.01 if column == "loss" else 0
        if (value is None) != (committed is None) or (value is not None and abs(value - committed) > tolerance):
            raise ValueError(f"{column} must be as in {ROWS.name}, {committed}; measured {value}")
    print(f"{'chapter':<40} {'loss':>6} {'cache, bytes a token':>21} {'moved, bytes':>13}")
    for name, row in rows.items():
        loss, cache, moved = (row[column] for column in ("loss", "cache_bytes", "moved_bytes"))
        print(f"{row['name']:<40} {'-' if loss is None else f'{loss:.2f}':>6} "
              f"{'-' if cache is None else f'{cache:,}':>21} {'-' if moved is None else f'{moved:,}':>13}")
        if name == word:
            break
