"""The language model's attentions: each its chapter's, causal, the same with its cache as without."""
import functools
import math

import pytest
import torch

from course_lib import datasets
from course_lib.linear_attention.delta import delta_rule
from course_lib.gqa import GroupedQueryAttention
from course_lib.kv_cache import GrowingCache, StaticCache
from course_lib.language_model import ATTENTIONS, Config, LanguageModel
from course_lib.gqa import LatentAttention
from course_lib.linear_attention import linear_attention
from course_lib.language_model.look_inside import (copying_gain, effect_of_distance, induction_scores,
                                                   weight_by_distance)
from course_lib.rope import rope_table
from course_lib.sparse_attention import sliding_window_mask
from course_lib.language_model.training import train
from course_lib.w2_attention import W2Attention

MIX = ["sliding", "latent", "delta", "gqa"]


def model(attention, **changes):
    torch.manual_seed(0)
    config = Config(**{"vocab_size": 13, "n_layers": 4, "n_heads": 4, "d_model": 32, "d_hidden": 16,
                       "context": 40, "window": 6, "rope_dim": 4, "latent_dim": 6, "attention": attention}
                    | changes)
    made = LanguageModel(config).double().eval()
    for parameter in made.parameters():
        parameter.data *= 4 if parameter.dim() > 1 else 1  # far from uniform, so that margins are wide
    return made


def tokens(*shape, seed=0):
    return torch.randint(13, shape, generator=torch.Generator().manual_seed(seed))


EVERY = [*ATTENTIONS, MIX]


