"""A pytest entry point: with `--nbval`, notebooks run under our own cells (`course_lib.tools.nbval_cells`).

What that mends in nbval is listed there. Notebooks of other projects are left to nbval as it is."""
from collections import defaultdict

import pytest

from course_lib.tools.clean_kernel import NOTEBOOK


def runs_notebooks(config) -> bool:
    return bool(getattr(config.option, "nbval", False) or getattr(config.option, "nbval_lax", False))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    # xdist's default deals the cells of one notebook to several workers, each with a kernel of its own.
    if (runs_notebooks(config) and getattr(config.option, "numprocesses", None)
            and config.option.dist in ("no", "load")):
        from course_lib.tools.clean_kernel import ROOT

        if (config.rootpath == ROOT or ROOT in config.rootpath.parents
                or not (config.rootpath / "pyproject.toml").exists()):
            config.option.dist = "loadfile"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    found = yield
    if file_path.suffix != ".ipynb" or not runs_notebooks(parent.config):
        return found
    from course_lib.tools.clean_kernel import is_ours

    if not is_ours(file_path):
        return found
    from course_lib.tools.nbval_cells import Notebook

    return [Notebook.from_parent(node.parent, path=node.path) if type(node).__name__ == "IPyNbFile" else node
            for node in found]


def pytest_terminal_summary(terminalreporter):
    seconds = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            name = dict(getattr(report, "user_properties", ())).get(NOTEBOOK)
            if name:
                seconds[name] += report.duration
    if seconds:
        terminalreporter.section("slowest notebooks")
        for name, spent in sorted(seconds.items(), key=lambda item: -item[1])[:12]:
            terminalreporter.write_line(f"{spent:6.1f} s  {name}")
