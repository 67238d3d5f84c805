"""What every study shares: its options, the texts, and a file of results that names its command."""
import argparse
import json
from pathlib import Path

from course_lib import datasets
from course_lib.files import write_whole
from course_lib.language_model import pretrained


def study(argv, command, about, measure, **defaults) -> int:
    """Write {"command": ..., **measure(args)} to data/<command>.json. defaults: integer options."""
    args = options(command, about, **defaults).parse_args(argv)
    write(args.out, {"command": " ".join([f"python -m course_lib {command}", *argv]), **measure(args)})
    return 0


def options(command, about, **defaults) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m course_lib {command}", description=about)
    parser.add_argument("--out", type=Path, default=datasets.DATA / f"{command.replace('-', '_')}.json")
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, help=f"{default} unless given")
    return parser


def write(path, result) -> None:
    write_whole(path, json.dumps(result, indent=1) + "\n", durable=True)


def parameters(model) -> int:
    return sum(p.numel() for p in model.parameters())


def plays(tokenizer=None):
    """(training, validation): Shakespeare's plays as tokens of this tokenizer, or of the small model's."""
    tokenizer = pretrained()[1] if tokenizer is None else tokenizer
    return tuple(tokenizer.encode(datasets.shakespeare(split)) for split in ("train", "validation"))
