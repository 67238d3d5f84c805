"""What goes wrong with barriers and copies in flight, in the words of errors.toml."""
import re
import tomllib
from pathlib import Path

from ..errors.facts import spans

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def told(teller) -> tuple[str, str] | None:
    kind, *numbers = (teller.detail if teller.kind == "deadlock" else "").split() or [""]
    if teller.reason == "rule":
        return f"{teller.result.kernel} {teller.detail}", ""
    if kind == "mbarrier":
        return _deadlock(teller, *map(int, numbers[:7]), [int(n) for n in numbers[7].split(",")[:-1]])
    if kind in ("cluster", "registers"):
        return _said(teller, kind, *numbers)
    if teller.reason in TEXTS:
        return _said(teller, teller.reason)
    return _race(teller) if teller.kind == "race" else None


def _said(teller, reason: str, *parts) -> tuple[str, str]:
    what, cause = TEXTS[reason]
    return teller.filled(what, *parts), cause


def _race(teller) -> tuple[str, str] | None:
    lines = teller.result.text(teller.place) + teller.result.text(teller.other_place)
    if teller.reason in ("", "inside a warp") and re.search("async.bulk|(st|red).async", lines):
        return _said(teller, "no order", "a bulk copy" if re.search("async.bulk", lines) else "an asynchronous store")
    if not teller.reason.startswith("no proxy fence"):
        return None
    does = "writes" if teller.e.who.action else "copies"
    return _said(teller, "fence", *(("reads", "a product") if teller.reason.endswith("product") else (does, "a bulk copy")))


def _deadlock(teller, memory, offset, phase, missing, expected, coming, owner, arrived) -> tuple[str, str]:
    name = "an mbarrier"
    if memory >= 0:
        teller.memory, teller.e.offset, teller.e.size = teller.result.memories[memory], offset, 8
        teller.e.owner = owner
        name = teller._element()
    lacks = [f"{missing} of its {expected} arrivals missing"] * (missing > 0)
    lacks += [f"{coming:,} bytes still to come"] * (coming > 0)
    lacks += [f"{-coming:,} bytes more come than it was told to expect"] * (coming < 0)
    times = {"": phase + 1, " in the phase before, and not in this one": phase}
    threads = {w: spans([t for t, last in enumerate(arrived) if last == at > 0]) for w, at in times.items()}
    who = "".join(f"\n  arrived{when}: threads {found}" for when, found in threads.items() if found)
    return _said(teller, "mbarrier", phase, phase % 2, name, " and ".join(lacks), who)
