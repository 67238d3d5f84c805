"""The process that a program runs in: loads its library, calls `main`, and reports each launch on a pipe."""
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from .. import hints, launch
from ..arguments.c_types import CLaunch
from ..errors import KernelError, kernel_error, plain_error
from .host_errors import host_place, is_for_device
from ..launch import answers
from ..launch.result import LaunchResult
from ..report import LaunchReport, ncu
from . import Options, bare_name, compile_program


def counts(report: LaunchReport) -> dict[str, int]:
    load, store, shared = report.global_load, report.global_store, (report.shared_load, report.shared_store)
    return {"requests": load.requests + store.requests, "sectors": load.sectors + store.sectors,
            "load_sectors": load.sectors, "store_sectors": store.sectors, "bytes": load.bytes + store.bytes,
            "unique_sectors": load.unique_sectors + store.unique_sectors,
            "wavefronts": sum(s.wavefronts for s in shared), "excess": sum(s.excess for s in shared),
            "atomics": int(report.atomics), "barriers": report.barriers, "longest_thread": report.longest_thread,
            **asynchronous_counts(report)}


def asynchronous_counts(report) -> dict[str, int]:
    """Of a launch or a line: bulk copies in both directions, and the tensor cores."""
    copies = {f"{name}{what}": getattr(t, count)
              for name, t in (("copies_in", report.copies_in), ("copies_out", report.copies_out))
              for what, count in (("", "requests"), ("_bytes", "bytes"), ("_sectors", "sectors"))}
    return copies | {"tensor_core_instructions": report.tensor_cores.instructions,
                     "flops": report.tensor_cores.flops}


def line_counts(report: LaunchReport) -> list[dict]:
    return [{"file": line.file, "line": line.line, "bytes": line.global_load.bytes + line.global_store.bytes,
             "sectors": line.global_load.sectors + line.global_store.sectors,
             "wavefronts": line.shared_load.wavefronts + line.shared_store.wavefronts,
             "excess": line.shared_load.excess + line.shared_store.excess, "atomics": int(line.atomics),
             **asynchronous_counts(line)}
            for line in report.lines]


def strings(words: list[str]) -> ctypes.Array:
    return (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)


class Child:
    def __init__(self, job: dict):
        self.job, self.report = job, job["report"]
        self.library = ctypes.CDLL(job["library"])
        self.library.laptop_report_crashes(self.report)
        self.done = answers.DONE(self.after_launch)          # C holds only its address
        self.look = ctypes.CFUNCTYPE(None, ctypes.POINTER(CLaunch))(self.before_launch)
        self.told = set()                # lines of host code that touched device memory

    def tell(self, **row) -> None:
        os.write(self.report, (json.dumps(row) + "\n").encode())

    def after_launch(self, c_launch, c_result) -> dict | None:
        """Passes on what happened, but of a line of host code only its first access to device memory."""
        row = self.row(c_launch, c_result)
        if self.job["mode"] == "hint":           # in a copy of the process
            row = {"hint": row["error"]}
        if stopped := row.get("stopped"):
            row["error"], row["notes"] = None, [*row["notes"], stopped]
        if place := row.get("host"):
            if place in self.told or is_for_device(self.job["files"].get(place.file, ""), place.line):
                return None
            self.told.add(place)
        self.tell(**row)
        if stopped:
            ctypes.CDLL(None).fflush(None)
            os._exit(0)
        return row

    def before_launch(self, c_launch) -> None:
        """Of a kernel's first launch in a plain run: a copy of this process checks some blocks of it."""
        job = self.job

        def look() -> None:
            again = job["hint"]
            checked = compile_program([Path(p) for p in again["sources"]], Options(**again["options"]))
            job.update(library=str(checked.library), mode="hint")
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)                 # where files go that the source's static objects open
                ctypes.CDLL(checked.library).laptop_check(c_launch, ctypes.c_double(1))
            os.write(job["report"], b"\n")       # or fails, if nobody waits any more
            (built / f"looked at {name}").touch()
        built, name = Path(job["library"]).parent, bare_name(c_launch.contents.kernel.decode())
        if hints.is_first(Path(job["library"]), name):
            hints.apart(look)

    def ended(self, c_launch, c_result) -> tuple[LaunchResult, KernelError | None]:
        """What a launch left behind, and its bug."""
        answer = c_result.contents
        result = answers.result_of(c_launch.contents, self.job["library"], self.job["files"])
        answers.read_result(result, answer, [])
        result.notes = [kernel_error(answer.notes[i], result) for i in range(answer.n_notes)]
        return result, kernel_error(answer.error, result) if answer.error.kind else None

    def row(self, c_launch, c_result) -> dict:
        result, error = self.ended(c_launch, c_result)
        row = {"kernel": result.kernel, "grid": result.grid, "block": result.block, "counts": {}, "lines": [],
               "error": error and plain_error(error), "notes": list(map(str, result.notes))}
        if error and error.kind == "timeout" and c_result.contents.error.reason == b"limit":
            row["stopped"] = str(error)
        if self.job.get("limit") and not (error and error.kind == "bad launch"):
            row |= {"blocks": result.blocks, "checked_blocks": result.checked_blocks, "checked": result.checked}
        if result.launched_by:
            row["launched_by"] = asdict(result.launched_by)
        if error and error.kind == "host access":
            return row | {"host": host_place(c_result.contents.error, result)}       # no launch
        if self.job["mode"] in ("profile", "both") and not row.get("checked"):
            row |= self.counted(result)
        return row

    def counted(self, result: LaunchResult) -> dict:
        report = LaunchReport(result)
        made = {"counts": counts(report), "lines": line_counts(report)}
        return made | {"ncu": ncu.counted(report)} if self.job.get("ncu") else made

    def begin(self) -> None:
        """From here on launches are told."""
        job = self.job
        self.library.laptop_program(launch.MODES[job["mode"]], launch.ORDERS[job["order"]],
                                    ctypes.c_uint64(job["seed"]), ctypes.c_uint64(job["step_limit"]),
                                    self.done, ctypes.c_double(job.get("limit") or 0),
                                    ctypes.c_double(time.time() - job["since"]))

    def run(self) -> int:
        job, library = self.job, self.library
        words = job["arguments"]
        environment = [f"{name}={value}" for name, value in os.environ.items()]
        self.begin()
        if job.get("hint"):
            library.laptop_before(self.look)
        if job["mode"] == "plain" and not any("__CUDA_ARCH__" in text for text in job["files"].values()):
            library.laptop_shut_memory()
        return library.laptop_main(len(words), strings(words), strings(environment))


def main(kind: type = Child) -> None:
    """Runs a job, which the parent wrote into the file whose descriptor is our argument: stdin is the program's.

    Ctrl-C ends this process at once, and so does the end of the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)           # PR_SET_PDEATHSIG
    with os.fdopen(int(sys.argv[1]), "rb") as told:
        job = json.load(told)
    status = kind(job).run()
    # C's own exit: its buffers are written, static objects destroyed
    ctypes.CDLL(None).exit(status)


if __name__ == "__main__":
    main()
