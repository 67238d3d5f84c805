"""The controls of an explorable. Each has a name, the values it can take, and where it starts."""
from dataclasses import dataclass, field


def amount(count: int, things: str) -> str:
    """1 slot, 1,000 slots."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


@dataclass(frozen=True)
class _Listed:
    name: str
    values: tuple
    start: float | str | None = None
    label: str = ""

    def __post_init__(self):
        object.__setattr__(self, "values", tuple(self.values))

    def first(self):
        return self.values[0] if self.start is None else self.start


@dataclass(frozen=True)
class Slider(_Listed):
    """One of a row of numbers. With `play` it has a button that walks through them.

        Slider("stride", range(1, 33), unit="floats")"""
    unit: str = ""
    play: bool = False
    kind: str = field(default="slider", init=False)

    def accept(self, value):
        """The value nearest to what the browser or a caller says."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{self.name}: {value!r} is not a number")
        return min(self.values, key=lambda v: abs(v - value))


@dataclass(frozen=True)
class Choice(_Listed):
    """One of a few words: Choice("theme", ("causal", "window"))."""
    kind: str = field(default="choice", init=False)

    def accept(self, value):
        if value not in self.values:
            raise ValueError(f"{self.name}: {value!r} is none of {', '.join(map(str, self.values))}")
        return value


@dataclass(frozen=True)
class Text:
    """A line that the reader types, of at most `most` characters."""
    name: str
    start: str
    label: str = ""
    most: int = 60
    kind: str = field(default="text", init=False)

    def first(self):
        return self.start

    def accept(self, value):
        if not isinstance(value, str):
            raise ValueError(f"{self.name}: {value!r} is not a text")
        return value[:self.most]


@dataclass(frozen=True)
class Point:
    """A handle that is dragged, or moved by the arrow keys: `draw` gets the pair (x, y).

    `box` (left, top, width, height) is where the ranges `xs` and `ys` (low, high, step) are on the sheet, y
    growing upwards; `draw` marks the handle by `canvas.circle(..., drag="name")`."""
    name: str
    xs: tuple
    ys: tuple
    box: tuple
    start: tuple
    label: str = ""
    kind: str = field(default="point", init=False)

    def first(self):
        return self.start

    def accept(self, value):
        try:
            x, y = value
            float(x), float(y)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name}: {value!r} is not a point (x, y)") from None
        return _on(x, *self.xs), _on(y, *self.ys)


def _on(value, low, high, step):
    """The nearest multiple of `step` above `low`, at most `high`."""
    steps = round((min(max(float(value), low), high) - low) / step)
    return round(min(low + steps * step, high), 10)
