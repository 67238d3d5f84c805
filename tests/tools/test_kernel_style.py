"""The files in kernels/: their style and size, and that what two chapters need is written once. That each compiles,
here and on a card, is seen where its kernels' cases are (test_gpu_cases.py)."""
import re
import shutil
import subprocess

import pytest

from course_lib import cuda
from course_lib.cuda import KERNELS

FILES = sorted(KERNELS.rglob("*.cu*"))
by_path = pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(KERNELS).as_posix())


def test_one_style():
    if shutil.which("clang-format") is None:
        pytest.skip("not run: clang-format is missing (apt install clang-format)")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *map(str, FILES)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[:2000] + "\nclang-format -i mends this"


@by_path
def test_size(file):
    lines = file.read_text().splitlines()
    assert len(lines) <= (250 if file.stem.startswith("tensor_core") else 300)
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if re.search(r"\bfor \(.*\w\+\+\)", line)], "the course writes ++i"


def test_nothing_is_written_twice():
    """A function of one name in two files may be two functions: the files are then never both included."""
    written = {}
    for file in FILES:
        text = re.sub(r"//.*", "", file.read_text())
        for name, body in re.findall(r"__device__[\w\s*&]*?\b(\w+)\([^;{]*\) \{(.*?)\n\}", text, re.S):
            written.setdefault(re.sub(r"\s+", "", body), []).append(f"{name} in {file.name}")
    assert [places for places in written.values() if len(places) > 1] == []
    shared = {"keys_seen", "finite", "lanes_sum", "lanes_max", "log_sum_exp", "widen", "narrow"}
    for file in FILES:
        defined = set(re.findall(r"__device__ inline [\w ]*?(\w+)\(", file.read_text()))
        assert not defined & shared or file.parent.name == "common", file.name


def test_a_file_that_is_not_there_names_those_that_are():
    with pytest.raises(FileNotFoundError, match="there is no nothing.cu in kernels/; it has: .*flash_attention"):
        cuda.load("nothing")
