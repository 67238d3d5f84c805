"""`python -m course_lib w2-study`: W2 attention in the small language model, as it is and after training on.

Writes data/w2_study.json. The weights of data/tiny_lm.safetensors learned dot products. Two changes, each trained on for
the same steps on the same batches: points (the score is a distance of the trained queries and keys, no parameter more),
and Gaussians (chapter 9's layer: means from the trained queries and keys, widths that start almost equal, a temperature
a head).
"""
import argparse
import json
import math
from pathlib import Path

import torch
from torch import nn

from course_lib import datasets, language_model
from course_lib.training import evaluate, train
from course_lib.w2_attention import W2Attention, w2_attention

START_STD = 0.02        # exactly equal widths would stay equal: a squared difference has no slope at 0


def point_attention(q, k, v):
    """W2 attention of Gaussians of width 0, with the temperature that gives q.k its usual scale."""
    tau = 2 * math.sqrt(q.shape[-1])
    return w2_attention(q, torch.zeros_like(q), k, torch.zeros_like(k), v, tau, causal=True, form="augmented")


class GaussianAttention(nn.Module):
    """W2Attention in the place of a trained SelfAttention; its means, values and output begin as they were."""

    def __init__(self, trained, d_model):
        super().__init__()
        self.layer = W2Attention(d_model, trained.n_heads, tau=2 * math.sqrt(d_model / trained.n_heads), form="augmented")
        with torch.no_grad():
            for own, old in ((self.layer.q_proj, trained.q_proj), (self.layer.k_proj, trained.k_proj)):
                own.weight[:d_model] = old.weight
                nn.init.normal_(own.weight[d_model:], std=START_STD)
            self.layer.v_proj.weight.copy_(trained.v_proj.weight)
            self.layer.out_proj.weight.copy_(trained.out_proj.weight)

    def forward(self, x, rope, cache=None):
        return self.layer(x, rope)


def with_mechanism(name, seed=0):
    """The small model with "softmax", "points" or "gaussians", and its tokenizer."""
    model, tokenizer = language_model.pretrained()
    if name == "points":
        model.set_attention(point_attention)
    elif name == "gaussians":
        torch.manual_seed(seed)
        for block in model.blocks:
            block.attention = GaussianAttention(block.attention, model.config.d_model)
    return model, tokenizer


MECHANISMS = ("softmax", "points", "gaussians")


def study_command(argv):
    """python -m course_lib w2-study: W2 attention in the small model, before and after tuning."""
    parser = argparse.ArgumentParser(prog="python -m course_lib w2-study", description=study_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "w2_study.json")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)

    _, tokenizer = language_model.pretrained()
    data, validation = (tokenizer.encode(datasets.shakespeare(split)) for split in ("train", "validation"))
    rows = {}
    for name in MECHANISMS:
        before, after = None, []
        for seed in range(args.seeds):
            model, _ = with_mechanism(name, seed)
            before = before or evaluate(model, validation, blocks=200)
            train(model, data, steps=args.steps, batch=4, peak=1e-3, warmup=10, seed=seed, check_every=args.steps)
            after.append(round(evaluate(model, validation, blocks=200), 4))
        rows[name] = {"loss_before": round(before, 4), "loss_after": after}
        print(name, rows[name], flush=True)
    result = {"command": " ".join(["python -m course_lib w2-study", *argv]), "steps": args.steps,
              "seeds": list(range(args.seeds)), "loss": "nats a character, 200 blocks spread over the validation plays",
              "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0
