"""A program of the training problem: its operations, what they cost, their results and their gradients."""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from .copies import COPIES, OURS
from .operators import OPERATORS
from .rule import NotAllowed

ALLOWED = OPERATORS | COPIES
RULES = ALLOWED | OURS
MOST_NUMBERS = 1 << 22           # of one tensor
VIEWS = ("transpose", "slice", "expand", "hold")
# about how many nanoseconds an operation takes per number, and by itself: what is exact is many operations
WORK = {"sum": 20, "matmul": 20, "add_rows": 20, "exp": 60, "log": 60}
BY_ITSELF = {"sum": 50_000, "matmul": 100_000, "add_rows": 50_000, "exp": 250_000, "log": 250_000}


@dataclass
class Program:
    """Operations in order: each a name, the places of its inputs, and numbers. The first ones are inputs."""
    nodes: list[tuple] = field(default_factory=list)
    shapes: list[tuple] = field(default_factory=list)

    def add(self, operation: str, inputs: tuple = (), numbers: tuple = ()) -> int:
        """The place of the new operation's result. Raises NotAllowed where the operation has none."""
        shape = tuple(RULES[operation].shape([self.shapes[i] for i in inputs], numbers))
        if len(shape) > 5 or not all(type(n) is int and n > 0 for n in shape):
            raise NotAllowed(f"`{operation}` gives the shape {shape}")
        if math.prod(shape) > MOST_NUMBERS:
            raise NotAllowed(f"`{operation}` gives more than {MOST_NUMBERS:,} numbers")
        self.nodes.append((operation, tuple(inputs), tuple(numbers)))
        self.shapes.append(shape)
        return len(self.nodes) - 1

    def input(self, shape: tuple) -> int:
        self.nodes.append(("input", (), tuple(shape)))
        self.shapes.append(tuple(shape))
        return len(self.nodes) - 1

    def price(self) -> int:
        return sum(RULES[name].price([self.shapes[i] for i in inputs], shape)
                   for (name, inputs, _), shape in zip(self.nodes, self.shapes) if name != "input")

    def work(self, stop: int | None = None) -> int:
        """About how many nanoseconds the operations up to place `stop` take, by their shapes and no clock."""
        taken = 0
        for (name, inputs, _), shape in zip(self.nodes[:stop], self.shapes):
            numbers = max(math.prod(shape), *(math.prod(self.shapes[i]) for i in inputs), 0)
            taken += BY_ITSELF.get(name, 15_000) + WORK.get(name, 2) * numbers
            if name == "matmul":
                taken += math.prod(shape) * self.shapes[inputs[0]][-1]
        return taken

    def held(self) -> int:
        """Numbers that are held at once while it runs."""
        return sum(math.prod(shape) for node, shape in zip(self.nodes, self.shapes) if node[0] not in VIEWS)

    def run(self, given: list[torch.Tensor], stop: int | None = None) -> list[torch.Tensor]:
        """The results of the operations, up to place `stop`, those of the inputs included."""
        waiting, made = iter(given), []
        for name, inputs, numbers in self.nodes[:stop]:
            made.append(next(waiting) if name == "input" else
                        RULES[name].run([made[i] for i in inputs], numbers))
        return made

    def differentiate(self, seed: int, of: int, by: list[int]) -> list[int]:
        """Add what makes the gradients at the places `by`, given that of place `of` at place `seed`."""
        reaches = [place in by for place in range(of + 1)]
        for place in range(of + 1):
            name, inputs, _ = self.nodes[place]
            reaches[place] |= name != "hold" and any(reaches[i] for i in inputs)
        gradients = {of: seed}
        for place in range(of, -1, -1):
            name, inputs, numbers = self.nodes[place]
            if place not in gradients or not reaches[place] or name == "input":
                continue
            for i, part in zip(inputs, RULES[name].gradient(self, place, gradients[place], reaches)):
                if part is not None:
                    gradients[i] = self.add("add", (gradients[i], part)) if i in gradients else part
        return [gradients[b] if b in gradients else self.add("full", (), (0.0, *self.shapes[b])) for b in by]
