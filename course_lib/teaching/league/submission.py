"""A submission of the training problem, read from plain data that nobody vouches for."""
from __future__ import annotations

import math
from dataclasses import dataclass

from .language import LONGEST, QUESTIONS
from .program import ALLOWED, Program
from .rule import NotAllowed, wanted
from .tensors import VOCAB

LARGEST_BATCH, MOST_STATES, MOST_PARAMETERS, MOST_WEIGHTS, MOST_NODES, MOST_CONSTANTS = (
    256, 4, 64, 1 << 20, 3000, 64)
MOST_HELD = 1 << 25              # numbers at once


@dataclass(frozen=True)
class Submission:
    """`step` is a training step: parameters, tokens and answers (one-hot) in, gradients and `logits` out. The
    first `forward` operations of it make the logits. An update takes p, g, the states, the number of the step
    from 1 on and the share of the steps that is over, and has p and the states at the places `kept`."""
    batch: int
    length: int
    positions: int               # how many of a row's last symbols are followed by a prediction
    states: int
    starts: list[tuple]          # (shape, middle, spread) of each parameter
    step: Program
    logits: int
    forward: int
    gradients: list[int]
    updates: list[tuple[Program, list[int]]]

    @property
    def price(self) -> int:
        """FLOPs of one training step."""
        return self.step.price() + sum(update.price() for update, _ in self.updates)


def read(raw: dict) -> Submission:
    """Raises NotAllowed for anything that is no submission."""
    wanted(isinstance(raw, dict), "what came is no program")
    try:
        return _read(raw)
    except NotAllowed:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise NotAllowed(f"what came is no program ({type(error).__name__})") from None


def _read(raw: dict) -> Submission:
    batch, length, states = (_count(raw[name], name) for name in ("batch", "length", "states"))
    wanted(1 <= batch <= LARGEST_BATCH and QUESTIONS % batch == 0,
           f"BATCH is a power of two up to {LARGEST_BATCH}, not {batch}")
    wanted(1 <= length <= LONGEST, f"LENGTH is 1 to {LONGEST}, not {length}")
    wanted(states <= MOST_STATES, f"STATES is at most {MOST_STATES}, not {states}")
    starts = [_start(start) for start in raw["starts"]]
    wanted(1 <= len(starts) <= MOST_PARAMETERS,
           f"there are 1 to {MOST_PARAMETERS} parameters, not {len(starts)}")
    weights = sum(math.prod(shape) for shape, _, _ in starts)
    wanted(weights <= MOST_WEIGHTS, f"{weights:,} weights; {MOST_WEIGHTS:,} are the most")
    lists = [raw["program"], *(steps for steps, _ in raw["updates"])]
    wanted(len(lists) == len(starts) + 1, "there is one update per parameter")
    wanted(sum(map(len, lists)) <= MOST_NODES, f"there are at most {MOST_NODES:,} operations in all")
    _few_constants(lists, starts)
    step = _program(raw["program"], [*(shape for shape, _, _ in starts), (batch, length)])
    forward, logits = len(step.nodes), _place(raw["logits"], step)
    shape = step.shapes[logits]
    wanted(len(shape) == 3 and shape[0] == batch and shape[1] <= length and shape[2] == VOCAB,
           f"the logits are (BATCH, positions, {VOCAB}), not {shape}")
    gradients = step.differentiate(_loss_gradient(step, logits), logits, list(range(len(starts))))
    wanted(step.held() <= MOST_HELD, f"a step holds {step.held():,} numbers; {MOST_HELD:,} are the most")
    updates = [_update(steps, places, states, shape) for (steps, places), (shape, _, _)
               in zip(raw["updates"], starts)]
    return Submission(batch, length, shape[1], states, starts, step, logits, forward, gradients, updates)


def _loss_gradient(step: Program, logits: int) -> int:
    """The gradient of the mean cross-entropy at the logits: (softmax - answers) / answers."""
    shape = step.shapes[logits]
    answers = step.input(shape)
    top = step.add("expand", (step.add("max", (logits,), (2,)),), shape)
    powers = step.add("exp", (step.add("subtract", (logits, top)),))
    sums = step.add("expand", (step.add("sum", (powers,), (2,)),), shape)
    off = step.add("subtract", (step.add("divide", (powers, sums)), answers))
    return step.add("times", (off,), (1 / (shape[0] * shape[1]),))


def _update(steps: list, places: list, states: int, shape: tuple) -> tuple[Program, list[int]]:
    update = _program(steps, [shape, shape, (), (), *[shape] * states])
    kept = [_place(place, update) for place in places]
    wanted(len(kept) == 1 + states, f"`update` returns the parameter and {states} states")
    wanted(all(update.shapes[place] == shape for place in kept), f"`update` keeps the shape {shape}")
    return update, kept


def _program(nodes: list, inputs: list[tuple]) -> Program:
    made = Program()
    for place, (name, of, numbers) in enumerate(nodes):
        if place < len(inputs):
            wanted(name == "input", "the inputs come first")
            made.input(inputs[place])
            continue
        wanted(name in ALLOWED, f"there is no operation {str(name)[:40]!r}")
        wanted(all(type(i) is int and 0 <= i < place for i in of), "an operation takes the results before it")
        wanted(all(type(n) in (int, float) and math.isfinite(n) for n in numbers), "a number is not finite")
        made.add(name, tuple(of), tuple(numbers))
    return made


def _few_constants(lists: list[list], starts: list[tuple]) -> None:
    """What is learnt elsewhere would have to be written into the program: there is no room for it."""
    used = {float(n) for _, middle, spread in starts for n in (middle, spread)}
    for nodes in lists:
        used |= {float(numbers[0]) for name, _, numbers in nodes if name in ("plus", "times", "full")}
    wanted(len(used) <= MOST_CONSTANTS, f"{len(used)} different constants; {MOST_CONSTANTS} are the most")


def _start(start) -> tuple:
    shape, middle, spread = start
    shape = tuple(_count(n, "a size") for n in shape)
    wanted(1 <= len(shape) <= 4 and all(shape), f"a parameter has 1 to 4 dimensions, not the shape {shape}")
    wanted(all(type(n) in (int, float) and abs(n) < 1e6 for n in (middle, spread)), "a start is no number")
    return shape, float(middle), float(spread)


def _count(number, name: str) -> int:
    wanted(type(number) is int and number >= 0, f"{name} is a whole number")
    return number


def _place(place, program: Program) -> int:
    wanted(type(place) is int and 0 <= place < len(program.nodes), "a result has no place")
    return place
