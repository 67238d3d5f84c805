"""A small drawing kit: pictures as SVG text, in the colours of the light or the dark theme.

    canvas = Canvas(700, 120)
    canvas.rect(10, 10, 40, 20, fill="accent", text="7", about="sector 7")
    canvas.arrow(50, 20, 90, 20)
    canvas.svg("A sector and an arrow.")

Colours have names: `ink` and `faint` for text and lines; `empty`, `soft`, `accent` and `warn` as fills;
"0" to "7" are kinds, in the palette of Okabe and Ito, light enough that text can be read on them. `shade`
(0 to 1) makes a fill as strong as a number. What `about` says appears under the pointer.

Pictures that move, that answer a pointer or that must be drawn where matplotlib is not installed (players,
explorers, the engine's own) are drawn with this. Charts with axes, which stand still in a notebook, a book or
on paper, are drawn by the course's `figures` with matplotlib.

A mark can be used as a control: `set={"head": 3}` changes the state when it is clicked or reached by Tab and
pressed, `hover=True` when the pointer enters it, and `drag="name"` makes it the handle of a draggable point;
the handle moves to where a mark with `place="name"` is pressed."""
import html
import json
import math

KINDS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D1F", "#666666")
LIGHT = {"ground": "#ffffff", "ink": "#222222", "faint": "#767676", "line": "#b5b5b5", "empty": "#ffffff",
         "soft": "#ececec", "accent": "#ffb000", "warn": "#e8506a", "focus": "#0060c0"}
DARK = {"ground": "#17191c", "ink": "#e8e8e8", "faint": "#9a9a9a", "line": "#5c6066", "empty": "#17191c",
        "soft": "#303439", "accent": "#b87900", "warn": "#b03050", "focus": "#6cb6ff"}


def _mixed(colour: str, ground: str, share: float) -> str:
    """`share` of a colour on a ground."""
    pairs = zip(*(bytes.fromhex(c[1:]) for c in (colour, ground)))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def _variables(theme: dict, share: float) -> str:
    kinds = {str(n): _mixed(colour, theme["ground"], share) for n, colour in enumerate(KINDS)}
    return "".join(f"--lc-{name}:{colour};" for name, colour in (theme | kinds).items())


def style() -> str:
    """The style of every picture: light, dark where the reader prefers it, and as `data-theme` says."""
    light, dark = _variables(LIGHT, 0.5), _variables(DARK, 0.62)
    names = [*LIGHT, *map(str, range(len(KINDS)))]
    return (f"svg.lc,.lc-root{{{light}}}"
            f"@media(prefers-color-scheme:dark){{svg.lc,.lc-root{{{dark}}}}}"
            f".lc-root[data-theme=light],.lc-root[data-theme=light] svg.lc{{{light}}}"
            f".lc-root[data-theme=dark],.lc-root[data-theme=dark] svg.lc{{{dark}}}"
            "svg.lc{font-family:system-ui,sans-serif}svg.lc .code{font-family:ui-monospace,monospace}"
            + "".join(f".lc-f-{name}{{fill:var(--lc-{name})}}" for name in names)
            + "".join(f".lc-s-{name}{{stroke:var(--lc-{name})}}" for name in names))


