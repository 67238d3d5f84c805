"""`python -m course_lib gpu-bench`: the course's kernels timed on this machine's card, beside the best of torch.

A row stands for a kernel whose check is green and which is not faster than the card can be; it says what share of the
card's ceiling it reached, measured in the same run: a device copy for what is limited by memory, a large matrix product for
what is limited by arithmetic. Writes data/gpu/<card>/bench.json and bench.png.
"""
import argparse
import datetime
import json
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from course_lib.kv_cache import tensor_core as decode_tensor_core
from course_lib.attention import softmax_kernel
from course_lib.flash_attention.kernels import backward_kernels, forward_kernel
from course_lib.gpu.cases import BF16, CASES, F32, Case
from course_lib.gpu.check import build_all, folder_of
from course_lib.rope import apply_rope, rope_kernel

FASTER_THAN_POSSIBLE = 1.05     # reading alone may be a little faster than the copy that is the ceiling


class Clock:
    """Times on the card's own clock: median and spread of runs that begin with a cold L2."""

    def __init__(self, device="cuda", repeats: int = 20):
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self.repeats, self.other_data = repeats, torch.empty(4 * l2, dtype=torch.uint8, device=device)

    def times(self, work: Callable[[], object]) -> list[float]:
        """Milliseconds. The host queues everything while the card sleeps, so that no launch waits for Python."""
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        events = []
        for _ in range(self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.other_data.random_(0, 255)             # what was in L2 makes room
            torch.cuda._sleep(2_000_000)                # cycles: about a millisecond
            start.record()
            work()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def state(self) -> str:
        """What nvidia-smi says of clocks, power and temperature at this moment."""
        asked = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
        try:
            done = subprocess.run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True, text=True)
        except FileNotFoundError:
            return "nvidia-smi was not found"
        return f"{asked}: {done.stdout.strip() or done.stderr.strip()}"


@dataclass(frozen=True)
class Benchmark:
    case: Case                                      # its check, its inputs, its launch
    kernel: str                                     # the one that the row is about
    shape: dict
    floor: Callable                                 # (**shape) -> least bytes of memory, floating-point operations
    peers: dict[str, Callable] = field(default_factory=dict)    # name: (*arguments) -> a callable that does the same
    run: Callable | None = None                     # where the timed launch is not the case's
    prepare: Callable | None = None                 # arguments -> arguments, outside the time
    note: str = ""

    @property
    def text(self) -> str:
        sizes = " ".join(f"{name}={len(x) if name == 'lengths' else x}" for name, x in self.shape.items() if x is not False)
        return f"{str(self.case.dtype).removeprefix('torch.')} {sizes}" + (f" {self.note}" if self.note else "")


def ceilings(clock, device="cuda", copied: int = 1 << 30, side: int = 8192) -> dict:
    """Bytes a second of a device copy, read and written counted; operations a second of a bfloat16 product."""
    source = torch.randint(0, 255, (copied,), dtype=torch.uint8, device=device)
    target, a, b = torch.empty_like(source), *(torch.randn(side, side, device=device).bfloat16() for _ in "ab")
    copy, product = (statistics.median(clock.times(work)) for work in (lambda: target.copy_(source), lambda: a @ b))
    return {"copy_bytes_a_second": 2 * copied / copy * 1e3, "product_flops_a_second": 2 * side**3 / product * 1e3}


def red(benchmark: Benchmark, device) -> str | None:
    """Why the kernel may not be timed, or None: every case of the kernel in this type, all shapes, fresh inputs."""
    for case in CASES:
        if benchmark.kernel in case.kernels and case.dtype == benchmark.case.dtype:
            for shape in (*case.shapes, *(case.large if torch.device(device).type == "cuda" else ())):
                seed = secrets.randbits(32)
                error = case.error(shape, device, seed)
                if not error <= case.tolerance:
                    return f"check is red: error {error:g} at {shape}, seed {seed}"
    return None


