"""Times on a card: medians of runs with a cold L2 that never wait for Python, and the card's ceilings."""
import statistics
import subprocess
import time
from collections.abc import Callable

import torch

LONGEST_HOST_MS = 20.0          # beyond it Python limits the work: its time says nothing of the kernel


class HostTime(RuntimeError):
    """The host takes too long to queue the work: the card would wait for it inside the measured time."""


class Clock:
    """Median and spread by the card's own events."""

    def __init__(self, device="cuda", repeats: int = 20):
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self.repeats = repeats
        self.other_data = torch.zeros(4 * l2 // 4, dtype=torch.float32, device=device)
        self.cycles_per_ms = self._cycles_per_ms()

    def times(self, work: Callable[[], object]) -> list[float]:
        """Milliseconds. The host queues all work while the card sleeps; a run that is late is left out."""
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        host = min(self._host_ms(work) for _ in range(3))
        if host > LONGEST_HOST_MS:
            raise HostTime(f"the host takes {host:.1f} ms to queue the work; at most {LONGEST_HOST_MS:g} ms "
                           "can be hidden")
        asleep = 1.0 + 3 * host
        events = [pair for pair in (self._one(work, asleep) for _ in range(self.repeats)) if pair]
        torch.cuda.synchronize()
        if len(events) <= self.repeats // 2:
            raise HostTime(f"the host took longer than {asleep:.1f} ms to queue the work in "
                           f"{self.repeats - len(events)} of {self.repeats} runs, so the card waited for it, "
                           "or it for the card (.item(), a check of values)")
        return [start.elapsed_time(end) for start, end in events]

    def _one(self, work, asleep: float):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.other_data.sum()               # empties L2 by reading: nothing is left to be written back
        torch.cuda._sleep(int(asleep * self.cycles_per_ms))
        began = time.perf_counter()
        start.record()
        work()
        end.record()
        return (start, end) if 1e3 * (time.perf_counter() - began) < asleep else None

    def _host_ms(self, work) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        taken = time.perf_counter() - began
        torch.cuda.synchronize()
        return 1e3 * taken

    def _cycles_per_ms(self, cycles: int = 4_000_000) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):                  # the first may wait for the clock to rise
            start.record()
            torch.cuda._sleep(cycles)
            end.record()
            torch.cuda.synchronize()
        return cycles / start.elapsed_time(end)

    def state(self) -> str:
        """Clocks, power and temperature at this moment, by nvidia-smi."""
        asked = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
        command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (FileNotFoundError, subprocess.TimeoutExpired) as problem:
            return f"nvidia-smi gave nothing: {type(problem).__name__}"
        return f"{asked}: {done.stdout.strip() or done.stderr.strip()}"


def ceilings(clock, device="cuda", numbers: int = 1 << 28, side: int = 8192) -> dict:
    """Bytes per second of a copy (both ways) and of a sum; operations per second of a bfloat16 product."""
    source = torch.zeros(numbers, dtype=torch.float32, device=device)
    target, a, b = (torch.empty_like(source),
                    *(torch.randn(side, side, device=device).bfloat16() for _ in "ab"))
    copy, read, product = (statistics.median(clock.times(work)) for work in
                           (lambda: target.copy_(source), lambda: source.sum(), lambda: a @ b))
    return {"copy_bytes_per_second": 2 * 4 * numbers / copy * 1e3,
            "read_bytes_per_second": 4 * numbers / read * 1e3,
            "product_flops_per_second": 2 * side**3 / product * 1e3}


def memory_ceiling(best: dict) -> float:
    """A kernel that mostly reads may be faster than a copy, so the larger of the two is its ceiling."""
    return max(best["copy_bytes_per_second"], best["read_bytes_per_second"])
