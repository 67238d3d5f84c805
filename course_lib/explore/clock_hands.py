"""Clock hands: how far each pair of a query and a key turns, by position and base (chapter 2)."""
import math

import torch

from course_lib.explore.frame import Canvas, Explorable, Slider
from course_lib.rope import apply_rope, rope_frequencies, rope_table

PAIRS, FAR = 4, 512
RADIUS, ACROSS = 58, 166


def turned(position: int, distance: int, base: int):
    """(key, query), each (pairs, 2): the arrow (1, 0) of each pair, rotated by chapter 2's function."""
    table = rope_table(FAR + 65, 2 * PAIRS, base, dtype=torch.float64)
    arrows = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(1, 1, 2, PAIRS)
    rows = apply_rope(arrows, *table, positions=torch.tensor([position, position + distance]))[0, 0]
    return rows.view(2, PAIRS, 2).unbind()


class ClockHands(Explorable):
    title = "Clock hands"
    caption = ("Key and query are turned by their positions, each pair of entries at its own speed. What "
               "their product sees is the angle between them, which depends on the distance and the base "
               "alone.")
    controls = (Slider("position", range(FAR + 1), 0, "position of the key", play=True),
                Slider("distance", range(65), 2, "distance to the query", "positions"),
                Slider("base", (10, 100, 1000, 10_000, 100_000, 1_000_000), 10_000))
    page = {"position": (0, 3, 100), "distance": (2, 8), "base": (100, 10_000)}

    def draw(self, position, distance, base):
        key, query = turned(position, distance, base)
        cosines = (key * query).sum(-1)
        canvas = Canvas(700, 252)
        canvas.text(20, 22, f"key at {position}, query at {position + distance}, base {base:,}", code=True)
        canvas.text(680, 22, f"score {cosines.mean():z.2f}", anchor="end", bold=True)
        said = []
        for pair, speed in enumerate(rope_frequencies(2 * PAIRS, base).tolist()):
            hands = [round(math.degrees(math.atan2(y, x))) % 360 for x, y in (key[pair], query[pair])]
            turn = f"{2 * math.pi / speed:,.1f}"
            x = 101 + ACROSS * pair
            canvas.text(x, 46, f"pair {pair}", anchor="middle")
            draw_clock(canvas, x, 120, key[pair].tolist(), query[pair].tolist())
            canvas.text(x, 202, f"{turn} positions per turn", size=11, anchor="middle")
            canvas.text(x, 219, f"key {hands[0]}°, query {hands[1]}°", size=11, anchor="middle")
            canvas.text(x, 238, f"cosine between {cosines[pair]:z.2f}", size=11, anchor="middle", bold=True)
            said.append(f"pair {pair} takes {turn} positions per turn, its key is at {hands[0]} degrees, its "
                        f"query at {hands[1]}, the cosine between them is {cosines[pair]:z.2f}")
        return canvas, (f"Key at {position}, query at {position + distance}, base {base:,}: "
                        f"{'; '.join(said)}. The score, the mean of the {PAIRS} cosines, is "
                        f"{cosines.mean():z.2f}.")


def draw_clock(canvas: Canvas, x: float, y: float, key, query) -> None:
    """One pair: the key as a dark hand, the query as the accent, and what is between them shaded."""
    canvas.circle(x, y, RADIUS, stroke="line")
    start = math.atan2(key[1], key[0])
    between = (math.atan2(query[1], query[0]) - start + math.pi) % (2 * math.pi) - math.pi
    rim = [(x + 26 * math.cos(start + between * n / 24), y - 26 * math.sin(start + between * n / 24))
           for n in range(25)]
    if abs(between) > 0.01:
        canvas.curve([(x, y), *rim], stroke=None, fill="soft")
    for (a, b), colour, length in ((query, "accent", RADIUS), (key, "ink", RADIUS - 12)):
        canvas.arrow(x, y, x + length * a, y - length * b, stroke=colour, thick=2.2, head=9)
