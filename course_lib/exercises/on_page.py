"""A kernel exercise in a page of the book: the page launches the reader's kernel on stored cases, and the judge's own
code says what came of it. Runs in the browser's Python, where a part of torch stands in (`tools/book/page_torch.py`)."""
import base64
import io
import json
import math
import struct
import tempfile
from pathlib import Path

import torch

from laptop_cuda.page.finding import told
from laptop_cuda.text.outline import outline
from laptop_cuda.text.signature import kernels

from .declare import find
from .judging.compare import close
from .judging.judge import judge, plan
from .judging.screen import screen
from .judging.verdict import NOT_ATTEMPTED, Verdict
from .parts import Case, Exercise, Misconception
from .running.kernel_runner import STEPS, never_written, without_magic
from .running.results import LATE, Failure, Outcome, Run
from .running.values import same
from .sealed import open_sealed, read_stored

ITEM = 4                     # bytes of a number: float32 or int32
NUMBERS = {"int": ("int32", "<i"), "float": ("float32", "<f")}
_shipped: dict[str, list] = {}           # id -> what the sanitizer says of a kernel to repair
_opened: dict[str, dict] = {}


def opened(id: str, packed) -> dict:
    """Declares the exercise of a file; its launches, and the bytes of their arrays."""
    path, data = Path(tempfile.mkdtemp()) / "exercise", bytearray()
    path.write_bytes(packed)
    more = read_stored(path)["tables"]
    open_sealed(path, {id: {"compare": close(**more["compare"])}})
    exercise, _shipped[id] = find(id), more["shipped"]
    exercise.misconceptions = [Misconception(m.name, m.ask, code=code)
                               for m, code in zip(exercise.misconceptions, more["codes"])]
    launches = [_launch(exercise, case, data) for case in exercise.cases(None)]
    return {"launches": launches, "data": base64.b64encode(data).decode()}


def _launch(exercise: Exercise, case: Case, data: bytearray) -> dict:
    """As launch.js wants it: outputs are poisoned and count as not yet written."""
    arrays, (step,) = plan(exercise, case)
    storages, args = [], []
    for a in arrays:
        fresh, poison = a["tensor"] is None, b"\xff" if a["dtype"] == "float32" else b"\x80"
        data += bytes(-len(data) % 16)
        storages.append({"at": len(data), "bytes": _size(a), "written": -1 if fresh else None})
        data += poison * _size(a) if fresh else a["tensor"].numpy().tobytes()
    kernel = next(k for k in kernels(outline(exercise.stub)) if k.name == step["kernel"])
    for (kind, value), name, type in zip(step["args"], kernel.parameters, kernel.types):
        if kind == "array":
            args.append({"name": name, "dtype": arrays[value]["dtype"], "itemsize": ITEM, "storage": value, "offset": 0,
                         "bytes": storages[value]["bytes"], "shape": list(arrays[value]["shape"])})
        else:
            dtype, code = NUMBERS[type.removeprefix("const ")]
            args.append({"name": name, "dtype": dtype, "value": list(struct.pack(code, value))})
    sizes = {name: [*step[name], 1, 1][:3] for name in ("grid", "block")}
    return sizes | {"kernel": step["kernel"], "source": 0, "shared": step["shared"], "shared_limit": 48 << 10,
                    "max_threads": 0, "step_limit": STEPS, "storages": storages, "args": args}


def _size(array: dict) -> int:
    return ITEM * math.prod(array["shape"])


def screened(id: str, source: str, packed) -> str:
    """A verdict that needs no run, or what is to be compiled and launched, as JSON. `packed`: the exercise's file."""
    if id not in _opened:
        _opened[id] = opened(id, packed)
    exercise = find(id)
    if early := screen(exercise, source):
        early.details += _shipped[id] * (early.status == NOT_ATTEMPTED)
        return _shown(early)
    return json.dumps(_opened[id] | {"job": {"text": _text(source), "lines": [exercise.stub.split("\n")], "places": [],
                                             "name": "<cell>", "files": ["<cell>"], "kernel": exercise.name, "define": []}})


def _text(source: str) -> str:
    return "\n" + without_magic(source)         # lines are counted as in the cell


def judged(id: str, source: str, came: str, data=b"") -> str:
    """The verdict on what the page brings: {"error", "kind"} of a text that gave no kernel, or {"parameters",
    "answers"}, one per case; `data` holds each answer's arrays and maps of written bytes, one behind the other."""
    exercise, came, made = find(id), json.loads(came), []
    cases = list(exercise.cases(None))
    if "error" in came:
        run = Run(failure=Failure(came["kind"], came["error"], name=exercise.name))
        return _shown(judge(exercise, cases, run, source))
    bytes = io.BytesIO(data)
    for case, launch, answer in zip(cases, _opened[id]["launches"], came["answers"]):
        if answer is None:
            made.append(Outcome(failure=Failure("timeout", f"{LATE} {exercise.limit:g} seconds")))
        elif answer.get("error"):
            named = [arg | {"name": name} for arg, name in zip(launch["args"], came["parameters"])]
            found = told(answer["error"], launch | {"args": named}, {"<cell>": _text(source)})
            made.append(Outcome(failure=Failure(*found)))
        else:
            made.append(_outcome(exercise, case, answer["sites"], bytes.read))
    made += made[-1:] * (len(cases) - len(made))            # one endless loop is enough
    return _shown(judge(exercise, cases, Run(made), source, oracle=exercise.oracle))


def _outcome(exercise: Exercise, case: Case, sites: list[dict], read) -> Outcome:
    of = lambda name, *operations: sum(site[name] for site in sites if site["operation"] in operations)
    counts = {"moved": 32 * of("sectors", 0, 1), "stored": of("bytes", 1), "requests": of("requests", 2, 3),
              "wavefronts": of("wavefronts", 2, 3)} if exercise.traffic else {}
    outcome, unwritten = Outcome([], counts=counts), []
    for number, a in enumerate(plan(exercise, case)[0], 1):
        size, role = _size(a), a["role"]
        after = torch.frombuffer(bytearray(read(size)), dtype=getattr(torch, a["dtype"])).reshape(a["shape"])
        if a["tensor"] is None:
            written = read(size)
            missing = [at // ITEM for at in range(0, size, ITEM) if not all(written[at:at + ITEM])]
            unwritten += [never_written(missing, a["shape"])] * (role == "out")
        outcome.value += [after] * (role in ("out", "inout"))
        outcome.changed += [f"argument {number}"] * (role == "in" and not same(a["tensor"], after))
    counts["unwritten"] = next(filter(None, unwritten), "")
    return outcome


def _shown(verdict: Verdict) -> str:
    return json.dumps({"verdict": verdict.as_dict() | {"ask": verdict.ask}, "html": verdict._repr_html_(), "text": str(verdict)})
