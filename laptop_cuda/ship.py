"""The runtime for a wheel, built from the engine's own files: `python -m laptop_cuda.ship FOLDER`."""
import shutil
import sys
import tempfile
from pathlib import Path

from . import build
from .toolchain import shipped


def ship(folder: Path) -> None:
    """Without a compiler, or with zig's, the folder has none: it is built where it is first wanted."""
    try:
        tool = build.compiler()
    except build.NoCompiler as missing:
        print(f"the runtime is left to be built later: {missing}", file=sys.stderr)
        return
    if tool.zig:
        return
    folder.mkdir(parents=True, exist_ok=True)
    engine = build.engine_digest()
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(build.build_runtime(tool, engine, Path(root), ()), folder / shipped.file_name(engine))


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
