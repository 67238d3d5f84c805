"""The swizzle by row and column: where a copy puts the pieces of a tile, what a column meets (chapter 12)."""
from collections import Counter

from course_lib.asynchrony import banks, swizzled
from course_lib.explore.banks import passes
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider

ROWS, PIECE, CELL, HIGH, LEFT, STORED, TOP = 8, 16, 36, 22, 46, 376, 76
MODES = {"none": 0, "32 bytes": 32, "64 bytes": 64, "128 bytes": 128}


class Swizzle(Explorable):
    title = "A swizzled tile"
    caption = ("Left 8 rows of a tile as the tensor has them, right as they are stored: a line of 128 bytes is "
               "all 32 banks. Each box is 16 bytes. Orange: one column of pieces, which is read in one go.")
    controls = (Choice("swizzle", tuple(MODES), "128 bytes"), Slider("row", range(ROWS), 5),
                Slider("piece", range(8), 3, "column, in pieces of 16 bytes"))
    page = {"swizzle": tuple(MODES), "row": (0, 3, 5, 7), "piece": (3,)}

    def ranges(self, swizzle, row, piece):
        return {"piece": range((MODES[swizzle] or 128) // PIECE)}

    def draw(self, swizzle, row, piece):
        mode, width = MODES[swizzle], MODES[swizzle] or 128
        at = swizzled(row, PIECE * piece, mode, width)
        found = banks(range(ROWS), PIECE * piece, mode, width)
        most = passes(max(Counter(found).values()))
        canvas = Canvas(700, TOP + HIGH * ROWS + 40)
        canvas.text(20, 20, f"row {row}, piece {piece}: byte {at} of the tile", bold=True)
        canvas.text(STORED + 8 * CELL, 20, f"the column: {most}", anchor="end", bold=True)
        headings(canvas, width)
        for r in range(ROWS):
            places = [swizzled(r, PIECE * p, mode, width) // PIECE for p in range(width // PIECE)]
            draw_row(canvas, r, places, piece, r == row)
        canvas.text(LEFT, TOP + HIGH * ROWS + 26, size=11, fill="faint",
                    text="Boxes at the right are row.piece; above them their banks. All 32 banks serve eight "
                         "boxes in one pass.")
        named = f"a swizzle of {mode} bytes" if mode else "no swizzle"
        return canvas, (f"With {named}, rows of {width} bytes, row {row}, piece {piece} is stored at byte {at} of "
                        f"the tile. The pieces {piece} of rows 0 to 7 begin in banks "
                        f"{', '.join(map(str, found))}: {most}.")


def headings(canvas: Canvas, width: int) -> None:
    """What the two sides are, the numbers of the pieces, and the banks."""
    tensor = (LEFT, f"in the tensor: rows of {width} bytes", range(width // PIECE))
    stored = (STORED, "in shared memory", [f"{4 * n}-{4 * n + 3}" for n in range(8)])
    for x, heading, names in (tensor, stored):
        canvas.text(x, TOP - 26, heading, fill="faint")
        for n, name in enumerate(names):
            canvas.text(x + CELL * (n + 0.5), TOP - 6, name, size=10, anchor="middle", fill="faint")


def draw_row(canvas: Canvas, r: int, places: list[int], piece: int, is_chosen: bool) -> None:
    """A row on both sides; `places` are those of its pieces, in pieces from the tile's beginning."""
    tensor = [(LEFT + CELL * p, TOP + HIGH * r) for p in range(len(places))]
    stored = [(STORED + CELL * (place % 8), TOP + HIGH * (place // 8)) for place in places]
    frame = {"stroke": "ink", "thick": 3} if is_chosen else {}
    canvas.text(LEFT - 8, TOP + HIGH * r + 15, r, size=10, anchor="end", fill="faint")
    for side in (tensor, stored):
        canvas.frames(side, CELL, HIGH, fill=str(r), shade=0.35)
        canvas.rect(*side[piece], CELL, HIGH, fill="accent", **frame)
    for p, (x, y) in enumerate(stored):
        canvas.text(x + CELL / 2, y + 15, f"{r}.{p}", size=10, anchor="middle")
