"""The training loop: batches, learning rate, steps, checkpoints; on one process or several; and the command `train`.

A run can be stopped after any step and goes on from its checkpoint: on a CPU to the same bits, on several processes or
with the batch in parts to the same curve up to rounding.
"""
import argparse
import contextlib
import errno
import hashlib
import json
import math
import os
import re
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import distributed, nn

from course_lib.datasets import NO_TARGET
from course_lib.checks import check_count
from course_lib.language_model.display import Display


def check_row(name, row, block):
    if not isinstance(row, torch.Tensor) or row.dim() != 1 or row.is_floating_point():
        got = f"{row.dtype} of shape {tuple(row.shape)}" if isinstance(row, torch.Tensor) else type(row).__name__
        raise ValueError(f"{name} must be a row of tokens (n,); got {got}")
    if len(row) <= block:
        raise ValueError(f"{name} must be longer than a block of {block} tokens; got {len(row)}")


def random_batch(data, batch, block, generator):
    """tokens and targets, each (batch, block): random windows of data (n,), targets one further on."""
    check_row("data", data, block)
    starts = torch.randint(len(data) - block, (batch,), generator=generator)
    windows = data[starts[:, None] + torch.arange(block + 1)].long()
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
          seed=0, validation=None, check_every=200, report=None, accumulate=1, precision="auto", checkpoint=None):
    """Train model in place on data: a row of tokens (n,), or a function (batch, generator) -> (tokens, targets).

    Returns [(step, training loss, validation loss or None)], an entry each check_every steps. model needs
    loss(tokens, targets), the mean over the targets that are not NO_TARGET. report, if given, is called with the three
    numbers of each entry as it comes.

    accumulate   a batch goes through the model in that many parts, one after the other: less memory, the same step
    precision    of the products: "float32", "bfloat16", or "auto": bfloat16 on a GPU that has it
    checkpoint   a file, written at each entry and at Ctrl-C; if it is there, training goes on from it

    Within torch.distributed every process draws the same batch and works on its own part of it.
    """
    for name, count, least in (("steps", steps, 0), ("batch", batch, 1), ("block", block, 1),
                               ("check_every", check_every, 1), ("accumulate", accumulate, 1), ("warmup", warmup, 0),
                               ("seed", seed, 0)):
        check_count(name, count, least)
    for name, value in (("peak", peak), ("clip", clip), ("weight_decay", weight_decay)):
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}")
    if not callable(data):
        check_row("data", data, block)
    if validation is not None:
        check_row("validation", validation, block)
    rank, world = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    if batch % (accumulate * world):
        raise ValueError(f"batch must be a multiple of accumulate * processes = {accumulate * world}; got {batch}")
    device = next(model.parameters()).device
    autocast = _autocast(precision, device)
    draw = data if callable(data) else lambda batch, generator: random_batch(data, batch, block, generator)
    recipe = {"steps": steps, "batch": batch, "block": block, "peak": peak, "warmup": warmup, "clip": clip,
              "weight_decay": weight_decay, "seed": seed, "check_every": check_every,
              "data": None if callable(data) else fingerprint(data)}
    generator = torch.Generator().manual_seed(seed)
    optimizer = make_optimizer(model, peak, weight_decay)
    first, history, since = 0, [], []
    if checkpoint is not None and Path(checkpoint).exists():
        first, history, since = load_run(checkpoint, model, optimizer, generator, recipe)
    loss_of = _Loss(model)
    if world > 1:
        loss_of = nn.parallel.DistributedDataParallel(loss_of)
    model.train()
    display = Display(first, steps, batch * block) if rank == 0 else None
    with Interrupt() as interrupt:
        for step in range(first, steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, peak, warmup)
            drawn = draw(batch, generator)
            n_targets, loss = n_counted(drawn[1]), torch.zeros((), device=device)
            for i, part in enumerate(zip(*(x.chunk(accumulate) for x in drawn))):
                tokens, targets = (x.chunk(world)[rank] for x in part)
                # A part counts by its targets. Between processes gradients and losses are averaged, hence `world`.
                share = world * n_counted(targets) / max(1, n_targets)
                # Gradients are exchanged once a step, with the last part.
                wait = loss_of.no_sync() if world > 1 and i < accumulate - 1 else contextlib.nullcontext()
                with wait, autocast():
                    part_loss = loss_of(tokens.to(device), targets.to(device)) * share
                    part_loss.backward()
                if share:                   # the mean over no targets is NaN
                    loss += part_loss.detach().float()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            loss, stopping = _agree(loss, interrupt.asked, world)
            since.append(loss)
            checked = (step + 1) % check_every == 0 or step + 1 == steps
            if checked:
                measured = None if validation is None or rank else evaluate(model, validation, block)
                history.append((step + 1, sum(since) / len(since), measured))
                since = []
            if rank == 0:
                if checkpoint is not None and (checked or stopping):
                    save_run(checkpoint, model, optimizer, generator, recipe, step + 1, history, since)
                display.step(step + 1, loss, history)
                if checked and report:
                    display.clear()
                    report(*history[-1])
            if stopping:
                model.eval()
                raise KeyboardInterrupt(f"stopped after step {step + 1} of {steps}"
                                        + ("" if checkpoint is None else f"; the same call goes on from {checkpoint}"))
    if rank == 0:
        display.close()
    model.eval()
    return history


