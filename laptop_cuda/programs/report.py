"""What `run` prints after a program: the bugs found, or the counts per kernel and per line."""
from collections import Counter
from dataclasses import replace

from ..report import legend
from ..report.tables import text_table
from . import Ran

MOST_LINES = 12
ASKED, MOVED = (("bytes", "copies_in_bytes", "copies_out_bytes"),
                ("sectors", "copies_in_sectors", "copies_out_sectors"))


def text(ran: Ran, mode: str, files: dict[str, str]) -> str:
    """The report of a run, a few lines if nothing is wrong."""
    times = Counter(("note: " * (error["kind"] == "timeout") + error["message"]) for error in ran.errors)
    parts = [f"laptop_cuda: {message}" + f"\n(in {n:,} launches)" * (n > 1) for message, n in times.items()]
    parts += [f"laptop_cuda: note: {note}" for note in dict.fromkeys(ran.notes)]
    if ran.crash:
        parts.append(f"laptop_cuda: {ran.crash}")
    launches = f"{len(ran.launches):,} launch{'es' * (len(ran.launches) != 1)}"
    if ran.children:
        parts.append(_children(ran))
    if mode in ("profile", "both") and ran.launches:
        counted = replace(ran, launches=[launch for launch in ran.launches if launch["counts"]])
        parts.append(_kernels(counted) + "\n\n" + _lines(counted, files) + "\n\n" + legend())
        parts += _in_part(ran, "not counted in time") if mode == "profile" else []
    if not ran.launches and not ran.errors and mode != "plain":
        parts.append("laptop_cuda: " + ("no launch had ended by then: try a smaller size, or --plain"
                                        if ran.timed_out else
                                        "the program launched no kernel, nothing was checked"))
    elif mode in ("sanitize", "both"):
        parts += _in_part(ran)
        bugs = sum(error["kind"] != "not supported" for error in ran.bugs)
        unknown = f", {len(ran.bugs) - bugs} not supported" * (bugs < len(ran.bugs))
        found = f"{bugs or 'no'} bug{'s' * (bugs > 1)} found{unknown}"
        some = f": {ran.checked_blocks:,} of {ran.blocks:,} blocks" * (ran.checked_blocks < ran.blocks and not bugs)
        parts.append(f"laptop_cuda: {launches} checked{some}, {found}")
    return "\n".join(parts)


def _in_part(ran: Ran, uncounted: str = "") -> list[str]:
    """Of which launches not all was checked, or counted."""
    found = [f"laptop_cuda: launch {i:,}, {launch['kernel']}: {uncounted or 'checked in time: ' + launch['checked']}"
             for i, launch in enumerate(ran.launches, 1) if launch.get("checked") and not launch["error"]]
    more = [f"laptop_cuda: ... and {len(found) - 8:,} more launches in part"] * (len(found) > 8)
    return found[:8] + more + [f"laptop_cuda: --limit 600 would {'count' if uncounted else 'check'} more"] * bool(found)


def _children(ran: Ran) -> str:
    """Who was launched by kernels, how often, and where."""
    times = Counter((c["kernel"], c["launched_by"]["kernel"], c["launched_by"]["file"],
                     c["launched_by"]["line"]) for c in ran.children)
    return "\n".join(f"laptop_cuda: {child} was launched {n:,} time{'s' * (n != 1)} by {parent}, "
                     f"{file + ':' if file else 'line '}{line}"
                     for (child, parent, file, line), n in times.items())


def _kernels(ran: Ran) -> str:
    rows, flops = [], ran.total("flops") > 0
    for kernel in dict.fromkeys(launch["kernel"] for launch in ran.launches):
        def total(count):
            return f"{ran.total(count, kernel):,}"
        asked, moved = (sum(ran.total(count, kernel) for count in counts) for counts in (ASKED, MOVED))
        rows.append((kernel, total("launches"), total("requests"), f"{asked:,}", f"{32 * moved:,}",
                     total("wavefronts"), total("excess"), total("atomics"), total("barriers"),
                     total("longest_thread"), *[total("flops")] * flops, ""))
    return text_table(("kernel", "launches", "requests", "asked", "moved", "shared passes", "from conflicts",
                       "atomics", "barriers", "longest thread", *["FLOPs"] * flops, ""), rows)


def _lines(ran: Ran, files: dict[str, str]) -> str:
    sums: dict[tuple, dict] = {}
    for launch in ran.launches:
        for line in launch["lines"]:
            row = sums.setdefault((line["file"], line["line"]), dict.fromkeys(line, 0))
            for name in ("wavefronts", "excess", "atomics", "flops"):
                row[name] += line[name]
            row["bytes"] += sum(line[name] for name in ASKED)
            row["sectors"] += sum(line[name] for name in MOVED)
    busiest = sorted(sums.items(), key=lambda item: (not item[1]["flops"], -item[1]["sectors"],
                                                     -item[1]["wavefronts"]))[:MOST_LINES]
    rows, flops = [], ran.total("flops") > 0
    for (file, number), row in busiest:
        source = files.get(file, "").split("\n")
        shown = source[number - 1].strip() if 0 < number <= len(source) else ""
        rows.append((f"{file}:{number}", f"{row['bytes']:,}", f"{32 * row['sectors']:,}",
                     f"{row['wavefronts']:,}", f"{row['excess']:,}", f"{row['atomics']:,}",
                     *[f"{row['flops']:,}"] * flops, shown))
    return text_table(("line", "asked", "moved", "shared passes", "from conflicts", "atomics",
                       *["FLOPs"] * flops, "source"), rows)
