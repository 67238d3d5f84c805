"""`python -m course_lib for-every-n [NAME...]`: which kernels are proved for every size; docs/for_every_n.md."""
import tomllib
from pathlib import Path

from course_lib import cuda
from course_lib.exercises.declare import all_exercises, find
from laptop_cuda import prove

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).with_suffix(".toml")
HEAD = """# For every n

What `laptop_cuda.prove` says of the course's kernels whose indices are affine, by `python -m course_lib for-every-n`. Each
line is for all sizes of the domain, not for those that were run; `laptop_cuda/proofs/README.md` says what the claims are
and what is taken for granted. Seconds are of one processor.

| kernel | sizes | inside | overflow | stores | races | barriers | banks | seconds |
|---|---|---|---|---|---|---|---|--:|
"""


def asked() -> dict[str, dict]:
    """{name: what `prove` takes}."""
    exercises = {f"exercise {e.id}": e.every for e in all_exercises() if e.every}
    found = tomllib.loads(DATA.read_text(encoding="utf-8")) | exercises
    return {name: told | {"sizes": {size: tuple(given) if len(given) == 2 else set(given)
                                    for size, given in told["sizes"].items()}} for name, told in found.items()}


def kernel(name: str):
    """What `prove` takes for a kernel of a file, or the solution of an exercise."""
    if name.startswith("exercise"):
        exercise = find(name.split()[1])
        return exercise.solution, exercise.name
    file, _, instance = name.partition("/")
    return (cuda.KERNELS / f"{file}.cu").read_text(encoding="utf-8"), instance, cuda.KERNELS


def row(name: str, proof) -> str:
    said = " | ".join([f.verdict if f.verdict == "proved" else f.said() for f in proof.findings] + ["-"] * (6 - len(proof.findings)))
    sizes = str(proof).splitlines()[0].partition("for every ")[2]
    return f"| {name} | {sizes} | {said} | {proof.seconds:.1f} |\n"


def main(arguments: list[str]) -> int:
    rows = []
    for name, told in asked().items():
        if not arguments or name in arguments:
            rows.append(row(name, prove(kernel(name), **told)))
            print(rows[-1], end="", flush=True)
    if not arguments:
        (ROOT / "docs" / "for_every_n.md").write_text(HEAD + "".join(rows), encoding="utf-8")
    return 0
