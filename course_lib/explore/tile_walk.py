"""The walk over the tiles, step by step: what is on the chip, and the bytes moved so far (chapter 6)."""
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.flash_attention.orders import tile_kinds, traffic

N, D, FLOAT, LEFT, TOP, SIDE = 64, 64, 4, 64, 42, 216
MOST = (N // 8) ** 2            # steps with the smallest tiles and no mask


def visits(rows: int, columns: int, order: str, causal: bool) -> list[tuple[int, int]]:
    """(query tile, key tile) of every tile that is computed, in the order of the walk."""
    found = [tuple(pair) for pair in (tile_kinds(N, N, rows, columns, causal) > 0).nonzero().tolist()]
    return found if order == "query-outer" else sorted(found, key=lambda pair: pair[::-1])


def moved(walk: list[tuple[int, int]], step: int, rows: int, columns: int, order: str) -> int:
    """Bytes that the tile at `step` moves: what is not on the chip yet, and what leaves it."""
    outer = 0 if order == "query-outer" else 1
    begins = step == 0 or walk[step - 1][outer] != walk[step][outer]
    ends = step + 1 == len(walk) or walk[step + 1][outer] != walk[step][outer]
    if order == "query-outer":          # q comes once, k and v each time, the output leaves at the end
        return FLOAT * (begins * rows * D + 2 * columns * D + ends * rows * D)
    return FLOAT * (begins * 2 * columns * D + rows * (3 * D + 4))     # q; out, max and sum in and out again


class TileWalk(Explorable):
    title = "The tile walk"
    caption = (f"Scores of {N} tokens in tiles; only the accented one exists, on the chip. In the order "
               "\"query-outer\" a tile of queries stays and keys and values pass by; in \"key-outer\" the "
               "other way round, and the unfinished output is read and written for each tile.")
    controls = (Slider("step", range(MOST), 5, play=True),
                Slider("rows", (8, 16, 32), 16, "queries per tile"),
                Slider("columns", (8, 16, 32), 16, "keys per tile"),
                Choice("order", ("query-outer", "key-outer")), Choice("causal", ("yes", "no")))
    page = {"step": range(10), "rows": (16,), "columns": (16,), "order": ("query-outer", "key-outer"),
            "causal": ("yes",)}

    def ranges(self, rows, columns, order, causal, **_):
        return {"step": range(len(visits(rows, columns, order, causal == "yes")))}

    def draw(self, step, rows, columns, order, causal):
        walk = visits(rows, columns, order, causal == "yes")
        i, j = walk[step]
        so_far = sum(moved(walk, n, rows, columns, order) for n in range(step + 1))
        whole = {name: traffic(N, D, rows, columns, name, causal=causal == "yes")
                 for name in ("query-outer", "key-outer", "standard")}
        canvas = Canvas(700, 282)
        draw_tiles(canvas, walk, step, rows, columns)
        stays = (f"stays: queries {i}" if order == "query-outer" else f"stay: keys and values {j}")
        canvas.text(320, 52, f"tile {step + 1} of {len(walk)}: queries {i} with keys {j}", bold=True)
        canvas.text(320, 72, f"on the chip, {stays}", fill="faint")
        bars = {"moved so far": so_far} | {f"whole walk, {name}": size for name, size in whole.items()}
        for n, (name, size) in enumerate(bars.items()):
            y = 92 + 44 * n
            canvas.text(320, y + 10, name, size=11, bold=not n)
            canvas.rect(320, y + 15, 290 * size / max(bars.values()), 16, fill="soft" if n else "accent",
                        stroke="ink", thick=0.5)
            canvas.text(328 + 290 * size / max(bars.values()), y + 28, f"{size / 1024:g} KiB", size=11)
        totals = ", ".join(f"{name} {size:,}" for name, size in whole.items())
        return canvas, (f"Tiles of {rows} queries and {columns} keys, causal {causal}, {order}: tile "
                        f"{step + 1} of {len(walk)}, queries {i} with keys {j}. {so_far:,} bytes are moved "
                        f"so far; the whole walk moves {totals}.")


def draw_tiles(canvas: Canvas, walk: list, step: int, rows: int, columns: int) -> None:
    """Done, now, to come, and what the mask hides."""
    high, wide, when = SIDE * rows / N, SIDE * columns / N, {tile: n for n, tile in enumerate(walk)}
    canvas.text(LEFT, TOP - 12, "keys", fill="faint")
    canvas.text(LEFT - 8, TOP + 12, "queries", anchor="end", fill="faint", size=11)
    for i in range(N // rows):
        for j in range(N // columns):
            n = when.get((i, j))
            fill = "soft" if n is None else "0" if n < step else "accent" if n == step else "empty"
            control = {} if n is None else {"set": {"step": n}}
            canvas.rect(LEFT + wide * j, TOP + high * i, wide, high, fill=fill,
                        text="" if n is None else n + 1, size=min(12, high - 2),
                        about=f"queries {i}, keys {j}: " + ("hidden" if n is None else f"tile {n + 1}"),
                        **control)
