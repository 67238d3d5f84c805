"""The display of training: a bar with tokens per second and the time left, and in a notebook the curves.

Only for a person who watches: in tests, `run` and a pipe nothing is shown, as rates differ by machine."""
import io
import sys
import time

from course_lib import figures
from course_lib.cuda import front
from laptop_cuda.toolchain.watching import show


def watched_in():
    """"notebook", "terminal" or None."""
    if front.watched():
        return "notebook"
    return "terminal" if sys.stderr.isatty() and not front.in_batch() else None


class Display:
    """Receives every step; draws at most three times per second."""

    def __init__(self, first, steps, tokens_per_step, where=None, clock=time.perf_counter):
        self.first, self.steps, self.tokens_per_step, self.clock = first, steps, tokens_per_step, clock
        self.where, self.start, self.drawn, self.entries = where or watched_in(), clock(), 0.0, 0
        self.bar = self.picture = None

    def step(self, step, loss, history):
        now = self.clock()
        if self.where is None or (now - self.drawn < 0.3 and step < self.steps):
            return
        self.drawn = now
        self._show(self.line(step, loss, now))
        # Runs of a few seconds get no curve.
        if self.where == "notebook" and len(history) > max(1, self.entries) and now - self.start > 5:
            self.entries = len(history)
            self._draw(history)

    def line(self, step, loss, now):
        seconds_per_step = (now - self.start) / max(1, step - self.first)
        left = seconds_per_step * (self.steps - step)
        full = round(24 * step / self.steps)
        return (f"[{'#' * full}{'.' * (24 - full)}] {step:,}/{self.steps:,}  loss {loss:.3f}  "
                f"{self.tokens_per_step / seconds_per_step:,.0f} tokens/s  "
                f"{int(left) // 60}:{int(left) % 60:02} left")

    def clear(self):
        """Remove the bar before other output is printed."""
        if self.where == "terminal":
            print(f"\r{'':<100}\r", end="", file=sys.stderr, flush=True)

    def close(self):
        if self.where == "terminal":
            print(file=sys.stderr)

    def _show(self, line):
        if self.where == "terminal":
            print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)
        else:
            self.bar = show(line, self.bar)

    def _draw(self, history):
        steps, losses, measured = zip(*history)
        fig, ax = figures.new(6.4, 3.0)
        ax.plot(steps, losses, color=figures.COLOURS[0], label="training")
        if measured[-1] is not None:
            ax.plot(steps, measured, color=figures.COLOURS[1], linestyle="--", label="validation")
        ax.set_xlabel("step", color=figures.INK)
        ax.set_ylabel("loss, nats per token", color=figures.INK)
        ax.legend(frameon=False)
        picture = io.BytesIO()
        fig.savefig(picture, format="png", facecolor="white")
        alt = f"training loss from {losses[0]:.2f} to {losses[-1]:.2f}"
        self.picture = show(alt, self.picture, forms={"image/png": picture.getvalue()},
                            metadata={"image/png": {"alt": alt}})


def show_rates(ways):
    """Print tokens per second of each {"name": function that returns a number of tokens}, if watched."""
    if watched_in() is None:
        return
    for name, work in ways.items():
        start = time.perf_counter()
        made = work()
        print(f"{name:24} {made / (time.perf_counter() - start):8,.0f} tokens per second")
