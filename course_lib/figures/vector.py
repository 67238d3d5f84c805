"""A matplotlib figure as one small SVG text: what is drawn, without the names of what drew it."""
import io
import math
import re
from xml.etree import ElementTree

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
STEP = re.compile(r"([MLCQAz])([^MLCQAz]*)")
CIRCLE = re.compile(r"M[^MLCQz]*(?:C[^MLCQz]*){8}z")


def svg(fig, dpi: int) -> str:
    """The drawing, as large on a page as a PNG of `dpi`, in the layout that such a PNG was drawn in before.

    The same text each time. Letters are outlines: a reader's machine needs none of our fonts."""
    import matplotlib

    fig.set_layout_engine("none")
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "course"}):
        fig.savefig(drawn, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(drawn.getvalue())
    for part in root.findall(f"{SVG}metadata"):
        root.remove(part)
    _join_hatched(root)
    for side, inches in zip(("width", "height"), fig.get_size_inches()):
        root.set(side, str(round(inches * dpi)))
    names = {name: _short(n) for n, name in enumerate(_referred(root))}
    _shorten(root, names)
    text = ElementTree.tostring(root, encoding="unicode").replace("ns0:", "").replace(":ns0", "")
    return re.sub(r">\s+<", "><", text).replace(" />", "/>")


def _join_hatched(root) -> None:
    """One path for all shapes with one hatch: a browser prints each as an image of the whole axes."""
    above = {part: group for group in root.iter() for part in group}
    seen = {}
    for part in root.iter(f"{SVG}path"):
        if "fill: url" in part.get("style", ""):
            key = (above[above[part]], part.get("style"), part.get("clip-path"))
            if key in seen:
                part.set("d", f"{seen[key].get('d')} {part.get('d')}")
                above[seen[key]].remove(seen[key])
            seen[key] = part


def _referred(root) -> list[str]:
    """The ids that something in the drawing refers to, in their order."""
    used = [part.get(LINK)[1:] for part in root.iter() if part.get(LINK, "").startswith("#")]
    for part in root.iter():
        used += re.findall(r"url\(#([^)]+)\)", part.get("clip-path", "") + part.get("style", ""))
    return list(dict.fromkeys(used))


def _short(n: int) -> str:
    return (_short(n // 26 - 1) if n >= 26 else "") + chr(ord("a") + n % 26)


def _shorten(parent, names: dict[str, str]) -> None:
    """Drop unused ids and the groups that held them; round numbers."""
    kept = []
    for part in parent:
        letter = part.tag == f"{SVG}path" and "-" in part.get("id", "")
        # Coordinates of a letter are in 1/64 of a unit of its font; all others are in points.
        _attributes(part, names, 0 if letter else 2)
        _shorten(part, names)
        bare = part.tag == f"{SVG}g" and not part.attrib
        kept += list(part) if bare else [part]
    parent[:] = kept


def _attributes(part, names: dict[str, str], decimals: int) -> None:
    if part.get("id") is not None:
        name = names.get(part.attrib.pop("id"))
        if name:
            part.set("id", name)
    if LINK in part.attrib:
        target = part.attrib.pop(LINK)
        part.set("href", "#" + names[target[1:]] if target.startswith("#") else target)
    for key, value in part.attrib.items():
        if key == "d":
            part.set(key, path(value, decimals))
        elif key in ("style", "clip-path"):
            value = re.sub(r"([:;]) ", r"\1", value)
            part.set(key, re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names[found[1]]})", value))
        elif key in ("x", "y", "width", "height", "transform"):
            kept = 6 if key == "transform" else 2
            part.set(key, NUMBER.sub(lambda found: _n(float(found[0]), kept), value))


def path(d: str, decimals: int = 2) -> str:
    """A path with rounded coordinates, each relative to where the pen is; straight steps by one number."""
    pen = start = (0.0, 0.0)
    parts = []
    for letter, numbers in STEP.findall(CIRCLE.sub(_as_arcs, d)):
        values = [round(float(x), decimals) for x in NUMBER.findall(numbers)]
        if letter == "z":
            parts.append("z")
            pen = start
            continue
        flags, values = (values[:-2], values[-2:]) if letter == "A" else ([], values)
        points = list(zip(values[::2], values[1::2]))
        moves = [(x - pen[0], y - pen[1]) for x, y in points]
        parts.append(_step(letter.lower(), flags, moves, decimals))
        pen = points[-1]
        start = pen if letter == "M" else start
    return "".join(parts)


def _step(letter: str, flags: list, moves: list, decimals: int) -> str:
    numbers = [_n(value, decimals) for value in [*flags, *(value for move in moves for value in move)]]
    if letter == "l" and "0" in numbers:
        return f"v{numbers[1]}" if numbers[0] == "0" else f"h{numbers[0]}"
    return letter + " ".join(numbers).replace(" -", "-")


def _as_arcs(found) -> str:
    """A closed path of eight curves that is a circle (a dot of a hatch, a marker) as two arcs."""
    values = [float(x) for x in NUMBER.findall(found[0])]
    start = tuple(values[:2])
    ends = [tuple(values[n:n + 2]) for n in range(6, len(values), 6)]
    centre = [(a + b) / 2 for a, b in zip(start, ends[3])]
    radius = math.dist(start, centre)
    if any(abs(math.dist(end, centre) - radius) > 0.01 * radius for end in ends):
        return found[0]
    (ax, ay), (bx, by) = ([p - c for p, c in zip(end, centre)] for end in (start, ends[0]))
    arc = f"A {radius} {radius} 0 1 {int(ax * by > ay * bx)}"
    return f"M {start[0]} {start[1]} {arc} {ends[3][0]} {ends[3][1]} {arc} {start[0]} {start[1]} z"


def _n(value: float, decimals: int) -> str:
    text = f"{value:z.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
