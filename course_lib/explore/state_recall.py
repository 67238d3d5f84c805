"""The state filling up: recall against the number of keys, plain and with the delta rule (chapter 4)."""
import math
from functools import cache

import torch
from torch.nn import functional as F

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.linear_attention import delta_rule, linear_attention

COUNTS, DRAWS = (2, 4, 8, 12, 16, 24, 32, 48, 64), 10
BOX, RIGHT = (52, 44, 330, 170), 420      # the curves, and where the keys of one draw are shown


def pairs(count: int, width: int, kind: str):
    """(keys, values), each (draws, 1, count, width); keys that are alike share a direction."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(DRAWS, 1, max(COUNTS), width, generator=generator, dtype=torch.float64)
    shared = torch.randn(DRAWS, 1, 1, width, generator=generator, dtype=torch.float64)
    values = torch.randn(keys.shape, generator=generator, dtype=torch.float64)
    keys = F.normalize(keys + shared if kind == "alike" else keys, dim=-1)
    return keys[:, :, :count], values[:, :, :count]


@cache
def recalled(count: int, width: int, kind: str, shows: int) -> dict:
    """{rule: (draws, count) boolean}: whether the answer to a key is nearest to the value stored with it."""
    keys, values = pairs(count, width, kind)
    k, v = (x.repeat(1, 1, shows, 1) for x in (keys, values))
    _, state = delta_rule(k, k, v, torch.ones_like(k[..., 0]), form="chunked", return_state=True)
    answers = {"plain": linear_attention(keys, k, v, "identity", normalise=False), "delta rule": keys @ state}
    return {rule: nearest(answer, values) for rule, answer in answers.items()}


def nearest(answers, values):
    likeness = F.normalize(answers, dim=-1) @ F.normalize(values, dim=-1).transpose(-2, -1)
    return (likeness.argmax(-1) == torch.arange(values.shape[-2])).squeeze(1)


class StateRecall(Explorable):
    title = "The state fills up"
    caption = ("Keys and values are added to one state of fixed size, then each key asks for its value. "
               "Plain linear attention only adds; the delta rule first takes away what the state already "
               "returns for a key. Which of them recalls more depends on the keys.")
    controls = (Slider("pairs", COUNTS, 16, "pairs stored", play=True), Slider("width", (8, 16, 32), 16),
                Choice("keys", ("random", "alike")), Slider("shows", (1, 2, 4), 1, "each shown", "times"))
    page = {"pairs": (16, 64), "width": (16,), "keys": ("random", "alike"), "shows": (1, 4)}

    def draw(self, pairs, width, keys, shows):
        found = {count: recalled(count, width, keys, shows) for count in COUNTS}
        canvas = Canvas(700, 272)
        place = canvas.axes(BOX, (0, max(COUNTS)), (0, 1), xlabel="pairs stored", ylabel="share recalled")
        canvas.line(*place(pairs, 0), *place(pairs, 1), stroke="faint", dash="3 3")
        said, times = [], "once each" if shows == 1 else f"{shows} times each"
        for row, rule in enumerate(("plain", "delta rule")):
            share = {count: float(each[rule].double().mean()) for count, each in found.items()}
            colour = "accent" if row else "ink"
            canvas.curve([place(*point) for point in share.items()], stroke=colour, thick=2.5)
            canvas.circle(*place(pairs, share[pairs]), 5, fill=colour, about=f"{rule}: {share[pairs]:.1%}")
            now = found[pairs][rule]
            draw_keys(canvas, 22 + 124 * row, f"{rule}: {share[pairs]:.1%}, mean of {DRAWS} draws", now[0].tolist(), colour)
            said.append(f"{rule} recalls {share[pairs]:.1%}, in the first draw "
                        f"{int(now[0].sum())} of {pairs}; by number of pairs: "
                        + ", ".join(f"{count}: {part:.1%}" for count, part in share.items()))
        return canvas, (f"{pairs} {keys} keys of width {width}, shown {times}, in a state of "
                        f"{width} x {width} numbers; mean of {DRAWS} draws. {'; '.join(said)}.")


def draw_keys(canvas: Canvas, y: float, title: str, found: list[bool], colour: str) -> None:
    """The keys of the first draw in the order of writing: filled if its value was recalled, else a cross."""
    canvas.text(RIGHT, y, title, bold=True)
    size = 14
    for at, hit in enumerate(found):
        left, top = RIGHT + (size + 2) * (at % 16), y + 8 + (size + 2) * (at // 16)
        canvas.rect(left, top, size, size, fill=colour if hit else "empty", stroke="line",
                    about=f"key {at}: {'recalled' if hit else 'lost'}")
        if not hit:
            canvas.line(left + 3, top + 3, left + size - 3, top + size - 3, stroke="faint")
    below = y + 22 + (size + 2) * math.ceil(len(found) / 16)
    canvas.text(RIGHT, below, f"the first draw, {sum(found)} of {len(found)}, in the order of writing", size=11, fill="faint")
