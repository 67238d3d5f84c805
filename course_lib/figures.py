"""The few pictures the course needs. Each function draws one figure and shows it; nothing is returned.

Every figure has a visible `caption` (what it says, one sentence), a text alternative `alt` (what a reader who cannot
see it must know; worked out from the data where you give none), a white ground that stays legible in a dark theme,
colours that colour-blind readers can tell apart, and numbers, hatches, markers or letters beside every colour.

    from course_lib import figures
    figures.heatmap(weights, rows=words, columns=words, caption="Each row is one query's attention.")
    figures.bars({"naive": 8.2, "tiled": 1.1}, ceiling=1.0, ceiling_label="least possible", unit="MB", caption="...")
    figures.curves({"softmax": losses}, floor=1.2, floor_label="entropy", xlabel="step", ylabel="loss", caption="...")
    figures.tiles([[1, 0], [2, 1]], names={0: "skipped", 1: "whole", 2: "masked"}, caption="...")
    figures.memory({"pool": ["a0", "b0", "", "a1"]}, caption="...")
    figures.boxes({"HBM": (0, 0), "shared": (1, 0)}, arrows=[("HBM", "shared", "load")], caption="...")

For a picture of your own: `fig, ax = figures.new()`, draw, then `figures.show(fig, alt="...", caption="...")`.
"""
import io
import textwrap

import numpy as np

# Okabe and Ito's palette, in an order whose neighbours also differ in lightness.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D1F", "#666666"]
HATCHES = ["", "//", "..", "xx", "\\\\", "++", "oo", "--"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 3)), (0, (1, 3))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
INK = "#222222"
DPI = 110


