"""Chapter 12: every rung of the ladder, grouped, causal and ragged."""
from functools import partial

from course_lib.asynchrony import asynchronous_attention
from course_lib.asynchrony.kernels import RUNGS
from course_lib.gpu.case import BF16, GROUPED_LARGE, Case, attention, qkv

HEADS = {"b": 1, "heads": 4, "kv_heads": 2}
SHAPES = (HEADS | {"n": 33, "m": 100, "d": 64, "causal": True}, HEADS | {"n": 100, "m": 63, "d": 64, "causal": True},
          HEADS | {"n": 129, "m": 31, "d": 64}, HEADS | {"n": 1, "m": 129, "d": 64})


def wide(shapes):
    return tuple(shape | {"d": 128} for shape in shapes)


CASES = [Case(chapter="asynchrony", kernels=(name,), dtype=BF16, inputs=qkv, oracle=attention, hopper=True,
              run=partial(asynchronous_attention, rung=rung),
              small=SHAPES[:2] + (wide(SHAPES[2:]) if rung >= 5 else SHAPES[2:]),
              large=GROUPED_LARGE if rung >= 5 else tuple(s | {"d": 64} for s in GROUPED_LARGE))
         for rung, (_, name, *_) in RUNGS.items()]
