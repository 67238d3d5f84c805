"""What a program did when it ran, and limits on it."""
from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Ran:
    """What a program did: its exit status, what it printed (if captured), and each launch."""
    status: int                  # of the program; 128 + the signal's number after a crash
    stdout: str = ""
    stderr: str = ""
    launches: list[dict] = field(default_factory=list)
    crash: str = ""              # how it crashed, or that its time was over; "" if neither
    timed_out: bool = False
    host_errors: list[dict] = field(default_factory=list)    # where host code touched device memory
    refused: list[dict] = field(default_factory=list)        # calls of the API that went wrong
    hint: dict | None = None     # of a plain run: an error that was found in passing

    @property
    def errors(self) -> list[dict]:
        launched = [one["error"] for one in self.launches if one["error"] and not self._expected(one)]
        return self.host_errors + [e for e in self.refused if e["kind"] != "unwritten"] + launched

    @property
    def bugs(self) -> list[dict]:
        """The errors, without launches that ran too long."""
        return [error for error in self.errors if error["kind"] != "timeout"]

    def _expected(self, launch: dict) -> bool:
        """Whether it was refused, and the program has read the error and gone on to end well."""
        return bool(launch.get("looked") and not self.status)

    @property
    def blocks(self) -> int:
        return sum(launch.get("blocks", 0) for launch in self.launches)

    @property
    def checked_blocks(self) -> int:
        """Of `blocks`, where there was a limit of time."""
        return sum(launch.get("checked_blocks", 0) for launch in self.launches)

    @property
    def children(self) -> list[dict]:
        """The launches that kernels made."""
        return [launch for launch in self.launches if "launched_by" in launch]

    @property
    def notes(self) -> list[str]:
        unwritten = [error["message"] for error in self.refused if error["kind"] == "unwritten"]
        read = [_read(one["error"]) for one in self.launches if one["error"] and self._expected(one)]
        return unwritten + [note for one in self.launches for note in one["notes"]] + read

    def total(self, count: str, kernel: str = "") -> int:
        """A count summed over the launches (of one kernel): "sectors", "requests", "bytes", "excess" ..."""
        wanted = kernel.replace(" ", "")
        chosen = [la for la in self.launches if not kernel or bare_name(la["kernel"]) == kernel
                  or la["kernel"].replace(" ", "") == wanted]
        return len(chosen) if count == "launches" else sum(la["counts"].get(count, 0) for la in chosen)


def _read(error: dict) -> str:
    return error["message"].split("\n")[0] + " The program has read this error."


def bare_name(kernel: str) -> str:
    return kernel.split("<")[0].split("::")[-1].strip()


@dataclass(frozen=True)
class Budget:
    """A limit on a count: of all launches, or of one kernel's."""
    count: str
    most: int
    kernel: str = ""

    @classmethod
    def read(cls, text: str) -> Budget:
        found = re.fullmatch(r"(?:(\w.*):)?(\w+)=(\d[\d_,]*)", text)
        if not found or found[2] not in COUNTS:
            raise ValueError(f"a budget is COUNT=N or KERNEL:COUNT=N, COUNT one of {', '.join(COUNTS)}; got "
                             f"{text!r}")
        return cls(found[2], int(re.sub("[_,]", "", found[3])), found[1] or "")

    def over(self, ran: Ran) -> str:
        """How the budget is exceeded; "" if it is kept. What was not launched keeps no budget but `launches`."""
        used = ran.total(self.count, self.kernel)
        whose = f"{self.kernel}: " if self.kernel else ""
        if not ran.total("launches", self.kernel) and self.count != "launches":
            names = ", ".join(dict.fromkeys(launch["kernel"] for launch in ran.launches)) or "none"
            return f"{whose}not launched, so its {self.count} are not known (launched: {names})"
        return f"{whose}{used:,} {self.count}, the budget is {self.most:,}" if used > self.most else ""


COUNTS = ("sectors", "load_sectors", "store_sectors", "requests", "bytes", "wavefronts", "excess", "atomics",
          "barriers", "longest_thread", "copies_in", "copies_in_bytes", "copies_in_sectors", "copies_out",
          "copies_out_bytes", "copies_out_sectors", "tensor_core_instructions", "flops", "launches")
