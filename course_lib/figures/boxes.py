"""Boxes and arrows, and the map of the chapters."""
import numpy as np

from course_lib.figures.frame import INK, filling, legend, new, paper, rectangle, show


def boxes(places: dict, arrows=(), *, caption: str, alt: str | None = None, kinds: dict | None = None,
          width: float = 7.4, height: float = 3.6, file=None) -> None:
    """Named boxes and arrows: a pipeline, a memory hierarchy, a map.

    places {"text in the box": (x, y)}, y growing downwards, one unit per box; arrows [("from", "to"), ...],
    each with a label where a third text is given; kinds {"text in the box": "kind"} fill, with a legend.

        figures.boxes({"HBM": (0, 0), "shared": (1, 0)}, arrows=[("HBM", "shared", "once per tile")],
                      caption="...")"""
    fig, ax = new(width, height)
    known, w, h = list(dict.fromkeys((kinds or {}).values())), 0.8, 0.56
    for name, (x, y) in places.items():
        look = (filling(known.index(kinds[name])) if kinds and name in kinds
                else {"facecolor": "#f2f2f2", "edgecolor": INK})
        band = 0.12 * w if look.get("hatch") else 0         # the hatch beside the letters, not under them
        ax.add_patch(rectangle(x - w / 2, y - h / 2, w, h, **look | {"hatch": ""}))
        ax.add_patch(rectangle(x - w / 2, y - h / 2, band, h, **look))
        ax.text(x + band / 2, y, name, ha="center", va="center", fontsize=8.5, color=INK)
    for start, end, *label in arrows:
        (x0, y0), (x1, y1) = places[start], places[end]
        a, b = _edge(x0, y0, x1, y1, w / 2, h / 2), _edge(x1, y1, x0, y0, w / 2, h / 2)
        ax.annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 1, "shrinkB": 1})
        if label:
            ax.text((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, label[0], ha="center", va="center", fontsize=8,
                    color=INK, bbox=paper())
    xs, ys = zip(*places.values())
    ax.set_xlim(min(xs) - 0.5, max(xs) + 0.5)
    ax.set_ylim(max(ys) + 0.45, min(ys) - 0.45)
    ax.axis("off")
    if len(known) > 1:
        legend(fig, known, below=True)
    if alt is None:
        flat = {name: " ".join(name.split()) for name in places}
        told = ", ".join(flat[n] + (f" ({kinds[n]})" if kinds and n in kinds else "") for n in places)
        ways = "; ".join(f"{flat[a]} to {flat[b]}" + (f" ({label[0]})" if label else "")
                         for a, b, *label in arrows)
        alt = f"Boxes: {told}." + (f" Arrows: {ways}." if ways else "")
    show(fig, alt, caption, file)


CHAPTERS = {  # chapter: (title, column, row, the chapters it builds on)
    1: ("attention", 1, 1, ()), 2: ("rotary\npositions", 2, 0, (1,)), 3: ("grouped\nqueries", 3, 1, (2,)),
    4: ("linear\nattention", 2, 3, (1,)), 5: ("sparse\nattention", 4, 2, (3,)),
    6: ("flash\nattention", 4, 0, (3,)),
    7: ("KV cache", 5, 1, (6,)), 8: ("paged\nattention", 6, 1, (7,)), 9: ("W2\nattention", 5, 0, (6,)),
    10: ("language\nmodel", 6, 0, (8,)), 11: ("field\nguide", 6, 3, (4, 5, 7)),
    12: ("asynchrony", 4, 1, (6,))}


def chapter_map(caption: str = "An arrow says what a chapter builds on; the numbers are a good order.",
                file=None) -> None:
    """The map of the course: `figures.chapter_map()`; `file` saves it instead, as in the README."""
    idea = {1: "the definition", 2: "positions", 3: "less to remember", 4: "less to compute",
            5: "less to compute", 6: "less to move", 7: "less to remember", 8: "less to remember",
            9: "another geometry", 10: "all together", 11: "all together", 12: "less to wait for"}
    text = {0: "0\nstart here"} | {n: f"{n}\n{title}" for n, (title, *_) in CHAPTERS.items()}
    places = {text[0]: (0, 1)} | {text[n]: (column, row) for n, (_, column, row, _) in CHAPTERS.items()}
    arrows = [(text[0], text[1])] + [(text[b], text[n]) for n, (*_, builds_on) in CHAPTERS.items()
                                     for b in builds_on]
    kinds = {text[n]: idea[n] for n in CHAPTERS}
    boxes(places, arrows, caption=caption, kinds=kinds, width=8.4, height=5.0, file=file)


def _edge(x0, y0, x1, y1, half_width, half_height):
    """Where the line from the centre (x0, y0) to (x1, y1) leaves the box around (x0, y0)."""
    dx, dy = x1 - x0, y1 - y0
    t = min(half_width / abs(dx) if dx else np.inf, half_height / abs(dy) if dy else np.inf)
    return x0 + t * dx, y0 + t * dy
