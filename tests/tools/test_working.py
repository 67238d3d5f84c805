"""Kernel exercises on a page: the judge without torch, and the page's launches, say what the notebook says."""
import base64
import functools
import json
import subprocess
import sys
import zipfile
from io import BytesIO

import pytest
import torch

from test_running import answers, needs

from course_lib.exercises import all_exercises, find
from course_lib.exercises.judging.judge import evaluate
from course_lib.tools.book import page_torch, working
from laptop_cuda import page
from laptop_cuda.page import live

ASKED = [e.id for e in all_exercises() if e.language == "cuda" and int(e.id.split(".")[0]) <= 8]
PYTHON = """
import sys
for name in ("numpy", "ctypes", "_ctypes"):
    sys.modules[name] = None
import base64, json
import course_lib.exercises.on_page as work, laptop_cuda.page.edited as edited
id, asked = sys.argv[1], json.load(sys.stdin)
file, made = base64.b64decode(asked["file"]), {}
for text, came in zip(asked["texts"], asked.get("came", [None] * len(asked["texts"]))):
    first = json.loads(work.screened(id, text, file))
    if "job" in first:
        made["opened"] = {"launches": first["launches"], "data": first["data"]}
        first = (json.loads(work.judged(id, text, json.dumps(came), base64.b64decode(came.get("data", "")))) if came
                 else json.loads(edited.prepared(json.dumps(first["job"]))))
    made.setdefault("texts", []).append(first)
print(json.dumps(made))
"""


def in_page(folder, id: str, **asked) -> dict:
    """What the page's Python says, which is without torch and numpy."""
    if not (folder / "rooms").exists():
        with zipfile.ZipFile(BytesIO(live.packed(working.rooms()))) as rooms:
            rooms.extractall(folder / "rooms")
    asked["file"] = base64.b64encode(working.stored(find(id))).decode()
    ran = subprocess.run([sys.executable, "-S", "-c", PYTHON, id], input=json.dumps(asked), capture_output=True, text=True,
                         cwd=folder / "rooms", env={"LAPTOP_CUDA_CACHE": str(folder / "cache")})
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.mark.slow
@needs
@pytest.mark.parametrize("id", ASKED)
def test_the_verdicts_of_a_page_are_the_notebooks(id, tmp_path):
    exercise = find(id)
    given = exercise.stub, exercise.solution, *map(exercise.wrong_code, exercise.misconceptions)
    texts = [exercise.cell(text) for text in given]
    made = in_page(tmp_path, id, texts=texts)
    built = [one for one in made["texts"] if "entry" in one]
    sources = [page.Source(one["text"], ("<cell>",), ("-std=c++17",)) for one in built]
    launches = [launch | {"source": n, "entry": one["entry"]} for n, one in enumerate(built)
                for launch in made["opened"]["launches"]]
    came = iter(answers(tmp_path, page.module(sources), launches, base64.b64decode(made["opened"]["data"])))
    for one in built:
        one["answers"] = [next(came) for _ in made["opened"]["launches"]]
        right = (base64.b64decode(answer.pop("bytes")) for answer in one["answers"] if "error" not in answer)
        one["data"] = base64.b64encode(b"".join(right)).decode()
    judged = in_page(tmp_path, id, texts=texts, came=made["texts"])["texts"]
    assert [one["verdict"]["status"] for one in judged[:2]] == ["not attempted", "passed"], judged[1]["text"]
    for text, one in zip(texts[1:], judged[1:]):
        verdict = evaluate(exercise, text)
        assert one["verdict"] == verdict.as_dict() | {"ask": verdict.ask} and one["text"] == str(verdict), text


def test_a_page_compares_as_torch_does():
    def wrong(of, isfinite, given: list, wanted: list) -> list:
        g, w = of(given), of(wanted)
        right = (g == w) | isfinite(w) & ((g - w).abs() <= 1e-6 + 1e-4 * w.abs())
        return [index.tolist() for index in (~right).nonzero()]
    rows = [0.5, float("nan"), float("inf"), -2.0, 1e30, 0.0]
    mine = functools.partial(page_torch.Tensor, shape=(2, 3), dtype=page_torch.float32)
    for other in (rows, rows[:3] + [-2.1, 1e30, 0.0], [0.5, 0.0, float("-inf"), -2.0, float("nan"), 1.0]):
        theirs = wrong(lambda x: torch.tensor(x).reshape(2, 3), torch.isfinite, rows, other)
        assert wrong(mine, page_torch.isfinite, rows, other) == theirs != []


def test_which_kernel_exercises_a_page_judges():
    assert len(ASKED) == 20 and all(working.judges(find(id)) for id in ASKED)
    assert not working.judges(find("12.2")) and not working.judges(find("0.1"))
