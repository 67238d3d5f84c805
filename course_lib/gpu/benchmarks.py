"""What `gpu-bench` times: a kernel, a shape, the least work of it, and torch's calls that do the same."""
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from course_lib.asynchrony import asynchronous_attention
from course_lib.asynchrony.kernels import RUNGS as asynchrony_rungs
from course_lib.attention import softmax_kernel
from course_lib.attention.kernels import SOFTMAX_KERNELS
from course_lib.flash_attention.kernels import RUNGS, backward_kernels, forward_kernel
from course_lib.gpu.cases import BF16, F32, Case, case_of
from course_lib.gpu.peers import causal_rule, every_sdpa, flex, sdpa
from course_lib.kv_cache import decode_kernel, tensor_core as decode_tensor_core
from course_lib.rope import apply_rope


@dataclass(frozen=True)
class Benchmark:
    case: Case                                      # its check, its inputs, its launch
    kernel: str                                     # the one that the row is about
    shape: dict
    floor: Callable                                 # (**shape) -> least bytes, floating-point operations
    peers: dict[str, Callable] = field(default_factory=dict)    # name: (*arguments) -> a call doing the same
    run: Callable | None = None                     # the timed launch, if it is not the case's
    prepare: Callable | None = None                 # arguments -> arguments, outside the time
    note: str = ""

    @property
    def text(self) -> str:
        same = {"kv_heads": self.shape.get("heads"), "m": self.shape.get("n")}      # said once
        sizes = " ".join(name if x is True else f"{name}={len(x) if name == 'lengths' else x}"
                         for name, x in self.shape.items() if x is not False and same.get(name) != x)
        return (f"{str(self.case.dtype).removeprefix('torch.')} {sizes}"
                + (f" {self.note}" if self.note else ""))


def rows_floor(itemsize):
    return lambda rows, columns: (2 * rows * columns * itemsize, 0)


