"""Registers, occupancy and bounds of the chapters' ladders, as notebooks show them.

`python -m course_lib gpu-ladders` needs nvcc and nvdisasm, no card, and writes data/gpu/ladders.json.
Notebooks show that file, so that their outputs are the same on a machine without a compiler for GPUs."""
import json
import sys

import torch

from course_lib import cuda
from course_lib.asynchrony import asynchronous_attention
from course_lib.attention import softmax_kernel
from course_lib.files import write_whole
from course_lib.flash_attention import forward_kernel
from course_lib.gpu.results import FOLDER
from course_lib.kv_cache import decode_kernel, tensor_core

FILE = FOLDER / "ladders.json"
CARD = "H100 SXM"
KEPT = ("registers", "spill_stores", "spill_loads", "static_shared", "dynamic_shared", "block")
SOFTMAX = ("naive", "stable", "online", "warp", "block", "on_chip", "registers")


def _random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def _softmax():
    for name in SOFTMAX:
        softmax_kernel(_random(32, 128), f"softmax_{name}")


def _flash():
    for rung in range(1, 8):
        dtype = torch.bfloat16 if rung == 7 else torch.float32
        forward_kernel(*(_random(1, 1, 128, 64, dtype=dtype) for _ in "qkv"), rung=rung)


def _decode():
    shapes = ((2, 8, 1, 128), (2, 2, 128, 128), (2, 2, 128, 128))
    decode_kernel(*(_random(*shape) for shape in shapes), splits=2)
    lengths = torch.full((2,), 128)
    tensor_core.dense(*(_random(*shape, dtype=torch.bfloat16) for shape in shapes), lengths, splits=2)


def _asynchrony():
    for rung in range(1, 9):
        asynchronous_attention(*(_random(1, 1, 128, 64, dtype=torch.bfloat16) for _ in "qkv"), rung=rung)


LADDERS = {"attention": _softmax, "flash_attention": _flash, "kv_cache": _decode, "asynchrony": _asynchrony}
ARCH = {"asynchrony": "sm_90a"}         # sm_90 for the others


def measured(word: str) -> list[dict]:
    """One row per kernel of the ladder, each counted once and compiled for the card."""
    with cuda.profile() as report:
        LADDERS[word]()
    rows = []
    for launch in report.launches:
        found = cuda.inspect(_kernel(word, launch.kernel), ARCH.get(word), card=CARD, launch=launch)
        held, bound = found["occupancy"], found["bound"] if word not in ARCH else {"binds": "", "pipes": []}
        rows.append({"kernel": launch.kernel, **{name: found[name] for name in KEPT},
                     **{name: held[name] for name in ("blocks", "warps", "limited_by")},
                     "binds": bound["binds"],       # of wgmma and copies no data sheet gives the rates
                     "microseconds": {p["pipe"]: round(p["microseconds"], 4) for p in bound["pipes"]},
                     "executed": sum(found["executed"].values()) if bound["pipes"] else 0, "compiler": found["compiler"]})
    return rows


def _kernel(word: str, name: str):
    bare = name.partition("<")[0]
    for file in (word, f"{word}/tensor_core", f"{word}/warpgroup", f"{word}/flash3"):
        if (cuda.KERNELS / f"{file}.cu").exists() and bare in (module := cuda.load(file)).kernels:
            return module[name] if "<" in name else getattr(module, name)
    raise LookupError(name)


def _recorded(word: str) -> tuple[list[dict], str]:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    if word not in found["ladders"]:
        raise ValueError(f"word must be one of {', '.join(found['ladders'])}; got {word!r}")
    return found["ladders"][word], found["compiler"]


def registers_table(word: str) -> None:
    """Print registers, spills, shared memory and occupancy of each kernel of a ladder, as recorded."""
    rows, compiler = _recorded(word)
    width = max(len(row["kernel"]) for row in rows)
    print(f"{'kernel':<{width}} registers  spilled  shared  threads  blocks  warps  limited by")
    for row in rows:
        shared = row["static_shared"] + row["dynamic_shared"]
        print(f"{row['kernel']:<{width}} {row['registers']:>9} {row['spill_stores']:>8} {shared:>7,} "
              f"{row['block']:>8} {row['blocks']:>7} {row['warps']:>6}  {row['limited_by']}")
    print(f"Compiled by {compiler} for {ARCH.get(word, 'sm_90')}. Blocks and warps per multiprocessor, which has room for 64 "
          "warps, by NVIDIA's rules.")


def bounds_table(word: str) -> None:
    """Print, per kernel, how long each pipe of the card is busy, as recorded, and which is the longest."""
    rows, compiler = _recorded(word)
    short = {"issuing instructions": "issue", "FP32": "FP32", "tensor cores": "tensor",
             "shared memory": "shared", "memory, each sector once": "memory"}
    width = max(len(row["kernel"]) for row in rows)
    print(f"{'kernel':<{width}} " + " ".join(f"{name:>8}" for name in short.values()) + "  longest")
    for row in rows:
        times = row["microseconds"]
        cells = " ".join(f"{times[pipe]:8.3f}" if times.get(pipe) else f"{'-':>8}" for pipe in short)
        print(f"{row['kernel']:<{width}} {cells}  {short.get(row['binds'], row['binds'])}")
    print(f"Microseconds on {CARD} if each part is busy in every cycle: instructions by {compiler} times the "
          "engine's counts, over the data sheet. Passes of shared memory are the source's where nvcc may merge.")


def main(argv: list[str]) -> int:
    if argv:
        print("gpu-ladders takes no arguments", file=sys.stderr)
        return 2
    ladders = {word: measured(word) for word in LADDERS}
    compiler = ladders["attention"][0]["compiler"]
    for row in (row for rows in ladders.values() for row in rows):
        del row["compiler"]
    made = {"command": "python -m course_lib gpu-ladders", "compiler": compiler, "arch": "sm_90",
            "card": CARD, "ladders": ladders}
    write_whole(FILE, json.dumps(made, indent=1) + "\n")
    print(f"{sum(map(len, ladders.values()))} kernels: {FILE}")
    return 0
