"""The process that a program runs in: loads its library, calls `main`, and reports each launch on a pipe."""
import ctypes
import json
import os
import sys

from . import launch
from .c_types import CLaunch, CResult
from .errors import kernel_error
from .launch import LaunchResult
from .report import LaunchReport

DONE = ctypes.CFUNCTYPE(None, ctypes.POINTER(CLaunch), ctypes.POINTER(CResult))


def counts(report: LaunchReport) -> dict[str, int]:
    load, store, shared = report.global_load, report.global_store, (report.shared_load, report.shared_store)
    return {"requests": load.requests + store.requests, "sectors": load.sectors + store.sectors,
            "load_sectors": load.sectors, "store_sectors": store.sectors, "bytes": load.bytes + store.bytes,
            "unique_sectors": load.unique_sectors + store.unique_sectors,
            "wavefronts": sum(s.wavefronts for s in shared), "excess": sum(s.excess for s in shared),
            "atomics": int(report.atomics), "barriers": report.barriers}


def line_counts(report: LaunchReport) -> list[dict]:
    return [{"file": line.file, "line": line.line, "bytes": line.global_load.bytes + line.global_store.bytes,
             "sectors": line.global_load.sectors + line.global_store.sectors,
             "wavefronts": line.shared_load.wavefronts + line.shared_store.wavefronts,
             "excess": line.shared_load.excess + line.shared_store.excess, "atomics": int(line.atomics)}
            for line in report.lines]


class Child:
    def __init__(self, job: dict):
        self.job, self.report = job, job["report"]
        self.library = ctypes.CDLL(job["library"])
        self.done = DONE(self.after_launch)          # C holds only its address

    def after_launch(self, c_launch, c_result) -> None:
        os.write(self.report, (json.dumps(self.row(c_launch, c_result)) + "\n").encode())

    def row(self, c_launch, c_result) -> dict:
        asked, answer = c_launch.contents, c_result.contents
        limit = asked.shared_limit
        result = LaunchResult(
            asked.kernel.decode(),
            tuple(asked.grid),
            tuple(asked.block),
            self.job["library"],
            self.job["files"],
            limit,
        )
        launch._read(result, answer, [], [])
        row = {"kernel": result.kernel, "grid": result.grid, "block": result.block, "counts": {}, "lines": [],
               "error": None, "notes": []}
        if answer.error.kind:
            error = kernel_error(answer.error, result)
            row["error"] = {
                "kind": error.kind,
                "kernel": error.kernel,
                "line": error.line,
                "block": error.block,
                "thread": error.thread,
                "message": error.message,
            }
        row["notes"] = [str(kernel_error(answer.notes[i], result)) for i in range(answer.n_notes)]
        if self.job["mode"] == "profile":
            report = LaunchReport(result)
            row["counts"], row["lines"] = counts(report), line_counts(report)
        return row

    def run(self) -> int:
        job, library = self.job, self.library
        words = [w.encode() for w in job["arguments"]]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        library.laptop_report_crashes(job["report"])
        library.laptop_program(
            launch.MODES[job["mode"]],
            launch.ORDERS[job["order"]],
            ctypes.c_uint64(job["seed"]),
            ctypes.c_uint64(job["step_limit"]),
            self.done,
        )
        return library.laptop_main(len(words), argv)


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = Child(job).run()
    # C's own exit: its buffers are written, static objects destroyed
    ctypes.CDLL(None).exit(status)


if __name__ == "__main__":
    main()
