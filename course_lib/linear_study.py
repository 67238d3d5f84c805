"""`python -m course_lib linear-study`: linear attention in the small language model, as it is and after training on.

Writes data/linear_study.json. The weights of data/tiny_lm.safetensors learned softmax attention; another attention is put in
its place, without a parameter more, and every model trains on for the same number of steps on the same batches.
"""
import argparse
import json
from pathlib import Path

import torch
from torch.nn import functional as F

from course_lib import datasets, language_model
from course_lib.linear_attention import delta_rule, linear_attention
from course_lib.training import evaluate, train


def elu_attention(q, k, v):
    return linear_attention(q, k, v, "elu", causal=True)


def delta_attention(q, k, v):
    """Keys and queries of length 1 and beta 1: each token replaces what the state returned for its key."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return delta_rule(q, k, v, torch.ones_like(k[..., 0]), form="chunked", chunk_size=32)


MECHANISMS = {"softmax": language_model.softmax_attention, "elu + 1": elu_attention, "delta rule": delta_attention}


def study_command(argv):
    """python -m course_lib linear-study: linear attention and the delta rule in the small model, before and after tuning."""
    parser = argparse.ArgumentParser(prog="python -m course_lib linear-study", description=study_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "linear_study.json")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)

    _, tokenizer = language_model.pretrained()
    data, validation = (tokenizer.encode(datasets.shakespeare(split)) for split in ("train", "validation"))
    rows = {}
    for name, attend in MECHANISMS.items():
        before, after = None, []
        for seed in range(args.seeds):
            model, _ = language_model.pretrained()
            model.set_attention(attend)
            before = before or evaluate(model, validation, blocks=200)
            train(model, data, steps=args.steps, batch=4, peak=1e-3, warmup=10, seed=seed, check_every=args.steps)
            after.append(round(evaluate(model, validation, blocks=200), 4))
        rows[name] = {"loss_before": round(before, 4), "loss_after": after}
        print(name, rows[name], flush=True)
    result = {"command": " ".join(["python -m course_lib linear-study", *argv]), "steps": args.steps,
              "seeds": list(range(args.seeds)), "loss": "nats a character, 200 blocks spread over the validation plays",
              "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0
