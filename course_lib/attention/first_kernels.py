"""What chapter 0 draws of CUDA: a matrix in memory, a race, tiles of a product, a warp that adds up."""
import torch

from course_lib import figures

ROWS = ("#d6e6f4", "#fbe6c4", "#cfeade", "#eedbe8")
ACCENT = figures.COLOURS[5]


def matrix_in_memory(rows, columns):
    """A matrix (rows, columns) and the same numbers as memory holds them, row after row."""
    count, wide = rows * columns, max(columns, 8)
    fig, ax = _canvas(max(count, wide) + 1.5, rows + 4)
    for number in range(count):
        r, j = divmod(number, columns)
        _cell(ax, j, r + 0.8, ROWS[r % len(ROWS)], f"{r}, {j}")
        _cell(ax, number, rows + 2.6, ROWS[r % len(ROWS)], str(number))
    for start in range(0, count, 8):
        ax.add_patch(figures.rectangle(start, rows + 2.6, min(8, count - start), 1, fill=False,
                                       edgecolor=ACCENT, linewidth=2))
    ax.text(0, 0.55, "the matrix: row, column", fontsize=8.5, color=figures.INK)
    ax.text(0, rows + 2.35, "in memory: number = row × columns + column; a frame is a sector of 8 floats",
            fontsize=8.5, color=figures.INK)
    places = "; ".join(f"row {r} is numbers {r * columns} to {(r + 1) * columns - 1}" for r in range(rows))
    figures.show(fig, alt=f"A matrix of {rows} rows and {columns} columns, and memory below it: {places}. "
                 f"Sectors begin at {', '.join(map(str, range(0, count, 8)))}.",
                 caption="A matrix in memory is one row of numbers, matrix row after matrix row.")


def race(barrier):
    """A time line of two warps that turn an array of 64 around in shared memory, with or without barrier."""
    first_read = 2.8 if barrier else 1.2
    warps = {"warp 0": [(0, 1, "writes s[0..31]", False),
                        (first_read, first_read + 1, "reads s[63..32]", not barrier)],
             "warp 1": [(1.6, 2.6, "writes s[32..63]", False), (2.8, 3.8, "reads s[31..0]", False)]}
    end = max(stop for steps in warps.values() for _, stop, _, _ in steps)
    fig, ax = figures.new(7.2, 0.75 * len(warps) + 0.9)
    for y, (name, steps) in enumerate(warps.items()):
        for start, stop, what, wrong in steps:
            look = {"facecolor": "#f6dcc8", "edgecolor": ACCENT, "linewidth": 2} if wrong else {
                "facecolor": ROWS[0], "edgecolor": "#888888", "linewidth": 0.8}
            ax.add_patch(figures.rectangle(start, y - 0.3, stop - start, 0.6, **look))
            ax.text((start + stop) / 2, y, what, ha="center", va="center", fontsize=8, color=figures.INK)
    if barrier:
        ax.axvline(2.7, color=ACCENT, linewidth=2)
        ax.text(2.64, -0.5, "__syncthreads()", ha="right", va="bottom", fontsize=8, color=ACCENT)
    ax.set(xlim=(0, end + 0.2), ylim=(len(warps) - 0.4, -0.9), xlabel="time", xticks=[])
    ax.set_yticks(range(len(warps)), list(warps), fontsize=9)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    told = [f"{name}: " + ", then ".join(what + " (too early)" * wrong for _, _, what, wrong in steps)
            for name, steps in warps.items()]
    waits, caption = (("Both wait at a barrier between the two steps.",
                       "With a barrier, every warp has written before any warp reads.") if barrier else
                      ("Nothing makes one wait for the other.",
                       "One possible order: warp 0 reads what warp 1 has not written yet."))
    figures.show(fig, alt=f"{'; '.join(told)}. {waits}", caption=caption)


