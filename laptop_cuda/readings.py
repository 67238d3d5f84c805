"""`python -m laptop_cuda readings FOLDER [--table FILE]`: published kernels beside what was read on a card.

The table names repositories, commits and files; FOLDER holds checkouts of them, each in a folder of the
repository's name. The kernels are counted from there, with the published launch or, where all blocks access
memory alike, some blocks of it times a number. What is not there, or has another text, is said in a line."""
import argparse
import contextlib
import hashlib
import io
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np

from . import compile as compile_text
from . import profile
from .report.tables import text_table

TABLE = Path(__file__).resolve().parents[1] / "data" / "gpu" / "published_readings.json"
LSU = "pipe_lsu_mem_global_op"
LOADS = f"l1tex__t_sectors_{LSU}_ld.sum"
# What each metric of the profiler is here, of one launch.
METRICS = {
    f"l1tex__t_requests_{LSU}_ld.sum": lambda x: x.global_load.requests,
    f"l1tex__t_requests_{LSU}_st.sum": lambda x: x.global_store.requests,
    LOADS: lambda x: x.global_load.sectors,
    f"l1tex__t_sectors_{LSU}_st.sum": lambda x: x.global_store.sectors,
    **{f"l1tex__t_{what}_{LSU}_{op}.sum": lambda x, what=what: getattr(x.global_atomic, what)
       for what in ("requests", "sectors") for op in ("red", "atom")},
    f"l1tex__average_t_sectors_per_request_{LSU}_atom.ratio": lambda x: _each(x.global_atomic),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": lambda x: _used(x.global_load),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": lambda x: _used(x.global_store),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": lambda x: x.shared_load.wavefronts,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": lambda x: x.shared_store.wavefronts,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": lambda x: x.shared_load.excess,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": lambda x: x.shared_store.excess,
    "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum": lambda x: x.shared_load.excess,
    "memory_l1_wavefronts_shared": lambda x: x.shared_load.wavefronts + x.shared_store.wavefronts,
    "derived__memory_l1_wavefronts_shared_excessive": lambda x: x.shared_load.excess + x.shared_store.excess}


def _used(traffic) -> float:
    return round(100 * traffic.bytes / (32 * traffic.sectors), 2) if traffic.sectors else 0


def _each(traffic) -> float:
    return traffic.sectors / traffic.requests if traffic.requests else 0


def argument(said):
    """A number, or an array by its type and length: "float32 4096"."""
    if not isinstance(said, str):
        return said
    kind, length = said.split()
    return np.zeros(int(length), kind)


def counted(module, launch: dict) -> dict[str, float]:
    """{metric: its count}, by a run of `launch["kernel"]`."""
    values = [argument(a) for a in launch["arguments"]]
    with profile() as report, contextlib.redirect_stdout(io.StringIO()):     # what it prints is no matter
        kernel = module[launch["kernel"]]
        kernel[tuple(launch["grid"]), tuple(launch["block"]), launch.get("shared", 0)](*values)
    (one,) = report.launches
    times = launch.get("times", 1)
    return {name: count(one) * (1 if name.endswith(".pct") else times) for name, count in METRICS.items()}


def original(folder: Path, source: dict, launch: dict):
    """The module with the published kernel, or a line that says why there is none."""
    if not source["repository"]:
        return f"{launch['kernel']}: where its text and numbers are is not known"
    file = folder / source["repository"].rpartition("/")[2] / launch["file"]
    if not file.is_file():
        return f"{file} is not there"
    text = file.read_text(encoding="utf-8", errors="replace")
    if launch.get("text", "") not in hashlib.sha256(text.encode()).hexdigest():
        return f"{file} has another text than the one whose numbers were published"
    for old, new in launch.get("changed", {}).items():
        text = text.replace(old, new)
    return compile_text(text, include=[file.parent])


def other_commits(folder: Path, sources: dict) -> list[str]:
    """A line for each checkout that is at another commit."""
    found = []
    for source in sources.values():
        checkout = folder / source["repository"].rpartition("/")[2]
        if not source["repository"] or not (checkout / ".git").exists():
            continue
        said = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
        if not said.stdout.startswith(source["commit"]):
            found.append(f"{checkout} is at {said.stdout[:10].strip()}, the table names {source['commit']}")
    return found


def verdict(reading: dict, ours: float) -> str:
    published, allowed = reading["published"], reading["class"]
    if ours != reading.get("ours", ours):        # what the table says of it is of another count
        return "different"
    if published == ours:
        return "equal"
    if allowed == "at least" and published > ours:
        return f"{100 * (published / ours - 1):.2f} % above" if ours else "above"
    return "explained" if reading.get("why") else "different"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m laptop_cuda readings", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", type=Path, default=TABLE)
    asked = parser.parse_args(argv)
    table = json.loads(asked.table.read_text(encoding="utf-8"))
    lines, rows = other_commits(asked.folder, table["sources"]), []
    for launch in table["launches"]:
        source = table["sources"][launch["source"]]
        try:
            module = original(asked.folder, source, launch)
            counts = module if isinstance(module, str) else counted(module, launch)
        except Exception as error:               # one kernel that does not run must not end the others
            counts = f"{launch['file']}, {launch['kernel']}: {str(error).splitlines()[0]}"
        if isinstance(counts, str):
            lines.append(counts)
            continue
        for reading in launch["readings"]:
            ours = counts[reading["metric"]]
            rows.append((launch["source"], launch["kernel"], launch["launch"], reading["metric"],
                         f"{reading['published']:,}", f"{ours:,}", verdict(reading, ours)))
    print(text_table(("source", "kernel", "launch", "metric", "read", "ours", ""), rows))
    print("\n".join(dict.fromkeys(lines)))
    found = Counter(row[-1].rpartition(" ")[2] for row in rows)
    print(f"{len(rows)} numbers" + "".join(f", {count} {said}" for said, count in found.items()))
    return 1 if found["different"] or not rows else 0
