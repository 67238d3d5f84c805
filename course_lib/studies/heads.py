"""`python -m course_lib heads-study`: one head against many, at equal width, equal parameters and equal
tokens; and four heads that are told no positions.

Writes data/heads_study.json. Models of width 128 that differ only in how many heads the width is divided into,
or in their positions, are trained from the start by the recipe of `attention-table`."""
from itertools import product

import torch

from course_lib import datasets
from course_lib.language_model import CharTokenizer, Config, LanguageModel, evaluate, train
from .attention_table import BATCH, BLOCK, PEAK, parameters
from .study import plays, study

HEADS = (1, 2, 4, 8)


def measure(args):
    torch.set_num_threads(1)
    tokenizer = CharTokenizer.from_text(datasets.shakespeare("train"))
    data, validation = plays(tokenizer)
    losses, without = {heads: [] for heads in HEADS}, []
    models = [({"n_heads": heads}, losses[heads]) for heads in HEADS] + [({"rope": [False] * 4}, without)]
    for seed, (change, found) in product(range(args.seeds), models):
        torch.manual_seed(seed)
        model = LanguageModel(Config(len(tokenizer), context=BLOCK, **change))
        train(model, data, steps=args.steps, batch=BATCH, block=BLOCK, peak=PEAK, seed=seed,
              check_every=args.steps)
        found.append(round(evaluate(model, validation, BLOCK, blocks=1000), 4))
        print(f"{change}, seed {seed}: loss {found[-1]:.4f}", flush=True)
    return {"steps": args.steps, "batch": BATCH, "block": BLOCK, "peak": PEAK,
            "seeds": list(range(args.seeds)),
            "loss": "nats per character, 1,000 blocks spread over the validation plays",
            "parameters": parameters(model), "losses": losses, "without_positions": without}


def study_command(argv):
    """python -m course_lib heads-study: 1, 2, 4, 8 heads of one total width, and 4 without positions."""
    return study(argv, "heads-study", study_command.__doc__, measure, steps=600, seeds=3)
