"""The chunk walk: which products are inside a chunk, and what the carried state holds (chapter 4)."""
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.linear_attention import linear_attention

TOKENS, CELL, LEFT, TOP = 24, 10, 56, 30
SIDE, STEP = 348, 27                             # the right half: tables and bars


def seen(start: int, end: int):
    """What the queries of one chunk see: (pairs inside the chunk, keys read from the state), 0 or 1 each.

    One feature, always 1, and value j the unit vector e_j: an output counts how often each key was summed."""
    ones, units = torch.ones(1, 1, TOKENS, 1), torch.eye(TOKENS)[None, None]
    state = linear_attention(ones[:, :, :start], ones[:, :, :start], units[:, :, :start], "identity", True,
                             "recurrent", normalise=False, return_state=True)[1]
    chunk = [x[:, :, start:end] for x in (ones, ones, units)]
    inside, both = (linear_attention(*chunk, "identity", True, "chunked", end - start, state=carried,
                                     normalise=False)[0, 0] for carried in (None, state))
    return inside, both - inside


@cache
def operations(size: int, width: int) -> int:
    """The chapter's chunked form on the whole text, by torch's counter."""
    x = torch.ones(1, 1, TOKENS, width)
    with FlopCounterMode(display=False) as counter:
        linear_attention(x, x, x, "identity", True, "chunked", size, normalise=False)
    return counter.get_total_flops()


class Chunks(Explorable):
    title = "The chunk walk"
    caption = ("Inside a chunk queries meet keys pair by pair; all earlier keys are read from one state, "
               "which each chunk hands on. Chunks of 1 are the recurrence, one chunk is the parallel form. The "
               "bars are torch's count of the chapter's function: whole squares, where the drawing shows the "
               "triangles that are needed, and the state, even where a single chunk needs none.")
    controls = (Slider("size", (1, 2, 3, 4, 6, 8, 12, 24), 6, "chunk size", "tokens"),
                Slider("step", range(1, TOKENS + 1), 3, "chunk number", play=True),
                Slider("width", (2, 4, 8, 16, 32), 8, "width of the heads"))
    page = {"size": (1, 6, 12), "step": (1, 2, 3, 4), "width": (8,)}

    def ranges(self, size, **_):
        return {"step": range(1, TOKENS // size + 1)}

    def draw(self, size, step, width):
        count, now = TOKENS // size, step - 1
        walked = [seen(start, start + size) for start in range(0, TOKENS, size)]
        canvas = Canvas(700, TOP + CELL * TOKENS + 40)
        canvas.text(LEFT, 20, f"{TOKENS} tokens in {amount(count, 'chunks')} of {size}", bold=True)
        for at, (inside, read) in enumerate(walked[:now + 1]):
            draw_chunk(canvas, at * size, inside, read, at == now)
        draw_frame(canvas)
        inside, read = walked[now]
        pairs, total = (int(sum(part[0].sum() for part in walked[:end])) for end in (now + 1, count))
        held = int(read[0].sum())
        flops = {n: operations(n, width) for n in self.controls[0].values}
        draw_costs(canvas, size, flops)
        draw_text(canvas, now, inside, held, width)
        told = ", ".join(f"{n}: {amount(TOKENS // n, 'steps')} and {number:,} operations"
                         for n, number in flops.items())
        return canvas, (f"{TOKENS} tokens in {amount(count, 'chunks')} of {size}; chunk {now + 1} "
                        f"computes {amount(int(inside.sum()), 'pairs')} inside and reads {held} earlier keys "
                        f"from the state of {width} x {width} numbers. Pairs computed so far: {pairs}, in "
                        f"the end {total} of {TOKENS * (TOKENS + 1) // 2}. The whole text, by chunk size, with whole "
                        f"squares and the state: "
                        f"{told}.")


def draw_chunk(canvas: Canvas, start: int, inside, read, current: bool) -> None:
    """Pairs computed one by one as cells, and the keys that the state stands for as one block."""
    size, keys = len(inside), int(read[0].sum())
    if keys:
        canvas.rect(LEFT, TOP + CELL * start, CELL * keys, CELL * size, fill="4" if current else "soft",
                    about=f"read from the state: keys 0 to {keys - 1}")
    cells = [(LEFT + CELL * j, TOP + CELL * (start + i)) for i, j in inside.nonzero().tolist()]
    canvas.frames(cells, CELL, CELL, fill="accent" if current else "soft")


def draw_frame(canvas: Canvas) -> None:
    side = CELL * TOKENS
    canvas.frames([(LEFT, TOP)], side, side, stroke="faint")
    canvas.text(LEFT + side / 2, TOP + side + 18, "key", anchor="middle")
    canvas.text(LEFT - 8, TOP + side / 2, "query", anchor="end")


def draw_text(canvas: Canvas, now: int, inside, held: int, width: int) -> None:
    """What the current chunk does, in the colours of the picture."""
    lines = [("accent", f"{amount(int(inside.sum()), 'pairs')} computed inside chunk {now + 1}"),
             ("4", f"{held} earlier keys, read from {width} x {width} numbers")]
    for row, (fill, text) in enumerate(lines):
        canvas.rect(SIDE, 10 + 22 * row, 14, 14, fill=fill)
        canvas.text(SIDE + 22, 22 + 22 * row, text)


def draw_costs(canvas: Canvas, size: int, flops: dict) -> None:
    """Steps one after another, and operations, for every chunk size."""
    for x, head in ((SIDE + 30, "size"), (SIDE + 80, "steps"), (SIDE + 92, "operations, with whole squares and the state")):
        canvas.text(x, 78, head, size=11, anchor="start" if x > SIDE + 80 else "end", fill="faint")
    for row, (n, number) in enumerate(flops.items()):
        y = 86 + 22 * row
        canvas.text(SIDE + 30, y + 12, n, anchor="end", bold=n == size)
        canvas.text(SIDE + 80, y + 12, TOKENS // n, anchor="end", bold=n == size)
        fill = "accent" if n == size else "soft"
        canvas.rect(SIDE + 92, y, 160 * number / max(flops.values()), 16, fill=fill, set={"size": n},
                    about=f"chunks of {n}")
        canvas.text(SIDE + 98, y + 12, f"{number:,}", size=11)
