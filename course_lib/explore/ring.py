"""A ring of stages: one producer, one consumer, and what each waits for (chapter 12)."""
from course_lib.asynchrony import pipeline
from course_lib.explore.frame import Canvas, Explorable, Slider, amount

TILES, LEFT, WIDE, HIGH, TOP, ROW = 8, 84, 600, 22, 34, 28


class Ring(Explorable):
    title = "A ring of stages"
    caption = (f"{TILES} tiles go through the ring. In a stage: pale while its tile is on the way, full from its "
               "arrival until it is used. Steps, not time: what a step lasts on a card is not said here.")
    controls = (Slider("stages", range(1, 7), 2, play=True),
                Slider("latency", range(1, 13), 6, "from order to arrival", "steps"),
                Slider("copy", range(1, 7), 2, "between two arrivals", "steps"),
                Slider("use", range(1, 7), 2, "to use a tile", "steps"))
    page = {"stages": (1, 2, 3, 4), "latency": (2, 6, 10), "copy": (1, 3), "use": (2, 4)}

    def draw(self, stages, latency, copy, use):
        tiles = pipeline(TILES, stages, latency, copy, use)
        steps, waited = tiles[-1].finished, sum(tile.waited for tile in tiles)
        canvas = Canvas(700, 78 + ROW * (stages + 2))
        canvas.text(LEFT, 20, f"{steps} steps; the consumer waits in {waited} of them", bold=True)
        for row, name in enumerate(["producer", *(f"stage {n}" for n in range(stages)), "consumer"]):
            canvas.text(LEFT - 8, 49 + ROW * row, name, anchor="end")
        draw_tiles(canvas, tiles, stages)
        pace = (steps - tiles[-1 - stages].finished) / stages
        canvas.text(LEFT, 62 + ROW * (stages + 2), fill="faint",
                    text=f"At the end {pace:.3g} steps per tile. Marks in the first row are orders, red is waiting.")
        ordered = ", ".join(str(tile.ordered) for tile in tiles)
        return canvas, (f"{amount(stages, 'stages')}, latency {latency}, {amount(copy, 'steps')} between two "
                        f"arrivals, {use} per use: tiles are ordered at {ordered}, the last is used after "
                        f"{steps} steps. The consumer waits in {waited} of them; at the end {pace:.3g} per tile.")


def draw_tiles(canvas: Canvas, tiles: list, stages: int) -> None:
    """Each tile's order, its two bars in its stage, and its use with the waiting before it."""
    def bar(row, begin, end, **look):
        canvas.rect(LEFT + scale * begin, TOP + ROW * row, scale * (end - begin), HIGH, **look)

    scale, last = WIDE / tiles[-1].finished, stages + 1
    for i, tile in enumerate(tiles):
        kind, row, x = str(i % 4), 1 + i % stages, LEFT + scale * tile.ordered
        canvas.line(x, TOP, x, TOP + HIGH, thick=2)
        bar(row, tile.ordered, tile.arrived, fill=kind, shade=0.3, about=f"tile {i} is on the way")
        bar(row, tile.arrived, tile.finished, fill=kind, text=i, about=f"tile {i} is in stage {i % stages}")
        bar(last, tile.started, tile.finished, fill=kind, text=i, about=f"tile {i} is used")
        if tile.waited:
            bar(last, tile.started - tile.waited, tile.started, fill="warn", shade=0.35, stroke=None,
                about=f"the consumer waits {amount(tile.waited, 'steps')} for tile {i}")
