"""`python -m course_lib sparse-study`: the small language model with windows and sinks, on held-out plays, untrained for it.

Writes data/sparse_study.json.
"""
import argparse
import json
from pathlib import Path

from torch.nn.functional import scaled_dot_product_attention

from course_lib import datasets, language_model
from course_lib.sparse_attention import sink_mask
from course_lib.language_model.training import evaluate

SETTINGS = [(256, 0), (8, 0), (8, 1), (32, 0), (32, 1), (32, 4), (64, 1)]


def study_command(argv):
    """python -m course_lib sparse-study: validation loss with a window and sinks in every layer."""
    parser = argparse.ArgumentParser(prog="python -m course_lib sparse-study", description=study_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "sparse_study.json")
    parser.add_argument("--blocks", type=int, default=200, help="blocks of 256 characters, spread over the plays")
    args = parser.parse_args(argv)

    model, tokenizer = language_model.pretrained()
    validation = tokenizer.encode(datasets.shakespeare("validation"))
    rows = []
    for window, n_sink in SETTINGS:
        mask = sink_mask(model.config.context, window, n_sink)
        model.set_attention(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask))
        rows.append({"window": window, "n_sink": n_sink, "loss": round(evaluate(model, validation, blocks=args.blocks), 4)})
        print(rows[-1], flush=True)
    result = {"command": " ".join(["python -m course_lib sparse-study", *argv]),
              "loss": f"nats a character, {args.blocks} blocks of 256 spread over the validation plays", "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0
