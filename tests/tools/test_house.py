"""The tree against the guides of the house: arrows, circles, sizes, the share of checks, the voice."""
import tomllib
from pathlib import Path

import pytest

from course_lib.tools.lint import house, style, voice


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
