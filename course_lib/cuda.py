"""The engine as the notebooks use it: `laptop_cuda`, with the chapters' kernels by name."""
import json
from pathlib import Path

import laptop_cuda
from laptop_cuda import *  # noqa: F403
from laptop_cuda import build, hints
from laptop_cuda.pictures import front
from laptop_cuda.toolchain.watching import loading

KERNELS = Path(__file__).resolve().parent.parent / "kernels"

build.prefer_cache(KERNELS.parent / ".build", variable="COURSE_CACHE")
front.batch_under("COURSE_BATCH")
hints.silent.add("course_lib")
loading("torch and the course")


def load(word: str | Path) -> laptop_cuda.Module:
    """kernels/<word>.cu, or a path to any other .cu file."""
    return laptop_cuda.load(_file(word))


def show(word: str | Path, *names: str) -> None:
    """Displays kernels (or functions) of kernels/<word>.cu with the comment above each; no name: the file."""
    laptop_cuda.show(_file(word), *names)


def inspect(kernel, arch=None, *, card: str | dict | None = None, **how):
    """A kernel as a GPU's compiler sees it; see laptop_cuda.inspect. `card` is a name in data/cards.json."""
    if not isinstance(card, str):
        return laptop_cuda.inspect(kernel, arch or "sm_90", card=card, **how)
    cards = json.loads((KERNELS.parent / "data" / "cards.json").read_text(encoding="utf-8"))
    if card not in cards:
        raise ValueError(f"card: there is no {card!r} in data/cards.json; it has: {', '.join(cards)}")
    return laptop_cuda.inspect(kernel, arch or cards[card]["arch"], card={"name": card} | cards[card], **how)


def custom_op(name: str, forward, **how):
    """A pair of launches as the torch operator `course::<name>`; see laptop_cuda.custom_op."""
    return laptop_cuda.custom_op(name if "::" in name else f"course::{name}", forward, **how)


def _file(word: str | Path) -> Path:
    path = Path(word)
    path = path if path.suffix else KERNELS / f"{word}.cu"
    if not path.is_file():
        known = sorted(p.relative_to(KERNELS).with_suffix("").as_posix() for p in KERNELS.rglob("*.cu"))
        raise FileNotFoundError(f"there is no {path.name} in kernels/; it has: {', '.join(known)}")
    return path
