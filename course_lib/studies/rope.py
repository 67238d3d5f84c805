"""`python -m course_lib rope-study`: the small language model beyond its trained length, under each rule.

Writes data/rope_study.json: the loss by position on held-out plays, 64 positions at a time, up to four times
the trained length, with the controls that decide what it means (a rule, and the unchanged model, where each
position sees the last 256 only); and, from studies/rope_needle.py, which rule lets a head find a token."""
import json

import torch
from torch.nn import functional as F

from course_lib import language_model
from course_lib.language_model.training import train
from course_lib.rope import rope_frequencies, rope_table, yarn
from course_lib.sparse_attention import sliding_window_mask
from course_lib.studies import rope_needle
from .study import options, plays, write

TRAINED = 256
FACTOR = 4
LONG = FACTOR * TRAINED
CONTROL = "window of 256"


def rules(trained):
    """The rules by name, as `scaling` of rope_table, for a model trained at this length."""
    length = {"factor": FACTOR, "original_length": trained}
    return {"linear": {"kind": "linear", "factor": FACTOR}, "NTK-aware": {"kind": "ntk", "factor": FACTOR},
            "YaRN": {"kind": "yarn", **length},
            "YaRN, thresholds 4 and 1": {"kind": "yarn", **length, "fast": 4.0},
            "Llama 3.1": {"kind": "llama3", **length}}


def stretch(model, n, scaling=None, table=None):
    """Let the model read n tokens, in place: with rescaled frequencies, or with a table of its own."""
    model.cos, model.sin = table or rope_table(n, model.config.head_dim, model.config.rope_base, scaling)
    model.config.context = n
    return model


def narrow(model, n, window):
    """Let every layer of the model see the last `window` keys of n tokens, in place; nothing is rescaled."""
    mask = sliding_window_mask(n, window)
    model.set_attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    return stretch(model, n)


def repeated_last_row(trained, n, head_dim):
    """The habit to avoid: a table that is too short, filled up with copies of its last row."""
    return [torch.cat([t, t[-1:].expand(n - len(t), -1)]) for t in rope_table(trained, head_dim)]


def unsharpened(trained, n, head_dim):
    """YaRN's frequencies with thresholds 4 and 1, without its factor on the scores."""
    frequencies = yarn(rope_frequencies(head_dim), FACTOR, trained, fast=4.0)
    angles = torch.arange(n)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def variants(make, trained=TRAINED):
    """(name, model) pairs: each made anew by make() and stretched to FACTOR times the trained length."""
    n, head_dim = FACTOR * trained, make().config.head_dim
    yield "a longer table", stretch(make(), n)
    yield "last row repeated", stretch(make(), n, table=repeated_last_row(trained, n, head_dim))
    for name, scaling in rules(trained).items():
        yield name, stretch(make(), n, scaling)
    yield ("YaRN, thresholds 4 and 1, not sharpened",
           stretch(make(), n, table=unsharpened(trained, n, head_dim)))
    for window in (trained, trained // 4):
        yield f"window of {window}", narrow(make(), n, window)
    scaling = rules(trained)["Llama 3.1"]
    yield f"Llama 3.1, window of {trained}", stretch(narrow(make(), n, trained), n, scaling)


@torch.no_grad()
def losses(model, windows):
    """windows (batch, n + 1) of tokens -> the loss at each position, (batch, n)."""
    logits = torch.cat([model(part[:, :-1]) for part in windows.split(4)])
    return F.cross_entropy(logits.transpose(1, 2), windows[:, 1:], reduction="none")


def loss_by_position(model, windows, width=64):
    """windows (batch, n + 1) of tokens -> the mean loss in each stretch of `width` positions."""
    return by_position(losses(model, windows), width)


def by_position(loss, width=64):
    return [round(x, 3) for x in loss.mean(0).view(-1, width).mean(1).tolist()]


def beyond(loss, control):
    """Mean loss beyond the trained length, and by how much it exceeds the control's on the same windows:
    [mean, half the 95 % interval over the windows]."""
    rest, difference = loss[:, TRAINED:].mean(1), (loss - control)[:, TRAINED:].mean(1)
    half = 1.998 * difference.std() / len(difference) ** 0.5          # Student's t, 63 degrees of freedom
    return {"beyond": round(rest.mean().item(), 3),
            "above_control": [round(difference.mean().item(), 3), round(half.item(), 3)]}


def study_rules(windows):
    """Loss by position and beyond the trained length, for each rule and with windows; nothing is trained."""
    measured = {}
    for name, model in variants(lambda: language_model.pretrained()[0]):
        measured[name] = losses(model, windows)
        print(f"{name:40s} {by_position(measured[name], TRAINED)}", flush=True)
    return {"rules": {name: by_position(loss) for name, loss in measured.items()},
            "beyond": {name: beyond(loss, measured[CONTROL]) for name, loss in measured.items()}}


def study_tuning(windows, data, steps, seeds):
    """Loss by position after tuning at the long length: positions interpolated and, as control, not."""
    rows = {}
    for name, scaling in {"a longer table": None, "linear": rules(TRAINED)["linear"]}.items():
        for seed in range(seeds):
            model = stretch(language_model.pretrained()[0], LONG, scaling)
            train(model, data, steps=steps, batch=2, block=LONG, peak=5e-4, warmup=10, seed=seed,
                  check_every=steps)
            rows.setdefault(name, []).append(loss_by_position(model.eval(), windows))
            print(f"tuned, seed {seed}, {name:26s} {rows[name][-1]}", flush=True)
    return {"tuning_steps": steps, "seeds": list(range(seeds)), "tuned": rows}


PARTS = ("rules", "tuning", "needle")


def study_command(argv):
    """python -m course_lib rope-study: loss by position, and needles found, under each rule."""
    parser = options("rope-study", study_command.__doc__, windows=64, tuning_steps=100, seeds=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS,
                        help="measure these, keep the others")
    args = parser.parse_args(argv)

    data, validation = plays()
    starts = torch.linspace(0, len(validation) - LONG - 1, args.windows).long()
    windows = validation[starts[:, None] + torch.arange(LONG + 1)]
    result = {"command": "python -m course_lib rope-study", "trained_length": TRAINED, "factor": FACTOR,
              "width": 64, "windows": args.windows, "loss": "nats per character, validation plays"}
    if set(args.parts) < set(PARTS):
        result = json.loads(args.out.read_text()) | result
    if "rules" in args.parts:
        result |= study_rules(windows)
    if "tuning" in args.parts:
        result |= study_tuning(windows, data, args.tuning_steps, args.seeds)
    if "needle" in args.parts:
        result["needle"] = rope_needle.study(rules(TRAINED), TRAINED, LONG, args.seeds)
    write(args.out, result)
    return 0
