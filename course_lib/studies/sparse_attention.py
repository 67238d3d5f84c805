"""`python -m course_lib sparse-study`: the small model with windows and sinks, without training for it.

Writes data/sparse_study.json."""
from torch.nn.functional import scaled_dot_product_attention

from course_lib import language_model
from course_lib.language_model import evaluate
from course_lib.sparse_attention import sink_mask
from .study import plays, study

SETTINGS = [(256, 0), (8, 0), (8, 1), (32, 0), (32, 1), (32, 4), (64, 1)]


def measure(args):
    model, _ = language_model.pretrained()
    _, validation = plays()
    rows = []
    for window, n_sink in SETTINGS:
        mask = sink_mask(model.config.context, window, n_sink)
        model.set_attention(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask))
        loss = round(evaluate(model, validation, blocks=args.blocks), 4)
        rows.append({"window": window, "n_sink": n_sink, "loss": loss})
        print(rows[-1], flush=True)
    about = f"nats per character, {args.blocks} blocks of 256 spread over the validation plays"
    return {"loss": about, "rows": rows}


def study_command(argv):
    """python -m course_lib sparse-study: validation loss with a window and sinks in every layer."""
    return study(argv, "sparse-study", study_command.__doc__, measure, blocks=200)
