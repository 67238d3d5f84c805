"""A layout of a shared array written into the source: longer rows, or another index at each use of the array."""
import math
import re

from ..text.outline import outline
from ..text.tokens import match_forward, scan
from .layouts import Layout


def bodies_of(result) -> list[list[int]]:
    """Where in the source the functions of the kernel's name begin and end."""
    own, kernel = outline(next(iter(result.files.values()))), result.kernel.partition("<")[0].split("::")[-1]
    return [[own.tokens[i].start for i in f.body] for f in own.functions if f.name == kernel]


def declared(result, bodies: list, name: str, line: int) -> re.Match | None:
    """The declaration of a shared array in the kernel, else the last one before `line`; its first group is the
    brackets behind the name."""
    source = next(iter(result.files.values()))
    until = sum(len(text) + 1 for text in source.split("\n")[:line])
    found = re.compile(rf"__shared__[^;]*?\b{re.escape(name)}\s*((?:\[[^\];]*\]\s*)+)")
    ends = [m for ends in [*bodies, (0, until)] for m in list(found.finditer(source, *ends))[-1:]]
    return ends[0] if ends else None


def sizes(place: re.Match | None) -> list[str]:
    return re.findall(r"\[\s*([^\]]*?)\s*\]", place[1]) if place else []


def element_bytes(result, memory, place: re.Match | None) -> int:
    """By the array's length, where its declaration says that in numbers; else what it is aligned to."""
    many = math.prod(number(result, said) for said in sizes(place))
    return memory.bytes // many if place and many else memory.itemsize


def number(result, said: str) -> int:
    """A number, or a constant of that name; or 0."""
    text = "\n".join([next(iter(result.files.values())),
                      *(f"#define {d.replace('=', ' ')} " for d in result.defines)])
    known = re.search(rf"\b{re.escape(said)}\s*=\s*(\d+)|#\s*define\s+{re.escape(said)}\s+(\d+)\s", text)
    return int(said) if said.isdigit() else int(known[1] or known[2]) if known else 0


def longer(said: str, pad: int) -> str:
    return str(int(said) + pad) if said.isdigit() else f"{said} + {pad}"


def written(name: str, layout: Layout, place: re.Match) -> str | None:
    """The source with that layout; None where its text does not say all of it."""
    source, given = place.string, sizes(place)
    head, rows = source[:place.start(1)] + "".join(f"[{size}]" for size in given[:-1]), len(given) > 1
    if layout.pad and rows:
        return f"{head}[{longer(given[-1], layout.pad)}]{source[place.end(1):]}"
    if len(given) > 2:
        return None
    more = f" + ({given[0]}) / {layout.pitch} * {layout.pad}" if layout.pad and given[0] else ""
    uses = _uses(name, layout, source, place.end(1))
    return uses and f"{head}[{given[-1]}{more}]{uses}"


def _uses(name: str, layout: Layout, source: str, at: int) -> str | None:
    """What is behind the declaration, each use in its block with the index of the layout."""
    tokens, made, depth = scan(source, at), [], 1
    for i, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        if depth == 0:
            break
        if token.text != name or tokens[i - 1].text in (".", "->"):
            continue
        indices, end = [], i + 1
        while tokens[end].text == "[":
            closes = match_forward(tokens, end)
            indices.append(source[tokens[end].end:tokens[closes].start])
            end = closes + 1
        if len(indices) != 1 + layout.rows or name in " ".join(indices):
            return None                                   # a pointer to it goes elsewhere
        made += [source[at:token.end], layout.index(*indices)]
        at = tokens[end - 1].end
    return "".join([*made, source[at:]])
