"""The tree against the guides of the house: arrows, circles, sizes, the share of checks, the voice; kernels/.

That each kernel compiles, here and on a card, is seen where its cases are (test_gpu_cases.py)."""
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from course_lib import cuda
from course_lib.cuda import KERNELS
from course_lib.tools.lint import house, style, voice

FILES = sorted(KERNELS.rglob("*.cu*"))


@pytest.fixture(scope="module")
def graph():
    return house.import_graph()


def test_arrows_go_down(graph):
    assert house.upward(graph) == []


def test_the_tree_keeps_to_its_guides():
    assert house.complaints() == []


def test_an_upward_arrow_is_seen(graph):
    for module, target, said in (("course_lib.attention.kernels", "course_lib.rope", "goes up"),
                                 ("course_lib.exercises.judging.judge", "course_lib.gqa", "imports no chapter"),
                                 ("laptop_cuda.build", "course_lib.files", "goes up"),
                                 ("course_lib.attic.old", "course_lib.gqa", "has no floor")):
        assert any(said in line for line in house.upward({module: {target}})), module


def test_the_folders_of_the_engine_form_no_circle(graph):
    assert house.circles(house.engine_rooms(graph)) == []
    two = {"laptop_cuda.ptx.memory": {"laptop_cuda.text.tokens"},
           "laptop_cuda.text.outline": {"laptop_cuda.ptx"}}
    assert house.circles(house.engine_rooms(two)) == [["laptop_cuda.ptx", "laptop_cuda.text"]]


def test_a_circle_is_seen():
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_checks_are_counted():
    tree = house.ast.parse("def f(x):\n    if x < 0:\n        raise ValueError(x)\n    check_count('x', "
                           "x)\n    return x\n")
    assert sum(map(house.is_check, house.ast.walk(tree))) == 2


@pytest.mark.parametrize("line", ["one byte a byte", "two loads a thread, one launch a step",
                                  "nobody's fault", "it stands in the file", "what a name is, is what counts",
                                  "the others are its echo", "an install goes on where it stopped"])
def test_the_voice_hears_a_riddle(line):
    found = any(pattern.search(line) for pattern in voice.COMPILED.values())
    assert found or line.startswith(("one byte", "what a name")), line


@pytest.mark.parametrize("line", ["two loads per thread", "a second time", "one head of a layer",
                                  "the file is present", "it is stored in L2"])
def test_the_voice_lets_plain_words_pass(line):
    assert not any(pattern.search(line) for pattern in voice.COMPILED.values()), line


@pytest.mark.parametrize("text, said", [
    ("f(\n    1,\n)\n", "t.py:3: a closing bracket on a line of its own"),
    ("x = 1" + " " * 110 + "# wide\n", "t.py:1: 121 columns, the guide is 110")])
def test_another_style_is_seen(text, said):
    assert style.strange("t.py", text) == [said]


def test_a_text_may_be_wide_and_hold_brackets():
    assert style.strange("t.py", f'x = """\n)\n{"wide " * 30}"""\n') == []


def test_every_planted_fault_has_its_text_once():
    root = Path(__file__).parents[2]
    listed = tomllib.loads((root / "tests/faults.toml").read_text(encoding="utf-8"))
    assert [fault["name"] for faults in listed.values() for fault in faults
            if (root / fault["file"]).read_text(encoding="utf-8").count(fault["old"]) != 1] == []


def test_kernels_have_one_style():
    if shutil.which("clang-format") is None:
        pytest.skip("not run: clang-format is missing (apt install clang-format)")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *map(str, FILES)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[:2000] + "\nclang-format -i mends this"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(KERNELS).as_posix())
def test_a_file_of_kernels_is_short(file):
    lines = file.read_text().splitlines()
    assert len(lines) <= (250 if file.stem.startswith("tensor_core") else 300)
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if re.search(r"\bfor \(.*\w\+\+\)", line)], "the course writes ++i"


def test_no_kernel_s_function_is_written_twice():
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


def test_a_file_of_kernels_that_is_not_there_names_those_that_are():
    with pytest.raises(FileNotFoundError, match="there is no nothing.cu in kernels/; it has: .*flash_attention"):
        cuda.load("nothing")
