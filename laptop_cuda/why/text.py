"""A `Why` as text and as HTML: who wrote the element, from what, who reads it, and the lines to look at."""
import html
from collections import Counter

from ..errors.facts import triple


def as_text(why) -> str:
    return "\n".join([_head(why), *_tree(why), *_readers(why), "", "Lines to look at first:", *_lines(why)])


def as_html(why) -> str:
    left = '<td style="text-align:left">'
    rows = "".join(f'<tr><td style="text-align:right">{s.line}</td>{left}<code>{html.escape(s.text)}</code></td>'
                   f"{left}{html.escape(s.reason)}</td></tr>" for s in why.lines)
    tree = html.escape("\n".join([*_tree(why), *_readers(why)]).strip("\n"))
    return (f"<p>{html.escape(_head(why))}</p><p><b>Lines to look at first</b></p><table>{rows}</table>"
            f"<details><summary>What it was made from</summary><pre>{tree}</pre></details>")


def _head(why) -> str:
    name = f"{why.array}[{why.index}]"
    if why.access is None:
        return f"{why.kernel}: no thread stored anything in {name}."
    more = f", the last of {why.writes:,} stores" if why.writes > 1 else ""
    return f"{why.kernel}: {name} was {_verb(why.access)} by {_who(why.access, why)}{more}."


def _tree(why) -> list[str]:
    if why.access is None:
        return []
    lines = [_access(why.access, why)]
    _branches(why.access, why, "", lines)
    return lines + (["(cut: the block has more accesses than are recorded)"] if why.cut else [])


def _branches(access, why, indent: str, lines: list[str]) -> None:
    for i, source in enumerate(access.sources):
        last = i + 1 == len(access.sources)
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{_access(source, why)}")
        _branches(source, why, indent + ("   " if last else "│  "), lines)


def _access(access, why) -> str:
    name = f"{access.array}[{access.index}]" if access.index is not None else f"part of {access.array}"
    said = f"{name} = {_value(access.value)}, {_verb(access)}, line {access.line}"
    if access.kind == "load":
        said += f" ({access.more + 1:,} loads there, this one the latest)" if access.more else ""
        said += f", {access.origin}" if access.origin else ""
    else:
        said += f", {_ordinal(access.occurrence + 1)} time, by {_who(access, why)}"
    return f"{said}: {access.text}"


def _verb(access) -> str:
    return {"load": "loaded", "store": "stored", "atomic": "updated atomically"}[access.kind]


def _who(access, why) -> str:
    return f"thread {triple(access.thread, why.block_size)} of block {triple(access.block, why.grid)}"


def _readers(why) -> list[str]:
    if not why.readers:
        return ["No thread of this launch loads from its sector."]
    by_line = Counter(r.line for r in why.readers)
    said = ", ".join(f"line {line} ({count:,} times)" for line, count in sorted(by_line.items()))
    return [f"Its sector is loaded from by {said}."]


def _lines(why) -> list[str]:
    return [f"{s.line:6} | {s.text}    ({s.reason})" for s in why.lines]


def _value(value) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"the {n}{ending}"