def new(width: float = 6.4, height: float = 3.6, columns: int = 1):
    """A figure and its axes: `fig, ax = figures.new()`, or `fig, (left, right) = figures.new(columns=2)`."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")
    axes = fig.subplots(1, columns)
    for ax in np.atleast_1d(axes):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(colors=INK, labelsize=9)
    return fig, axes


def show(fig, alt: str, caption: str, file=None) -> None:
    """Show any matplotlib figure: `figures.show(fig, alt="Loss falls from 3.1 to 1.4.", caption="Training the model.")`.

    The picture carries `alt` as its plain-text form, so a terminal prints it and the test suite compares it (never the
    pixels). JupyterLab gives pictures no alternative text of its own, so it also stands under the caption, folded. With `file` it is only saved.
    """
    if not alt or not alt.strip():
        raise ValueError("show: `alt` is empty; say in words what the figure shows")
    if not caption or not caption.strip():
        raise ValueError("show: `caption` is empty; say in one sentence what the figure says")
    alt, caption = " ".join(alt.split()), " ".join(caption.split())
    picture = io.BytesIO() if file is None else file
    # "Software" would put matplotlib's version into the file, and a re-run on another machine into the diff.
    fig.savefig(picture, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    _forget(fig)
    if file is not None:
        return
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        print(f"[figure] {caption}\n{textwrap.fill(alt, 100)}")
        return
    display({"image/png": picture.getvalue(), "text/plain": alt}, metadata={"image/png": {"alt": alt}}, raw=True)
    display({"text/markdown": f"*{caption}*\n\n<details><summary>In words</summary>\n\n{alt}\n\n</details>",
             "text/plain": f"Figure: {caption}"}, raw=True)


def _forget(fig) -> None:
    """A figure made through pyplot would be shown a second time at the end of the cell."""
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(fig)


def _array(values) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    return np.asarray(values)


def _number(x: float) -> str:
    """4 significant digits at most, no trailing zeros: 1234567 -> 1.235e+06, 0.25 -> 0.25, 12 -> 12."""
    x = float(x)
    return f"{x:,.0f}" if abs(x) < 1e6 and x == round(x) else f"{x:.4g}"


def heatmap(weights, rows=None, columns=None, *, caption: str, alt: str | None = None, title: str | None = None,
            row_label: str = "query", column_label: str = "key", mask=None, digits: int = 2, vmin=None, vmax=None) -> None:
    """A matrix of weights with its tokens; several side by side from a dict.

    weights (rows, columns), or {"title": (rows, columns), ...}; `mask` (same shape, True = may attend) hatches what is
    forbidden. Cells carry their number while there are at most 12 a row. Negative values get a two-sided colour scale.

        figures.heatmap(w, rows=words, columns=words, caption="'it' looks at 'cat'.")
    """
    panels = weights if isinstance(weights, dict) else {title or "": weights}
    panels = {name: np.atleast_2d(_array(w)) for name, w in panels.items()}
    allowed = None if mask is None else _array(mask).astype(bool)
    low = min(float(w[np.isfinite(w)].min(initial=0)) for w in panels.values()) if vmin is None else vmin
    high = max(float(w[np.isfinite(w)].max(initial=0)) for w in panels.values()) if vmax is None else vmax
    if low < 0 and vmin is None and vmax is None:
        low, high = -max(-low, high), max(-low, high)
    high = high if high > low else low + 1
    colour_map = "cividis" if low >= 0 else "PuOr"
    n_rows, n_columns = next(iter(panels.values())).shape
    cell = 0.42 if n_columns <= 12 else 6 / n_columns
    fig, axes = new(len(panels) * (cell * n_columns + 1.3) + 0.6, min(max(cell * n_rows, 0.8), 7) + 1.5, len(panels))
    for ax, (name, w) in zip(np.atleast_1d(axes), panels.items()):
        image = ax.imshow(w, cmap=colour_map, vmin=low, vmax=high, aspect="equal" if n_rows > 1 else "auto")
        ax.spines[:].set_visible(False)
        ax.set_title(name, fontsize=10, color=INK)
        _ticks(ax, rows, columns, w.shape)
        ax.set_xlabel(column_label, color=INK)
        ax.set_ylabel(row_label, color=INK)
        for i, j in np.ndindex(*w.shape):
            if allowed is not None and not np.broadcast_to(allowed, w.shape)[i, j]:
                ax.add_patch(rectangle(j - 0.5, i - 0.5, 1, 1, facecolor="white", hatch="///", edgecolor="#999999",
                                        linewidth=0))
            elif n_columns <= 12 and n_rows <= 16 and np.isfinite(w[i, j]):
                red, green, blue, _ = image.cmap(image.norm(w[i, j]))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
                ax.text(j, i, f"{w[i, j]:.{digits}f}", ha="center", va="center", fontsize=8,
                        color="white" if dark else "black")
    bar = fig.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    show(fig, alt or " ".join(_tell_matrix(n, w, rows, columns, row_label, column_label, digits, allowed)
                              for n, w in panels.items()), caption)


def _ticks(ax, rows, columns, shape) -> None:
    for labels, count, axis in ((rows, shape[0], ax.yaxis), (columns, shape[1], ax.xaxis)):
        if labels is not None:
            axis.set_ticks(range(count), [str(label) for label in labels])
        elif count <= 16:
            axis.set_ticks(range(count))
    if columns is not None and max(len(str(c)) for c in columns) > 3:
        ax.tick_params(axis="x", labelrotation=60)
    ax.tick_params(length=0)


def _tell_matrix(name, w, rows, columns, row_label, column_label, digits, allowed) -> str:
    head = f"{name + ': ' if name else ''}heat map, {w.shape[0]} x {w.shape[1]} ({row_label} x {column_label})."
    rows = [str(r) for r in (rows if rows is not None else range(w.shape[0]))]
    columns = [str(c) for c in (columns if columns is not None else range(w.shape[1]))]
    if len(rows) > 12:
        return head
    kept = np.where(np.isfinite(w) & (True if allowed is None else allowed), w, -np.inf)
    best = [f"{rows[i]} -> {columns[int(kept[i].argmax())]} ({w[i, int(kept[i].argmax())]:.{digits}f})"
            for i in range(len(rows)) if np.isfinite(kept[i]).any()]
    hidden = "" if allowed is None else f" {int((~np.broadcast_to(allowed, w.shape)).sum())} cells are masked."
    return f"{head} Largest of each {row_label}: {', '.join(best)}.{hidden}"


def bars(values: dict, *, caption: str, alt: str | None = None, unit: str = "", ceiling: float | None = None,
         ceiling_label: str = "limit", xlabel: str = "", log: bool = False) -> None:
    """Horizontal bars with their numbers, and a dashed line for the ceiling (or the least possible).

    values {"name": number}, or {"name": {"part": number, ...}} for groups of bars, one hatch a part.

        figures.bars({"naive": 8.0, "tiled": 1.0}, unit="MB", ceiling=0.5, ceiling_label="least", caption="Moved bytes.")
    """
    groups = {str(n): v if isinstance(v, dict) else {"": v} for n, v in values.items()}
    parts = list(dict.fromkeys(part for group in groups.values() for part in group))
    thick = 0.8 / len(parts)
    fig, ax = new(6.4, 0.8 + (0.34 * len(parts) + 0.12) * len(groups) + (0.3 if ceiling is not None else 0))
    for k, part in enumerate(parts):
        for i, group in enumerate(groups.values()):
            if part not in group:
                continue
            y = i + (k - (len(parts) - 1) / 2) * thick
            first = all(part not in earlier for earlier in list(groups.values())[:i])
            ax.barh(y, group[part], thick * 0.92, color=COLOURS[k % 8], hatch=HATCHES[k % 8], edgecolor="white",
                    linewidth=0, label=part if first else None)
            ax.annotate(f"{_number(group[part])} {unit}".strip(), (group[part], y), xytext=(4, 0),
                        textcoords="offset points", va="center", fontsize=8.5, color=INK)
    ax.set_yticks(range(len(groups)), groups)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    if log:
        ax.set_xscale("log")
    largest = max([v for g in groups.values() for v in g.values()] + ([ceiling] if ceiling is not None else []))
    smallest = min([v for g in groups.values() for v in g.values()] + [0])
    ax.set_xlim(right=largest * (3 if log else 1.18))
    if smallest < 0:
        ax.axvline(0, color=INK, linewidth=0.8)
    if ceiling is not None:
        ax.axvline(ceiling, color=INK, linestyle="--", linewidth=1.3)
        ax.annotate(f"{ceiling_label}: {_number(ceiling)} {unit}".strip(), (ceiling, 1),
                    xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
                    ha="right" if ceiling > 0.6 * largest else "left", va="bottom", fontsize=8.5, color=INK)
    ax.set_xlabel(xlabel or unit, color=INK)
    if parts != [""]:
        ax.legend(fontsize=8, frameon=False, loc="best")
    if alt is None:
        told = [f"{name}: " + ", ".join(f"{part} {_number(v)} {unit}".strip() for part, v in group.items())
                for name, group in groups.items()]
        line = "" if ceiling is None else f" Dashed line, {ceiling_label}: {_number(ceiling)} {unit}".rstrip() + "."
        alt = f"Bars. {'; '.join(told)}.{line}"
    show(fig, alt, caption)


def curves(series: dict, *, caption: str, alt: str | None = None, xlabel: str = "", ylabel: str = "", x=None,
           floor: float | None = None, floor_label: str = "floor", logx: bool = False, logy: bool = False,
           spread: dict | None = None) -> None:
    """Lines that differ in dash and marker as well as colour, each named at its end; a dashed floor.

    series {"name": ys} or {"name": (xs, ys)}; `x` is shared where only ys are given; `spread` {"name": (low, high)}
    shades a band. Give `alt` yourself where the numbers come from training: the one worked out here quotes the first
    and the last value.

        figures.curves({"model": losses}, floor=1.2, floor_label="entropy", xlabel="step", ylabel="loss", caption="...")
    """
    fig, ax = new(6.4, 3.6)
    told = []
    for k, (name, line) in enumerate(series.items()):
        if isinstance(line, tuple):
            xs, ys = map(_array, line)
        else:
            ys = _array(line)
            xs = np.arange(len(ys)) if x is None else _array(x)
        ax.plot(xs, ys, linestyle=DASHES[k % 8], marker=MARKERS[k % 8], markersize=4, markevery=max(1, len(xs) // 10),
                color=COLOURS[k % 8], linewidth=1.6, label=name)
        if spread and name in spread:
            ax.fill_between(xs, *map(_array, spread[name]), color=COLOURS[k % 8], alpha=0.18, linewidth=0)
        told.append(f"{name}: from {_number(ys[0])} at {_number(xs[0])} to {_number(ys[-1])} at {_number(xs[-1])}")
    if logx:
        ax.set_xscale("log", base=2 if _powers_of_two(series, x) else 10)
    if logy:
        ax.set_yscale("log")
    if floor is not None:
        ax.axhline(floor, color=INK, linestyle=(0, (6, 3)), linewidth=1.2)
        ax.annotate(f"{floor_label}: {_number(floor)}", (0.01, floor), xycoords=("axes fraction", "data"), xytext=(0, 3),
                    textcoords="offset points", fontsize=8.5, color=INK)
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    ax.grid(color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    if len(series) > 1:
        ax.legend(fontsize=8, frameon=False, handlelength=4)
    if alt is None:
        alt = f"Curves of {ylabel or 'y'} against {xlabel or 'x'}. {'; '.join(told)}." + (
            f" Dashed line, {floor_label}: {_number(floor)}." if floor is not None else "")
    show(fig, alt, caption)


def _powers_of_two(series, x) -> bool:
    first = next(iter(series.values()))
    xs = _array(first[0] if isinstance(first, tuple) else (x if x is not None else np.arange(len(first))))
    return bool(len(xs) and (xs > 0).all() and (np.log2(xs) % 1 == 0).all())


def tiles(kinds, *, names: dict, caption: str, alt: str | None = None, labels=None, row_label: str = "query tile",
          column_label: str = "key tile", outline=()) -> None:
    """A grid of tiles, each of one kind: colour, hatch and legend tell the kinds apart.

    kinds (rows, columns) of integers or strings; names {kind: "what it means"} in the order of the legend;
    `labels` (rows, columns) of short texts inside the tiles; `outline` a list of (row, column, height, width) drawn bold.

        figures.tiles(kinds, names={0: "skipped", 1: "whole", 2: "masked inside"}, caption="Half are never loaded.")
    """
    grid = _array(kinds)
    n_rows, n_columns = grid.shape
    cell = min(0.45, 6.0 / n_columns, 5.0 / n_rows)
    fig, ax = new(cell * n_columns + 3.0, cell * n_rows + 0.9)
    order = {kind: k for k, kind in enumerate(names)}
    for i, j in np.ndindex(n_rows, n_columns):
        kind = grid[i, j].item() if hasattr(grid[i, j], "item") else grid[i, j]
        if kind not in order:
            raise ValueError(f"tiles: kind {kind!r} at ({i}, {j}) has no entry in `names`, which knows {list(names)}")
        ax.add_patch(rectangle(j, i, 1, 1, **filling(order[kind])))
        if labels is not None and str(labels[i][j]):
            ax.text(j + 0.5, i + 0.5, str(labels[i][j]), ha="center", va="center", fontsize=8, color=INK, bbox=paper())
    for row, column, height, width in outline:
        ax.add_patch(rectangle(column, row, width, height, facecolor="none", edgecolor=INK, linewidth=2.4))
    _grid_axes(ax, n_rows, n_columns, row_label, column_label)
    _legend(fig, names.values())
    if alt is None:
        counts = ", ".join(f"{int((grid == kind).sum())} {meaning}" for kind, meaning in names.items())
        alt = f"Grid of {n_rows} by {n_columns} tiles ({row_label} by {column_label}): {counts}."
        if n_rows <= 8:
            alt += "".join(f" Row {i}: {', '.join(str(names[kind]) for kind in row)}."
                           for i, row in enumerate(grid.tolist()) if n_columns <= 8)
    show(fig, alt, caption)


def memory(rows: dict, *, caption: str, alt: str | None = None, owners: dict | None = None, arrows=(), wrap: int = 32,
           free: str = "free") -> None:
    """Memory as rows of cells: what lies where, and who owns it.

    rows {"name of the row": ["a0", "a1", "", "b0"]}: a cell's text, "" for free. The owner of a cell is its text up to
    the first digit ("a0" -> "a"), or what `owners` {"text": "owner"} says. `arrows` [(("row", i), ("row", j)), ...].

        figures.memory({"sequence a": ["a0", "a1"], "pool": ["a1", "", "b0", "a0"]},
                       arrows=[(("sequence a", 0), ("pool", 3))], caption="A block table points into one pool.")
    """
    def owner(text: str) -> str:
        if owners is not None:
            return owners.get(text, "")
        return text.rstrip("0123456789:.,") or text

    lines = []                              # (name, index of the first cell, cells)
    for name, cells in rows.items():
        cells = [str(c) for c in cells]
        lines += [(name, start, cells[start:start + wrap]) for start in range(0, max(len(cells), 1), wrap)]
    known = list(dict.fromkeys(owner(c) for _, _, cells in lines for c in cells if c))
    width = max(len(cells) for _, _, cells in lines)
    cell = min(0.62, 8.0 / width)
    step = 2.1 if arrows else 1.5
    tall = min(cell, 0.42)
    fig, ax = new(cell * width + 2.6, max(1.3, (step * len(lines)) * tall + 0.5))
    place = {}
    for y, (name, start, cells) in enumerate(lines):
        for j, text in enumerate(cells):
            empty = {"facecolor": "white", "edgecolor": "#999999", "linewidth": 0.8}
            ax.add_patch(rectangle(j, y * step, 1, 1, **(filling(known.index(owner(text))) if text else empty)))
            if text:
                ax.text(j + 0.5, y * step + 0.5, text, ha="center", va="center", fontsize=7.5, color=INK,
                        bbox=paper())
            place[name, start + j] = (j + 0.5, y * step)
        ax.text(-0.2, y * step + 0.5, name if start == 0 else f"+{start}", ha="right", va="center", fontsize=9, color=INK)
    for (from_row, i), (to_row, j) in arrows:
        (x0, y0), (x1, y1) = place[from_row, i], place[to_row, j]
        down = y1 >= y0
        ax.annotate("", (x1, y1 if down else y1 + 1), (x0, y0 + 1 if down else y0),
                    arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.0})
    ax.set_xlim(-0.1, width + 0.1)
    ax.set_ylim((len(lines) - 1) * step + 1.1, -0.1)
    ax.axis("off")
    if len(known) > 1:
        _legend(fig, known)
    if alt is None:
        alt = "Memory. " + " ".join(f"{name}: {', '.join(str(c) or free for c in cells)}." for name, cells in rows.items())
        if arrows:
            alt += " Arrows: " + ", ".join(f"{a} {i} to {b} {j}" for (a, i), (b, j) in arrows) + "."
    show(fig, alt, caption)


def boxes(places: dict, arrows=(), *, caption: str, alt: str | None = None, kinds: dict | None = None,
          width: float = 7.4, height: float = 3.6, file=None) -> None:
    """Named boxes and arrows: a pipeline, a memory hierarchy, a map.

    places {"text in the box": (x, y)}, y growing downwards, one unit a box; arrows [("from", "to"), ...], each with
    a label where a third text is given; kinds {"text in the box": "kind"} colours and hatches by kind, with a legend.

        figures.boxes({"HBM": (0, 0), "shared": (1, 0)}, arrows=[("HBM", "shared", "once a tile")], caption="...")
    """
    fig, ax = new(width, height)
    known = list(dict.fromkeys((kinds or {}).values()))
    w, h = 0.8, 0.56
    for name, (x, y) in places.items():
        look = filling(known.index(kinds[name])) if kinds and name in kinds else {"facecolor": "#f2f2f2", "edgecolor": INK}
        ax.add_patch(rectangle(x - w / 2, y - h / 2, w, h, **look))
        ax.text(x, y, name, ha="center", va="center", fontsize=8.5, color=INK, bbox=paper())
    for start, end, *label in arrows:
        (x0, y0), (x1, y1) = places[start], places[end]
        a, b = _edge(x0, y0, x1, y1, w / 2, h / 2), _edge(x1, y1, x0, y0, w / 2, h / 2)
        ax.annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 1, "shrinkB": 1})
        if label:
            ax.text((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, label[0], ha="center", va="center", fontsize=8, color=INK,
                    bbox=paper())
    xs, ys = zip(*places.values())
    ax.set_xlim(min(xs) - 0.5, max(xs) + 0.5)
    ax.set_ylim(max(ys) + 0.45, min(ys) - 0.45)
    ax.axis("off")
    if len(known) > 1:
        _legend(fig, known, below=True)
    if alt is None:
        flat = {name: " ".join(name.split()) for name in places}
        told = ", ".join(flat[n] + (f" ({kinds[n]})" if kinds and n in kinds else "") for n in places)
        ways = "; ".join(f"{flat[a]} to {flat[b]}" + (f" ({label[0]})" if label else "") for a, b, *label in arrows)
        alt = f"Boxes: {told}." + (f" Arrows: {ways}." if ways else "")
    show(fig, alt, caption, file)


CHAPTERS = {  # chapter: (title, column, row, the chapters it builds on)
    1: ("attention", 1, 1, ()), 2: ("rotary\npositions", 2, 0, (1,)), 3: ("grouped\nqueries", 3, 1, (2,)),
    4: ("linear\nattention", 2, 3, (1,)), 5: ("sparse\nattention", 4, 2, (3,)), 6: ("flash\nattention", 4, 0, (3,)),
    7: ("KV cache", 5, 1, (6,)), 8: ("paged\nattention", 6, 1, (7,)), 9: ("W2\nattention", 5, 0, (6,)),
    10: ("language\nmodel", 6, 0, (8,)), 11: ("field\nguide", 6, 3, (4, 5, 7)),
}


def chapter_map(caption: str = "An arrow says what a chapter builds on; the numbers are a good order.",
                file=None) -> None:
    """The map of the course: `figures.chapter_map()`; `file` saves it instead, as in the README."""
    idea = {1: "the definition", 2: "positions", 3: "less to remember", 4: "less to compute", 5: "less to compute",
            6: "less to move", 7: "less to remember", 8: "less to remember", 9: "another geometry", 10: "all together",
            11: "all together"}
    text = {0: "0\nstart here"} | {n: f"{n}\n{title}" for n, (title, *_) in CHAPTERS.items()}
    places = {text[0]: (0, 1)} | {text[n]: (column, row) for n, (_, column, row, _) in CHAPTERS.items()}
    arrows = [(text[0], text[1])] + [(text[b], text[n]) for n, (*_, builds_on) in CHAPTERS.items() for b in builds_on]
    kinds = {text[n]: idea[n] for n in CHAPTERS}
    boxes(places, arrows, caption=caption, kinds=kinds, width=8.4, height=5.0, file=file)


def rectangle(x, y, width, height, **look):
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, **look)


def filling(k: int) -> dict:
    """Light fill, dark hatch: text stays readable on it, and the hatch tells kinds apart without colour."""
    from matplotlib.colors import to_rgb

    colour = np.array(to_rgb(COLOURS[k % 8]))
    return {"facecolor": tuple(0.55 * colour + 0.45), "edgecolor": tuple(0.6 * colour), "linewidth": 0.8,
            "hatch": HATCHES[k % 8] * (1 + k // 8)}


def paper() -> dict:
    """What a label stands on, so that it can be read over a hatch."""
    return {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def _edge(x0, y0, x1, y1, half_width, half_height):
    """Where the line from the centre (x0, y0) to (x1, y1) leaves the box around (x0, y0)."""
    dx, dy = x1 - x0, y1 - y0
    t = min(half_width / abs(dx) if dx else np.inf, half_height / abs(dy) if dy else np.inf)
    return x0 + t * dx, y0 + t * dy


def _grid_axes(ax, n_rows, n_columns, row_label, column_label) -> None:
    ax.set_xlim(0, n_columns)
    ax.set_ylim(n_rows, 0)
    ax.set_aspect("equal")
    for axis, count in ((ax.xaxis, n_columns), (ax.yaxis, n_rows)):
        every = max(1, count // 8)
        axis.set_ticks(np.arange(0, count, every) + 0.5, range(0, count, every))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(column_label, color=INK)
    ax.set_ylabel(row_label, color=INK)


def _legend(fig, names, below: bool = False) -> None:
    patches = [rectangle(0, 0, 1, 1, label=str(name), **filling(k)) for k, name in enumerate(names)]
    if below:
        where = {"loc": "outside lower center", "ncols": min(4, len(patches))}
    else:
        where = {"loc": "outside right upper"}
    fig.legend(handles=patches, fontsize=8, frameon=False, handleheight=1.4, **where)
