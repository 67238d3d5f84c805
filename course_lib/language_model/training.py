"""The training loop: batches, learning rate, steps; on one process or several.

A run can be stopped after any step and continues from its checkpoint: to the same bits on a CPU, to the same
curve up to rounding on several processes or with the batch in parts."""
import contextlib
import hashlib
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import distributed, nn

from course_lib.checks.language_model import check_row, check_training
from course_lib.datasets import NO_TARGET
from .checkpoints import load_run, save_run
from .display import Display
from .interrupt import Interrupt


@dataclass
class TrainConfig:
    steps: int
    batch: int = 8
    block: int = 256
    peak: float = 2e-3              # the highest learning rate
    warmup: int = 100               # steps up to it
    weight_decay: float = 0.1
    clip: float = 1.0               # the largest norm of the gradient
    seed: int = 0
    check_every: int = 200          # steps per entry of the history
    accumulate: int = 1             # parts of a batch, one after the other: less memory, the same step
    precision: str = "auto"         # of products; "auto" is bfloat16 on a GPU that has it, else float32

    def recipe(self, data):
        """What decides the curve of a run: all but how a step is computed."""
        settings = asdict(self)
        del settings["accumulate"], settings["precision"]
        return settings | {"data": None if callable(data) else fingerprint(data)}


def train(model, data, config: TrainConfig | None = None, *, validation=None, report=None, checkpoint=None,
          **settings):
    """Train model in place on data: tokens (n,), or a function (batch, generator) -> (tokens, targets).

    settings are fields of TrainConfig: train(model, data, steps=100). Returns [(step, training loss,
    validation loss or None)], one entry per check_every steps. model needs loss(tokens, targets), the mean
    over the targets that are not NO_TARGET. report, if given, is called with the three numbers of each new
    entry. checkpoint is a file, written at each entry and at Ctrl-C, from which training continues.

    Within torch.distributed every process draws the same batch and computes its own part of it."""
    config = TrainConfig(**settings) if config is None else replace(config, **settings)
    run = _Run(model, data, config, validation, checkpoint)
    with Interrupt() as interrupt:
        for step in range(run.done, config.steps):
            loss, stopping = run.agree(run.step(step), interrupt.asked)
            entry = run.record(step, loss)
            run.save(step, entry or stopping)
            run.show(step, loss, report if entry else None)
            if stopping:
                model.eval()
                told = f"stopped after step {step + 1} of {config.steps}"
                raise KeyboardInterrupt(told if checkpoint is None else
                                        f"{told}; the same call continues from {checkpoint}")
    run.close()
    return run.history


class _Run:
    """The state of one call of train."""

    def __init__(self, model, data, config, validation, checkpoint):
        several = distributed.is_initialized()
        self.rank, self.world = (distributed.get_rank(), distributed.get_world_size()) if several else (0, 1)
        check_training(config, data, validation, self.world)
        self.model, self.config, self.validation, self.checkpoint = model, config, validation, checkpoint
        self.device = next(model.parameters()).device
        self.autocast = _autocast(config.precision, self.device)
        self.draw = data if callable(data) else (
            lambda batch, generator: random_batch(data, batch, config.block, generator))
        self.recipe = config.recipe(data)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.optimizer = make_optimizer(model, config.peak, config.weight_decay)
        self.done, self.history, self.since = 0, [], []
        if checkpoint is not None and Path(checkpoint).exists():
            self.done, self.history, self.since = load_run(checkpoint, model, self.optimizer, self.generator,
                                                           self.recipe)
        self.loss_of = _Loss(model)
        if self.world > 1:
            self.loss_of = nn.parallel.DistributedDataParallel(self.loss_of)
        tokens_per_step = config.batch * config.block
        self.display = Display(self.done, config.steps, tokens_per_step) if self.rank == 0 else None
        model.train()

    def step(self, step):
        """One step of the optimizer; this process's part of the loss."""
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, config.steps, config.peak, config.warmup)
        drawn = self.draw(config.batch, self.generator)
        n_targets, loss = n_counted(drawn[1]), torch.zeros((), device=self.device)
        for i, part in enumerate(zip(*(x.chunk(config.accumulate) for x in drawn))):
            tokens, targets = (x.chunk(self.world)[self.rank] for x in part)
            # Weight each micro-batch by its targets. DDP averages over processes, so multiply by world.
            share = self.world * n_counted(targets) / max(1, n_targets)
            # Processes exchange gradients once per step, with the last micro-batch.
            wait = self.world > 1 and i < config.accumulate - 1
            with self.loss_of.no_sync() if wait else contextlib.nullcontext(), self.autocast():
                part_loss = self.loss_of(tokens.to(self.device), targets.to(self.device)) * share
                part_loss.backward()
            if share:                   # the mean over no targets is NaN
                loss += part_loss.detach().float()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def agree(self, loss, stopping):
        """The mean loss of all processes, and whether any of them was asked to stop."""
        if self.world == 1:
            return float(loss), stopping
        both = torch.stack([loss / self.world, torch.tensor(float(stopping), device=loss.device)])
        distributed.all_reduce(both)
        return both[0].item(), both[1].item() > 0

    def record(self, step, loss):
        """Remember the loss; every check_every steps, and at the end, add it to the history: True then."""
        self.since.append(loss)
        if (step + 1) % self.config.check_every and step + 1 != self.config.steps:
            return False
        measure = self.validation is not None and self.rank == 0
        measured = evaluate(self.model, self.validation, self.config.block) if measure else None
        self.history.append((step + 1, sum(self.since) / len(self.since), measured))
        self.since = []
        return True

    def save(self, step, wanted):
        if wanted and self.rank == 0 and self.checkpoint is not None:
            save_run(self.checkpoint, self.model, self.optimizer, self.generator, self.recipe, step + 1,
                     self.history, self.since)

    def show(self, step, loss, report):
        if self.rank == 0:
            self.display.step(step + 1, loss, self.history)
            if report:
                self.display.clear()
                report(*self.history[-1])

    def close(self):
        if self.rank == 0:
            self.display.close()
        self.model.eval()


def random_batch(data, batch, block, generator):
    """tokens and targets, each (batch, block): random windows of data (n,); target i follows token i."""
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
    """AdamW with weight decay for matrices, and none for the factors of the norms."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)


@torch.no_grad()
def evaluate(model, data, block=256, batch=32, blocks=None):
    """The mean loss over data cut into blocks: over all, or over `blocks` of them, evenly spread."""
    check_row("data", data, block)
    model_was_training, count = model.training, (len(data) - 1) // block
    model.eval()
    chosen = torch.linspace(0, count - 1, min(blocks or count, count)).long() * block
    windows = data[chosen[:, None] + torch.arange(block + 1)].long()
    windows = windows.to(next(model.parameters()).device)
    losses = [model.loss(part[:, :-1], part[:, 1:]) * len(part) for part in windows.split(batch)]
    model.train(model_was_training)
    return (sum(losses) / len(windows)).item()


def n_counted(targets):
    """How many targets count in the loss."""
    return int((targets != NO_TARGET).sum())


def fingerprint(data):
    """Identifies a row of tokens: its length and a hash of up to 131,072 of them, evenly spread."""
    some = data[::max(1, len(data) >> 16)].to("cpu", torch.int64).contiguous()
    return f"{len(data)} tokens, {hashlib.sha256(some.numpy()).hexdigest()[:12]}"


class _Loss(nn.Module):
    """model.loss as a forward, because DistributedDataParallel wraps only forward."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def _autocast(precision, device):
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if precision == "float32":
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, torch.bfloat16)
