"""The kernels of chapter 3: right, sanitized, counted, and their mutants caught; its references against the
module."""

import pytest
import torch

from course_lib import cuda, gqa
from course_lib.exercises.declare import find
from course_lib.exercises.judge import evaluate
from course_lib.exercises.verdict import WRONG
from course_lib.gqa import gqa_kernel, grouped_query_attention
from references import reference


def qkv(b, n_heads, n_kv_heads, n, m, d):
    generator = torch.Generator().manual_seed(n + 100 * m + d)
    shapes = (b, n_heads, n, d), (b, n_kv_heads, m, d), (b, n_kv_heads, m, d)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("rung", [1, 2, 3])
def test_without_keys_or_queries(rung):
    assert (gqa_kernel(*qkv(1, 4, 2, 3, 0, 8), rung=rung) == 0).all()
    assert gqa_kernel(*qkv(1, 4, 2, 0, 3, 8), rung=rung).shape == (1, 4, 0, 8)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_keys_and_values_are_read_once_a_group(n_kv_heads):
    q, k, v = qkv(1, 4, n_kv_heads, 1, 64, 16)
    read = {}
    for rung in (1, 2, 3):
        with cuda.profile() as report:
            gqa_kernel(q, k, v, rung=rung)
        read[rung] = sum(launch.global_load.bytes for launch in report.launches) - 4 * q.numel()
    each_head = 4 * 2 * 64 * 16 * 4
    assert read == {1: 2 * each_head, 2: each_head, 3: each_head * n_kv_heads // 4}


def test_references_agree_with_the_module():
    q, k, v = qkv(2, 6, 2, 3, 5, 8)
    assert torch.equal(reference("3.3")(k, 3), gqa.repeat_kv(k, 3))
    torch.testing.assert_close(reference("3.4")(q, k, v), grouped_query_attention(q, k, v))
    weight = torch.arange(24.0).view(8, 3)
    torch.testing.assert_close(reference("3.11")(weight, 4, 2), gqa.pool_heads(weight, 4, 2))
    assert reference("3.2") == gqa.kv_bytes_per_token(80, 8, 128) / 1024


def test_the_cache_of_the_exercise_is_that_of_the_module():
    sizes = {"kv_heads": 2, "head_dim": 4, "heads": 3, "key_dim": 4, "value_dim": 5, "window": 3,
             "latent_dim": 6, "rope_dim": 2}
    for kind in ("full", "window", "latent", "linear"):
        layer = {"kind": kind, "count": 1, "n_heads": 3, **sizes}
        model = {"name": kind, "n_kv_heads": 2, "head_dim": 4, "layers": [layer]}
        for tokens in (0, 2, 7):
            assert reference("3.9")([layer], tokens) == gqa.cache_bytes(model, tokens), (kind, tokens)


@pytest.mark.parametrize("body, told", [
    ("k[:, torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])]", "copy them too"),
    ("torch.stack([k] * (q.shape[1] // k.shape[1]), 2).flatten(1, 2)", "copy them too")])
def test_keys_repeated_under_another_name_are_found(body, told):
    source = f'''
def grouped_attention(q, k, v):
    def all_heads(k):
        return {body}
    weights = torch.softmax(q @ all_heads(k).transpose(-2, -1) / math.sqrt(q.shape[-1]), -1)
    return weights @ all_heads(v)
'''
    verdict = evaluate(find("3.4"), source)
    assert (verdict.status == WRONG
            and (told in verdict.headline or verdict.misconception == "repeats the keys by another name"))
