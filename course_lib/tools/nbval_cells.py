"""nbval's notebook and cell, made trustworthy.

What is different from nbval 0.11:
- a kernel of this environment, in the surroundings of `clean_kernel`, with 120 s per cell instead of 2000;
- a cell runs with its history kept, as in Jupyter, so that a trailing `;` silences it and `Out` works;
- a cell that was never run has nothing to be compared with, and fails;
- a kernel that dies is noticed at once, not when the cell's time is up;
- a failure names the notebook and the heading above the cell, and shows the difference.

With COURSE_STRICT set, `check` raises for an exercise that has not passed, which turns its cell red. What an
exercise's own cells print is then not compared, since a solved notebook prints something else than the one
that was handed out; and a cell without saved outputs is run and not compared."""
import difflib
import os
import re
from importlib.metadata import version
from queue import Empty
from time import monotonic

from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel, start_new_kernel
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError, nocolors

from course_lib.tools.clean_kernel import CELL_SECONDS, NOTEBOOK, environment, use_writable_runtime_folder

NBVAL = "0.11."
NBVAL_DEFAULT_SECONDS = 2000


class Kernel(RunningKernel):
    def __init__(self, kernel_name: str, cwd: str, startup_timeout: float):
        use_writable_runtime_folder()
        self.km, self.kc = start_new_kernel(startup_timeout=startup_timeout, kernel_name=kernel_name, cwd=cwd,
                                            env=environment(),
                                            stderr=-3, stdout=-3)     # -3: subprocess.DEVNULL
        self._ensure_iopub_up()

    def execute_cell_input(self, cell_input, allow_stdin=None):
        return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)

    def await_reply(self, msg_id, timeout=None):
        end = monotonic() + timeout
        while True:
            try:
                return super().await_reply(msg_id, timeout=min(1.0, max(0.0, end - monotonic())))
            except Empty:
                if not self.is_alive():
                    raise KernelDied from None
                if monotonic() >= end:
                    raise


class KernelDied(Exception):
    pass


class Notebook(IPyNbFile):
    def collect(self):
        if not version("nbval").startswith(NBVAL):
            raise self.CollectError(f"The course's tests know nbval {NBVAL}*, and this environment has "
                                    f"{version('nbval')}: pip install 'nbval=={NBVAL}*'")
        # The heading above each code cell, then nbval's own items in our class.
        items = list(super().collect())
        headings, heading = [], "top of the notebook"
        for cell in self.nb.cells:
            if cell.cell_type == "markdown":
                found = re.findall(r"^#{1,6} +(.+?) *$",
                                   re.sub(r"^```.*?^```", "", cell.source, flags=re.M | re.S), re.M)
                heading = found[-1] if found else heading
            elif cell.cell_type == "code":
                headings.append(heading)
        for item, heading in zip(items, headings):
            yield Cell.from_parent(self, name=item.name, cell_num=item.cell_num, cell=item.cell,
                                   options=item.options, heading=heading)

    def setup(self):
        self.kernel = Kernel(self.config.option.nbval_kernel_name or CURRENT_ENV_KERNEL_NAME,
                             str(self.path.parent), self.config.option.nbval_kernel_startup_timeout)
        self.setup_sanitize_files()

    @property
    def shown_name(self) -> str:
        try:
            return self.path.relative_to(self.config.rootpath).as_posix()
        except ValueError:
            return str(self.path)


class Cell(IPyNbCell):
    def __init__(self, name, parent, cell_num, cell, options, heading):
        super().__init__(name, parent, cell_num, cell, options)
        self.heading = heading
        self.colors = nocolors              # nbval colours its text even where no terminal reads it
        self.user_properties.append((NOTEBOOK, parent.shown_name))
        self.strict_exercise = bool(os.environ.get("COURSE_STRICT")) and any(
            tag in ("exercise", "check") for tag in cell.metadata.get("tags", []))
        if self.strict_exercise:
            self.options["check"] = False

    def runtest(self):
        if not self.cell.source.strip():
            return
        if self.cell.execution_count is None and os.environ.get("COURSE_STRICT"):
            # A handout's notebook has no outputs: what counts then is that nothing raises.
            self.options["check"] = False
            self.cell.outputs = []
        if self.cell.execution_count is None and self.options["check"]:
            self.raise_cell_error("This cell was never run, so there is nothing to compare with: "
                                  f"python -m course_lib run {self.parent.shown_name}")
        if self.strict_exercise:
            # nbval refuses outputs without an execution count; these are not compared.
            self.cell.outputs = []
        option, given = self.config.option, self.config.option.nbval_cell_timeout
        if given == NBVAL_DEFAULT_SECONDS:
            option.nbval_cell_timeout = CELL_SECONDS
        try:
            super().runtest()
        except KernelDied:
            self.parent.timed_out = True    # nbval then expects the cells that follow to fail
            self.raise_cell_error("The kernel died while this cell ran (a crash in compiled code, or no "
                                  "memory left).")
        finally:
            option.nbval_cell_timeout = given

    def compare_outputs(self, test, ref, skip_compare=None):
        same = super().compare_outputs(test, ref, skip_compare)
        if not same:
            self.comparison_traceback = difference(ref, test, skip_compare or self.parent.skip_compare)
        return same

    def format_output_compare(self, key, left, right):
        """`difference` says it: nbval's way, by pytest, may take minutes for a picture's page with CI set."""

    def repr_failure(self, excinfo):
        error = excinfo.value
        where = f"{self.parent.shown_name}, cell {self.cell_num + 1} of code, under \"{self.heading}\""
        if not isinstance(error, NbCellError):
            return f"{where}: {type(error).__name__}: {error}"
        source = "\n".join("    " + line for line in error.source.splitlines())
        return "\n".join([f"{where}: {error}", error.inner_traceback or "", "The cell:", source])

    def reportinfo(self):
        return self.path, 0, f"{self.parent.shown_name}::Cell {self.cell_num} ({self.heading})"


def difference(expected, got, skip) -> list[str]:
    """What the notebook holds against what this run gave, kind by kind, as a diff."""
    before, after = by_kind(expected, skip), by_kind(got, skip)
    lines = []
    for kind in dict.fromkeys([*before, *after]):
        if before.get(kind) != after.get(kind):
            lines += [f"{kind}:", *difflib.unified_diff(before.get(kind, []), after.get(kind, []),
                                                        "in the notebook", "in this run", lineterm="", n=2)]
    return lines


def by_kind(outputs, skip) -> dict[str, list[str]]:
    """{"stdout": lines, "text/plain": lines, ...}."""
    kinds: dict[str, list[str]] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            found = {output["name"]: output["text"]}
        elif output["output_type"] == "error":
            found = {"error": f"{output['ename']}: {output['evalue']}"}
        else:
            found = {kind: value for kind, value in output["data"].items() if kind not in skip}
        for kind, value in found.items():
            kinds.setdefault(kind, []).extend(str(value).splitlines())
    return kinds
