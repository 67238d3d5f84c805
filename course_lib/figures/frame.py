"""The sheet that every figure is drawn on, and how it is shown with its text alternative."""
import io
import os
import textwrap

import numpy as np

from course_lib.figures.narrow import narrowed
from course_lib.figures.vector import svg

# Okabe and Ito's palette, in an order whose neighbours also differ in lightness.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D1F", "#666666"]
HATCHES = ["", "//", "..", "xx", "\\\\", "++", "oo", "--"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 3)), (0, (1, 3))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
INK = "#222222"
LARGEST = 10                            # points, of a letter
DPI = 110
COLOURS_KEPT = 256


def new(width: float = 6.4, height: float = 3.6, columns: int = 1, rows: int = 1):
    """A figure and its axes: `fig, ax = figures.new()`, or `fig, (left, right) = figures.new(columns=2)`."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")
    axes = fig.subplots(rows, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_prop_cycle(color=COLOURS)
        ax.tick_params(colors=INK, labelsize=9)
    return fig, axes


def plain(ax, **settings) -> None:
    """A drawing in coordinates of its own, `figures.plain(ax, xlim=(0, 9), ylim=(3, 0))`: no axes are shown."""
    ax.set(**settings)
    ax.axis("off")


def show(fig, alt: str, caption: str, file=None) -> None:
    """Show any matplotlib figure, as in `figures.show(fig, alt="Loss falls to 1.4.", caption="Training.")`.

    The picture carries `alt` as its plain-text form, so a terminal prints it and the test suite compares it
    (never the pixels). JupyterLab gives pictures no alternative text of its own, so it is also shown under
    the caption, folded. With `file` it is only saved.

    The output is a PNG, which every viewer shows. Its metadata hold the same picture as SVG: the course's
    JupyterLab and the book show that one (a notebook that nobody has trusted may hold no SVG of its own).
    `python -m course_lib run` sets COURSE_NARROW: the book's page on a phone shows a third drawing."""
    if not alt or not alt.strip():
        raise ValueError("show: `alt` is empty; say in words what the figure shows")
    if not caption or not caption.strip():
        raise ValueError("show: `caption` is empty; say in one sentence what the figure says")
    alt, caption = " ".join(alt.split()), " ".join(caption.split())
    _legible(fig)
    for ax in fig.axes:
        ax.title.set(fontsize=min(LARGEST, ax.title.get_fontsize()), color=INK)
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
    about = {"alt": alt, "svg": svg(fig, DPI)}
    if os.environ.get("COURSE_NARROW") and (drawn := narrowed(fig, DPI)):
        about["narrow"] = drawn
    display({"image/png": fewer_colours(picture), "text/plain": alt}, metadata={"image/png": about}, raw=True)
    display({"text/markdown": f"*{caption}*\n\n<details><summary>In words</summary>\n\n{alt}\n\n</details>",
             "text/plain": f"Figure: {caption}"}, raw=True)


def _legible(fig) -> None:
    """Letters of at least 9 px where the picture is 700 px wide."""
    from matplotlib.text import Text

    least = 9.05 * 72 / DPI * max(1, fig.get_figwidth() * DPI / 700)
    for text in fig.findobj(lambda part: isinstance(part, Text) and part.get_fontsize() < least):
        text.set_fontsize(least)


def fewer_colours(picture: io.BytesIO) -> bytes:
    """The PNG with a palette: a third of its bytes, and to the eye the same."""
    from PIL import Image

    small = io.BytesIO()
    Image.open(picture).convert("RGB").quantize(COLOURS_KEPT, Image.Quantize.MAXCOVERAGE).save(small, "png")
    return small.getvalue()


def _forget(fig) -> None:
    """A figure made through pyplot would be shown a second time at the end of the cell."""
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(fig)


def array(values) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    return np.asarray(values)


def number(x: float) -> str:
    """4 significant digits at most, no trailing zeros: 1234567 -> 1.235e+06, 0.25 -> 0.25, 12 -> 12."""
    x = float(x)
    return f"{x:,.0f}" if abs(x) < 1e6 and x == round(x) else f"{x:.4g}"


def plain_ticks(*axes) -> None:
    """Numbers as they are said: 20,000 for 20000, and 0.4 for 4 x 10^-1 on a log scale of few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in axes:
        low, high = sorted(map(abs, axis.get_view_interval()))
        if axis.get_scale() == "log":
            if low < 1e-3 or high > 1e6:
                continue
            if high < 30 * low and axis.get_major_locator()._base == 10:
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
        elif high < 10_000:
            continue
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def rectangle(x, y, width, height, **look):
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, **look)


def box(ax, x, y, width, height, colour, text="", *, edge=INK, line=0.7, size=8, ink=INK, **look) -> None:
    """A rectangle with a text in its middle."""
    ax.add_patch(rectangle(x, y, width, height, facecolor=colour, edgecolor=edge, linewidth=line, **look))
    if text:
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color=ink)


def arrow(ax, start, end, colour="#666666", width=None) -> None:
    """A thin arrow; without a width, of matplotlib's own."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": width})


def filling(k: int) -> dict:
    """Light fill, dark hatch: text stays readable on it, and the hatch tells kinds apart without colour."""
    from matplotlib.colors import to_rgb

    colour = np.array(to_rgb(COLOURS[k % 8]))
    return {"facecolor": tuple(0.35 * colour + 0.65), "edgecolor": tuple(0.6 * colour), "linewidth": 0.8,
            "hatch": HATCHES[k % 8] * (1 + k // 8)}


def paper() -> dict:
    """The ground of a label, so that it can be read over a hatch."""
    return {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def legend(fig, names, below: bool = False, looks=None) -> None:
    """A patch per name, with the fillings in their order unless `looks` gives others."""
    looks = [filling(k) for k, _ in enumerate(names)] if looks is None else looks
    patches = [rectangle(0, 0, 1, 1, label=str(name), **look) for name, look in zip(names, looks)]
    if below:
        where = {"loc": "outside lower center", "ncols": min(4, len(patches))}
    else:
        where = {"loc": "outside right upper"}
    fig.legend(handles=patches, fontsize=8, frameon=False, handleheight=1.4, **where)
