"""`python -m course_lib for-every-n [NAME...]`: which kernels are proved for every size; docs/for_every_n.md.

`--from FOLDER [NAME...]`: of the published kernels of for_every_n_others.toml, from checkouts that FOLDER has."""
import re
import tomllib
from pathlib import Path

from course_lib import cuda
from course_lib.exercises.declare import all_exercises, find
from laptop_cuda import prove

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).with_suffix(".toml")
OTHERS, MORE = DATA.with_stem("for_every_n_others"), DATA.with_stem("for_every_n_more")
HEAD = """# For every n

What `laptop_cuda.prove` says of the course's kernels whose indices are affine, by `python -m course_lib for-every-n`. Each
line is for all sizes of the domain, not for those that were run; `laptop_cuda/proofs/README.md` says what the claims are
and what is taken for granted. Seconds are of one processor. A line is that of the kernel's file or of a
header that it includes (`flash_vectors` 95 and `latent_decode` 37: `kernels/common/tiles.cuh`).

Kernels that have no line are not followed: dense_masked, block_sparse, window_sink, paged_prefill and shared_prefix_decode (lambdas),
decode_part_int8 (a pointer that a loop changes), flash_registers, flash_two_groups, flash_packed and chapter 6's backward kernels but
rowsum_do_o and row_deltas (a function as a template's argument), w2_flash, its two backward kernels and w2_prepare (a pointer that is chosen),
delta_chunks and delta_backward (an object of pointers), kernels for tensor cores and chapter 12's (PTX that touches memory).
What is said of changed versions of these kernels is in for_every_n_others.md.

| kernel | sizes | inside | overflow | stores | races | barriers | banks | seconds |
|---|---|---|---|---|---|---|---|--:|
"""


def asked() -> dict[str, dict]:
    """{name: what `prove` takes}."""
    exercises = {f"exercise {e.id}": e.every for e in all_exercises() if e.every}
    kernels, more = (tomllib.loads(file.read_text(encoding="utf-8")) for file in (DATA, MORE))
    return ranges(kernels | more | exercises)


def ranges(found: dict[str, dict]) -> dict[str, dict]:
    """Two numbers are a range, more are all values."""
    return {name: told | {"sizes": {size: tuple(given) if len(given) == 2 else set(given)
                                    for size, given in told["sizes"].items()}} for name, told in found.items()}


def kernel(name: str):
    """What `prove` takes for a kernel of a file, or the solution of an exercise."""
    if name.startswith("exercise"):
        exercise = find(name.split()[1])
        return exercise.solution, exercise.name
    file, _, instance = name.rpartition("/")
    path = cuda.KERNELS / f"{file}.cu"
    return path.read_text(encoding="utf-8"), instance, path.parent


def function(text: str, name: str) -> str:
    """The text of a kernel; empty if it is not there."""
    found = re.search(rf"(template\s*<[^>]*>\s*)?__global__[^;{{}}]*\b{name}\s*\([^;{{]*\{{", text)
    end, depth = found.end() if found else 0, bool(found)
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[found.start():end] if found else ""


def others(folder: Path):
    """({name: kernel}, {name: what `prove` takes}) of the kernels that are there; of the rest a line says so."""
    kernels, told = {}, {}
    for suite in tomllib.loads(OTHERS.read_text(encoding="utf-8")).values():
        checkout = folder / suite["repository"].rpartition("/")[2]
        for name, about in suite["kernels"].items():
            file, _, instance = name.partition("#")[0].partition(" ")
            path = checkout / suite["folder"] / file
            whole = path.read_text(encoding="utf-8") if path.is_file() else ""
            if not (text := function(whole, instance.partition("<")[0])):
                print(f"{path}: {'no kernel ' + instance if whole else 'not there'}")
                continue
            before = about.get("before", "") + "\n"
            above = whole[:whole.index(text)].count("\n") - before.count("\n")       # lines are those of the file
            kernels[f"{suite['repository']} {name}"] = above * "\n" + before + text, instance
            told[f"{suite['repository']} {name}"] = {k: v for k, v in about.items() if k != "before"}
    return kernels, told


def row(name: str, proof) -> str:
    said = " | ".join([f.verdict if f.verdict == "proved" else f.said() for f in proof.findings] + ["-"] * (6 - len(proof.findings)))
    sizes = str(proof).splitlines()[0].partition("for every ")[2]
    return f"| {name} | {sizes} | {said} | {proof.seconds:.1f} |\n"


def main(arguments: list[str]) -> int:
    rows, kernels, told = [], {}, asked()
    if arguments[:1] == ["--from"]:
        kernels, told = others(Path(arguments[1]))
        told, arguments = ranges(told), arguments[2:] or list(told)
    for name, about in told.items():
        if not arguments or name in arguments:
            rows.append(row(name, prove(kernels.get(name) or kernel(name), **about)))
            print(rows[-1], end="", flush=True)
    if not arguments:
        (ROOT / "docs" / "for_every_n.md").write_text(HEAD + "".join(rows), encoding="utf-8")
    return 0
