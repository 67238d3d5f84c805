"""Each line of changed_kernels.yaml breaks a kernel a little; values, or the sanitizer, must show it."""
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from changed_kernels import changed_kernels
from course_lib import cuda
from course_lib.gpu.case import Case
from course_lib.gpu.cases import BF16, CASES, F32
from course_lib.gpu.cases.flash_attention import biased
from course_lib.linear_attention import linear_attention, linear_attention_kernel, tensor_core as linear_core

# What judges a change: cases of course_lib/gpu/cases with shapes of them. One that sees it is enough.
CAUSAL = {"b": 1, "heads": 2, "kv_heads": 1, "causal": True}


def only(*kernels, dtype=F32, note="", shapes=()):
    """The first case of just these kernels."""
    case = next(case for case in CASES
                if case.kernels == kernels and case.dtype == dtype and note in case.note)
    return [(case, shape) for shape in shapes or case.small]


def times(factor, judges):
    """With queries times a factor: maxima that move from tile to tile."""
    def scaled(inputs):
        def made(draw, **shape):
            q, *others = inputs(draw, **shape)
            return factor * q, *others
        return made
    return [(replace(case, inputs=scaled(case.inputs)), shape) for case, shape in judges]


def three_launches():
    return only("attention_scores", "softmax_on_chip", "attention_output",
                shapes=[{"b": 5, "heads": 1, "kv_heads": 1, "n": 5, "m": 63, "d": 20, "causal": True}])


def recurrences():
    """elu and relu, under which one query's weights are all 0."""
    def dark(draw, n, d):
        q, k, v = (draw(1, 2, n, d) for _ in "qkv")
        q[:, :, 5] = -1
        return q, k, v
    found = only("delta_rule", shapes=[{"n": 37, "d": 20}])
    rungs = ("state_in_global",), ("state_in_shared",), ("chunk_states", "chunk_outputs")
    for number, kernels in enumerate(rungs, 1):
        (case, _), = only(*kernels)
        for name in ("elu", "relu"):
            run = partial(linear_attention_kernel, feature_map=name, rung=number, chunk_size=8)
            oracle = partial(linear_attention, feature_map=name, causal=True)
            found.append((replace(case, inputs=dark, run=run, oracle=oracle), {"n": 37, "d": 20}))
    return found


def walks():
    """And relu from an empty state, with queries whose weights are all 0."""
    def dark(draw, n, d, segments):
        q, k, v = (draw(1, 2, n, d) for _ in "qkv")
        q[..., :3, :] = -1
        return q, k, v, segments

    def run(q, k, v, segments):
        return linear_core.run(q, k, v, q.new_zeros(1, 2, 128 * 129, dtype=F32), 1, True, segments)[0]
    (case, _), = wide = only("linear_walk", dtype=BF16, shapes=[{"n": 100, "d": 128, "segments": 1}])
    return [*wide, (replace(case, inputs=dark, run=run, oracle=lambda q, k, v, segments: linear_attention(
        q, k, v, "relu", causal=True)), wide[0][1]),
        *only("linear_walk", "segment_prefix", dtype=BF16, shapes=[{"n": 200, "d": 64, "segments": 3}])]


def windows_and_blocks():
    window = {"heads": 2, "kv_heads": 1, "n": 300, "d": 64, "n_sink": 5}
    shapes = [window | {"window": w} for w in (20, 136)]
    return [*times(4, only("window_tensor_core", dtype=BF16, shapes=shapes)),
            *only("block_sparse_tensor_core", dtype=BF16)]


def biased_flash(rung):
    return [(biased(rung), CAUSAL | {"n": n, "m": m, "d": 20, "v_dim": 25}) for n, m in ((63, 33), (33, 63))]


def tensor_flash():
    case = biased(7, dtype=BF16)
    full = CAUSAL | {"d": 64, "causal": False}
    return [(case, CAUSAL | {"n": 100, "m": 70, "d": 40}), (case, full | {"n": 75, "m": 140}),
            *times(16, only("flash_tensor_core", dtype=BF16, shapes=[full | {"n": 40, "m": 260}]))]


def tensor_backward():
    case = biased(7, dtype=BF16)
    return [(case, CAUSAL | {"n": n, "m": m, "d": 64, "causal": n > 45})
            for n, m in ((100, 70), (70, 150), (45, 150))]


def packed():
    return only("flash_packed", "packed_keys", "packed_queries",
                shapes=[{"lengths": (33, 5, 70), "heads": 4, "kv_heads": 2, "d": 16, "causal": True}])


def caches():
    shape = {"heads": 16, "kv_heads": 2, "d": 40}
    return (only("decode_part", "merge_parts", note="2", shapes=[shape | {"lengths": (130, 0, 97)}])
            + only("decode_part_int8", "decode_part", "merge_parts", shapes=[shape | {"n": 100}]))


def half_caches():
    shape = {"lengths": (101, 331), "heads": 8, "kv_heads": 2, "d": 64}
    return times(8, only("decode_tensor_core", "merge_splits", dtype=BF16, shapes=[shape])
                 + only("paged_tensor_core", "merge_splits", dtype=BF16, shapes=[shape]))


def pages(note):
    case = next(case for case in CASES if case.chapter == "paged_attention" and case.note == note)
    return [(case, {"lengths": (1, 75, 9), "heads": 4, "kv_heads": 2, "d": 32})]


class Bias(Case):
    """The bias of w2_prepare is that of the keys as they were rounded."""
    tolerance = 1e-5


def prepared():
    def rounded(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
        keys = torch.cat([mu_k - mu_k[:, :, :1], sigma_k - sigma_k[:, :, :1]], -1).bfloat16().double()
        return -keys.square().sum(-1) / tau[:, None]
    (case, shape), = found = only("w2_prepare", dtype=BF16)
    return [*found, (Bias(**vars(case) | {"run": lambda *x: case.run(*x)[2], "oracle": rounded}), shape)]


def gaussians():
    shapes = [{"b": 1, "heads": 2, "n": n, "m": m, "d": 20, "causal": True} for n, m in ((63, 33), (33, 63))]
    return [judge for kernels in (("w2_score_matrix", "softmax_rows", "weighted_sum"), ("w2_flash",),
                                  ("rowsum_do_o", "w2_backward_keys", "w2_backward_queries"))
            for judge in only(*kernels, shapes=shapes)]


CHANGES = yaml.safe_load((Path(__file__).parent / "changed_kernels.yaml").read_text(encoding="utf-8"))


def judges_of(kernels=(), judges=(), changes=(), **case):
    """Of a group of the table."""
    return globals()[judges[0]](*judges[1:]) if judges else only(*kernels, **case)


def seen(judges) -> bool:
    """Whether a value is wrong, or the sanitizer names a fault."""
    try:
        with cuda.sanitize():
            return not all(case.error(shape) <= case.tolerance for case, shape in judges)
    except cuda.KernelError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("files", CHANGES)
def test_a_changed_kernel_is_caught(files, tmp_path, monkeypatch):
    """All changes of a file are one build, and without one the judges see nothing."""
    word, *beside = files.split()
    groups, load = CHANGES[files], cuda.load
    every = [change for group in groups for change in group["changes"]]
    with cuda.sanitize():
        changed = changed_kernels(tmp_path, word, every, *beside)
    monkeypatch.setattr(cuda, "load", lambda name: changed if name == word else load(name))
    number, missed = 0, []
    for group in groups:
        judges, changed.globals["chosen"] = judges_of(**group), 0
        assert not seen(judges)
        for change in group["changes"]:
            changed.globals["chosen"] = number = number + 1
            missed += [] if seen(judges) else [change]
    assert not missed