def product_in_tiles(tiles, row, column):
    """C = A B in tiles x tiles tiles each: the tiles that the block of C's tile (row, column) loads."""
    fig, ax = _canvas(2 * tiles + 3, 2 * tiles + 2.6)
    places = {"A": (0, tiles + 1.6), "B": (tiles + 1, 0.6), "C": (tiles + 1, tiles + 1.6)}
    mine = {"A": lambda r, c: r == row, "B": lambda r, c: c == column,
            "C": lambda r, c: (r, c) == (row, column)}
    colours = {"A": ROWS[0], "B": ROWS[1], "C": "#f6dcc8"}
    for name, (x, y) in places.items():
        ax.text(x + tiles / 2, y - 0.12, name, ha="center", va="bottom", fontsize=10, color=figures.INK)
        for r in range(tiles):
            for c in range(tiles):
                own = mine[name](r, c)
                order = {"A": c, "B": r, "C": ""}[name]
                _cell(ax, x + c, y + r, colours[name] if own else "white", str(order) if own else "")
    along, down = places["A"][1] + row + 0.5, places["B"][0] + column + 0.5
    for start, end in (((0, along), (tiles + 0.5, along)), ((down, 0.6), (down, tiles + 1.1))):
        ax.annotate("", end, start, zorder=0,
                    arrowprops={"arrowstyle": "->", "color": ACCENT, "linewidth": 1.2})
    pairs = ", ".join(f"({row}, {i}) of A with ({i}, {column}) of B" for i in range(tiles))
    told = (f"C = A B, each of {tiles} by {tiles} tiles. The block that makes tile ({row}, {column}) of C "
            f"loads the {tiles} tiles of row {row} of A and the {tiles} tiles of column {column} of B, in "
            f"pairs: {pairs}.")
    figures.show(fig, alt=told,
                 caption="One block makes one tile of C: it loads pairs of tiles, number 0, 1, 2, ..., along "
                         "a row of A and down a column of B.")


def warp_adds_up(values):
    """Lanes that add the value of a lane further on: what each lane holds after every step."""
    values, offset = list(values), len(values) // 2
    fig, ax = _canvas(1.5 * len(values) + 2.4, 2 * (len(values).bit_length() - 1) + 2.6)
    held, told, y = torch.tensor(values), [], 0.9
    needed = len(values)
    while True:
        for lane, value in enumerate(held.tolist()):
            colour, label = (ROWS[0], str(value)) if lane < needed else ("white", "")
            _cell(ax, 1.5 * lane, y, colour, label)
            if y < 1:
                ax.text(1.5 * lane + 0.5, y - 0.12, f"lane {lane}", ha="center", va="bottom", fontsize=7,
                        color=figures.INK)
        told.append(f"lanes 0 to {needed - 1} hold {held[:needed].tolist()}" if needed > 1
                    else f"lane 0 holds {held[0]}")
        if needed == 1:
            break
        for lane in range(offset):
            for source, colour in ((lane, "#999999"), (lane + offset, ACCENT)):
                ax.annotate("", (1.5 * lane + 0.5, y + 1.95), (1.5 * source + 0.5, y + 1.05),
                            arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1})
        ax.text(1.5 * len(values) - 0.3, y + 1.5, f"offset {offset}", fontsize=8, va="center", color=ACCENT)
        held = held + torch.cat([held[offset:], held[:offset]])
        needed, offset, y = offset, offset // 2, y + 2
    figures.show(fig, alt="; then ".join(told) + ".",
                 caption="Each step halves the number of lanes that matter; lane 0 ends with the sum.")


def _canvas(width, height, cell=0.32):
    fig, ax = figures.new(width * cell, height * cell)
    figures.plain(ax, xlim=(-0.3, width - 0.3), ylim=(height, 0), aspect="equal")
    return fig, ax


def _cell(ax, x, y, colour, label):
    ax.add_patch(figures.rectangle(x, y, 1, 1, facecolor=colour, edgecolor="#888888", linewidth=0.6))
    ax.text(x + 0.5, y + 0.5, label, ha="center", va="center", fontsize=7, color=figures.INK)