class Canvas:
    """Marks on a sheet of `width` by `height` units, a unit being a pixel where the page is wide enough."""

    def __init__(self, width: float, height: float):
        self.width, self.height = width, height
        self.marks: list[str] = []

    def rect(self, x, y, width, height, *, fill="empty", stroke="line", thick=1, text="", size=11, shade=None,
             about="", round=0, **control):
        """A rectangle, with a text in its middle."""
        look = _look(fill, stroke, thick, shade) + (f' rx="{_n(round)}"' if round else "")
        self._mark(f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"{look}', about,
                   control)
        if str(text):
            self.text(x + width / 2, y + height / 2 + 0.35 * size, text, size=size, anchor="middle")

    def frames(self, places, width, height, *, fill=None, stroke="line", thick=1, shade=None):
        """Many equal rectangles as one mark, at places [(x, y), ...]."""
        path = "".join(f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z" for x, y in places)
        self.marks.append(f'<path d="{path}"{_look(fill, stroke, thick, shade)}/>')

    def circle(self, x, y, radius, *, fill="empty", stroke="ink", thick=1, shade=None, about="", **control):
        look = _look(fill, stroke, thick, shade)
        self._mark(f'circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"{look}', about, control)

    def text(self, x, y, text, *, size=12, anchor="start", fill="ink", bold=False, code=False):
        """A text whose base line is at y; `anchor` start, middle or end."""
        look = f' text-anchor="{anchor}"' if anchor != "start" else ""
        look += ' font-weight="600"' if bold else ""
        names = f"lc-f-{fill}" + (" code" if code else "")
        self.marks.append(f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" class="{names}"{look} '
                          f'pointer-events="none">{html.escape(str(text))}</text>')

    def line(self, x0, y0, x1, y1, *, stroke="ink", thick=1, dash=""):
        self.curve([(x0, y0), (x1, y1)], stroke=stroke, thick=thick, dash=dash)

    def curve(self, points, *, stroke="ink", thick=1.5, dash="", fill=None, shade=None):
        """A line through points; `fill` makes it an area."""
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) + ("Z" if fill else "")
        look = _look(fill, stroke, thick, shade) + (f' stroke-dasharray="{dash}"' if dash else "")
        self.marks.append(f'<path d="{path}"{look}/>')

    def arrow(self, x0, y0, x1, y1, *, stroke="ink", thick=1.2, head=7):
        """A line with a head at its end."""
        length = math.hypot(x1 - x0, y1 - y0) or 1
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        bx, by, half = x1 - head * ux, y1 - head * uy, head / 2.4
        self.line(x0, y0, bx, by, stroke=stroke, thick=thick)
        self.curve([(x1, y1), (bx - half * uy, by + half * ux), (bx + half * uy, by - half * ux)],
                   stroke=stroke, thick=0.5, fill=stroke)

    def grid(self, x, y, cells, cell=22, *, height=None, size=11):
        """Rows of cells: each a dict of `rect`'s arguments, or None for a gap."""
        height = height or cell
        for i, row in enumerate(cells):
            for j, look in enumerate(row):
                if look is not None:
                    self.rect(x + j * cell, y + i * height, cell, height, **{"size": size} | look)

    def axes(self, box, xs, ys, *, xlabel="", ylabel="", ticks=4):
        """Axes around `box` (left, top, width, height) for `xs` and `ys`; returns (x, y) -> place there."""
        left, top, width, height = box
        (x0, x1), (y0, y1) = xs, ys

        def place(x, y):
            return left + width * (x - x0) / (x1 - x0), top + height * (y1 - y) / (y1 - y0)

        self.line(left, top + height, left + width, top + height, stroke="faint")
        self.line(left, top, left, top + height, stroke="faint")
        for n in range(ticks + 1):
            x, y = x0 + (x1 - x0) * n / ticks, y0 + (y1 - y0) * n / ticks
            self.text(place(x, y0)[0], top + height + 15, f"{x:.3g}", size=11, anchor="middle", fill="faint")
            self.text(left - 6, place(x0, y)[1] + 4, f"{y:.3g}", size=11, anchor="end", fill="faint")
        self.text(left + width / 2, top + height + 31, xlabel, anchor="middle")
        self.text(left, top - 8, ylabel)
        return place

    def svg(self, words: str = "", *, alone: bool = False) -> str:
        """The picture; `alone`, it carries its style and its ground, as a file must."""
        ground = f'<rect width="{_n(self.width)}" height="{_n(self.height)}" rx="6" class="lc-f-ground"/>'
        label = html.escape(" ".join(words.split()), quote=True)
        role = "group" if not alone and any("tabindex" in mark for mark in self.marks) else "img"
        return (f'<svg xmlns="http://www.w3.org/2000/svg" class="lc" viewBox="0 0 {_n(self.width)} '
                f'{_n(self.height)}" width="{_n(self.width)}" role="{role}" aria-label="{label}">'
                + (f"<style>{style()}</style>{ground}" if alone else "") + "".join(self.marks) + "</svg>")

    def _mark(self, tag: str, about: str, control: dict) -> None:
        inside = f"<title>{html.escape(about)}</title>" if about else ""
        self.marks.append(f"<{tag}{_control(about, **control)}>{inside}</{tag.split()[0]}>" if inside
                          else f"<{tag}{_control(about, **control)}/>")


def _control(about: str, set: dict | None = None, hover: bool = False, drag: str = "", place: str = "") -> str:
    """The attributes by which the front end knows a mark as a control."""
    label = html.escape(about, quote=True)
    if drag:
        return f' data-drag="{html.escape(drag, quote=True)}" tabindex="0" aria-label="{label}"'
    if set is None:
        return f' data-place="{html.escape(place, quote=True)}"' if place else ""
    return (f' data-set="{html.escape(json.dumps(set), quote=True)}" tabindex="0" role="button" '
            f'aria-label="{label}"' + (' data-hover=""' if hover else ""))


def _look(fill, stroke, thick, shade) -> str:
    names = [f"lc-f-{fill}"] if fill is not None else []
    names += [f"lc-s-{stroke}"] if stroke else []
    return (f' class="{" ".join(names)}"' + ("" if fill is not None else ' fill="none"')
            + (f' stroke-width="{_n(thick)}"' if stroke and thick != 1 else "")
            + (f' fill-opacity="{_n(shade)}"' if shade is not None else ""))


def _n(value: float) -> str:
    """At most two decimals: the text is compared from run to run and from machine to machine."""
    return f"{value:z.2f}".rstrip("0").rstrip(".")
