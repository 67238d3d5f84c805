"""The engine's counts beside Nsight Compute's: `data/gpu/<card>/counters.json`.

`python -m course_lib.gpu.counters` launches a few cases on the card, for ncu to watch; `compare` runs ncu on that, counts
the same launches on the engine, and writes both down, metric by metric.
"""
import csv
import json
import subprocess
import sys
from pathlib import Path

from course_lib import cuda
from course_lib.gpu.cases import CASES

# What the engine counts, and what ncu calls it. Excess wavefronts are a difference of two of ncu's metrics.
METRICS = {"global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
           "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
           "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
           "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
           "shared wavefronts": "memory_l1_wavefronts_shared", "shared ideal wavefronts": "memory_l1_wavefronts_shared_ideal"}
COMPARED = (*list(METRICS)[:4], "shared excess wavefronts")
# Kernels without redundant accesses in the source, so that the counts may be compared.
WATCHED = ("softmax_warp", "softmax_on_chip", "softmax_registers", "attention_scores", "attention_output", "rope_interleaved",
           "rope_interleaved_vec4", "rope_half_vec4", "rope_heads", "repeat_kv", "attend_by_group", "chunk_outputs", "linear_walk",
           "block_sparse", "flash_vectors", "flash_registers", "flash_two_groups", "flash_tensor_core", "backward_keys",
           "decode_part",
           "decode_tensor_core", "paged_decode_warps", "paged_tensor_core")


def watched_cases():
    """The first case of each watched kernel."""
    return list({next(case for case in CASES if kernel in case.kernels).name: next(case for case in CASES if kernel in case.kernels)
                 for kernel in WATCHED}.values())


def launch_all(device):
    for case in watched_cases():
        case.run(*case.arguments(case.shapes[0], device))


def counted():
    """The engine's counts of those launches of `launch_all` that launch a watched kernel, in order."""
    with cuda.profile() as report:
        launch_all("cpu")
    rows = []
    for launch in report.launches:
        kernel = launch.kernel.partition("<")[0]
        if kernel in WATCHED:
            rows.append((kernel, {
                "global load requests": launch.global_load.requests, "global load sectors": launch.global_load.sectors,
                "global store requests": launch.global_store.requests, "global store sectors": launch.global_store.sectors,
                "shared excess wavefronts": launch.shared_load.excess + launch.shared_store.excess}))
    return rows


def command(ncu, python=sys.executable):
    """The names are anchored: torch has kernels of its own."""
    return [ncu, "--csv", "--clock-control", "none", "--print-units", "base", "--kernel-name-base", "function",
            "--kernel-name", f"regex:^({'|'.join(WATCHED)})$", "--metrics", ",".join(METRICS.values()),
            python, "-m", "course_lib.gpu.counters"]


def parsed(text):
    """ncu's CSV, a line a launch and metric after lines of its own -> [(kernel, {what: count})] in order of launches."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ValueError(f"ncu gave no table; it said: {' '.join(lines[-5:])}")
    names, launches = {metric: what for what, metric in METRICS.items()}, {}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        kernel = row["Kernel Name"].partition("(")[0].partition("<")[0].split()[-1].rpartition("::")[2]
        launch = launches.setdefault(int(row["ID"]), (kernel, {}))
        if row["Metric Name"] in names:
            value = row["Metric Value"].replace(",", "")
            launch[1][names[row["Metric Name"]]] = None if value in ("", "n/a", "(!) n/a") else int(float(value))
    for _, counts in launches.values():
        total, ideal = counts.pop("shared wavefronts", None), counts.pop("shared ideal wavefronts", None)
        counts["shared excess wavefronts"] = None if None in (total, ideal) else total - ideal
    return [launches[i] for i in sorted(launches)]


def agreement(engine, card):
    """Both lists side by side, and for each metric in how many launches they are equal."""
    if [name for name, _ in engine] != [name for name, _ in card]:
        raise ValueError("engine and card must have launched the same kernels; "
                         f"got {[name for name, _ in engine]} and {[name for name, _ in card]}")
    rows = [{"kernel": name, "engine": ours, "ncu": {what: theirs.get(what) for what in COMPARED}}
            for (name, ours), (_, theirs) in zip(engine, card)]
    metrics = {}
    for what in COMPARED:
        pairs = [(row["engine"][what], row["ncu"][what]) for row in rows if row["ncu"][what] is not None]
        metrics[what] = {"launches": len(pairs), "equal": sum(a == b for a, b in pairs),
                         "differ": sorted({row["kernel"] for row in rows if row["ncu"][what] not in (None, row["engine"][what])})}
    return {"kernels": len({row["kernel"] for row in rows}), "metrics": metrics, "launches": rows}


def compare(ncu: str, card: str, date: str, folder: Path) -> str:
    """Write counters.json; returns a line a metric."""
    done = subprocess.run(command(ncu), capture_output=True, text=True)
    made = {"card": card, "date": date} | agreement(counted(), parsed(done.stdout + done.stderr))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "counters.json").write_text(json.dumps(made, indent=1) + "\n")
    return "\n".join(f"{what}: equal in {m['equal']} of {m['launches']} launches"
                     + (f"; not in {', '.join(m['differ'])}" if m["differ"] else "") for what, m in made["metrics"].items())


if __name__ == "__main__":
    launch_all("cuda")