def n_counted(targets):
    return int((targets != NO_TARGET).sum())


class _Loss(nn.Module):
    """model.loss as a forward, which is what DistributedDataParallel watches."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


class Interrupt:
    """Within it Ctrl-C only asks, so that no step is left half done. Another one, a second later, stops at once.

    (Sooner, it is the same Ctrl-C: torchrun hands on to its processes what the terminal has told them already.)
    """

    def __enter__(self):
        self.asked, self.before, self.at = False, None, 0.0
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_):
        if self.asked and time.monotonic() > self.at + 1:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self.at = True, time.monotonic()

    def __exit__(self, *_):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)


def _agree(loss, stopping, world):
    """The mean loss of all processes, and whether any of them is asked to stop."""
    if world == 1:
        return float(loss), stopping
    both = torch.stack([loss / world, torch.tensor(float(stopping), device=loss.device)])
    distributed.all_reduce(both)
    return both[0].item(), both[1].item() > 0


def _autocast(precision, device):
    if precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f'precision must be "auto", "float32" or "bfloat16"; got {precision!r}')
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if precision == "float32":
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, torch.bfloat16)


@torch.no_grad()
def evaluate(model, data, block=256, batch=32, blocks=None):
    """The mean loss over data cut into blocks: all of them, or that many, evenly spread."""
    check_row("data", data, block)
    model_was_training, count = model.training, (len(data) - 1) // block
    model.eval()
    chosen = torch.linspace(0, count - 1, min(blocks or count, count)).long() * block
    windows = data[chosen[:, None] + torch.arange(block + 1)].long()
    windows = windows.to(next(model.parameters()).device)
    losses = [model.loss(part[:, :-1], part[:, 1:]) * len(part) for part in windows.split(batch)]
    model.train(model_was_training)
    return (sum(losses) / len(windows)).item()


def fingerprint(data):
    """The length of a row of tokens and a hash of up to 131,072 of them, evenly spread: enough to know a text again."""
    some = data[::max(1, len(data) >> 16)].to("cpu", torch.int64).contiguous()
    return f"{len(data)} tokens, {hashlib.sha256(some.numpy()).hexdigest()[:12]}"


def checksum(tensors):
    """CRC-32 of all their bytes, in the order of their names."""
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy(), total)
    return f"{total:08x}"


def save_checkpoint(path, tensors, about):
    """Write tensors and about (what json can hold); path is always a whole file, the old or the new."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: x.detach().contiguous() for name, x in tensors.items()}, partial,
                  metadata={"about": json.dumps(about), "checksum": checksum(tensors)})
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        partial.chmod(0o644)        # safetensors writes for the owner alone
        os.replace(partial, path)
    except (SafetensorError, OSError) as error:     # safetensors tells of a full disk in an error of its own
        found = re.search(r"os error (\d+)", str(error))
        code = (int(found[1]) if found else getattr(error, "errno", None)) or errno.EIO
        said = f"{os.strerror(code)}; nothing was written, and what was there is kept"
        raise OSError(code, said, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path):
    """(tensors, about) of a file written by save_checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            beside = file.metadata() or {}
            about, tensors = json.loads(beside["about"]), {name: file.get_tensor(name) for name in file.keys()}
        if "checksum" in beside and beside["checksum"] != checksum(tensors):    # older files have none
            raise SafetensorError("its numbers are not those that were written")
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"path must be a checkpoint of this course, whole; {path} is not: {error}") from None
    return tensors, about


def fit_state(module, state, path):
    """Load state into module, all of it or, where a name or a shape differs, nothing."""
    want, got = ({name: tuple(x.shape) for name, x in s.items()} for s in (module.state_dict(), state))
    if want != got:
        name = min(want.items() ^ got.items())[0]
        raise ValueError(f"path must hold a model of this shape; in {path} {name} is {got.get(name, 'missing')}, "
                         f"and here {want.get(name, 'unknown')}")
    module.load_state_dict(state)


def save_run(path, model, optimizer, generator, recipe, step, history, since):
    """All that a run needs to go on: weights, what AdamW remembers, the generator of batches, the losses so far."""
    tensors = {f"model.{name}": x for name, x in model.state_dict().items()}
    for i, remembered in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": x for name, x in remembered.items()}
    save_checkpoint(path, tensors | {"generator": generator.get_state()},
                    {"recipe": recipe, "step": step, "history": history, "since": since})


def load_run(path, model, optimizer, generator, recipe):
    """(steps done, history, losses since) of a file written by save_run; model, optimizer and generator are set to it."""
    tensors, about = load_checkpoint(path)
    others = about.get("recipe") or {}
    unlike = [name for name in recipe if others.get(name) != recipe[name]]
    if "data" in unlike and None in (recipe["data"], others.get("data")):       # a function: nobody knows what it draws
        unlike.remove("data")
    if unlike:
        name = unlike[0]
        raise ValueError(f"checkpoint must be of the same run; in {path} {name} is {others.get(name)}, "
                         f"here {recipe[name]}. Give another file, or remove that one to begin anew")
    fit_state(model, {name[6:]: x for name, x in tensors.items() if name.startswith("model.")}, path)
    remembered = {}
    for name, x in tensors.items():
        if name.startswith("optimizer."):
            _, i, field = name.split(".")
            remembered.setdefault(int(i), {})[field] = x
    optimizer.load_state_dict(optimizer.state_dict() | {"state": remembered})
    generator.set_state(tensors["generator"])
    return about["step"], [tuple(entry) for entry in about["history"]], about["since"]


def train_command(argv):
    """python -m course_lib train: a language model on Shakespeare's plays or your own text.

    Stopped, it goes on when called again. On several processes: torchrun --nproc-per-node 2 -m course_lib train ...
    """
    parser = argparse.ArgumentParser(prog="python -m course_lib train", description=train_command.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write (.safetensors)")
    parser.add_argument("--attention", default="softmax", help="a name, or one a layer: delta,delta,delta,softmax")
    parser.add_argument("--text", type=Path, help="a file of your own; its last tenth is for validation")
    parser.add_argument("--pairs", type=int, default=0,
                        help="a byte-pair tokenizer with that many merges; characters unless given")
    for name, default in (("steps", 4000), ("batch", 8), ("block", 256), ("layers", 4), ("heads", 4),
                          ("width", 128), ("hidden", 256), ("context", 256), ("seed", 0), ("warmup", 100),
                          ("accumulate", 1), ("kv-heads", 2), ("latent", 32), ("window", 32)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{default} unless given")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate; 0.002 unless given")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto",
                        help="of the products while training; auto is bfloat16 on a GPU that has it")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16",
                        help="of the weights in the file")
    args = parser.parse_args(argv)
    several = "WORLD_SIZE" in os.environ            # torchrun started us
    if several:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        _train(args, argv)
    except ValueError as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    finally:
        if several:
            distributed.destroy_process_group()
    return 0


def _train(args, argv):
    from course_lib import datasets
    from course_lib.language_model import model as language_model
    from course_lib.language_model.tokenizers import BytePairTokenizer, CharTokenizer, tokens_on_disk

    if args.out.is_dir():
        raise ValueError(f"out must be a file; {args.out} is a folder")
    if args.text:
        try:
            text = args.text.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"text must be in UTF-8; {args.text} has another byte at {error.start}") from None
        cut = len(text) - len(text) // 10
        text, validation_text = text[:cut], text[cut:]
    else:
        text, validation_text = datasets.shakespeare("train"), datasets.shakespeare("validation")
    tokenizer = BytePairTokenizer.train(text, args.pairs) if args.pairs else CharTokenizer.from_text(text)
    data, validation = tokens_on_disk(text, tokenizer), tokens_on_disk(validation_text, tokenizer)
    for part in (data, validation):
        if len(part) <= args.block:
            raise ValueError(f"text must be longer than a block of {args.block} tokens, in training and validation; "
                             f"got {len(part)}")
    torch.manual_seed(args.seed)
    names = args.attention.split(",")
    config = language_model.Config(
        len(tokenizer), args.layers, args.heads, args.width, args.hidden, args.context,
        names[0] if len(names) == 1 else names, n_kv_heads=args.kv_heads, latent_dim=args.latent,
        rope_dim=min(16, args.width // args.heads), window=args.window)
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    model = language_model.LanguageModel(config).to(device)
    say = print if rank == 0 else lambda *_, **__: None

    def report(step, loss, measured):
        say(f"step {step:6,}  loss {loss:.4f}  validation {measured:.4f}", flush=True)

    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(data):,} tokens")
    unfinished = args.out.with_name(args.out.name + ".run")
    history = train(model, data, steps=args.steps, batch=args.batch, block=args.block, peak=args.peak,
                    warmup=args.warmup, seed=args.seed, validation=validation[:64 * args.block + 1],
                    accumulate=args.accumulate, precision=args.precision, checkpoint=unfinished, report=report)
    if rank == 0:
        loss = evaluate(model, validation, args.block)
        language_model.save(args.out, model, tokenizer, getattr(torch, args.dtype),
                            command=" ".join(["python -m course_lib train", *argv]),
                            validation_loss=round(loss, 4), history=history)
        unfinished.unlink(missing_ok=True)
        print(f"{args.out}: validation loss {loss:.4f} over {len(validation):,} tokens", file=sys.stderr)