def measure(benchmark: Benchmark, clock, best: dict, device="cuda") -> dict:
    """A row, or {"refused": why}. Peers that cannot run here say why in their place."""
    row = {"chapter": benchmark.case.chapter, "kernel": benchmark.kernel, "case": benchmark.text}
    if why := red(benchmark, device):
        return row | {"refused": why}
    arguments = benchmark.case.arguments(benchmark.shape, device, secrets.randbits(32))
    arguments = benchmark.prepare(*arguments) if benchmark.prepare else arguments
    times = sorted(clock.times(partial(benchmark.run or benchmark.case.run, *arguments)))
    ms = statistics.median(times)
    least_bytes, flops = benchmark.floor(**benchmark.shape)
    memory, arithmetic = least_bytes / best["copy_bytes_a_second"], flops / best["product_flops_a_second"]
    share = 1e3 * max(memory, arithmetic) / ms
    if share > FASTER_THAN_POSSIBLE:
        return row | {"refused": f"{ms:.4f} ms would be {100 * share:.0f} % of the ceiling: the measurement is wrong"}
    peers = {}
    for name, make in benchmark.peers.items():
        try:
            peers[name] = statistics.median(clock.times(make(*arguments)))
        except Exception as problem:                    # a library that has no such kernel says so in its own way
            peers[name] = f"not run: {(str(problem).strip() or type(problem).__name__).splitlines()[0][:120]}"
    first = next((name for name, taken in peers.items() if isinstance(taken, float)), None)
    return row | {"ms": ms, "spread_ms": [times[len(times) // 10], times[-1 - len(times) // 10]], "runs": len(times),
                  "limit": "memory" if memory > arithmetic else "arithmetic", "share_of_ceiling": share,
                  "gb_a_second": least_bytes / ms / 1e6, "tflops": flops / ms / 1e9,
                  "peer": first, "share_of_peer": peers[first] / ms if first else None, "peers_ms": peers}


# ---- what torch has

def sdpa(backend: str, causal: bool, backward: bool = False):
    """torch's attention by one named backend; backward: only the gradients, of a forward that was done before."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make(q, k, v, *rest):
        def forward():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        if not backward:
            return forward
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        out, grad = forward(), rest[0]
        return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
    return make


def every_sdpa(causal, backward=False):
    named = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
    return {f"SDPA {name}": sdpa(backend, causal, backward) for name, backend in named.items()}


def flex(rule):
    """FlexAttention, compiled, with a mask of (b, h, i, j)."""
    def make(q, k, v, *_):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = create_block_mask(rule, None, None, q.shape[2], k.shape[2], device=q.device)
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return make


def causal_rule(b, h, i, j):
    return j <= i


# ---- the list

def case_of(kernel: str, dtype=BF16, note: str = "") -> Case:
    """The first case of a kernel in a type."""
    return next(case for case in CASES if kernel in case.kernels and case.dtype == dtype and note in case.note)


def rows_floor(itemsize):
    return lambda rows, columns: (2 * rows * columns * itemsize, 0)


def rope_floor(itemsize):
    return lambda b, heads, n, d: (2 * b * heads * n * d * itemsize, 6 * b * heads * n * d // 2)


def attention_floor(itemsize, products=2):
    """q, k, v, out once; causal halves the work of a square."""
    def floor(b, heads, kv_heads, n, m, d, causal=False):
        return (2 * b * d * (heads * n + kv_heads * m) * itemsize, 2 * products * b * heads * n * m * d // (2 if causal else 1))
    return floor


def cache_floor(itemsize, page=0):
    def floor(lengths, heads, kv_heads, d):
        return (2 * sum(lengths) * kv_heads * d * itemsize + (sum(lengths) // page * 4 if page else 0), 4 * sum(lengths) * heads * d)
    return floor


def window_floor(heads, kv_heads, n, d, window, n_sink=0):
    """bfloat16; the pairs that window and sinks leave, not those of the tiles that are visited."""
    pairs = n * window - window * (window - 1) // 2 + n_sink * (n - window) - n_sink * (n_sink - 1) // 2
    return 4 * d * n * (heads + kv_heads), 4 * heads * d * pairs


def w2_floor(b, heads, n, m, d, causal):
    """bfloat16; scores of width 2 d."""
    return 2 * b * heads * d * (3 * n + 3 * m), 6 * b * heads * n * m * d // (2 if causal else 1)


def linear_floor(itemsize):
    """q, k, v, out once; inside chunks of 64 half of the pairs, between them the state twice."""
    return lambda n, d, segments=1, heads=2: (4 * heads * n * d * itemsize, heads * n * (2 * 64 * d + 4 * d * d))


def benchmarks():
    wide = {"rows": 32768, "columns": 4096}
    for kernel in ("softmax_naive", "softmax_stable", "softmax_online", "softmax_warp", "softmax_block", "softmax_on_chip", "softmax_registers"):
        yield Benchmark(case_of(kernel, F32), kernel, wide, rows_floor(4), {"torch.softmax": lambda x: partial(torch.softmax, x, -1)})
    yield Benchmark(case_of("softmax_registers"), "softmax_registers", wide, rows_floor(2),
                    {"torch.softmax": lambda x: partial(torch.softmax, x, -1)}, run=partial(softmax_kernel, kernel="softmax_registers"))

    tokens = {"b": 4, "heads": 40, "n": 8192, "d": 128}
    for layout in ("interleaved", "half"):
        case = case_of("rope_heads", BF16, layout)
        yield Benchmark(case, "rope_heads", tokens, rope_floor(2),
                        {"torch, written out": lambda x, cos, sin, positions, layout=layout: partial(apply_rope, x, cos, sin, None, layout)},
                        run=lambda x, cos, sin, positions, layout=layout: rope_kernel(x, cos, sin, None, layout, 4), note=layout)

    for causal in (False, True):
        for d in (64, 128):
            shape = {"b": 4, "heads": 16, "kv_heads": 16, "n": 8192, "m": 8192, "d": d, "causal": causal}
            peers = every_sdpa(causal) | ({"FlexAttention": flex(causal_rule)} if causal else {})
            yield Benchmark(case_of("flash_tensor_core"), "flash_tensor_core", shape, attention_floor(2), peers)
            # The backward reads and writes twice as many arrays, and has five products.
            yield Benchmark(case_of("backward_tensor_core"), "backward_tensor_core", shape, attention_floor(2 * 2, 5),
                            every_sdpa(causal, backward=True), run=only_backward, prepare=with_forward)
    shape = {"b": 4, "heads": 32, "kv_heads": 8, "n": 8192, "m": 8192, "d": 128, "causal": True}
    yield Benchmark(case_of("flash_tensor_core"), "flash_tensor_core", shape, attention_floor(2), every_sdpa(True), note="grouped")
    small = {"b": 2, "heads": 16, "kv_heads": 16, "n": 2048, "m": 2048, "d": 64}
    for kernel in ("flash_thread_per_row", "flash_shared", "flash_vectors", "flash_registers", "flash_two_groups"):
        yield Benchmark(case_of(kernel, F32), kernel, small, attention_floor(4), every_sdpa(False))

    shape = {"heads": 32, "kv_heads": 32, "n": 16384, "d": 128, "window": 1024}
    yield Benchmark(case_of("window_tensor_core"), "window_tensor_core", shape, window_floor,
                    {"our flash_tensor_core, all keys": lambda q, k, v, *_: partial(forward_kernel, q, k, v, True, rung=7),
                     "FlexAttention": flex(lambda b, h, i, j: (j <= i) & (i - j < 1024)), "SDPA flash, all keys": sdpa("FLASH_ATTENTION", True)})
    shape = {"b": 4, "heads": 16, "n": 8192, "m": 8192, "d": 64, "causal": True}
    yield Benchmark(case_of("flash_tensor_core", BF16, "W2"), "flash_tensor_core", shape, w2_floor,
                    {"our flash_tensor_core": lambda mu_q, sigma_q, mu_k, sigma_k, v, causal: partial(forward_kernel, mu_q, mu_k, v, causal, rung=7)},
                    note="W2")

    cache = {"lengths": (8192,) * 16, "heads": 32, "kv_heads": 8, "d": 128}
    yield Benchmark(case_of("decode_part", F32, "2 splits"), "decode_part", cache, cache_floor(4))
    yield Benchmark(case_of("decode_tensor_core"), "decode_tensor_core", cache, cache_floor(2),
                    {"SDPA flash": sdpa("FLASH_ATTENTION", False), "SDPA cuDNN": sdpa("CUDNN_ATTENTION", False)}, run=decode_tensor_core.dense)
    yield Benchmark(case_of("paged_tensor_core"), "paged_tensor_core", cache, cache_floor(2, 16), {"our decode_tensor_core": as_dense},
                    run=lambda q, pool, tables, lengths: decode_tensor_core.paged(q, pool.keys[0], pool.values[0], tables, lengths))

    for d in (64, 128):
        yield Benchmark(case_of("linear_walk"), "linear_walk", {"n": 8192, "d": d, "segments": 1, "heads": 128}, linear_floor(2))
    yield Benchmark(case_of("linear_walk", BF16, "segments"), "linear_walk", {"n": 65536, "d": 128, "segments": 8, "heads": 16}, linear_floor(2))


def with_forward(q, k, v, grad, causal):
    """The backward's arguments: what the forward left, before the clock runs."""
    return q, k, v, grad, *forward_kernel(q, k, v, causal, rung=7), causal


def only_backward(q, k, v, grad, out, lse, causal):
    return backward_kernels(grad, q, k, v, out, lse, causal, rung=7)


def as_dense(q, pool, tables, lengths):
    """The same cache side by side, for the kernel that knows no pages."""
    k, v = (x[0][tables.long()].transpose(1, 2).flatten(2, 3).contiguous() for x in (pool.keys, pool.values))
    return lambda: decode_tensor_core.dense(q, k, v, lengths)


# ---- the run

def run(clock, card: str, folder: Path, device="cuda", chosen=None, say=print, limits=None) -> dict:
    best, before = limits or ceilings(clock, device), clock.state()
    say(f"copy {best['copy_bytes_a_second'] / 1e12:.2f} TB/s, bfloat16 product {best['product_flops_a_second'] / 1e12:.0f} TFLOP/s")
    rows = []
    for benchmark in chosen if chosen is not None else benchmarks():
        rows.append(row := measure(benchmark, clock, best, device))
        say(f"{row['kernel']:<22} {row['case']}: " + (row.get("refused") or f"{row['ms']:.3f} ms, {100 * row['share_of_ceiling']:.0f} % "
            f"of {row['limit']}" + (f", {100 * row['share_of_peer']:.0f} % of {row['peer']}" if row["peer"] else "")))
    made = {"card": card, "date": datetime.date.today().isoformat(), "torch": torch.__version__, "ceilings": best,
            "clocks_before": before, "clocks_after": clock.state(), "rows": [row for row in rows if "refused" not in row],
            "refused": [row for row in rows if "refused" in row]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def figure(bench: dict, file) -> None:
    """Share of the ceiling, a bar a row; the peers of the same run as marks."""
    from course_lib import figures

    rows = bench["rows"]
    fig, ax = figures.new(7.4, 0.6 + 0.3 * len(rows))
    names = [f"{row['kernel']}  {row['case']}" for row in rows]
    ax.barh(range(len(rows)), [100 * row["share_of_ceiling"] for row in rows], color="#8da9c4")
    for i, row in enumerate(rows):
        marks = [100 * row["share_of_ceiling"] * row["ms"] / ms for ms in row["peers_ms"].values() if isinstance(ms, float)]
        ax.plot(marks, [i] * len(marks), "|", color="#222222", markersize=11)
    ax.set_yticks(range(len(rows)), names, fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("% of the card's ceiling; a mark is a library call")
    figures.show(fig, alt="Bars, one a kernel: its share of the ceiling.", caption=f"{bench['card']}, {bench['date']}.", file=file)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-bench", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only kernels whose name holds one of these")
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("gpu-bench: there is no CUDA device here, so nothing was measured.", file=sys.stderr)
        return 1
    card = torch.cuda.get_device_name()
    chosen = [b for b in benchmarks() if not asked.words or any(word in b.kernel for word in asked.words)]
    build_all(sorted({b.kernel for b in chosen}))
    made = run(Clock(), card, folder_of(card), chosen=chosen)
    try:
        figure(made, folder_of(card) / "bench.png")
    except ModuleNotFoundError as problem:
        print(f"no figure: {problem}")
    return 1 if made["refused"] else 0
