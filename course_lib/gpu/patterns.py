"""What a card counts for one access of one warp: `data/gpu/<card>/patterns.json`.

`python -m course_lib.gpu.patterns` launches each kernel of patterns.cu with each pattern under ncu and writes
down two counters per launch: [kernel, place of each lane (-1: none), first, second]. The file names them."""
import datetime
import random
import sys
from pathlib import Path

import torch

from course_lib import cuda
from course_lib.gpu import counters
from course_lib.gpu.check import folder_of
from course_lib.gpu.results import write

WARP = range(32)
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared{}.sum"
FROM_SHARED = "shared_load", WAVEFRONTS.format("ld"), CONFLICTS.format("_op_ld")
ATOMIC = None, WAVEFRONTS.format("atom"), CONFLICTS.format("")
GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
COPIED = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
# Kernel: where the engine counts it (None: nowhere), and the card's two counters.
READ = {"load_shared": FROM_SHARED, "load_matrices": FROM_SHARED,
        "add_shared": ATOMIC, "exchange_shared": ATOMIC,
        "store_shared": ("shared_store", WAVEFRONTS.format("st"), CONFLICTS.format("_op_st")),
        "copy_async": ("shared_store", COPIED, CONFLICTS.format("")),
        **{name: (kind, GLOBAL.format("requests", op), GLOBAL.format("sectors", op)) for name, kind, op in (
            ("load_global", "global_load", "ld"), ("store_global", "global_store", "st"),
            ("add_global", "global_atomic", "red"), ("exchange_global", "global_atomic", "atom"))}}
# Kernel, how many random patterns of it, in how many places.
KERNELS = (
    ("load_shared<float>", 12, 2048), ("load_shared<float2>", 48, 1024), ("load_shared<float4>", 48, 512),
    ("load_shared<char>", 6, 8192), ("load_shared<short>", 6, 4096), ("store_shared<float>", 8, 2048),
    ("store_shared<float2>", 24, 1024), ("store_shared<float4>", 24, 512), ("store_shared<short>", 6, 4096),
    ("add_shared<int>", 12, 2048), ("add_shared<float>", 8, 2048), ("exchange_shared", 8, 2048),
    *((f"load_matrices<{kind}>", 1, 64) for kind in ("1, false", "2, false", "4, false", "4, true")),
    *((f"copy_async<{size}>", 6, 512) for size in (4, 8, 16)), ("load_global<char>", 10, 4096),
    ("load_global<float>", 10, 4096), ("load_global<float2>", 10, 2048), ("load_global<float4>", 10, 1024),
    ("store_global<char>", 10, 4096), ("store_global<float>", 10, 4096), ("store_global<float4>", 10, 1024),
    ("add_global", 12, 4096), ("exchange_global", 12, 4096))
MEETING = [[0] * 32, list(WARP), [t // 8 for t in WARP], [8 * t for t in WARP]]
CHOSEN = {       # where the rules change: pairs of lanes, halves and quarters of the warp
    "shared<float2>": [list(WARP), [t // 2 for t in WARP], [t if t < 16 else -1 for t in WARP],
                       [t if t < 15 else 15 if t == 16 else -1 for t in WARP], [t % 16 for t in WARP]],
    "shared<float4>": [
        [3 if t in (15, 16) else -1 for t in WARP], [3 if t in (0, 15) else -1 for t in WARP],
        [t // 8 * 4 + t % 8 // 2 for t in WARP],
        [t // 2 % 4 if t < 16 else 4 + t % 2 + t // 8 * 2 for t in WARP], [t // 2 * 2 for t in WARP],
        [2 * (t % 16) for t in WARP], [t // 16 for t in WARP], [t % 4 for t in WARP], [0] * 32, list(WARP),
        [8 * t for t in WARP], [t // 8 for t in WARP], [t % 8 for t in WARP],
        [t // 16 * 2 + t % 2 for t in WARP], [t // 2 % 8 for t in WARP]],
    "matrices": [[stride * t for t in WARP] for stride in (1, 2, 4, 8)],
    "add_global": MEETING, "exchange_global": MEETING}


def drawn(draw: random.Random, kind: int, places: int) -> list[int]:
    """Lanes in a stretch of random length; by kind they share, are inactive, or equally far apart."""
    within = min(draw.choice([4, 8, 16, 32, 64, 256, places]), places)
    at = [draw.randrange(within) for _ in WARP]
    return (lambda: at, lambda: draw.sample(range(max(32, within)), 32),
            lambda: [place if draw.random() < .5 else -1 for place in at],
            lambda: [at[t // 2] for t in WARP], lambda: [at[t // 4 * 2 + t % 2] for t in WARP],
            lambda: [at[t % 16] for t in WARP],
            lambda: [at[t ^ 1] if t % 2 and draw.random() < .8 else at[t] for t in WARP],
            lambda: [(stride * t + first) % places for stride, first in [
                (draw.choice([1, 2, 3, 4, 5, 8, 9, 16, 17, 33]), draw.randrange(8))] for t in WARP])[kind]()


def patterns() -> list[tuple[str, list[int]]]:
    """The launches, in order: kernel, and the place of each lane."""
    draw, made = random.Random(5), []
    for kernel, many, places in KERNELS:
        made += [(kernel, at) for part, several in CHOSEN.items() if part in kernel for at in several]
        made += [(kernel, [draw.randrange(places) for _ in WARP] if "matrices" in kernel
                  else drawn(draw, i % 8, places)) for i in range(many)]
    return made


def launch(kernel: str, at: list[int], device: str) -> None:
    module = cuda.load(Path(__file__).with_suffix(".cu"))
    out, given = torch.zeros(8192, device=device), [torch.tensor(at, dtype=torch.int32, device=device)]
    if kernel.startswith(("copy_async", "load_global", "store_global")):
        given.append(torch.zeros(4096, device=device))
    module[kernel][1, 32, 8192](*given, out)


def counted(kernel: str, at: list[int]) -> tuple[int, int] | None:
    """What the engine counts in place of the card's two counters; None: it counts no such thing."""
    kind = READ[kernel.partition("<")[0]][0]
    if kind is None:
        return None
    with cuda.profile() as report:
        launch(kernel, at, "cpu")
    made = getattr(report.launches[0], kind)
    return (made.requests, made.sectors) if kind.startswith("global") else (made.wavefronts, made.excess)


def written(card: str, date: str, read: list[tuple[str, dict]]) -> str:
    """patterns.json from [(kernel, {counter: value})] of the launches."""
    launches = patterns()
    if [kernel.partition("<")[0] for kernel, _ in launches] != [kernel for kernel, _ in read]:
        raise ValueError(f"ncu must have seen these {len(launches)} launches; its table has {len(read)}")
    rows = [[kernel, at, *(values[name] for name in READ[base][1:])]
            for (kernel, at), (base, values) in zip(launches, read)]
    names = {name: of[1:] for name, of in READ.items()}
    return counters.as_text({"card": card, "date": date, "counters": names, "launches": rows})


def main(argv: list[str]) -> None:
    if argv == ["--launch"]:
        for kernel, at in patterns():
            launch(kernel, at, "cuda")
        return
    card = torch.cuda.get_device_name()
    names = sorted({name for read in READ.values() for name in read[1:]})
    command = counters.command("ncu", READ, names, "course_lib.gpu.patterns", "--launch")
    made = written(card, datetime.date.today().isoformat(), counters.table(counters.seen(command, 300)))
    write(folder_of(card), "patterns.json", made)


if __name__ == "__main__":
    main(sys.argv[1:])
