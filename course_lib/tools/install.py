"""Makes `.venv` as `make lab` and `make test` want it: run by the Makefile with this machine's Python alone.

Ready is what a stamp file in `.venv` says, so that a second call costs nothing. A call that was interrupted
left no stamp, and the next one resumes from what is built. Two calls at once wait for each other."""
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "course-is-installed"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


def python_of_venv() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def wanted() -> str:
    """What the stamp says when nothing is to be done: the pins, the package's own metadata, the place."""
    made = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        made.update((ROOT / name).read_bytes())
    made.update(str(ROOT).encode("utf-8", "surrogateescape"))
    return made.hexdigest()


def is_ready() -> bool:
    try:
        return STAMP.read_text() == wanted() and python_of_venv().exists()
    except OSError:
        return False


def call(*command) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def works(*command) -> bool:
    try:
        return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True).returncode == 0
    except OSError:
        return False


def make_venv() -> None:
    """A `.venv` with a pip that runs; one that is broken, or was made for another folder, is made anew."""
    python = python_of_venv()
    if works(python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"):
        if works(python, "-m", "pip", "--version") or works(python, "-m", "ensurepip"):
            return
    if not works(sys.executable, "-c", "import ensurepip, venv"):
        raise SystemExit(f"{sys.executable} cannot make environments: its venv module is missing. "
                         "On Debian or Ubuntu: sudo apt install python3-venv")
    print("Making .venv with Python {}.{}.{}".format(*sys.version_info[:3]), flush=True)
    call(sys.executable, "-m", "venv", "--clear", ".venv")


def note_on_size(pip_args: list[str]) -> None:
    if sys.platform == "linux" and not pip_args and not shutil.which("nvidia-smi") and not works(
            python_of_venv(), "-c", "import torch"):
        print("Installing PyTorch. If this takes gigabytes of CUDA that this machine has no card for, "
              "stop it (Ctrl-C)\n"
              f"and take the CPU's wheels:  make lab PIP_ARGS=\"--extra-index-url {CPU_WHEELS}\"", flush=True)


def install() -> None:
    pip_args = shlex.split(os.environ.get("PIP_ARGS", ""))
    make_venv()
    note_on_size(pip_args)
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line]
    print(f"1 of 2: {len(pins)} packages. PyTorch is much the largest; pip shows the size of each download "
          "and the time that is left of it.", flush=True)
    pip = [python_of_venv(), "-m", "pip", "--disable-pip-version-check", "install"]
    call(*pip, "--no-compile", "-r", "requirements.txt", *pip_args)
    with ThreadPoolExecutor(1) as beside:       # pip would turn all modules into bytecode on one core alone
        beside.submit(works, python_of_venv(), "-m", "compileall", "-qq", "-j", "0", VENV)
        # The pins hold the build tool too, so this needs no network.
        call(*pip, "--quiet", "--no-deps", "--no-build-isolation", "-e", ".")
        print("2 of 2: the engine that runs kernels on the CPU is compiled, which takes seconds", flush=True)
        if not works(python_of_venv(), "-c", "from laptop_cuda import build; build.runtime_library()"):
            print("It was not built: kernels will not run here yet. .venv/bin/python -m course_lib doctor "
                  "says what is missing.")
    STAMP.write_text(wanted())


def main() -> int:
    if sys.version_info < (3, 11):
        raise SystemExit("The course needs Python 3.11 or newer; this is {}.{}. Name one: make lab "
                         "PYTHON=python3.12".format(*sys.version_info[:2]))
    if is_ready():
        return 0
    try:
        (ROOT / ".build").mkdir(exist_ok=True)
        opened = open(ROOT / ".build" / "install.lock", "w")
    except OSError as error:
        print(f"The course's folder cannot be written: {error}", file=sys.stderr)
        return 1
    with opened as lock:
        try:
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Another call is installing; waiting for it.", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:
            pass
        if is_ready():
            return 0
        try:
            install()
        except subprocess.CalledProcessError as error:
            print("\n"
                  f"The install stopped here: {shlex.join(error.cmd)}\n"
                  "Call again when the cause is mended (no network? no room on the disk?); "
                  "what is there is kept.", file=sys.stderr)
            return 1
        except OSError as error:
            print(f"\nThe install stopped: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nStopped. The next call goes on from here.", file=sys.stderr)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
