"""A matrix of weights with its tokens."""
import numpy as np

from course_lib.figures.frame import COLOURS, INK, array, new, rectangle, show


def heatmap(weights, rows=None, columns=None, *, caption: str, alt: str | None = None,
            title: str | None = None, row_label: str = "query", column_label: str = "key", mask=None,
            digits: int = 2, vmin=None, vmax=None, marks=()) -> None:
    """A matrix of weights with its tokens; several side by side from a dict.

    weights (rows, columns), or {"title": (rows, columns), ...}; `mask` (same shape, True = may attend) hatches
    what is forbidden. `marks` outlines cells, [(row, column), ...], or the largest of each row:
    marks="largest". Up to 12 cells per row carry their number. Negative values get a two-sided colour scale.

        figures.heatmap(w, rows=words, columns=words, caption="'it' looks at 'cat'.")"""
    panels = weights if isinstance(weights, dict) else {title or "": weights}
    panels = {name: np.atleast_2d(array(w)) for name, w in panels.items()}
    allowed = None if mask is None else array(mask).astype(bool)
    low, high = _range(panels.values(), vmin, vmax)
    colour_map = "Blues" if low >= 0 else "PuOr"        # nothing is the colour of the paper, in either theme
    n_rows, n_columns = next(iter(panels.values())).shape
    cell = 0.42 if n_columns <= 12 else 4.8 / n_columns
    fig, axes = new(len(panels) * (cell * n_columns + 1.3) + 0.6, min(max(cell * n_rows, 0.8), 7) + 1.5,
                    len(panels))
    for ax, (name, w) in zip(np.atleast_1d(axes), panels.items()):
        image = ax.imshow(w, cmap=colour_map, vmin=low, vmax=high, aspect="equal" if n_rows > 1 else "auto",
                          interpolation="none")
        ax.spines[:].set_visible(False)
        ax.set_title(name, fontsize=10, color=INK)
        _ticks(ax, rows, columns, w.shape)
        ax.set_xlabel(column_label, color=INK)
        ax.set_ylabel(row_label, color=INK)
        _cells(ax, image, w, allowed, digits)
        for i, j in enumerate(_seen(w, allowed).argmax(1)) if marks == "largest" else marks:
            ax.add_patch(rectangle(j - 0.5, i - 0.5, 1, 1, fill=False, edgecolor=COLOURS[5], linewidth=2))
    bar = fig.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    told = [_tell_matrix(n, w, rows, columns, row_label, column_label, digits, allowed)
            for n, w in panels.items()]
    if marks and marks != "largest":
        told.append(f"Outlined ({row_label}, {column_label}): {', '.join(str(tuple(m)) for m in marks)}.")
    show(fig, alt or " ".join(told), caption)


def _range(panels, vmin, vmax) -> tuple[float, float]:
    """The ends of the colour scale: around 0 where values are negative and no end is given."""
    low = min(float(w[np.isfinite(w)].min(initial=0)) for w in panels) if vmin is None else vmin
    high = max(float(w[np.isfinite(w)].max(initial=0)) for w in panels) if vmax is None else vmax
    if low < 0 and vmin is None and vmax is None:
        low, high = -max(-low, high), max(-low, high)
    return low, high if high > low else low + 1


def _cells(ax, image, w, allowed, digits) -> None:
    """Hatch what is masked; print the number where there is room."""
    with_numbers = w.shape[1] <= 12 and w.shape[0] <= 16
    for i, j in np.ndindex(*w.shape):
        if allowed is not None and not np.broadcast_to(allowed, w.shape)[i, j]:
            ax.add_patch(rectangle(j - 0.5, i - 0.5, 1, 1, facecolor="white", hatch="///",
                                   edgecolor="#999999", linewidth=0))
        elif with_numbers and np.isfinite(w[i, j]):
            red, green, blue, _ = image.cmap(image.norm(w[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            ax.text(j, i, f"{w[i, j]:.{digits}f}", ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")


def _ticks(ax, rows, columns, shape) -> None:
    for labels, count, axis in ((rows, shape[0], ax.yaxis), (columns, shape[1], ax.xaxis)):
        if labels is not None:
            axis.set_ticks(range(count), [str(label) for label in labels])
        elif count <= 16:
            axis.set_ticks(range(count))
    if columns is not None and max(len(str(c)) for c in columns) > 3:
        ax.tick_params(axis="x", labelrotation=60)
    ax.tick_params(length=0)


def _seen(w, allowed):
    """The weights, -inf where none is shown."""
    return np.where(np.isfinite(w) & (True if allowed is None else allowed), w, -np.inf)


def _tell_matrix(name, w, rows, columns, row_label, column_label, digits, allowed) -> str:
    head = (f"{name + ': ' if name else ''}heat map, {w.shape[0]} x {w.shape[1]} ({row_label} x "
            f"{column_label}).")
    rows = [str(r) for r in (rows if rows is not None else range(w.shape[0]))]
    columns = [str(c) for c in (columns if columns is not None else range(w.shape[1]))]
    kept = _seen(w, allowed)
    top = [(i, int(kept[i].argmax())) for i in range(len(rows)) if np.isfinite(kept[i]).any()]
    best = [f"{rows[i]} -> {columns[j]} ({w[i, j]:.{digits}f})" for i, j in top]
    hidden = ("" if allowed is None
              else f" {int((~np.broadcast_to(allowed, w.shape)).sum())} cells are masked.")
    if len(rows) > 12:
        return (f"{head} The largest of each {row_label} is, counted from 0, at {column_label} "
                f"{', '.join(str(j) for _, j in top)}.{hidden}")
    return f"{head} Largest of each {row_label}: {', '.join(best)}.{hidden}"
