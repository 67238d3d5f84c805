"""Training a submission by our own code, on data that it has never seen, until its FLOPs are spent."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import exact
from .language import LONGEST, QUESTIONS, Data
from .rule import NotAllowed
from .submission import Submission
from .tensors import VOCAB

BUDGET = 8_000_000_000           # FLOPs of the whole training, gradients and updates included
MOST_WORK = 20_000_000_000       # as Program.work has it: no training takes much more than half a minute


@dataclass(frozen=True)
class Result:
    """`loss` in nats per symbol, rounded to 4 digits; None where it is not finite."""
    loss: float | None
    flops: int
    steps: int


def steps_of(made: Submission) -> int:
    """How many training steps the budget pays. Raises NotAllowed where it pays none."""
    asked = QUESTIONS // made.batch * made.step.work(made.forward)
    if asked > MOST_WORK // 2:
        raise NotAllowed("asking all questions would take too long: use a larger BATCH or fewer operations")
    work = made.step.work() + sum(update.work() for update, _ in made.updates)
    steps = min(BUDGET // made.price, (MOST_WORK - asked) // work)
    if not steps:
        raise NotAllowed(f"one step costs {made.price:,} FLOPs; the whole training has {BUDGET:,}")
    return steps


def trained(made: Submission, data: Data, seed: int) -> Result:
    """Train, then ask all questions. Bit for bit the same on every machine."""
    steps, rng = steps_of(made), torch.Generator().manual_seed(seed)
    weights = [_drawn(start, rng) for start in made.starts]
    states = [[torch.zeros_like(w) for _ in range(made.states)] for w in weights]
    for number in range(steps):
        at = torch.randint(len(data.train) - made.length, (made.batch, 1), generator=rng)
        rows = data.train[at + torch.arange(made.length + 1)]
        answers = torch.nn.functional.one_hot(rows[:, -made.positions:], VOCAB).float()
        results = made.step.run([*weights, rows[:, :-1].float(), answers])
        gradients = [results[place] for place in made.gradients]
        clock = [torch.tensor(number + 1.0), torch.tensor(number / steps)]
        for i, (update, kept) in enumerate(made.updates):
            after = update.run([weights[i], gradients[i], *clock, *states[i]])
            weights[i], *states[i] = (after[place] for place in kept)
    loss = validation_loss(made, weights, data)
    return Result(round(loss, 4) if loss < float("inf") else None, steps * made.price, steps)


def _drawn(start: tuple, rng: torch.Generator) -> Tensor:
    shape, middle, spread = start
    even = torch.randint(1 << 24, shape, generator=rng).float() / (1 << 23) - 1
    return even * spread + middle


def validation_loss(made: Submission, weights: list[Tensor], data: Data) -> float:
    """The mean loss on the questions: the last position alone, whose answer is nowhere in the input."""
    losses = []
    for rows in data.asked.split(made.batch):
        results = made.step.run([*weights, rows[:, LONGEST - made.length:].float()], made.forward)
        logits = results[made.logits][:, -1]
        shifted = logits - logits.amax(1, keepdim=True)
        losses.append(exact.log(exact.total(exact.exp(shifted), 1)) - shifted)
    chosen = torch.cat(losses).gather(1, data.answers[:, None])
    return float(exact.total(chosen, 0)) / QUESTIONS
