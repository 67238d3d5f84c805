"""The encoder-decoder of dates: what it may look at, what it learns, and the trained model."""
import pytest
import torch

from course_lib import datasets
from course_lib.language_model import translator as encoder_decoder
from course_lib.language_model.translator import (BEGIN, CHARACTERS, END, EncoderDecoder, batch_of,
                                                  draw_dates, encode, exact_matches)
from course_lib.language_model.training import train


def small_model():
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
    model = small_model()
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


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="^text has '#'"):
        encode(["#"])
    with pytest.raises(ValueError, match="^texts must"):
        encode([3])
    with pytest.raises(ValueError, match="^source must be .* at most 32"):
        small_model()(encode(["1" * 33]), encode(["1"]))
    with pytest.raises(ValueError, match="^target must"):
        small_model()(encode(["1"]), encode(["1"]).float())


def test_the_trained_model_reads_days_it_has_never_seen():
    model, facts = encoder_decoder.pretrained(), encoder_decoder.facts()
    assert min(facts["exact_matches"].values()) > 0.98
    assert exact_matches(model, datasets.dates(100, "test", seed=1)) >= 0.95
    assert model.translate(["the 4th of July, 1976", "4.7.1976"]) == ["1976-07-04", "1976-07-04"]
