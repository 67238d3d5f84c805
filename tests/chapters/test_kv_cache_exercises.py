"""The references of chapter 7's exercises against the chapter's modules."""
import json
import math
from pathlib import Path

import pytest
import torch

from course_lib import cuda
from course_lib.kv_cache import choose_splits, decode_attention
from course_lib.exercises.declare import find
from course_lib.flash_attention import finish, merge
from course_lib.kv_cache.generation import beam_search
from course_lib.gqa import cache_bytes
from course_lib.kv_cache import RollingCache, StaticCache
from course_lib.language_model import Config, LanguageModel
from course_lib.kv_cache.quantization import dequantize, quantize
from course_lib.rope import apply_rope, rope_table
from course_lib.kv_cache.sampling import acceptance, residual
from references import rand, reference


def test_numbers():
    models = {model["name"]: model for model in json.loads(
        (Path(__file__).resolve().parents[2] / "data" / "models.json").read_text())["models"]}
    one = cache_bytes(models["Llama 3 8B"], 8192)
    assert find("7.4").answer == int((80e9 - 16e9) // one)
    in_flight = 4.8e12 * 700e-9                                  # Little's law: bandwidth times latency
    step = (16e9 + 32 * 8192 * 131072) / 4.8e12                     # the card rounds a cache to 1.07 GB
    assert find("7.5").answer == pytest.approx(32 / step, rel=0.01)
    assert find("7.6").answer == -(-in_flight // (8 * 4 * 8 * 512))
    assert 132 <= 8 * choose_splits(8, 10**6) <= 132 * 32        # one wave
    scores = [sum(t * (t + 1) // 2 for t in range(1, n + 1)) for n in (1000, 2000)]
    assert round(scores[1] / scores[0], 1) == find("7.1").answer
    chances = [0.8**i * 0.2 for i in range(4)] + [0.8**4]
    assert find("7.13").answer == pytest.approx(sum((i + 1) * p for i, p in enumerate(chances)))


def test_the_row_cache_is_a_static_cache():
    ours, theirs = reference("7.2")(9, 3, 4), StaticCache(9)
    for n in (4, 1, 3):
        k, v = rand(3, n, 4, seed=n), rand(3, n, 4, seed=9 + n)
        ours.append(k, v)
        theirs.append(k[None], v[None])
    for got, want in zip(ours.view(), theirs.view()):
        assert torch.equal(got, want[0])


def test_rotation_is_chapter_2s():
    x = rand(5, 8)
    want = apply_rope(x[None, None], *rope_table(40, 8), positions=torch.arange(30, 35))[0, 0]
    torch.testing.assert_close(find("7.3").given["rotate"](x, torch.arange(30, 35)), want)


@pytest.mark.parametrize("window, n_sink", [(1, 0), (4, 2), (3, 1)])
def test_rolling_positions(window, n_sink):
    for reindexed in (False, True):
        cache = RollingCache(window, n_sink, "reindexed" if reindexed else "absolute")
        for t in range(12):
            query = int(cache.next_positions(1))
            cache.append(rand(1, 1, 1, 2), rand(1, 1, 1, 2))
            assert reference("7.9")(t, window, n_sink, reindexed) == (query, cache.key_positions().tolist())


def test_quantisation():
    x = rand(6, 9)
    for bits, dim in ((8, 0), (8, 1), (4, 0)):
        codes, step, low = reference("7.10")(x[:, :8], bits, dim)
        torch.testing.assert_close(low + step * codes, dequantize(quantize(x[:, :8], bits, dim - 2), bits))


@torch.no_grad()
def test_beams():
    torch.manual_seed(0)
    model = LanguageModel(Config(vocab_size=5, n_layers=1, n_heads=1, d_model=8, d_hidden=8,
                                 context=16)).eval()
    texts, scores = torch.tensor([[1, 2]]), torch.zeros(1)
    for _ in range(4):
        parent, token, scores = reference("7.11")(scores, model(texts)[:, -1].log_softmax(-1), 3)
        texts = torch.cat((texts[parent], token[:, None]), 1)
    want = beam_search(model, torch.tensor([[1, 2]]), 4, 3)
    assert torch.equal(texts, want[0])
    torch.testing.assert_close(scores, want[1])


def test_keep_and_replace():
    target, draft = rand(7).softmax(0), rand(7, seed=1).softmax(0)
    keep, instead = reference("7.12")(target, draft)
    torch.testing.assert_close(keep, acceptance(target, draft))
    torch.testing.assert_close(instead, residual(target, draft))


def test_the_kernels_parts_merge_to_attention():
    q, k, v = rand(32), rand(50, 32, seed=1), rand(50, 32, seed=2)
    parts = [torch.empty(4), torch.empty(4), torch.empty(4, 32)]
    cuda.compile(find("7.7").solution).attend_part[4, 32](q, k, v, *parts, 50, 13, 1 / math.sqrt(32))
    state = tuple(x[:1] for x in parts)
    for i in range(1, 4):
        state = merge(state, tuple(x[i:i + 1] for x in parts))
    want = decode_attention(*(x.view(1, 1, -1, 32) for x in (q, k, v)))
    torch.testing.assert_close(finish(state)[0], want[0, 0], atol=1e-5, rtol=1e-5)


def test_the_missing_lanes_are_told():
    kernel = cuda.compile(find("7.8").stub).key_scores
    with cuda.sanitize():
        kernel[3, 32](rand(32), rand(3, 32, seed=1), torch.empty(3), 32)
    with pytest.raises(cuda.KernelError) as error, cuda.sanitize():
        kernel[3, 32](rand(20), rand(3, 20, seed=1), torch.empty(3), 20)
    assert error.value.kind == "deadlock"
