"""`python -m course_lib gpu-registers`: registers and spills of every instance that a case launches, on five architectures.

Needs nvcc and c++filt, no card. Writes data/gpu/registers.txt."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_lib.cuda import KERNELS
from course_lib.files import write_whole
from course_lib.gpu.build import architectures as compiled_for, instances
from course_lib.gpu.cases import CASES
from course_lib.gpu.results import FOLDER
from laptop_cuda import gpu
from laptop_cuda.inside.toolkit import entries_of

ARCHITECTURES = (80, 86, 90, 100, 120)
FILE = FOLDER / "registers.txt"
FIGURES = "registers", "spill_stores", "spill_loads"


def launched() -> dict[Path, set[str]]:
    """The instances that the cases launch on an H100, by file."""
    files = {}
    for launch in instances(CASES).values():
        files.setdefault(launch.module.path, set()).add(launch.name)
    return files


def reported(path: Path, names, architectures=ARCHITECTURES) -> dict[str, dict[int, tuple[int, int, int]]]:
    """{instance: {architecture: (registers, bytes of spill stores, of spill loads)}} of one file."""
    architectures = ("90a",) if compiled_for(path) == ("sm_90a",) else architectures
    templates = sorted(name for name in names if "<" in name)
    addresses = "".join(f"const void* address_{i}() {{ return (const void*)({name}); }}\n"
                        for i, name in enumerate(templates))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.cu"
        source.write_text(f'#include "{path}"\n{addresses}')
        command = [gpu.nvcc(), "-std=c++17", "-O3", "-Xptxas=-v",
                   "-c", "-o", str(Path(folder) / "k.o"), str(source),
                   *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for mangled, architecture, figures in entries_of(done.stderr):
        number = int(architecture.removeprefix("sm_").rstrip("a"))
        found.setdefault(mangled, {})[number] = tuple(figures[name] for name in FIGURES)
    plain = subprocess.run(["c++filt", *found], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    by_name = {text.partition("(")[0].removeprefix("void ").strip(): rows
               for text, rows in zip(plain, found.values())}
    return {name: by_name[name] for name in sorted(names)}


def cell(registers: int, stores: int, loads: int) -> str:
    return f"{registers}" + (f" ({stores}/{loads})" if stores or loads else "")


def table(by_file: dict[Path, dict]) -> str:
    version = subprocess.run([gpu.nvcc(), "--version"], capture_output=True, text=True).stdout
    number = re.search(r"V([\d.]+)", version)
    width = 4 + max(len(name) for rows in by_file.values() for name in rows)
    lines = ["Registers per thread, and bytes spilled to local memory (stores/loads), by nvcc "
             f"{number[1] if number else '?'} -O3.", "Made by `python -m course_lib gpu-registers`. "
             "Compiled for a card; not run on one.", "",
             " " * width + "".join(f"{f'sm_{a}':<16}" for a in ARCHITECTURES).rstrip()]
    for path, rows in sorted(by_file.items()):
        lines += ["", path.relative_to(KERNELS).as_posix()]
        for name, row in rows.items():
            cells = "".join(f"{cell(*row[a]) if a in row else '':<16}" for a in ARCHITECTURES)
            lines.append(f"  {name}".ljust(width) + cells.rstrip())
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-registers",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    asked = parser.parse_args(argv)
    if gpu.nvcc() is None:
        print("gpu-registers: nvcc was not found", file=sys.stderr)
        return 1
    files = launched()
    with ThreadPoolExecutor(asked.jobs) as pool:
        rows = dict(zip(files, pool.map(reported, files, files.values())))
    write_whole(FILE, table(rows))
    print(f"{sum(map(len, rows.values()))} instances for {len(ARCHITECTURES)} architectures: {FILE}")
    return 0
