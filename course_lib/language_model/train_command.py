"""`python -m course_lib train`: a language model on Shakespeare's plays or on a text of your own."""
import argparse
import os
import sys
from pathlib import Path

import torch
from torch import distributed

from course_lib import datasets
from .config import Config
from .model import LanguageModel
from .saved import save
from .tokenizers import BytePairTokenizer, CharTokenizer, tokens_on_disk
from .training import TrainConfig, evaluate, train

# option: its default
COUNTS = {"steps": 4000, "batch": 8, "block": 256, "layers": 4, "heads": 4, "width": 128, "hidden": 256,
          "context": 256, "seed": 0, "warmup": 100, "accumulate": 1, "kv-heads": 2, "latent": 32,
          "window": 32}


def train_command(argv):
    """python -m course_lib train: a language model on Shakespeare's plays or your own text.

    Stopped, the same call continues. Several processes: torchrun --nproc-per-node 2 -m course_lib train ...
    """
    args = _parser().parse_args(argv)
    several = "WORLD_SIZE" in os.environ            # started by torchrun
    if several:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        _train(args, argv)
        if several:
            distributed.barrier()       # who ends while another still talks to it may be aborted by gloo
    except ValueError as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    finally:
        if several:
            distributed.destroy_process_group()
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m course_lib train", description=train_command.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write (.safetensors)")
    parser.add_argument("--attention", default="softmax",
                        help="a name, or one per layer: delta,delta,delta,softmax")
    parser.add_argument("--text", type=Path, help="a file of your own; its last tenth is for validation")
    parser.add_argument("--pairs", type=int, default=0,
                        help="a byte-pair tokenizer with that many merges; characters unless given")
    for name, default in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{default} unless given")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate; 0.002 unless given")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto",
                        help="of the products while training; auto is bfloat16 on a GPU that has it")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16",
                        help="of the weights in the file")
    return parser


def _train(args, argv):
    if args.out.is_dir():
        raise ValueError(f"out must be a file; {args.out} is a folder")
    text, validation_text = _texts(args.text)
    tokenizer = BytePairTokenizer.train(text, args.pairs) if args.pairs else CharTokenizer.from_text(text)
    data, validation = tokens_on_disk(text, tokenizer), tokens_on_disk(validation_text, tokenizer)
    for part in (data, validation):
        if len(part) <= args.block:
            raise ValueError(f"text must be longer than a block of {args.block} tokens, in training and "
                             f"validation; got {len(part)}")
    torch.manual_seed(args.seed)
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    model = LanguageModel(_config(args, len(tokenizer))).to(device)
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    say = print if rank == 0 else lambda *_, **__: None

    def report(step, loss, measured):
        say(f"step {step:6,}  loss {loss:.4f}  validation {measured:.4f}", flush=True)

    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(data):,} tokens")
    unfinished = args.out.with_name(args.out.name + ".run")
    recipe = TrainConfig(args.steps, args.batch, args.block, args.peak, args.warmup, seed=args.seed,
                         accumulate=args.accumulate, precision=args.precision)
    history = train(model, data, recipe, validation=validation[:64 * args.block + 1], checkpoint=unfinished,
                    report=report)
    if rank == 0:
        loss = evaluate(model, validation, args.block)
        save(args.out, model, tokenizer, getattr(torch, args.dtype), validation_loss=round(loss, 4),
             command=" ".join(["python -m course_lib train", *argv]), history=history)
        unfinished.unlink(missing_ok=True)
        print(f"{args.out}: validation loss {loss:.4f} over {len(validation):,} tokens", file=sys.stderr)


def _texts(path):
    """(training, validation): the plays, or the file cut after nine tenths."""
    if path is None:
        return datasets.shakespeare("train"), datasets.shakespeare("validation")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text must be UTF-8; {path} has an invalid byte at offset {error.start}") from None
    cut = len(text) - len(text) // 10
    return text[:cut], text[cut:]


def _config(args, vocab_size):
    names = args.attention.split(",")
    return Config(vocab_size, args.layers, args.heads, args.width, args.hidden, args.context,
                  names[0] if len(names) == 1 else names, n_kv_heads=args.kv_heads, latent_dim=args.latent,
                  rope_dim=min(16, args.width // args.heads), window=args.window)
