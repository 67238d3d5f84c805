"""A passage repeated far away: does a model still find its first copy beyond the trained length?

The small language model of the course gains nothing from far text, so its loss cannot show whether a longer context is
used. Here a model of two layers learns to copy: a passage of tokens that occur nowhere else, filler, and the passage
again at the end. It is trained at 128 tokens and tested at four times that length, under each rule.
"""
import copy

import torch

from course_lib import datasets, language_model
from course_lib.language_model.training import train

TRAINED = 128
STEPS = 2000
DISTANCES = (16, 32, 64, 96, 112, 144, 192, 256, 320, 384, 448, 496)
PASSAGE = 16            # tokens of a passage, all different
SYMBOLS = 64            # tokens 0..63 occur in passages, 64..127 in the filler


def repeated_passage(batch, generator, n=TRAINED, distance=None):
    """tokens and targets (batch, n). The last PASSAGE tokens repeat those `distance` before them; drawn if None.

    The targets are the tokens of the repeat from its second on: the first of them cannot be foretold.
    """
    tokens = torch.randint(SYMBOLS, 2 * SYMBOLS, (batch, n), generator=generator)
    passage = torch.rand(batch, SYMBOLS, generator=generator).argsort(1)[:, :PASSAGE]
    if distance is None:
        distance = torch.randint(PASSAGE, n - PASSAGE + 1, (batch, 1), generator=generator)
    repeat = torch.arange(n - PASSAGE, n)
    tokens.scatter_(1, (repeat - distance).expand(batch, -1), passage)
    tokens[:, repeat] = passage
    targets = torch.full_like(tokens, datasets.NO_TARGET)
    targets[:, repeat[:-1]] = passage[:, 1:]
    return tokens, targets


def needle_model(seed, steps):
    """Two layers with two heads of the small model's width, trained to copy."""
    torch.manual_seed(seed)
    config = language_model.Config(2 * SYMBOLS, n_layers=2, n_heads=2, d_model=64, d_hidden=128, context=TRAINED)
    model = language_model.LanguageModel(config)
    train(model, repeated_passage, steps=steps, batch=16, peak=3e-3, warmup=100, seed=seed, check_every=steps)
    return model.eval()


@torch.no_grad()
def found(model, n, distance, windows=64):
    """The share of the repeat that the model foretells, with the first copy `distance` tokens before it."""
    tokens, targets = repeated_passage(windows, datasets.generator("test"), n, distance)
    counted = targets != datasets.NO_TARGET
    best = torch.cat([model(part).argmax(-1) for part in tokens.split(8)])
    return round((best == targets)[counted].double().mean().item(), 3)


def study(variants, steps, seeds):
    """variants: from a way to make a model to (name, model) pairs. -> what is measured, for data/rope_study.json."""
    rows = {}
    for seed in range(seeds):
        trained = needle_model(seed, steps)
        for name, model in variants(lambda: copy.deepcopy(trained), TRAINED):
            rows.setdefault(name, []).append([found(model, model.config.context, distance) for distance in DISTANCES])
            print(f"needle, seed {seed}, {name:40s} {rows[name][-1]}", flush=True)
    return {"trained_length": TRAINED, "steps": steps, "seeds": list(range(seeds)), "distances": DISTANCES,
            "score": "share of the repeated tokens that are foretold; 64 sequences per distance", "rules": rows}
