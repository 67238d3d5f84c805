"""Chapter 3: grouped-query attention, three rungs."""
from functools import partial

from course_lib.gpu.case import GROUPED, Case, attention_output, qkv
from course_lib.gqa import gqa_kernel


def rung(number, *kernels):
    return Case(chapter="gqa", kernels=kernels, counted=number != 2, inputs=qkv,
                run=partial(gqa_kernel, rung=number), oracle=attention_output,
                small=GROUPED[:1],
                large=({"b": 1, "heads": 8, "kv_heads": 2, "n": 100, "m": 700, "d": 64, "causal": True},))


CASES = [
    rung(1, "repeat_kv", "attend_by_head"),
    rung(2, "attend_by_head"),
    rung(3, "attend_by_group"),
]
