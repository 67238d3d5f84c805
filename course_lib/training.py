"""The training loop: batches, learning rate, steps, checkpoints, and the command `train`."""
import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file


def random_batch(data, batch, block, generator):
    """tokens and targets, each (batch, block): random windows of data (n,), targets one further on."""
    if len(data) <= block:
        raise ValueError(f"data must be longer than a block of {block} tokens; got {len(data)}")
    starts = torch.randint(len(data) - block, (batch,), generator=generator)
    windows = data[starts[:, None] + torch.arange(block + 1)]
    return windows[:, :-1], windows[:, 1:]


def learning_rate(step, steps, peak, warmup, floor=0.1):
    """A straight line up to peak in the first warmup steps, then half a cosine down to floor * peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def make_optimizer(model, peak, weight_decay):
    """AdamW; weights of matrices decay, the factors of the norms do not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)


def train(model, data, *, steps, batch=8, block=256, peak=2e-3, warmup=100, weight_decay=0.1, clip=1.0,
          seed=0, validation=None, check_every=200, report=None):
    """Train model in place on data, a row of tokens (n,).

    Returns [(step, training loss, validation loss or None)], an entry each check_every steps. model needs
    loss(tokens, targets). report, if given, is called with each entry as it comes.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = make_optimizer(model, peak, weight_decay)
    history, since = [], []
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak, warmup)
        loss = model.loss(*random_batch(data, batch, block, generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        since.append(loss.item())
        if (step + 1) % check_every == 0 or step + 1 == steps:
            measured = None if validation is None else evaluate(model, validation, block)
            history.append((step + 1, sum(since) / len(since), measured))
            since = []
            if report:
                report(*history[-1])
    model.eval()
    return history


@torch.no_grad()
def evaluate(model, data, block=256, batch=32, blocks=None):
    """The mean loss over data cut into blocks: all of them, or that many, evenly spread."""
    model_was_training, count = model.training, (len(data) - 1) // block
    if count == 0:
        raise ValueError(f"data must be longer than a block of {block} tokens; got {len(data)}")
    model.eval()
    chosen = torch.linspace(0, count - 1, min(blocks or count, count)).long() * block
    windows = data[chosen[:, None] + torch.arange(block + 1)]
    losses = [model.loss(part[:, :-1], part[:, 1:]) * len(part) for part in windows.split(batch)]
    model.train(model_was_training)
    return (sum(losses) / len(windows)).item()


def save_checkpoint(path, tensors, about):
    """Write tensors and about (what json can hold); path is always a whole file, the old or the new."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: x.detach().contiguous() for name, x in tensors.items()}, partial,
                  metadata={"about": json.dumps(about)})
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        partial.chmod(0o644)        # safetensors writes for the owner alone
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path):
    """(tensors, about) of a file written by save_checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            return {name: file.get_tensor(name) for name in file.keys()}, about
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"path must be a checkpoint of this course, whole; {path} is not: {error}") from None


def train_command(argv):
    """python -m course_lib train: a character model on Shakespeare's plays."""
    from course_lib import datasets, language_model
    from course_lib.tokenizers import CharTokenizer

    parser = argparse.ArgumentParser(prog="python -m course_lib train", description=train_command.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write (.safetensors)")
    parser.add_argument("--attention", default="softmax")
    for name, default in (("steps", 4000), ("batch", 8), ("block", 256), ("layers", 4), ("heads", 4),
                          ("width", 128), ("hidden", 256), ("context", 256), ("seed", 0), ("warmup", 100)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{default} unless given")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate; 0.002 unless given")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16",
                        help="of the weights in the file; training is in float32")
    args = parser.parse_args(argv)

    text = datasets.shakespeare("train")
    tokenizer = CharTokenizer.from_text(text)
    data, validation = tokenizer.encode(text), tokenizer.encode(datasets.shakespeare("validation"))
    torch.manual_seed(args.seed)
    model = language_model.LanguageModel(language_model.Config(
        len(tokenizer), args.layers, args.heads, args.width, args.hidden, args.context, args.attention))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(data):,} characters")
    start = time.perf_counter()

    def report(step, loss, validation_loss):
        speed = step * args.batch * args.block / (time.perf_counter() - start)
        left = (args.steps - step) * args.batch * args.block / speed
        print(f"step {step:6,}  loss {loss:.4f}  validation {validation_loss:.4f}  "
              f"{speed:,.0f} tokens/s  {left / 60:.1f} min left", flush=True)

    sample = validation[:64 * args.block + 1]
    train(model, data, steps=args.steps, batch=args.batch, block=args.block, peak=args.peak,
          warmup=args.warmup, seed=args.seed, validation=sample, report=report)
    loss = evaluate(model, validation, args.block)
    language_model.save(args.out, model, tokenizer, getattr(torch, args.dtype),
                        command=" ".join(["python -m course_lib train", *argv]),
                        validation_loss=round(loss, 4))
    print(f"{args.out}: validation loss {loss:.4f} over {len(validation):,} characters", file=sys.stderr)
    return 0
