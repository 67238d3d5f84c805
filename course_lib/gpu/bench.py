"""`python -m course_lib gpu-bench`: the course's kernels timed on this card, beside the best of torch.

A kernel is timed only if its check passes, and listed only if it is not faster than the card can be. A row
says what share of the card's ceiling it reached, measured in the same run: reading or copying memory, or a
large matrix product. Writes data/gpu/<card>/bench.json after every row, and bench.png at the end."""
import argparse
import datetime
import json
import secrets
import statistics
import sys
from functools import cache, partial
from pathlib import Path

import torch

from course_lib.gpu.benchmarks import Benchmark, benchmarks
from course_lib.gpu.cases import CASES
from course_lib.gpu.check import build_all, folder_of
from course_lib.gpu.clock import Clock, HostTime, ceilings, memory_ceiling
from course_lib.gpu.results import right_as_they_are, write

FASTER_THAN_POSSIBLE = 1.05     # a measured ceiling may be a little below the true one


@cache
def red(kernel: str, dtype: torch.dtype, device) -> str | None:
    """Why the kernel may not be timed, or None: every case of it in this type, all shapes, fresh inputs, but
    for what the tests have just seen right."""
    on_card = torch.device(device).type == "cuda"
    seen = right_as_they_are(folder_of(torch.cuda.get_device_name())) if on_card else set()
    for case in CASES:
        if kernel in case.kernels and case.dtype == dtype:
            for shape in (*(() if f"{case.name}-small" in seen else case.small),
                          *(case.large if on_card and f"{case.name}-large" not in seen else ())):
                if case.unfit(shape, device):
                    continue
                seed = secrets.randbits(32)
                error = case.error(shape, device, seed)
                if not error <= case.tolerance:
                    return f"check is red: error {error:g} at {shape}, seed {seed}"
    return None


def measure(benchmark: Benchmark, clock, best: dict, device="cuda") -> dict:
    """A row, or {"refused": why}. Peers that cannot run here say why in their place."""
    row = {"chapter": benchmark.case.chapter, "kernel": benchmark.kernel, "case": benchmark.text}
    why = benchmark.case.unfit(benchmark.shape, device)
    if why := why or red(benchmark.kernel, benchmark.case.dtype, device):
        return row | {"refused": why}
    arguments = benchmark.case.arguments(benchmark.shape, device, secrets.randbits(32))
    arguments = benchmark.prepare(*arguments) if benchmark.prepare else arguments
    try:
        times = sorted(clock.times(partial(benchmark.run or benchmark.case.run, *arguments)))
    except HostTime as problem:
        return row | {"refused": str(problem)}
    ms = statistics.median(times)
    least_bytes, flops = benchmark.floor(**benchmark.shape)
    memory, arithmetic = least_bytes / memory_ceiling(best), flops / best["product_flops_per_second"]
    share = 1e3 * max(memory, arithmetic) / ms
    if share > FASTER_THAN_POSSIBLE:
        return (
            row | {"refused": f"{ms:.4f} ms would be {100 * share:.0f} % of the ceiling: the measurement is "
                   "wrong"})
    peers = {name: timed(make, arguments, clock) for name, make in benchmark.peers.items()}
    first = next((name for name, taken in peers.items() if isinstance(taken, float)), None)
    return row | {"ms": ms, "spread_ms": [times[len(times) // 10], times[-1 - len(times) // 10]],
                  "runs": len(times),
                  "limit": "memory" if memory > arithmetic else "arithmetic", "share_of_ceiling": share,
                  "gb_per_second": least_bytes / ms / 1e6, "tflops": flops / ms / 1e9,
                  "peer": first, "share_of_peer": peers[first] / ms if first else None, "peers_ms": peers}


def timed(make, arguments, clock) -> float | str:
    try:
        return statistics.median(clock.times(make(*arguments)))
    except Exception as problem:                    # a library without such a kernel says so in its own way
        return f"not run: {(str(problem).strip() or type(problem).__name__).splitlines()[0][:120]}"


def line_of(row: dict) -> str:
    said = (row.get("refused")
            or f"{row['ms']:.3f} ms, {100 * row['share_of_ceiling']:.0f} % of {row['limit']}")
    if row.get("peer"):
        said += f", {100 * row['share_of_peer']:.0f} % of {row['peer']}"
    return f"{row['kernel']:<22} {row['case']}: {said}"


def run(clock, card: str, folder: Path, device="cuda", chosen=None, say=print, limits=None) -> dict:
    best, before = limits or ceilings(clock, device), clock.state()
    say(f"copy {best['copy_bytes_per_second'] / 1e12:.2f} TB/s, read "
        f"{best['read_bytes_per_second'] / 1e12:.2f} TB/s, bfloat16 product "
        f"{best['product_flops_per_second'] / 1e12:.0f} TFLOP/s")
    chosen = list(chosen if chosen is not None else benchmarks())
    made = {"card": card, "date": datetime.date.today().isoformat(), "torch": torch.__version__,
            "ceilings": best, "clocks_before": before, "clocks_after": None,
            "complete": False, "rows": [], "refused": []}
    for benchmark in chosen:
        row = measure(benchmark, clock, best, device)
        made["refused" if "refused" in row else "rows"].append(row)
        made["complete"] = benchmark is chosen[-1]
        made["clocks_after"] = clock.state() if made["complete"] else None
        write(folder, "bench.json", json.dumps(made, indent=1) + "\n")
        say(line_of(row))
    return made


def figure(bench: dict, file) -> None:
    """Share of the ceiling, one bar per row; the peers of the same run as marks."""
    from course_lib import figures

    rows = bench["rows"]
    fig, ax = figures.new(7.4, 0.6 + 0.3 * len(rows))
    names = [f"{row['kernel']}  {row['case']}" for row in rows]
    ax.barh(range(len(rows)), [100 * row["share_of_ceiling"] for row in rows], color="#8da9c4")
    for i, row in enumerate(rows):
        marks = [100 * row["share_of_ceiling"] * row["ms"] / ms
                 for ms in row["peers_ms"].values() if isinstance(ms, float)]
        ax.plot(marks, [i] * len(marks), "|", color="#222222", markersize=11)
    ax.set_yticks(range(len(rows)), names, fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("% of the card's ceiling; a mark is a library call")
    figures.show(fig, alt="Bars, one per kernel and shape: its share of the ceiling.",
                 caption=f"{bench['card']}, {bench['date']}.", file=file)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-bench",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only kernels whose name holds one of these")
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("gpu-bench: there is no CUDA device here, so nothing was measured.", file=sys.stderr)
        return 1
    card = torch.cuda.get_device_name()
    chosen = [b for b in benchmarks() if not asked.words or any(word in b.kernel for word in asked.words)]
    if not chosen:
        print(f"gpu-bench: no kernel's name holds {' or '.join(asked.words)}", file=sys.stderr)
        return 1
    build_all(sorted({b.kernel for b in chosen}))
    made = run(Clock(), card, folder_of(card), chosen=chosen)
    try:
        figure(made, folder_of(card) / "bench.png")
    except ModuleNotFoundError as problem:
        print(f"no figure: {problem}")
    return 1 if made["refused"] else 0
