"""`python -m course_lib rope-study`: the small language model beyond the length it was trained at, under each
rule.

Writes data/rope_study.json: the mean loss by position, 64 positions at a time, up to four times the trained
length.
"""
import torch
from torch.nn import functional as F

from course_lib import language_model
from course_lib.rope import rope_table
from .study import plays, study
from course_lib.language_model import train

TRAINED = 256
FACTOR = 4


def stretch(model, n, scaling=None, table=None):
    """Let the model read n tokens, in place: with rescaled frequencies, or with a table of its own."""
    model.cos, model.sin = table or rope_table(n, model.config.head_dim, model.config.rope_base, scaling)
    model.config.context = n
    return model


def repeated_last_row(n, head_dim):
    """The habit to avoid: a table that is too short, padded with copies of its last row."""
    return [torch.cat([t, t[-1:].expand(n - len(t), -1)]) for t in rope_table(TRAINED, head_dim)]


@torch.no_grad()
def loss_by_position(model, windows, width=64):
    """windows (batch, n + 1) of tokens -> the mean loss in each stretch of `width` positions."""
    logits = torch.cat([model(part[:, :-1]) for part in windows.split(4)])
    losses = F.cross_entropy(logits.transpose(1, 2), windows[:, 1:], reduction="none").mean(0)
    return [round(x, 3) for x in losses.view(-1, width).mean(1).tolist()]


def measure(args):
    data, validation = plays()
    n = FACTOR * TRAINED
    starts = torch.linspace(0, len(validation) - n - 1, args.windows).long()
    windows = validation[starts[:, None] + torch.arange(n + 1)]

    def model(scaling=None, table=None):
        return stretch(language_model.pretrained()[0], n, scaling, table)

    def scaled(kind, **more):
        return model({"kind": kind, "factor": FACTOR, **more})

    by_rule = {"a longer table": model(),
               "last row repeated": model(table=repeated_last_row(n, model().config.head_dim)),
               "linear": scaled("linear"), "ntk": scaled("ntk"),
               "yarn": scaled("yarn", original_length=TRAINED),
               "llama3": scaled("llama3", original_length=TRAINED)}
    tuned = scaled("linear")
    train(tuned, data, steps=args.tuning_steps, batch=2, block=n, peak=5e-4, warmup=10,
          check_every=args.tuning_steps)
    by_rule[f"linear, {args.tuning_steps} steps of tuning"] = tuned
    rules = {name: loss_by_position(m, windows) for name, m in by_rule.items()}
    for name, losses in rules.items():
        first, last = sum(losses[:4]) / 4, sum(losses[-4:]) / 4
        print(f"{name:32s} trained length {first:.3f}   last quarter {last:.3f}")
    return {"trained_length": TRAINED, "factor": FACTOR, "width": 64, "windows": args.windows, "seed": 0,
            "loss": "nats per character, validation plays", "rules": rules}


def study_command(argv):
    """python -m course_lib rope-study: loss by position, under each rule for longer texts."""
    return study(argv, "rope-study", study_command.__doc__, measure, windows=64, tuning_steps=100)
