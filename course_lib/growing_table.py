"""One table that every chapter adds its row to: its mechanism's loss, cache and traffic.

One rule per column, for every row:

loss     of the small model with the mechanism in it, in nats per character, on one evaluation: 200 blocks of
         256 characters spread over the held-out plays (`evaluate(model, validation, blocks=200)`, as in the
         studies behind data/).
control  the same evaluation of the unchanged model after the same steps of tuning. UNTUNED where nothing was
         tuned.
cache    a function: tokens seen -> bytes kept for them in all layers of the small model: 2 per number of a
         cache, 4 per number of a state, which is added to at every token. A cache that grows returns 2048 * n,
         a state its size, a rolling cache 2048 * min(n, slots). The table shows its value at the numbers of
         tokens in LENGTHS.
unique   32 x the unique sectors that one head of width 32 loads and stores for 128 tokens, float32, added
         over every launch from q, k and v to the output. With grouped heads: per query head. A cache that
         decodes token by token: all 128 steps.

None: the column does not apply. data/growing_table.json holds the rows; a chapter measures its own."""
import json
from pathlib import Path

from course_lib.datasets import DATA

ROWS = Path(DATA) / "growing_table.json"
LENGTHS = (256, 131_072)
UNTUNED = 1.4788        # the small model as it is, on that evaluation: the control of every study in data/


def growing_table(word, *, loss=UNTUNED, control=UNTUNED, cache, unique):
    """Print the rows of the chapters so far, the last of them made of the numbers given, just measured.

    Leave out the losses where the mechanism computes what the unchanged model computes. A ValueError where a
    number differs from data/growing_table.json, so that the committed table cannot go stale."""
    rows = json.loads(ROWS.read_text())
    measured = {"loss": loss, "control": control, "cache": [cache(n) for n in LENGTHS], "unique": unique}
    if word not in rows:
        raise ValueError(f"word must be a chapter with a row in {ROWS.name}; got {word!r}. The row: "
                         f"{measured}")
    for column, value in measured.items():
        committed = rows[word][column]
        rounded = column in ("loss", "control") and None not in (value, committed)
        if not (abs(value - committed) < 0.005 if rounded else value == committed):
            raise ValueError(f"{column} must be as in {ROWS.name}, {committed}; measured {value}")
    names = list(rows)
    for line in table([rows[name] for name in names[:names.index(word) + 1]]):
        print(line)


def table(rows):
    """The lines: a loss beside its control, caches in KiB, unique bytes."""
    yield (f"{'':<41} {'loss':>4} {'control':>8} {'cache, KiB, at 256':>19} {'at 131,072 tokens':>18} "
           f"{'unique bytes':>13}")
    for row in rows:
        cells = [f"{row['name']:<41}", f"{row['loss']:.2f}", f"{row['control']:8.2f}"]
        cells += [f"{size / 1024:{width},.0f}" for size, width in zip(row["cache"], (19, 18))]
        yield " ".join(cells + [f"{'-' if row['unique'] is None else format(row['unique'], ','):>13}"])
