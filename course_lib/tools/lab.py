"""`python -m course_lib lab`: JupyterLab on the student's own copies in work/."""
import os
import sys
from pathlib import Path

from course_lib.tools.clean_kernel import ROOT
from course_lib.tools.fresh import fresh
from course_lib.tools.notebooks import WORK, chapter_notebooks, find_notebook

FIRST = "00_start_here.ipynb"


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print("usage: python -m course_lib lab [chapter: 3 or gqa] [arguments of jupyter lab]\n\n"
              "Copies the notebooks that work/ does not have yet, and opens JupyterLab there.")
        return 0
    first = FIRST
    if argv and not argv[0].startswith("-"):
        try:
            first, argv = find_notebook(argv[0]).name, argv[1:]
        except LookupError as error:
            print(f"lab: {error}", file=sys.stderr)
            return 2
    os.chdir(ROOT)
    os.environ.update(environment())
    missing = [WORK / source.name for source in chapter_notebooks() if not (WORK / source.name).exists()]
    fresh(["--missing"])
    if missing:
        trust(missing)
    os.execv(sys.executable, [sys.executable, *command(argv, first)])


def trust(notebooks: list[Path]):
    """Sign copies just made: JupyterLab shows no drawings of a notebook that it does not trust."""
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for path in notebooks:
        notary.sign(nbformat.read(path, as_version=4))


def command(argv: list[str], first: str = FIRST) -> list[str]:
    page = f"/lab/tree/{WORK.name}/{first}" if (WORK / first).exists() else f"/lab/tree/{WORK.name}"
    # no list of language servers that are not there
    made = ["-m", "jupyterlab", "--ServerApp.root_dir=.", f"--LabApp.default_url={page}",
            "--LanguageServerManager.autodetect=False"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        made.append("--allow-root")
    if not has_browser():
        made.append("--no-browser")
    return made + argv


def has_browser() -> bool:
    """Without a desktop a text browser would take the terminal over; JupyterLab prints its address anyway."""
    if sys.platform != "linux" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
                or os.environ.get("WSL_DISTRO_NAME"))


def environment() -> dict[str, str]:
    """What JupyterLab needs: our colours for %%cuda, this environment's kernel and tools, places to write."""
    paths = [str(ROOT / "course_lib" / "tools"), os.environ.get("JUPYTER_PATH", "")]
    env = {"JUPYTER_PATH": os.pathsep.join(path for path in paths if path), "JUPYTER_PREFER_ENV_PATH": "1",
           "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])}
    if not os.access(Path.home(), os.W_OK):
        place = ROOT / ".build" / "jupyter"
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
                     "MPLCONFIGDIR"):
            if name not in os.environ:
                folder = place / name.lower()
                folder.mkdir(parents=True, exist_ok=True)
                env[name] = str(folder)
    return env
