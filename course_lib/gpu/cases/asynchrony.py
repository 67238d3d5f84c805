"""Chapter 12: every rung of the ladder, grouped, causal and ragged."""
from functools import partial

from course_lib.asynchrony import asynchronous_attention
from course_lib.asynchrony.kernels import RUNGS
from course_lib.gpu.case import BF16, GROUPED_LARGE, Case, attention, qkv

HEADS = {"b": 1, "heads": 4, "kv_heads": 2}
SHAPES = (HEADS | {"n": 33, "m": 100, "d": 64, "causal": True}, HEADS | {"n": 100, "m": 63, "d": 64, "causal": True},
          HEADS | {"n": 129, "m": 31, "d": 64}, HEADS | {"n": 1, "m": 129, "d": 64})


def of_width(d, shapes):
    return tuple(shape | {"d": d} for shape in shapes)


of_attention = partial(Case, chapter="asynchrony", dtype=BF16, inputs=qkv, oracle=attention, hopper=True)
CASES = [of_attention(kernels=(name,), run=partial(asynchronous_attention, rung=rung),
                      small=SHAPES[:2] + of_width(d, SHAPES[2:]), large=of_width(d, GROUPED_LARGE))
         for rung, (_, name, *_) in RUNGS.items() for d in [128 if rung >= 5 else 64]]
CASES += [of_attention(kernels=("flash3_three_groups",), run=partial(asynchronous_attention, groups=3), note="d = 64",
                       small=SHAPES, large=of_width(64, GROUPED_LARGE))]
