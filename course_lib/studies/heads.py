"""`python -m course_lib heads-study`: one head against many, at equal width, equal parameters and equal tokens.

Writes data/heads_study.json. Models of width 128 that differ only in how many heads the width is divided into are trained
from the start by the recipe of `attention-table`.
"""
import argparse
import json
from itertools import product
from pathlib import Path

import torch

from course_lib import datasets
from course_lib.language_model import CharTokenizer, Config, LanguageModel, evaluate, train
from course_lib.studies.attention_table import BATCH, BLOCK, PEAK

HEADS = (1, 2, 4, 8)


def study_command(argv):
    """python -m course_lib heads-study: train the small model with 1, 2, 4 and 8 heads of the same total width."""
    parser = argparse.ArgumentParser(prog="python -m course_lib heads-study", description=study_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "heads_study.json")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)

    torch.set_num_threads(1)
    text = datasets.shakespeare("train")
    tokenizer = CharTokenizer.from_text(text)
    data, validation = tokenizer.encode(text), tokenizer.encode(datasets.shakespeare("validation"))
    losses = {heads: [] for heads in HEADS}
    for seed, heads in product(range(args.seeds), HEADS):
        torch.manual_seed(seed)
        model = LanguageModel(Config(len(tokenizer), context=BLOCK, n_heads=heads))
        train(model, data, steps=args.steps, batch=BATCH, block=BLOCK, peak=PEAK, seed=seed, check_every=args.steps)
        losses[heads].append(round(evaluate(model, validation, BLOCK, blocks=1000), 4))
        print(f"{heads} heads, seed {seed}: loss {losses[heads][-1]:.4f}", flush=True)
    result = {"command": " ".join(["python -m course_lib heads-study", *argv]), "steps": args.steps, "batch": BATCH,
              "block": BLOCK, "peak": PEAK, "seeds": list(range(args.seeds)),
              "loss": "nats per character, 1,000 blocks spread over the validation plays",
              "parameters": sum(p.numel() for p in model.parameters()), "losses": losses}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0