@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_a_position_never_sees_what_follows_and_always_what_came_before(attention):
    made, x = model(attention, rope=[True, False, True, True]), tokens(2, 20)
    y = x.clone()
    y[:, 12] = (y[:, 12] + 1) % 13
    torch.testing.assert_close(made(x)[:, :12], made(y)[:, :12])
    assert ((made(x) - made(y))[:, 12:16].abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_with_its_cache_a_model_writes_what_it_writes_without(attention):
    made, x = model(attention, rope=[True, True, False, True]), tokens(2, 9)
    naive = made.generate(x, 25)
    assert torch.equal(made.generate(x, 25, use_cache=True), naive)
    caches = made.make_caches()
    pieces = torch.cat([made(piece, caches) for piece in naive.split([7, 1, 20, 6], 1)], 1)
    torch.testing.assert_close(pieces, made(naive))
    # Beams change places in every cache.
    for cache in caches:
        cache.reorder(torch.tensor([1, 0]))
    torch.testing.assert_close(made(x[:, :2].flip(0), caches),
                               made(torch.cat([naive, x[:, :2]], 1))[:, -2:].flip(0))


@pytest.mark.parametrize("attention", ["softmax", "gqa", "latent", "flash", "w2", "sliding"])
@pytest.mark.parametrize("make", [GrowingCache, lambda: StaticCache(40)], ids=["growing", "static"])
def test_attentions_with_keys_take_any_cache_of_chapter_7(attention, make):
    made, x = model(attention), tokens(1, 30)
    caches = [make() for _ in made.blocks]
    torch.testing.assert_close(torch.cat([made(piece, caches) for piece in x.split([11, 1, 18], 1)], 1),
                               made(x))


def test_what_a_cache_holds():
    held = {}
    for attention in ATTENTIONS:
        made = model(attention).float()
        for n in (20, 40):
            caches = made.make_caches()
            made(tokens(1, n), caches)
            held[attention, n] = sum(cache.bytes for cache in caches) // 4 // 4         # numbers per layer
    a_layer = {"softmax": 2 * 32, "flash": 2 * 32, "gqa": 2 * 16, "latent": 4 + 6, "w2": 4 * (2 * 8 + 2) + 32}
    assert all(held[name, n] == n * numbers for name, numbers in a_layer.items() for n in (20, 40))
    assert held["linear", 20] == held["linear", 40] == 4 * 8 * (8 + 1)
    assert held["delta", 20] == held["delta", 40] == 4 * 8 * 8
    assert held["sliding", 40] <= held["softmax", 20] * 3


@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_weights_make_the_output(attention):
    made, x = model(attention), tokens(2, 20)
    weights = made.attention_weights(x)
    assert weights.shape == (4, 2, 4, 20, 20) and (weights.triu(1) == 0).all()
    for layer, name in enumerate(made.config.attentions):
        if name != "delta":             # whose weights may be negative and need not sum to 1
            torch.testing.assert_close(weights[layer].sum(-1), torch.ones(2, 4, 20).double())
        if name == "sliding":
            assert (weights[layer][..., ~sliding_window_mask(20, 6)] == 0).all()
    attention = made.blocks[0].attention
    y = made.blocks[0].attention_norm(made.embedding(x))
    k, v = attention.project(y)[1:3]
    values = attention.values(k, v)
    values = values.repeat_interleave(4 // values.shape[1], 1)
    rope = made.cos[:20], made.sin[:20]
    torch.testing.assert_close(attention.finish(weights[0] @ values), attention(y, rope))


def test_they_are_the_chapters_attentions():
    rope, x = [t.double() for t in rope_table(20, 8)], torch.randn(2, 20, 32, dtype=torch.float64)
    for name, chapter, table in (("gqa", GroupedQueryAttention(32, 4, 2), rope),
                                 ("w2", W2Attention(32, 4), rope),
                                 ("latent", LatentAttention(32, 4, 8, 6, 4), [t[:, :2] for t in rope])):
        ours = model(name).blocks[0].attention
        chapter.double().load_state_dict(ours.state_dict())
        torch.testing.assert_close(ours(x, rope), chapter(x, table), msg=name)
    for name in ("linear", "delta"):
        ours = model(name).blocks[0].attention
        q, k, v, *more = ours.project(x)
        q, k = ours.rotate(q, rope), ours.rotate(k, rope)
        want = (linear_attention(q, k, v, causal=True, form="recurrent") if name == "linear"
                else delta_rule(q, k, v, *more))
        torch.testing.assert_close(ours(x, rope), ours.finish(want))
    softmax, flash = (model(name) for name in ("softmax", "flash"))
    t = tokens(2, 40)
    grads = []
    for made in (softmax, flash):
        made.loss(t[:, :-1], t[:, 1:]).backward()
        grads.append(torch.cat([p.grad.flatten() for p in made.parameters()]))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_the_loss_starts_near_that_of_a_guess_and_falls(attention):
    torch.manual_seed(0)
    made = LanguageModel(Config(65, context=64, attention=attention))
    x = torch.randint(65, (8, 65), generator=torch.Generator().manual_seed(0))
    start = made.loss(x[:, :-1], x[:, 1:]).item()
    assert 0 < start - math.log(65) < 0.15
    small = LanguageModel(Config(13, n_layers=4, n_heads=2, d_model=16, d_hidden=16, context=16, rope_dim=4,
                                 attention=attention))
    history = train(small, torch.arange(400) % 13, steps=40, batch=4, block=16, peak=1e-2, warmup=5,
                    check_every=20)
    assert history[1][1] < history[0][1]


def test_tied_embeddings_begin_by_saying_the_same_again():
    """Why the loss does not start at ln V: a token's own embedding is still in x when it is read out."""
    torch.manual_seed(0)
    made = LanguageModel(Config(65, context=64))
    x = torch.randint(65, (8, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        own = made(x).gather(-1, x[..., None])
    assert (own > 0).all() and 1.5 < own.mean() < 0.02 * 128  # at most d_model times the embedding's size


@pytest.mark.parametrize("argument, change", [
    ("attention", {"attention": "magic"}), ("attention", {"attention": ["softmax"] * 3}),
    ("attention", {"attention": ["softmax", "x"] * 2}), ("rope", {"rope": [True]}),
    ("rope", {"rope": 1}), ("n_kv_heads", {"attention": "gqa", "n_kv_heads": 3}),
    ("rope_dim", {"attention": "latent", "rope_dim": 3}), ("window", {"window": 0})])
def test_bad_configurations_are_named(argument, change):
    with pytest.raises(ValueError, match=rf"^{argument} must "):
        Config(**{"vocab_size": 11} | change)


def test_a_state_cannot_forget_its_last_tokens():
    made = model("delta")
    caches = made.make_caches()
    made(tokens(1, 5), caches)
    caches[0].truncate(5)
    with pytest.raises(ValueError, match="^n must be all 5 tokens"):
        caches[0].truncate(3)


class Heads:
    """A model whose attention is known: one head of one layer, with these weights (n, n)."""

    def __init__(self, weights):
        self.config, self.weights = Config(32), weights

    def attention_weights(self, tokens):
        assert torch.equal(tokens[:, :12], tokens[:, 12:]) and tokens.shape[1] == 24
        return self.weights.expand(1, len(tokens), 1, 24, 24)


def test_the_induction_score():
    back = torch.eye(24).roll(-11, 1).tril()  # each looks 11 back: at what followed its token the last time
    even = torch.ones(24, 24).tril() / torch.arange(1, 25)[:, None]
    assert induction_scores(Heads(back), 12).tolist() == [[1.0]]
    assert induction_scores(Heads(torch.eye(24)), 12).tolist() == [[0.0]]
    assert induction_scores(Heads(even), 12).item() == pytest.approx(1 / 18, rel=0.1)


@pytest.mark.slow
def test_two_layers_learn_to_say_the_same_again():
    torch.manual_seed(0)
    made = LanguageModel(Config(32, 2, 2, 64, 64, 64))
    same_length = functools.partial(datasets.repeats, shortest=16, longest=16)
    train(made, same_length, steps=200, batch=32, peak=3e-3, warmup=50)
    assert copying_gain(made, 16) > 3 and induction_scores(made, 16).max() > 0.5


def test_what_is_seen_at_a_distance():
    x = tokens(2, 40)
    near = effect_of_distance(model("sliding"), x, (5, 15, 25))
    assert near[5] > 1e-6 and near[15] > 1e-12 and near[25] < 1e-12, (
        "four windows of 6 reach 20 tokens back, not 25")
    for attention in ("softmax", "delta"):
        shares = weight_by_distance(model(attention), x)
        torch.testing.assert_close(sum(shares.values()), torch.ones(4).double())
        assert list(shares)[-1] == (32, 39)
