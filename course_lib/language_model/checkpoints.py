"""Checkpoints: tensors and facts in one file, always whole; and runs of training that can go on."""
import errno
import json
import os
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from course_lib.checks.language_model import check_same_run, check_state_shapes
from course_lib.files import write_whole


def checksum(tensors):
    """CRC-32 of all their bytes, in the order of their names."""
    total = 0
    for name in sorted(tensors):
        numbers = tensors[name].detach().cpu().contiguous().flatten()
        total = zlib.crc32(numbers.view(torch.uint8).numpy(), total)
    return f"{total:08x}"


def save_checkpoint(path, tensors, about):
    """Write tensors and about (JSON data). path is always a whole file, the old one or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = save({name: x.detach().contiguous() for name, x in tensors.items()},
                   metadata={"about": json.dumps(about), "checksum": checksum(tensors)})
    try:
        write_whole(path, content, durable=True)
    except OSError as error:
        code = error.errno or errno.EIO
        said = f"{os.strerror(code)}; nothing was written, and the file that was there is unchanged"
        raise OSError(code, said, str(path)) from error


def load_checkpoint(path):
    """(tensors, about) of a file written by save_checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            about = json.loads(metadata["about"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        said = f"path must be a checkpoint of this course; {path} is no complete one: {error}"
        raise ValueError(said) from None
    if "checksum" in metadata and metadata["checksum"] != checksum(tensors):        # older files have none
        raise ValueError(f"path must be a checkpoint without damage; the checksum of {path} does not match")
    return tensors, about


def fit_state(module, state, path):
    """Load state into module; if any name or shape differs, raise and load nothing."""
    check_state_shapes(module, state, path)
    module.load_state_dict(state)


def save_run(path, model, optimizer, generator, recipe, step, history, since):
    """All that a run needs to go on: weights, state of AdamW, generator of batches, losses so far."""
    tensors = {f"model.{name}": x for name, x in model.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": x for name, x in state.items()}
    save_checkpoint(path, tensors | {"generator": generator.get_state()},
                    {"recipe": recipe, "step": step, "history": history, "since": since})


def load_run(path, model, optimizer, generator, recipe):
    """(steps done, history, losses since) of save_run's file; sets model, optimizer and generator."""
    tensors, about = load_checkpoint(path)
    check_same_run(path, recipe, about.get("recipe") or {})
    fit_state(model, {name[6:]: x for name, x in tensors.items() if name.startswith("model.")}, path)
    state = {}
    for name, x in tensors.items():
        if name.startswith("optimizer."):
            _, i, field = name.split(".")
            state.setdefault(int(i), {})[field] = x
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    generator.set_state(tensors["generator"])
    return about["step"], [tuple(entry) for entry in about["history"]], about["since"]
