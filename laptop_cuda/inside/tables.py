"""The tables of `inspect`: text for a terminal, HTML for a notebook. Every figure says how it is known."""
import html

from ..report.tables import html_table, text_table
from .lines import InsideLine

LEGEND = ("compiled: what the compiler chose, read from its report and the machine code; counted: by the "
          "engine, exactly; modelled: computed from the two, see inside/model.py, or from published rules.")
HEAD = ("", "", "known how")
KIND_HEAD = ("instructions", "in the code (compiled)", "run by warps (modelled)", "")
LINE_HEAD = ("line", "times (counted)", "code (compiled)", "run (modelled)", "moved (counted)",
             "passes (counted)", "what the compiler did", "source")
BOUND_HEAD = ("busy for, in microseconds", "", "work", "known how")
COMPARED_HEAD = ("", "registers", "spilled: stores/loads", "shared bytes", "blocks", "warps", "of",
                 "limited by")


class InsideTables:
    """What an `Inside` looks like."""

    def __str__(self) -> str:
        parts = [self._title(), text_table(HEAD, self._rows())]
        if self.get("instructions"):
            parts += ["", text_table(KIND_HEAD, self._kind_rows()),
                      "", text_table(self._line_head(), self._line_rows())]
        if self.get("bound"):
            parts += ["", f"{self['bound']['card']}: each part busy in every cycle, not a prediction",
                      text_table(BOUND_HEAD, self._bound_rows())]
        return "\n".join([*parts, "", *filter(None, [self.missing]), LEGEND])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self._title())}</b></p>", html_table(HEAD, self._rows())]
        if self.get("instructions"):
            parts += [html_table(KIND_HEAD, self._kind_rows()),
                      html_table(self._line_head(), self._line_rows(), code=True), *map(_folded, self.lines)]
        if self.get("bound"):
            parts += [f"<p>{html.escape(self['bound']['card'])}: each part busy in every cycle, not a prediction</p>",
                      html_table(BOUND_HEAD, self._bound_rows())]
        last = " ".join(filter(None, [self.missing, LEGEND]))
        return "".join(parts) + f"<p><small>{html.escape(last)}</small></p>"

    def _title(self) -> str:
        return f"{self['kernel']} for {self['arch']}, by {self['compiler']}"

    def _rows(self) -> list[tuple[str, str, str]]:
        shared = f"{self['static_shared']:,} static + {self['dynamic_shared']:,} dynamic bytes per block"
        rows = [("registers", f"{self['registers']} per thread", "compiled"),
                ("spilled", f"{self['spill_stores']} bytes stored, {self['spill_loads']} loaded", "compiled"),
                ("stack", f"{self['stack']} bytes per thread", "compiled"),
                ("shared memory", shared, "compiled, launched")]
        held = self["occupancy"]
        if held is None:
            return [*rows, ("occupancy", "the limits of this architecture are not in our table", "")]
        warps = f"{held['warps']} of {held['most_warps']} warps ({held['share']:.0%})"
        share = f"{held['blocks']} block{'s' * (held['blocks'] != 1)}, {warps}"
        return [*rows, (f"occupancy, {self['block']} threads per block", share, "modelled: published rules"),
                ("limited by", held["limited_by"], "modelled: published rules")]

    def _kind_rows(self) -> list[tuple]:
        run = self.get("executed")
        return [(kind, f"{n:,}", f"{run.get(kind, 0):,}" if run else "", "")
                for kind, n in self["instructions"].items()]

    def _line_rows(self) -> list[tuple]:
        first = self.lines[0].file if self.lines else ""
        names = [line.file for line in self.lines if line.file]
        first = names[-1] if names and names.count(names[-1]) > names.count(first) else first
        compiled = self._has_compiled()
        return [_line_row(line, first, compiled) for line in self.lines if line.sass or line.counted]

    def _has_compiled(self) -> bool:
        return any(line.compiled for line in self.lines)

    def _line_head(self) -> tuple:
        column = (f"as compiled for {self['arch']}",) * self._has_compiled()
        return (*LINE_HEAD[:6], *column, *LINE_HEAD[6:])

    def _bound_rows(self) -> list[tuple]:
        found = self["bound"]
        def one(pipe):
            binds = pipe["pipe"] + (" (binds)" if pipe["pipe"] == found["binds"] else "")
            return binds, f"{pipe['microseconds']:.3g}", f"{pipe['work']:,} {pipe['unit']}", pipe["known"]
        return [one(pipe) for pipe in sorted(found["pipes"], key=lambda p: -p["microseconds"])]


def _line_row(line: InsideLine, main: str, compiled: bool) -> tuple:
    place = "?" if not line.line else str(line.line) if line.file == main else f"{line.file}:{line.line}"
    counted = line.counted
    moved = sum(c.global_load.moved + c.global_store.moved for c in counted)
    passes = sum(c.shared_load.wavefronts + c.shared_store.wavefronts for c in counted)
    run = sum(line.executed.values())
    numbers = (line.times, len(line.sass), run, moved, passes)
    source = line.text if len(line.text) <= 72 else line.text[:69] + "..."
    return (place, *(f"{n:,.0f}" if n else "" for n in numbers), *(_compiled(line),) * compiled,
            "; ".join(line.notes), source)


def _compiled(line: InsideLine) -> str:
    """Bytes moved and passes of the machine code's accesses, beside those as written."""
    said = []
    for space, unit, each in (("global", "moved", 32), ("shared", "passes", 1)):
        asked = [a for kind, a in line.compiled.items() if kind.startswith(space)]
        if asked:
            said.append(f"{unit} not told" if None in asked else f"{sum(a[1] for a in asked) * each:,} {unit}")
    return ", ".join(said)


def _folded(line: InsideLine) -> str:
    """The machine code of a line, folded."""
    if not line.sass:
        return ""
    kinds = ", ".join(f"{n} {kind}" for kind, n in line.kinds.most_common())
    title = html.escape(f"{line.file}:{line.line}  {kinds}  " if line.line else f"no line  {kinds}")
    return (f"<details><summary>{title}<code>{html.escape(line.text)}</code></summary>"
            f"<pre>{html.escape(chr(10).join(line.sass))}</pre></details>")


def compared_rows(found: dict) -> list[tuple]:
    """A row per architecture, or whatever the keys are."""
    rows = []
    for name, one in found.items():
        held = one["occupancy"] or dict.fromkeys(("blocks", "warps", "most_warps", "limited_by"), "?")
        rows.append((name, one["registers"], f"{one['spill_stores']}/{one['spill_loads']}",
                     f"{one['static_shared'] + one['dynamic_shared']:,}", held["blocks"], held["warps"],
                     held["most_warps"], held["limited_by"]))
    return rows


def compared(found: dict) -> str:
    first = next(iter(found.values()))
    title = f"{first['kernel']}, {first['block']} threads per block, by {first['compiler']}"
    return f"{title}\n{text_table(COMPARED_HEAD, compared_rows(found))}"


def compared_html(found: dict) -> str:
    first = next(iter(found.values()))
    title = f"{first['kernel']}, {first['block']} threads per block, by {first['compiler']}"
    return f"<p><b>{html.escape(title)}</b></p>{html_table(COMPARED_HEAD, compared_rows(found))}"
