"""`python -m course_lib doctor`: what this machine has, what each thing is for, how to get what is missing.

Old Pythons can run this file too: it is what tells their owners that they are old."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEMS = ("Debian/Ubuntu", "Fedora", "macOS", "conda", "Windows")
COMPILER_FLAGS = ["-std=c++17", "-O0", "-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-fPIC", "-c"]
PIP = "python -m pip install {}"


class Finding:
    """One line of the report. `get` holds one command per system, in the order of SYSTEMS, or one for all."""

    def __init__(self, name, found, detail, needed_for, get, required=False):
        self.name, self.found, self.detail = name, found, detail
        self.needed_for, self.get, self.required = needed_for, get, required


def examine():
    """Every finding, in the order of the report."""
    return [_python()] + list(_packages()) + [_compiler(), _ninja(), _nvcc(), _gpu(), _memory()]


def _python():
    version = "{}.{}.{}".format(*sys.version_info[:3])
    return Finding("Python 3.11 or newer", sys.version_info >= (3, 11), version, "everything",
                   ["sudo apt install python3 python3-venv (Debian 12, Ubuntu 24.04 or newer)",
                    "sudo dnf install python3", "brew install python",
                    "conda env create -f environment.yml", "wsl --install, then as on Ubuntu"], True)


def _packages():
    from importlib import util
    from importlib.metadata import PackageNotFoundError, version

    needs = [("torch", "everything", True), ("einops", "the chapters' modules", True),
             ("matplotlib", "figures", True), ("jupyterlab", "reading and running the notebooks", True),
             ("nbval", "pytest --nbval", False), ("anywidget", "pictures that move", False)]
    for name, needed_for, required in needs:
        found = util.find_spec(name) is not None
        detail = ""
        if found:
            try:
                detail = version(name)
            except PackageNotFoundError:
                pass
        yield Finding(name, found, detail, needed_for,
                      ["make lab, or: " + PIP.format("-r requirements.txt")], required)


def compiler():
    """(path, None) of a C++ compiler that builds our kernels, else (None, why not)."""
    tried = []
    for name in ([os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]):
        path = shutil.which(name.split()[0])
        if path is None:
            tried.append(name + " is not there")
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "try.cpp")
            source.write_text("#include <cmath>\n#include <vector>\n"
                              "float f(float x) { return std::sqrt(x); }\n")
            try:
                built = subprocess.run(name.split() + COMPILER_FLAGS
                                       + [str(source), "-o", str(Path(folder, "try.o"))],
                                       capture_output=True, text=True, timeout=60)
            except (OSError, subprocess.TimeoutExpired) as error:
                tried.append("{}: {}".format(name, error))
                continue
        if built.returncode == 0:
            return path, None
        tried.append("{} does not build: {}".format(
            name, (built.stderr.strip().splitlines() or ["no message"])[0]))
    return None, "; ".join(tried)


def _compiler():
    path, why = compiler()
    return Finding("C++ compiler", path is not None, path or why,
                   "kernels: every %%cuda cell and kernel ladder",
                   ["sudo apt install g++", "sudo dnf install gcc-c++", "xcode-select --install",
                    "conda install -c conda-forge cxx-compiler", "in WSL: sudo apt install g++"], True)


def _ninja():
    path = shutil.which("ninja")
    if path is None:
        beside = Path(sys.executable).with_name("ninja")
        if beside.exists():
            path = str(beside)
    if path is None:
        try:
            import ninja

            path = str(Path(ninja.BIN_DIR, "ninja"))
        except ImportError:
            pass
    return Finding("ninja", path is not None, path or "", "building kernels",
                   ["sudo apt install ninja-build", "sudo dnf install ninja-build", "brew install ninja",
                    "conda install -c conda-forge ninja", PIP.format("ninja")], True)


def _nvcc():
    path = shutil.which("nvcc")
    return Finding("nvcc", path is not None, path or "", "running the same kernels on a GPU; cuda.inspect",
                   ["sudo apt install nvidia-cuda-toolkit", "developer.nvidia.com/cuda-downloads",
                    "not to be had: no NVIDIA GPU",
                    "conda install -c conda-forge cuda-nvcc", "in WSL: developer.nvidia.com/cuda-downloads"])


def _gpu():
    smi = shutil.which("nvidia-smi")
    name = ""
    if smi:
        try:
            asked = subprocess.run([smi, "--query-gpu=name,memory.total", "--format=csv,noheader"],
                                   capture_output=True, text=True, timeout=20)
            name = (asked.stdout.strip().splitlines()[0]
                    if asked.returncode == 0 and asked.stdout.strip() else "")
        except (OSError, subprocess.TimeoutExpired):
            pass
    return Finding("GPU", bool(name), name, "speed; nothing in the course depends on it",
                   ["any NVIDIA card, 7.5 (Turing) or newer, with its driver"])


def _memory():
    gigabytes = memory()
    detail = "unknown" if gigabytes is None else "{:.0f} GB".format(gigabytes)
    return Finding("memory, 4 GB", gigabytes is None or gigabytes >= 3.5, detail, "training the small models",
                   ["close other programs; every chapter but the last runs in 2 GB"])


def memory():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, OSError, ValueError):
        return None


def report(findings) -> str:
    width = max(len(f.name) for f in findings)
    lines = []
    for f in findings:
        mark = "found  " if f.found else "MISSING" if f.required else "missing"
        lines.append("{}  {:<{}}  {}".format(
            mark, f.name, width, f.detail if f.found else "needed for: " + f.needed_for).rstrip())
        if not f.found:
            if f.detail:
                lines.append("         " + f.detail)
            if len(f.get) == 1:
                lines.append("         " + f.get[0])
            else:
                lines += ["         {:<14} {}".format(system, get) for system, get in zip(SYSTEMS, f.get)]
    missing = [f.name for f in findings if f.required and not f.found]
    if not missing:
        lines.append("\nThe course runs here."
                     + ("" if any(f.name == "GPU" and f.found for f in findings) else
                        " There is no GPU; only the speed of one will be missing."))
    elif missing == ["C++ compiler"]:
        lines.append("\nWithout a C++ compiler the text, PyTorch and the exercises in Python work, and the "
                     "kernels do not.")
    else:
        lines.append("\nThe course cannot run here before this is found: " + ", ".join(missing) + ".")
    return "\n".join(lines)


def main(argv=()) -> int:
    if argv:
        print("usage: python -m course_lib doctor")
        return 0 if argv[0] in ("-h", "--help") else 2
    findings = examine()
    print(report(findings))
    return 1 if any(f.required and not f.found for f in findings) else 0


def show() -> None:
    """The report in a notebook. With nobody watching it prints only what all machines that pass share."""
    findings = examine()
    if not os.environ.get("COURSE_BATCH") or any(f.required and not f.found for f in findings):
        print(report(findings))
        return
    print("\n".join("found    " + f.name for f in findings if f.required))
    print("\nThe course runs here.")
