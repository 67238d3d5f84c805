"""Tiles of a matrix, and memory as rows of cells."""
import itertools

import numpy as np

from course_lib.figures.frame import INK, array, filling, legend, new, paper, rectangle, show


EMPTY = {"facecolor": "white", "edgecolor": "#999999", "linewidth": 0.8}


def tiles(kinds, *, names: dict, caption: str, alt: str | None = None, labels=None,
          row_label: str = "query tile", column_label: str = "key tile", outline=(), empty=None,
          solid: bool = False) -> None:
    """A grid of tiles, each of one kind: colour, hatch and legend tell the kinds apart.

    kinds (rows, columns) of integers or strings; names {kind: "what it means"} in the order of the legend;
    `labels` (rows, columns) of short texts inside the tiles; `outline` a list of (row, column, height, width)
    drawn bold; `empty` the kind that is left white; `solid` leaves out the hatches.

        figures.tiles(kinds, names={0: "skipped", 1: "whole", 2: "masked inside"}, empty=0,
                      caption="Half are never loaded.")"""
    grid = array(kinds)
    n_rows, n_columns = grid.shape
    cell = min(0.45, 6.0 / n_columns, 5.0 / n_rows)
    fig, ax = new(cell * n_columns + 3.0, cell * n_rows + 0.9)
    looks = {kind: EMPTY if kind == empty else filling(k) | ({"hatch": ""} if solid else {})
             for k, kind in enumerate(names)}
    for i, j in np.ndindex(n_rows, n_columns):
        kind = grid[i, j].item() if hasattr(grid[i, j], "item") else grid[i, j]
        if kind not in looks:
            raise ValueError(f"tiles: kind {kind!r} at ({i}, {j}) has no entry in `names`, which knows "
                             f"{list(names)}")
        ax.add_patch(rectangle(j, i, 1, 1, **looks[kind]))
        if labels is not None and str(labels[i][j]):
            ax.text(j + 0.5, i + 0.5, str(labels[i][j]), ha="center", va="center", fontsize=8, color=INK,
                    bbox=paper())
    for row, column, height, width in outline:
        ax.add_patch(rectangle(column, row, width, height, facecolor="none", edgecolor=INK, linewidth=2.4))
    _grid_axes(ax, n_rows, n_columns, row_label, column_label)
    legend(fig, names.values(), looks=looks.values())
    if alt is None:
        counts = ", ".join(f"{int((grid == kind).sum())} {meaning}" for kind, meaning in names.items())
        alt = f"Grid of {n_rows} by {n_columns} tiles ({row_label} by {column_label}): {counts}."
        alt += "".join(f" Row {i}: {_row_in_words(row, names, labels and labels[i])}."
                       for i, row in enumerate(grid.tolist()))
    show(fig, alt, caption)


def _row_in_words(row: list, names: dict, labels) -> str:
    """The kinds of a row, equal neighbours together, each with the texts inside."""
    places = [(names[kind], str(label)) for kind, label in zip(row, labels or [""] * len(row))]
    runs = []
    for name, run in itertools.groupby(places, key=lambda place: place[0]):
        texts = [label for _, label in run]
        runs.append(f"{len(texts)} {name}" + (f" ({' '.join(filter(None, texts))})" if any(texts) else ""))
    return ", ".join(runs)


def memory(rows: dict, *, caption: str, alt: str | None = None, owners: dict | None = None, arrows=(),
           wrap: int = 32, free: str = "free") -> None:
    """Memory as rows of cells: what is stored where, and who owns it.

    rows {"name of the row": ["a0", "a1", "", "b0"]}: a cell's text, "" for free. The owner of a cell is its
    text up to the first digit ("a0" -> "a"), or what `owners` {"text": "owner"} says. `arrows`
    [(("row", i), ("row", j)), ...].

        figures.memory({"sequence a": ["a0", "a1"], "pool": ["a1", "", "b0", "a0"]},
                       arrows=[(("sequence a", 0), ("pool", 3))], caption="A table points into a pool.")"""
    # over the guide: one picture, drawn from top to bottom
    owner = lambda text: _owner(text, owners)
    lines = []                              # (name, index of the first cell, cells)
    for name, cells in rows.items():
        cells = [str(c) for c in cells]
        lines += [(name, start, cells[start:start + wrap]) for start in range(0, max(len(cells), 1), wrap)]
    known = list(dict.fromkeys(owner(c) for _, _, cells in lines for c in cells if c))
    width = max(len(cells) for _, _, cells in lines)
    cell = min(0.62, 6.4 / width)
    step = 2.1 if arrows else 1.5
    tall = min(cell, 0.42)
    fig, ax = new(cell * width + 2.6, max(1.3, (step * len(lines)) * tall + 0.5))
    place = {}
    for y, (name, start, cells) in enumerate(lines):
        for j, text in enumerate(cells):
            _memory_cell(ax, j, y * step, text, filling(known.index(owner(text))) if text else EMPTY)
            place[name, start + j] = (j + 0.5, y * step)
        ax.text(-0.2, y * step + 0.5, name if start == 0 else f"+{start}", ha="right", va="center",
                fontsize=9, color=INK)
    for (from_row, i), (to_row, j) in arrows:
        (x0, y0), (x1, y1) = place[from_row, i], place[to_row, j]
        down = y1 >= y0
        ax.annotate("", (x1, y1 if down else y1 + 1), (x0, y0 + 1 if down else y0),
                    arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.0})
    ax.set_xlim(-0.1, width + 0.1)
    ax.set_ylim((len(lines) - 1) * step + 1.1, -0.1)
    ax.axis("off")
    if len(known) > 1:
        legend(fig, known)
    if alt is None:
        told = (f"{name}: {', '.join(str(c) or free for c in cells)}." for name, cells in rows.items())
        alt = "Memory. " + " ".join(told)
        if arrows:
            alt += " Arrows: " + ", ".join(f"{a} {i} to {b} {j}" for (a, i), (b, j) in arrows) + "."
    show(fig, alt, caption)


def _owner(text: str, owners: dict | None) -> str:
    if owners is not None:
        return owners.get(text, "")
    return text.rstrip("0123456789:.,") or text


def _memory_cell(ax, x, y, text, look) -> None:
    ax.add_patch(rectangle(x, y, 1, 1, **look))
    if text:
        ax.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7.5, color=INK, bbox=paper())


def _grid_axes(ax, n_rows, n_columns, row_label, column_label) -> None:
    ax.set_xlim(-0.03, n_columns + 0.03)            # the whole of the outermost lines
    ax.set_ylim(n_rows + 0.03, -0.03)
    ax.set_aspect("equal")
    for axis, count in ((ax.xaxis, n_columns), (ax.yaxis, n_rows)):
        every = max(1, count // 8)
        axis.set_ticks(np.arange(0, count, every) + 0.5, range(0, count, every))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(column_label, color=INK)
    ax.set_ylabel(row_label, color=INK)
