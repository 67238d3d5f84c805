"""The engine as the notebooks use it: `laptop_cuda`, with the chapters' kernels by name."""
from pathlib import Path

import laptop_cuda
from laptop_cuda import *  # noqa: F403
from laptop_cuda import build

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
build.prefer_cache(KERNELS.parent / ".build")


def load(word: str | Path) -> laptop_cuda.Module:
    """kernels/<word>.cu, or a path to any other .cu file."""
    return laptop_cuda.load(_file(word))


def show(word: str | Path, *names: str) -> None:
    """Displays kernels (or functions) of kernels/<word>.cu with the comment above each; no name: the whole file."""
    laptop_cuda.show(_file(word), *names)


def _file(word: str | Path) -> Path:
    path = Path(word)
    path = path if path.suffix else KERNELS / f"{word}.cu"
    if not path.is_file():
        known = sorted(p.relative_to(KERNELS).with_suffix("").as_posix() for p in KERNELS.rglob("*.cu"))
        raise FileNotFoundError(f"there is no {path.name} in kernels/; it has: {', '.join(known)}")
    return path
