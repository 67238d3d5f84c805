"""The counts of launches under the names that NVIDIA's profiler, Nsight Compute (`ncu`), has for them.

    report.ncu()                                       # text; a table in a notebook
    report.ncu(cuda.inspect(mod.k, "sm_80", launch=report.launches[0]))    # with what nvcc chose for sm_80
    report.ncu().csv("raw")                            # or "details": the columns of `ncu --csv --page raw`
    report.ncu()["launch__grid_size"]                  # of the first launch; [name, 1]: of the second

Each figure is marked. **exact**: by definition, from the launch or from the addresses that the lanes asked for
(`as written`: nvcc may merge accesses or keep values in registers; then the card asks for less).
**as compiled**: chosen by nvcc for that card, or a published rule applied to what it chose; with nvdisasm, what
its machine code asks of memory in place of what is written (`inside/as_compiled.py`).
**not known here**: what only a card can tell, such as times, rates of caches and stalls."""
import csv
import html
import io
import os
import sys

from .ncu_metrics import COMPILED, EXACT, LINES, UNKNOWN, WRITTEN, Metric, counted, with_inside  # noqa: F401
from .tables import html_table, text_table

HEAD = ("", "metric", "value", "unit", "known", "")
LINE_HEAD = ("line", "L2 theoretical sectors global", "L1 wavefronts shared", "ideal", "excessive", "source")
FIRST = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
         "Grid Size", "Device", "CC")
DETAILS = ("Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
           "Rule Description", "Estimated Speedup Type", "Estimated Speedup")


class NcuReport:
    """Launches under the profiler's names: as text, as CSV and as HTML."""

    def __init__(self, launches: list[dict]):
        self.launches = launches

    def metrics(self, launch: int = 0) -> list[Metric]:
        if not 0 <= launch < len(self.launches):
            raise ValueError(f"ncu: launches 0 to {len(self.launches) - 1} were counted, got {launch}"
                             if self.launches else "ncu: no launch was counted")
        return [Metric(*m) for m in self.launches[launch]["metrics"]]

    def __getitem__(self, key) -> Metric:
        name, launch = key if isinstance(key, tuple) else (key, 0)
        found = {m.name: m for m in self.metrics(launch)}
        if name not in found:
            raise KeyError(f"{name} is not in this report; print(report.ncu()) shows the names that are")
        return found[name]

    def _parts(self):
        """(title, [(section, rows)], rows of lines) of each launch."""
        for n, one in enumerate(self.launches):
            sections: dict[str, list] = {}
            for m in self.metrics(n):
                sections.setdefault(m.section, []).append((m.label, m.name, m.shown, m.unit, m.known, m.note))
            lines = [(f"{file}:{line}", f"{sectors:,}" if sectors else "",
                      *(f"{v:,}" if passes else "" for v in (passes, passes - excess, excess)), text)
                     for file, line, sectors, passes, excess, text in one["lines"]]
            title = f"{one['kernel']} {tuple(one['grid'])}x{tuple(one['block'])}, CC {one['cc']}"
            yield title, list(sections.items()), lines

    def __str__(self) -> str:
        parts = []
        for title, sections, lines in self._parts():
            parts.append(title)
            for section, rows in sections:
                parts += ["", f"Section: {section}", text_table(HEAD, rows)]
            parts += ["", f"{LINES} by line, {WRITTEN}", text_table(LINE_HEAD, lines), ""]
        return "\n".join([*parts, _LEGEND if parts else "no launch on the CPU was counted"])

    __repr__ = __str__

    def html(self) -> str:
        """A page of its own."""
        return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>Counts of launches</title>'
                f'<body style="font:14px system-ui">{self._repr_html_()}</body></html>')

    def _repr_html_(self) -> str:
        made = []
        for title, sections, lines in self._parts():
            made.append(f"<p><b>{html.escape(title)}</b></p>")
            made += [f"<details{' open' * any(r[4] != UNKNOWN for r in rows)}><summary>{html.escape(section)}"
                     f"</summary>{html_table(HEAD, rows)}</details>" for section, rows in sections]
            made.append(html_table(LINE_HEAD, lines, code=True))
        return "".join(made) + f"<p><small>{html.escape(_LEGEND)}</small></p>"

    def csv(self, page: str = "details") -> str:
        """As `ncu --csv --page raw` or `--page details` prints it, with one last column more: what is known."""
        if page not in ("raw", "details"):
            raise ValueError(f"page: raw or details, got {page!r}")
        out = io.StringIO()
        write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
        firsts = [(n, os.getpid(), os.path.basename(sys.argv[0]) or "python", "127.0.0.1", one["kernel"], 0, 0,
                   str(tuple(one["block"])), str(tuple(one["grid"])), 0, one["cc"])
                  for n, one in enumerate(self.launches)]
        if page == "details":
            write([*FIRST, *DETAILS, "Known"])
            for n, first in enumerate(firsts):
                for m in self.metrics(n):
                    write([*first, m.section, m.label, m.unit, m.shown, "", "", "", "", "",
                           f"{m.known}, {m.note}" if m.note else m.known])
            return out.getvalue()
        columns = self.metrics() if self.launches else []
        write([*FIRST, *(m.name for m in columns), "Known"])
        write([""] * len(FIRST) + [m.unit for m in columns] + [""])
        for n, first in enumerate(firsts):
            own = self.metrics(n)
            write([*first, *(m.shown for m in own), "; ".join(
                f"{known}: {', '.join(m.name for m in own if m.known == known)}" for known in (EXACT, COMPILED))])
        return out.getvalue()


_LEGEND = ("exact: by definition, from the launch and the addresses (as written: nvcc may merge accesses or keep "
           "values in registers); as compiled: chosen by nvcc for that card, or a published rule applied to it; "
           "not known here: only a card can tell.")


def of_report(launches: list, insides: tuple) -> NcuReport:
    """`insides` are what `inspect` returned for the launches' kernels."""
    known = {}
    for one in insides:
        kernel = one.get("kernel") if isinstance(one, dict) else None
        if kernel not in {launch.kernel for launch in launches}:
            names = ", ".join(dict.fromkeys(launch.kernel for launch in launches)) or "none"
            raise ValueError(f"ncu takes what inspect(kernel, arch) returned for a kernel that was launched "
                             f"(launched: {names}), got {kernel or type(one).__name__}")
        known[kernel] = one
    return NcuReport([counted(launch, known.get(launch.kernel)) for launch in launches])
