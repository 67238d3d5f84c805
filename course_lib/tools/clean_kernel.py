"""The surroundings in which a notebook's kernel runs under nbval and under `run`: the same on every machine.

A kernel started here knows by COURSE_BATCH=1 that nobody watches: no progress bars, nothing remembered."""
import os
import sys
import tempfile
from pathlib import Path

from course_lib.files import ROOT

CELL_SECONDS = 120
NOTEBOOK = "course notebook"        # the property that our cells leave in their reports


def environment() -> dict[str, str]:
    """The environment of the kernel's process."""
    env = dict(os.environ)
    # pytest's variable makes ipykernel stop capturing C output; the others change what is printed.
    for name in ("PYTEST_CURRENT_TEST", "PYTHONWARNINGS", "PYTHONSTARTUP", "FORCE_COLOR", "MPLBACKEND",
                 "MATPLOTLIBRC", "COLUMNS"):
        env.pop(name, None)
    env |= {"COURSE_BATCH": "1", "LAPTOP_CUDA_HINT": "0", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1",
            # Sums do not depend on the number of cores.
            "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            # A person's own start-up files and plot styles stay out of it.
            "IPYTHONDIR": scratch("ipython"), "MPLCONFIGDIR": matplotlib_folder(),
            "PYTHONPATH": os.pathsep.join([str(ROOT)] + [p for p in [env.get("PYTHONPATH")] if p]),
            # ninja and the other tools of this environment, also where it was not activated.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])}
    return env


def scratch(name: str) -> str:
    """A folder of this process's own, gone with the machine's temporary files."""
    global _scratch
    if _scratch is None:
        _scratch = tempfile.TemporaryDirectory(prefix="course-")
    folder = Path(_scratch.name) / name
    folder.mkdir(exist_ok=True)
    return str(folder)


_scratch: tempfile.TemporaryDirectory | None = None


def matplotlib_folder() -> str:
    """matplotlib's font list takes seconds to make; it is kept in the clone, else in a temporary folder."""
    folder = ROOT / ".build" / "matplotlib"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return str(folder)
    except OSError:
        pass
    return scratch("matplotlib")


def use_writable_runtime_folder() -> None:
    """Jupyter writes a connection file; with a read-only home it needs another place for it."""
    from jupyter_core.paths import jupyter_runtime_dir

    if "JUPYTER_RUNTIME_DIR" in os.environ:
        return
    try:
        os.makedirs(jupyter_runtime_dir(), exist_ok=True)
        if os.access(jupyter_runtime_dir(), os.W_OK):
            return
    except OSError:
        pass
    os.environ["JUPYTER_RUNTIME_DIR"] = scratch("runtime")


def is_ours(notebook: Path) -> bool:
    """A notebook of the course: in its clone, or elsewhere (a student's copy) but importing its package."""
    notebook = Path(notebook).resolve()
    if notebook.is_relative_to(ROOT):
        return True
    try:
        return "course_lib" in notebook.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
