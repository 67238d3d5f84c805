"""Chapter 12's changed lines on a card: data/gpu/<card>/planted.json. Not collected by pytest; run by hand.

    PYTHONPATH=. python tests/planted_on_card.py

What the sanitizer calls an error (tests/chapters/test_asynchrony.py has the list) is compiled for this card, each change
in a process of its own, and run up to 200 times with fresh inputs beside the kernel as it is. Those that the engine calls a
deadlock are left out: they would not end. Added by hand: `nvcc`, and `compiler` of a change whose answers are right, what
ptxas says of it for sm_90a, or its machine code shows; test_asynchrony.py holds most of it to the compiler."""
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/chapters")]
RUNS, LIMIT, WRONG = 200, 60, 4e-3          # seconds for a change; the error from which an answer is wrong


def changes() -> list[tuple]:
    from test_asynchrony import FILES
    return [(word, *change[:4]) for word, several in FILES.items() for change in several]


def changed(word: str, before: str, after: str, folder: Path) -> Path:
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    file = next(file for file in (folder / "kernels" / f"{word}.cu", folder / "kernels/common/warpgroup.cuh")
                if before in file.read_text())
    file.write_text(file.read_text().replace(before, after, 1))
    return folder / "kernels" / f"{word}.cu"


def tried(number: int) -> dict:
    """How many answers were wrong, and by how much at most."""
    from course_lib import asynchrony, cuda
    word, rung, before, after, _ = changes()[number]
    load, errors, d = cuda.load, [], 64 if rung < 5 else 128
    with tempfile.TemporaryDirectory() as folder:
        path = changed(word, before, after, Path(folder))
        for _ in range(RUNS):
            given = [torch.randn(2, 16, n, d, device="cuda").bfloat16() for n in (1000, 1500, 1500)]
            outs = []
            for chosen in (load, lambda name: load(path)):
                with mock.patch.object(cuda, "load", chosen):
                    outs.append(asynchrony.asynchronous_attention(*given, True, rung=rung)[0].float())
            errors.append(((outs[1] - outs[0]).norm() / outs[0].norm()).item())
    wrong = sum(not error < WRONG for error in errors)
    return {"outcome": "wrong" if wrong else "right", "runs": RUNS, "wrong": wrong, "worst": max(errors)}


def in_a_process(number: int) -> dict:
    _, rung, before, after, kind = changes()[number]
    row = {"rung": rung, "old": before, "new": after, "engine": kind}
    if kind == "deadlock":
        return row | {"outcome": "not run: it would not end"}
    try:
        done = subprocess.run([sys.executable, __file__, str(number)], capture_output=True, text=True,
                              timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return row | {"outcome": f"did not end within {LIMIT} s"}
    return row | (json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"outcome": "CUDA error"})


def main() -> None:
    from course_lib.gpu.check import folder_of
    from course_lib.gpu.results import write
    card = torch.cuda.get_device_name()
    with ThreadPoolExecutor(min(10, os.cpu_count())) as pool:
        rows = list(pool.map(in_a_process, range(len(changes()))))
    made = {"card": card, "date": str(datetime.date.today()), "torch": torch.__version__,
            "shape": "2 x 16 heads, 1,000 queries, 1,500 keys, causal, width 64 (rungs 1 to 4) or 128", "rows": rows}
    write(folder_of(card), "planted.json", json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    print(json.dumps(tried(int(sys.argv[1])))) if len(sys.argv) > 1 else main()
