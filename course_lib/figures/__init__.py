"""The few pictures the course needs. Each function draws one figure and shows it; nothing is returned.

Every figure has a visible `caption` (what it says, one sentence), a text alternative `alt` (what a reader who
cannot see it must know; worked out from the data where you give none), a PNG for every viewer and the same
drawing as SVG for the course's JupyterLab and book, a white ground that both invert in a dark theme, colours
that colour-blind readers can tell apart, and numbers, hatches, markers or letters beside every colour.

    from course_lib import figures
    figures.heatmap(weights, rows=words, columns=words, caption="Each row is one query's attention.")
    figures.bars({"naive": 8.2, "tiled": 1.1}, ceiling=1.0, ceiling_label="least possible", unit="MB",
                 caption="...")
    figures.curves({"softmax": losses}, floor=1.2, floor_label="entropy", xlabel="step", ylabel="loss",
                   caption="...")
    figures.tiles([[1, 0], [2, 1]], names={0: "skipped", 1: "whole", 2: "masked"}, caption="...")
    figures.memory({"pool": ["a0", "b0", "", "a1"]}, caption="...")
    figures.boxes({"HBM": (0, 0), "shared": (1, 0)}, arrows=[("HBM", "shared", "load")], caption="...")

For a picture of your own: `fig, ax = figures.new()`, draw, then
`figures.show(fig, alt="...", caption="...")`."""
from course_lib.figures.boxes import CHAPTERS, boxes, chapter_map
from course_lib.figures.charts import bars, curves
from course_lib.figures.frame import (COLOURS, DASHES, HATCHES, INK, MARKERS, array, arrow, box, filling, new,
                                      number, paper, plain, plain_ticks, rectangle, show)
from course_lib.figures.grids import memory, tiles
from course_lib.figures.heatmap import heatmap

__all__ = ["CHAPTERS", "COLOURS", "DASHES", "HATCHES", "INK", "MARKERS", "array", "arrow", "bars", "box",
           "boxes", "chapter_map", "curves", "filling", "heatmap", "memory", "new", "number", "paper", "plain",
           "plain_ticks", "rectangle", "show", "tiles"]
