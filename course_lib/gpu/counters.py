"""The engine's counts beside Nsight Compute's: `data/gpu/<card>/counters.json`.

`python -m course_lib.gpu.counters` launches the cases marked `counted` on the card, for ncu to watch;
`compare` runs ncu on that, counts the same launches on the engine, and writes both down, metric by metric."""
import csv
import json
import subprocess
import sys
from pathlib import Path

from course_lib import cuda
from course_lib.gpu.cases import CASES
from course_lib.gpu.results import write

# Counts of the engine and their metrics in ncu. Global loads hold cp.async (LDGSTS) too.
METRICS = {"global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
           "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
           "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
           "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
           "shared wavefronts": "memory_l1_wavefronts_shared"}
NO_PERMISSION = ("ERR_NVGPUCTRPERM", "permission to access")


class NotAllowed(Exception):
    """This user may not read the card's counters, or the tool cannot run here."""


def watched_cases():
    """Cases whose kernels have no redundant accesses in the source, so that their counts may be compared."""
    return [case for case in CASES if case.counted]


def watched_kernels() -> list[str]:
    return list(dict.fromkeys(kernel for case in watched_cases() for kernel in case.kernels))


def launch_all(device):
    for case in watched_cases():
        case.run(*case.arguments(case.small[0], device))


def counted():
    """The engine's counts of those launches of `launch_all` that launch a watched kernel, in order."""
    with cuda.profile() as report:
        launch_all("cpu")
    rows, watched = [], set(watched_kernels())
    for launch in report.launches:
        kernel = launch.kernel.partition("<")[0]
        if kernel in watched:
            rows.append((kernel, {
                "global load requests": launch.global_load.requests,
                "global load sectors": launch.global_load.sectors,
                "global store requests": launch.global_store.requests,
                "global store sectors": launch.global_store.sectors,
                "shared wavefronts": launch.shared_load.wavefronts + launch.shared_store.wavefronts}))
    return rows


def command(ncu, kernels, metrics, *module):
    """The names are anchored: torch has kernels of its own."""
    return [ncu, "--csv", "--clock-control", "none", "--print-units", "base",
            "--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(kernels)})$",
            "--metrics", ",".join(metrics), sys.executable, "-m", *module]


def seen(asked: list[str], limit: float) -> str:
    """What ncu says when it runs this command."""
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise ValueError(f"ncu did not finish within {limit:g} s") from None
    return done.stdout + done.stderr


def table(text):
    """ncu's CSV, a line per launch and metric, after its own lines -> [(kernel, {metric: value})]."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = " ".join(lines[-5:])
        if any(mark in text for mark in NO_PERMISSION):
            raise NotAllowed(said)
        raise ValueError(f"ncu gave no table; it said: {said}")
    launches = {}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        kernel = row["Kernel Name"].partition("(")[0].partition("<")[0].split()[-1].rpartition("::")[2]
        values = launches.setdefault(int(row["ID"]), (kernel, {}))[1]
        value = row["Metric Value"].replace(",", "")
        if value not in ("", "n/a", "(!) n/a"):
            values[row["Metric Name"]] = int(float(value))
    return [launches[i] for i in sorted(launches)]


def parsed(text):
    """ncu's table -> [(kernel, {what: count})], by launch."""
    return [(kernel, {what: values.get(metric) for what, metric in METRICS.items()})
            for kernel, values in table(text)]


def agreement(engine, card):
    """Both lists side by side, and for each metric in how many launches they are equal."""
    ours, theirs = [name for name, _ in engine], [name for name, _ in card]
    if ours != theirs:
        cut = ours[:len(theirs)] == theirs
        raise ValueError(f"ncu's table is cut off: it holds the first {len(theirs)} of {len(ours)} launches"
                         if cut else f"engine and card must have launched the same kernels; got {ours} and "
                         f"{theirs}")
    rows = [{"kernel": name, "engine": ours, "ncu": {what: theirs.get(what) for what in METRICS}}
            for (name, ours), (_, theirs) in zip(engine, card)]
    metrics = {}
    for what in METRICS:
        pairs = [(row["engine"][what], row["ncu"][what]) for row in rows if row["ncu"][what] is not None]
        metrics[what] = {"launches": len(pairs), "equal": sum(a == b for a, b in pairs),
                         "differ": sorted({row["kernel"] for row in rows
                                           if row["ncu"][what] not in (None, row["engine"][what])})}
    return {"kernels": len({row["kernel"] for row in rows}), "metrics": metrics, "launches": rows}


def as_text(made: dict) -> str:
    """JSON, one line per launch."""
    rows = ",\n".join(json.dumps(row) for row in made["launches"])
    rest = json.dumps(made | {"launches": []}, indent=1)
    return rest.replace('"launches": []', f'"launches": [\n{rows}\n]') + "\n"


def compare(ncu: str, card: str, date: str, folder: Path, limit: float = 900) -> str:
    """Write counters.json; returns one line per metric."""
    output = seen(command(ncu, watched_kernels(), METRICS.values(), "course_lib.gpu.counters"), limit)
    try:
        made = {"card": card, "date": date} | agreement(counted(), parsed(output))
    except ValueError as problem:
        raise ValueError(f"{problem} (its end: {' '.join(output.split()[-40:])})") from None
    write(folder, "counters.json", as_text(made))
    return "\n".join(f"{what}: equal in {m['equal']} of {m['launches']} launches"
                     + (f"; not in {', '.join(m['differ'])}" if m["differ"] else "")
                     for what, m in made["metrics"].items())


if __name__ == "__main__":
    launch_all("cuda")
