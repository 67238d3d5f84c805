"""A figure laid out anew for a phone: as narrow as one, with letters that can be read there.

Letters keep 9 px, so that beside the narrower drawing they are larger than in the wide one; pictures side by
side go under one another where that is needed. Whether every letter has its place is asked of their boxes: no
text may leave the sheet, meet another one or leave the shape around it, unless it does so in the wide
figure."""
import textwrap
import warnings

from course_lib.figures.vector import svg

WIDTH = 346                     # pixels: a page of 390 without its margins
LETTER = 9.05                   # pixels of the smallest
SHRUNK = 0.65                   # letters, lines and markers, of their size in the wide figure
GROWTHS = (1, 1.25, 1.6, 2)
LEAST_COLUMN, LOW = 90, 50      # pixels: of one picture beside others, of the height of one with axes


def narrowed(fig, dpi: int) -> str | None:
    """The drawing as SVG, or None where its letters find no room. `fig` changes: draw the wide one before."""
    fig.set_layout_engine("constrained")
    allowed = _faults(fig)
    width, height = fig.get_size_inches()
    columns, rows = _grid(fig)
    _shrink(fig, LETTER * 72 / dpi)
    for beside in (n for n in range(columns, 0, -1) if n == 1 or WIDTH / n >= LEAST_COLUMN):
        under = _regrid(fig, beside) if beside < columns else rows
        row = height / rows * (WIDTH / dpi / beside) / (width / columns)
        for growth in GROWTHS:
            fig.set_size_inches(WIDTH / dpi, under * row * growth)
            _break_names(fig, WIDTH / beside, row * growth * dpi)
            if not _faults(fig) - allowed:
                return svg(fig, dpi)
    return None


def _grid(fig) -> tuple[int, int]:
    """Columns and rows of pictures that may change places; 1 and 1 where something belongs to one of them."""
    grids = {spec and spec.get_gridspec() for spec in (ax.get_subplotspec() for ax in fig.axes)}
    grid = grids.pop() if len(grids) == 1 else None
    return (grid.ncols, grid.nrows) if grid and len(fig.axes) == grid.ncols * grid.nrows else (1, 1)


def _regrid(fig, columns: int) -> int:
    """Put the pictures into so many columns; the rows that this makes."""
    rows = -(-len(fig.axes) // columns)
    grid = fig.add_gridspec(rows, columns)
    for ax, place in zip(fig.axes, grid):
        ax.set_subplotspec(place)
    return rows


def _shrink(fig, least: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    for text in fig.findobj(Text):
        text.set_fontsize(max(least, SHRUNK * text.get_fontsize()))
        if getattr(text, "anncoords", None) == "offset points":
            text.xyann = tuple(SHRUNK * x for x in text.xyann)
    for line in fig.findobj(Line2D):
        line.set(linewidth=SHRUNK * line.get_linewidth(), markersize=SHRUNK * line.get_markersize())
    for patch in fig.findobj(Patch):
        patch.set_linewidth(SHRUNK * patch.get_linewidth())
    _names_below(fig)


def _names_below(fig) -> None:
    """One legend under the pictures in place of those beside or inside them."""
    legends = [*fig.legends, *filter(None, (ax.get_legend() for ax in fig.axes))]
    named = {name.get_text(): handle for legend in legends
             for name, handle in zip(legend.get_texts(), legend.legend_handles)}
    for legend in legends:
        legend.remove()
    if named:
        fig.legend(named.values(), named, loc="outside lower center", fontsize=LETTER * 72 / fig.dpi,
                   frameon=False, ncols=1 if max(map(len, named)) > 22 else 2, handleheight=1.4)


def _break_names(fig, width: float, height: float) -> None:
    """Names of pictures and axes in two lines where they are longer than what they name."""
    for ax in fig.axes:
        for name, room in ((ax.title, width), (ax.xaxis.label, 0.75 * width), (ax.yaxis.label, height)):
            text = " ".join(name.get_text().split())
            if "$" not in text:
                name.set_text(textwrap.fill(text, max(8, int(room / (0.6 * LETTER)))))


def _faults(fig) -> set[tuple[str, ...]]:
    """The texts that leave the sheet, that meet, that a line crosses or that leave the shape around their
    middle; pictures that are too low."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)        # of no room at all, which is one of the faults
        fig.draw_without_rendering()
    texts = [(text, ax, text.get_tightbbox()) for text, ax in _texts(fig)]
    found = {("outside", text.get_text()) for text, _, box in texts
             if min(box.min) < -1 or box.x1 > fig.bbox.width + 1 or box.y1 > fig.bbox.height + 1}
    for n, (a, _, box) in enumerate(texts):
        found |= {("meet", a.get_text(), b.get_text()) for b, _, other in texts[n + 1:]
                  if min(box.x1, other.x1) - max(box.x0, other.x0) > 1
                  and min(box.y1, other.y1) - max(box.y0, other.y0) > 2}
    found |= {("low", ax.get_label()) for ax in fig.axes if ax.axison and ax.bbox.height < LOW}
    found |= {("crossed", text.get_text()) for text, ax, box in texts if ax and _crossed(ax, box.padded(-2))}
    shapes = {ax: [shape.get_window_extent() for shape in ax.patches] for ax in fig.axes}
    for text, ax, box in texts:
        x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        around = [s for s in shapes.get(ax, ())
                  if s.x0 <= x <= s.x1 and s.y0 <= y <= s.y1 and min(s.size) > 3]
        if around:
            s = min(around, key=lambda shape: shape.width * shape.height)
            if box.x0 < s.x0 - 1 or box.x1 > s.x1 + 1 or box.y0 < s.y0 - 2 or box.y1 > s.y1 + 2:
                found.add(("leaves its shape", text.get_text()))
    return found


def _crossed(ax, box) -> bool:
    return any(line.get_path().transformed(line.get_transform()).intersects_bbox(box, filled=False)
               for line in ax.lines)


def _texts(fig):
    """(text, its axes or None) of all that is shown."""
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            low, high = sorted(axis.get_view_interval())
            yield from ((tick, None) for at, tick in zip(axis.get_majorticklocs(), axis.get_majorticklabels())
                        if low <= at <= high and tick.get_text())
            yield from ((name, None) for name in (axis.label,) if name.get_text())
        yield from ((text, ax) for text in (*ax.texts, ax.title) if text.get_text().strip())
    for legend in (*fig.legends, *filter(None, (ax.get_legend() for ax in fig.axes))):
        yield from ((text, None) for text in legend.get_texts())