def rope_floor(itemsize):
    return lambda b, heads, n, d: (2 * b * heads * n * d * itemsize, 6 * b * heads * n * d // 2)


def attention_floor(itemsize, products=2):
    """q, k, v, out once; causal halves the work of a square."""
    def floor(b, heads, kv_heads, n, m, d, causal=False):
        bytes_moved = 2 * b * d * (heads * n + kv_heads * m) * itemsize
        return bytes_moved, 2 * products * b * heads * n * m * d // (2 if causal else 1)
    return floor


def cache_floor(itemsize, page=0):
    def floor(lengths, heads, kv_heads, d):
        tables = sum(lengths) // page * 4 if page else 0
        return 2 * sum(lengths) * kv_heads * d * itemsize + tables, 4 * sum(lengths) * heads * d
    return floor


def window_floor(heads, kv_heads, n, d, window, n_sink=0):
    """bfloat16; the pairs that window and sinks leave, not those of the tiles that are visited."""
    pairs = n * window - window * (window - 1) // 2 + n_sink * (n - window) - n_sink * (n_sink - 1) // 2
    return 4 * d * n * (heads + kv_heads), 4 * heads * d * pairs


def w2_floor(b, heads, n, m, d, causal):
    """bfloat16; scores of width 2 d."""
    return 2 * b * heads * d * (3 * n + 3 * m), 6 * b * heads * n * m * d // (2 if causal else 1)


def w2_prepare_floor(b, heads, n, m, d, causal):
    """bfloat16: mean and width of queries and keys in, the operands out, and the bias."""
    return b * heads * ((n + m) * 2 * d * 2 * 2 + 4 * m), 0


def linear_floor(itemsize):
    """q, k, v, out once; inside chunks of 64 half of the pairs, between them the state twice."""
    return lambda n, d, segments=1, heads=2: (4 * heads * n * d * itemsize,
                                              heads * n * (2 * 64 * d + 4 * d * d))


def with_forward(q, k, v, grad, causal):
    """The backward's arguments, with the results of the forward."""
    return q, k, v, grad, *forward_kernel(q, k, v, causal, rung=7), causal


def only_backward(q, k, v, grad, out, lse, causal):
    return backward_kernels(grad, q, k, v, out, lse, causal, rung=7)


def int_lengths(*arguments):
    """Lengths as the kernel reads them: a cast inside the time would be a launch of its own."""
    *others, lengths = arguments
    return *others, lengths.int()


def as_dense(q, pool, tables, lengths):
    """The same cache side by side, for the kernel that knows no pages."""
    k, v = (x[0][tables.long()].transpose(1, 2).flatten(2, 3).contiguous() for x in (pool.keys, pool.values))
    return lambda: decode_tensor_core.dense(q, k, v, lengths)


def paged_step(q, pool, tables, lengths):
    return decode_tensor_core.paged(q, pool.keys[0], pool.values[0], tables, lengths)


def benchmarks():
    for chapter in (softmax, rope, flash, ladder, window, w2, decoding, linear, asynchrony):
        yield from chapter()


def softmax():
    wide, peers = {"rows": 32768, "columns": 4096}, {"torch.softmax": lambda x: partial(torch.softmax, x, -1)}
    for kernel in (name for name in SOFTMAX_KERNELS if name != "softmax_half"):
        yield Benchmark(case_of(kernel, F32), kernel, wide, rows_floor(4), peers)
    yield Benchmark(case_of("softmax_registers"), "softmax_registers", wide, rows_floor(2), peers,
                    run=partial(softmax_kernel, kernel="softmax_registers"))
    yield Benchmark(case_of("rms_norm"), "rms_norm", wide, rows_floor(2), {
        "torch.rms_norm": lambda x, factors: partial(torch.nn.functional.rms_norm, x, x.shape[-1:], factors, 1e-6)})


def rope():
    from course_lib.gpu.cases.rope import prepared, rotate_prepared

    tokens = {"b": 4, "heads": 40, "n": 8192, "d": 128}
    for layout in ("interleaved", "half"):
        def written_out(x, out, cos, sin, positions, layout=layout):
            return partial(apply_rope, x, cos, sin, None, layout)
        yield Benchmark(case_of("rope_heads", BF16, layout), "rope_heads", tokens, rope_floor(2),
                        {"torch, written out": written_out},
                        prepare=prepared, run=partial(rotate_prepared, layout), note=layout)


def flash():
    for causal in (False, True):
        for d in (64, 128):
            shape = {"b": 4, "heads": 16, "kv_heads": 16, "n": 8192, "m": 8192, "d": d, "causal": causal}
            peers = every_sdpa(causal) | ({"FlexAttention": flex(causal_rule)} if causal else {})
            yield Benchmark(case_of("flash_tensor_core"), "flash_tensor_core", shape, attention_floor(2),
                            peers)
            # The backward reads and writes twice as many arrays, and has five products.
            yield Benchmark(case_of("backward_tensor_core"), "backward_tensor_core", shape,
                            attention_floor(2 * 2, 5), every_sdpa(causal, backward=True),
                            run=only_backward, prepare=with_forward)
    shape = {"b": 4, "heads": 32, "kv_heads": 8, "n": 8192, "m": 8192, "d": 128, "causal": True}
    yield Benchmark(case_of("flash_tensor_core"), "flash_tensor_core", shape, attention_floor(2),
                    every_sdpa(True), note="grouped")


def ladder():
    small = {"b": 2, "heads": 16, "kv_heads": 16, "n": 2048, "m": 2048, "d": 64}
    for kernel, *_ in RUNGS.values():
        yield Benchmark(case_of(kernel, F32), kernel, small, attention_floor(4), every_sdpa(False))


def window():
    shape = {"heads": 32, "kv_heads": 32, "n": 16384, "d": 128, "window": 1024}
    yield Benchmark(case_of("window_tensor_core"), "window_tensor_core", shape, window_floor,
                    {"our flash_tensor_core, all keys": lambda q, k, v, *_: partial(
                        forward_kernel, q, k, v, True, rung=7),
                     "FlexAttention": flex(lambda b, h, i, j: (j <= i) & (i - j < 1024)),
                     "SDPA flash, all keys": sdpa("FLASH_ATTENTION", True)})


def w2():
    """The kernel alone, on prepared queries, keys and bias; the preparation is another row."""
    from course_lib.gpu.cases.w2_attention import attend_by_wgmma, attend_prepared, prepared

    def of_means(dot_product, **chosen):    # a score of width d, no bias
        return lambda q, k, v, bias, causal: partial(
            dot_product, q[..., :64].contiguous(), k[..., :64].contiguous(), v, causal, rung=7, **chosen)

    shape = {"b": 4, "heads": 16, "n": 8192, "m": 8192, "d": 64, "causal": True}
    yield Benchmark(case_of("w2_prepare"), "w2_prepare", shape, w2_prepare_floor)
    yield Benchmark(case_of("flash_tensor_core", BF16, "W2"), "flash_tensor_core", shape, w2_floor,
                    {"our flash_tensor_core": of_means(forward_kernel)}, prepare=prepared, run=attend_prepared, note="W2")
    yield Benchmark(case_of("flash3_three_groups", BF16, "W2"), "flash3_three_groups", shape, w2_floor,
                    {"our flash3_three_groups": of_means(asynchronous_attention, groups=3),
                     "our flash3_forward": of_means(asynchronous_attention),
                     "our flash_tensor_core, W2": lambda *prepared: partial(attend_prepared, *prepared)},
                    prepare=prepared, run=attend_by_wgmma, note="W2")


def decoding():
    cache = {"lengths": (8192,) * 16, "heads": 32, "kv_heads": 8, "d": 128}
    # All are as long as the cache: a check of lengths would wait for the card inside the time.
    yield Benchmark(case_of("decode_part", F32, "2 splits"), "decode_part", cache, cache_floor(4),
                    run=decode_kernel, prepare=lambda q, k, v, lengths: (q, k, v))
    yield Benchmark(case_of("decode_tensor_core"), "decode_tensor_core", cache, cache_floor(2),
                    {"SDPA flash": sdpa("FLASH_ATTENTION", False),
                     "SDPA cuDNN": sdpa("CUDNN_ATTENTION", False)},
                    run=decode_tensor_core.dense, prepare=int_lengths)
    yield Benchmark(case_of("paged_tensor_core"), "paged_tensor_core", cache, cache_floor(2, 16),
                    {"our decode_tensor_core": as_dense}, run=paged_step, prepare=int_lengths)


def linear():
    for d in (64, 128):
        yield Benchmark(case_of("linear_walk"), "linear_walk",
                        {"n": 8192, "d": d, "segments": 1, "heads": 128}, linear_floor(2))
    yield Benchmark(case_of("linear_walk", BF16, "segments"), "linear_walk",
                    {"n": 65536, "d": 128, "segments": 8, "heads": 16}, linear_floor(2))


def asynchrony():
    """Chapter 12: all rungs at one shape, then those of FlashAttention-3 at chapter 6's."""
    small = {"b": 2, "heads": 16, "kv_heads": 16, "n": 4096, "m": 4096, "d": 64, "causal": False}
    large = small | {"b": 4, "n": 8192, "m": 8192}
    wide = large | {"d": 128}
    for shape, first in ((small, 1), (large, 7), (large | {"causal": True}, 7), (wide, 5), (wide | {"causal": True}, 5)):
        causal = shape["causal"]
        peers = every_sdpa(causal) | {"our flash_tensor_core": lambda *qkv: partial(forward_kernel, *qkv, rung=7)}
        for _, kernel, *_ in list(asynchrony_rungs.values())[first - 1:]:
            yield Benchmark(case_of(kernel), kernel, shape, attention_floor(2), peers)
        if first == 7:
            yield Benchmark(case_of("flash3_three_groups", BF16, "d = 64"), "flash3_three_groups", shape,
                            attention_floor(2), peers)


def main(argv: list[str]) -> int:
    """One kernel, three times, for a profiler: `python -m course_lib.gpu.benchmarks KERNEL NUMBER`."""
    chosen = [item for item in benchmarks() if item.kernel == argv[0]][int(argv[1])]
    arguments = chosen.case.arguments(chosen.shape, "cuda", 1)
    arguments = chosen.prepare(*arguments) if chosen.prepare else arguments
    for _ in range(3):
        (chosen.run or chosen.case.run)(*arguments)
    torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
