"""What was measured on a card (`data/gpu/<card>/bench.json`, by `make gpu-bench`), and what was not."""
import hashlib
import json
import textwrap
from collections import Counter
from functools import cache
from itertools import groupby
from pathlib import Path

from course_lib import cuda
from course_lib.datasets import DATA
from course_lib.files import ROOT, write_whole
from laptop_cuda.text import signature
from laptop_cuda.text.outline import outline

FOLDER = Path(DATA) / "gpu"

CHAPTERS = ("attention", "rope", "gqa", "linear_attention", "sparse_attention", "flash_attention", "kv_cache",
            "paged_attention", "w2_attention", "asynchrony")
# The last rung of these ladders is a kernel in another chapter's file.
BORROWED = {"paged_attention": ("paged_tensor_core", "merge_splits"),
            "w2_attention": ("flash_tensor_core", "flash3_three_groups")}


def write(folder: Path, name: str, text: str) -> None:
    """A file of a card's folder, which its first result makes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / name, text, durable=True)


def sources() -> str:
    """A digest of the kernels, their wrappers and their cases: an answer holds for these alone."""
    files = sorted(file for folder in ("kernels", "course_lib") for file in (ROOT / folder).rglob("*")
                   if file.suffix in (".cu", ".cuh", ".py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def right_as_they_are(folder: Path) -> set[str]:
    """Cases that this card had right, small and large, with the sources as they are now."""
    file = folder / "checked.json"
    made = json.loads(file.read_text()) if file.exists() else {}
    return set(made["right"]) if made.get("sources") == sources() else set()


@cache
def kernels_of(word: str) -> tuple[str, ...]:
    """The chapter's kernels in the order of its files: the ladder, its folder's files, what it borrows."""
    folder = cuda.KERNELS / word
    backwards = word == "asynchrony"                # rungs 5 and 6, warpgroup.cu, before flash3.cu's
    files = [cuda.KERNELS / f"{word}.cu", *sorted(folder.glob("*.cu"), reverse=backwards)]
    names = [kernel.name for file in files
             for kernel in signature.kernels(outline(file.read_text(encoding="utf-8")))]
    return tuple(dict.fromkeys([*names, *BORROWED.get(word, ())]))


def gpu_table(word):
    """Print what was measured of the chapter's kernels, a row per kernel and card, and name the others.

    `ceiling` is the share of what the card could do at most (reading or copying memory, or a large matrix
    product). Beside it: how fast the kernel is in terms of a library's, the first that is named for it and the
    fastest, all measured in one run."""
    if word not in CHAPTERS:
        raise ValueError(f"word must be a chapter with kernels, one of {', '.join(CHAPTERS)}; got {word!r}")
    everything, kernels = list(measured()), kernels_of(word)
    rows = [row for row in everything if row["chapter"] == word]
    for row in rows:
        if row["kernel"] not in kernels:
            raise ValueError(f"kernel must be one of the chapter's, {', '.join(kernels)}; got "
                             f"{row['kernel']!r}")
    right_on_card = right_on(kernels)
    if not rows and not right_on_card:
        print("Not measured on a card yet: all kernels of this chapter.")
        return
    width = max((len(row["case"]) for row in rows), default=0)
    when = "{0[card]}, {0[date]}".format
    for card, here in groupby(sorted(rows, key=when), key=when):
        print(f"{card:<{23 + width}} {'ms':>7} {'ceiling':>7}  beside libraries")
        for row in sorted(here, key=lambda row: kernels.index(row["kernel"])):
            print(f"{row['kernel']:<22} {row['case']:<{width}} {row['ms']:7.3f} "
                  f"{percent(row['share_of_ceiling']):>7}  {beside(row)}")
    timed = {row["kernel"] for row in everything}
    for card, right in right_on_card.items():
        if others := [kernel for kernel in kernels if kernel in right and kernel not in timed]:
            print(textwrap.fill(f"Right on {card}, not timed: {', '.join(others)}.", 110))
    seen = timed.union(*right_on_card.values())
    if missing := [kernel for kernel in kernels if kernel not in seen]:
        print(textwrap.fill(f"Not measured on a card yet: {', '.join(missing)}.", 110))


def planted_table(outcome="right"):
    """Print the lines that were changed in chapter 12's kernels, by which the engine finds a race or a misused
    barrier and a card had this outcome, with what the compiler made of them; and count the other outcomes."""
    for file in sorted(FOLDER.glob("*/planted.json")):
        made = json.loads(file.read_text())
        rows = [row for row in made["rows"] if row["engine"] in ("race", "misused barrier")]
        print(f"{made['card']}, {made['date']}: {len(rows)} changed lines, up to 200 runs each")
        print(f"{'rung':<5} {'the engine':<16} {'the card':<23} {'nvcc ' + made.get('nvcc', ''):<21} changed")
        for row in rows:
            if row["outcome"] == outcome:
                print(f"{row['rung']:<5} {row['engine']:<16} {card_says(row):<23} {row.get('compiler', ''):<21} "
                      f"{difference(row['old'], row['new'])}")
        others = Counter(card_says(row) for row in rows if row["outcome"] != outcome)
        print("The others:", ", ".join(f"{count} {said}" for said, count in others.most_common()))


def card_says(row: dict) -> str:
    if "runs" not in row:
        return row["outcome"]
    return f"{row['outcome']} in {max(row['wrong'], row['runs'] - row['wrong'])} of {row['runs']}"


def difference(old: str, new: str) -> str:
    """The lines that are gone, then those that have come, comments aside."""
    old, new = ([line.partition("//")[0].strip() for line in text.splitlines()] for text in (old, new))
    changes = [f"- {line}" for line in old if line and line not in new]
    return " ".join(changes + [f"+ {line}" for line in new if line and line not in old])


def beside(row: dict) -> str:
    ran = {name: ms for name, ms in row["peers_ms"].items() if isinstance(ms, float)}
    named = dict.fromkeys([*list(ran)[:1], *([min(ran, key=ran.get)] if ran else [])])
    return ", ".join(f"{percent(ran[name] / row['ms'])} of {name}" for name in named) or "-"


def right_on(kernels) -> dict[str, set[str]]:
    """Card and date -> those of these kernels whose cases were all right there (checked.json, by gpu-check)."""
    found = {}
    for file in sorted(FOLDER.glob("*/checked.json")):
        made = json.loads(file.read_text())
        launched = [{kernel for kernel in kernels for name in made[word] if kernel in name.split(", ")}
                    for word in ("right", "wrong")]
        if right := launched[0] - launched[1]:
            found[f"{made['card']} ({made['date']})"] = right
    return found


def measured():
    """The rows of every card's file, each with its card and date (its own, where it was measured again)."""
    for file in sorted(FOLDER.glob("*/bench.json")):
        bench = json.loads(file.read_text())
        for row in bench["rows"]:
            yield {"card": bench["card"], "date": bench["date"]} | row


def percent(share):
    return "-" if share is None else f"{100 * share:.0f} %"
