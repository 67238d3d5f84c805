"""Explorables and their frame: words, stills, tables; what is written unwatched; the JavaScript."""
import html
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import pytest

from course_lib import explore
from course_lib.explore import banks, sectors
from course_lib.explore.frame import Canvas, Choice, Explorable, Point, Slider, Text, amount
from course_lib.explore.frame.explorable import FILE, LARGEST_TABLE
from laptop_cuda.pictures import front
from laptop_cuda.pictures.player import SCRIPTS


def words(name, **state):
    return explore.find(name).picture(**state).words


class Powers(Explorable):
    """An explorable of the test's own: the frame is tested on it, not on a chapter's."""
    title, caption = "Powers", "Each step of n doubles the bar."
    controls = (Slider("n", range(8), 1), Choice("fill", ("soft", "accent")), Text("name", "two", most=5))
    page = {"n": range(3), "fill": ["accent"], "name": ["two", "2 < 3"]}

    def draw(self, n, fill, name):
        if not name:
            raise ValueError("name: type at least one character")
        canvas = Canvas(700, 60)
        canvas.rect(10, 20, 5 * 2 ** n, 20, fill=fill, text=2 ** n, about=f"{name} & co")
        return canvas, f"{name} to the {n} is {2 ** n}."


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would get: [(data, metadata)]. `shown.kernel` says whether it has a kernel."""
    made = []

    class Shell:
        kernel = object()
    monkeypatch.setitem(sys.modules, "IPython", type(sys)("IPython"))
    sys.modules["IPython"].get_ipython = Shell
    display = type(sys)("IPython.display")
    display.display = lambda data, metadata=None, raw=False: made.append((data, metadata))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return made


def test_where_nobody_watches_the_output_is_a_still_without_an_id(shown, monkeypatch):
    monkeypatch.setattr(front, "watched", lambda: False)
    explore.show("sectors", stride=2)
    (data, metadata), = shown
    assert (set(data) == {"text/html", "text/plain"}
            and metadata == {"explorable": "sectors", "start": {"stride": 2}})
    picture = explore.find("sectors").picture(stride=2)
    assert data["text/plain"] == f"{picture.title}. {picture.caption}\n{picture.words}"
    explore.show("sectors", stride=2)
    assert shown[0] == shown[1], "the same bytes each time"


def test_where_a_person_watches_a_widget_is_added(shown, monkeypatch):
    monkeypatch.setattr(front, "watched", lambda: True)
    front.show(Powers().picture(), lambda: type("Widget", (), {"model_id": "1f"}))
    (data, _), = shown
    assert data[front.WIDGET]["model_id"] == "1f" and {"text/html", "text/plain"} < set(data)


@pytest.mark.parametrize("variable", ["COURSE_BATCH", "LAPTOP_CUDA_BATCH", "PYTEST_CURRENT_TEST"])
def test_a_kernel_of_a_test_or_a_batch_is_not_watched(shown, monkeypatch, variable):
    for name in ("COURSE_BATCH", "LAPTOP_CUDA_BATCH", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    assert front.watched()
    monkeypatch.setenv(variable, "1")
    assert not front.watched()


def test_in_a_terminal_the_words_are_printed(capsys):
    front.show(Powers().picture(n=3), lambda: pytest.fail("no widget in a terminal"))
    assert "two to the 3 is 8." in capsys.readouterr().out


def test_without_anywidget_one_line_says_so(shown, monkeypatch, capsys):
    monkeypatch.setattr(front, "watched", lambda: True)
    monkeypatch.setattr(front, "find_spec", lambda name: None)
    front.show(Powers().picture(), lambda: pytest.fail("it cannot be made"))
    assert capsys.readouterr().out == front.MISSING + "\n" and front.WIDGET not in shown[0][0]


@pytest.mark.parametrize("name", explore.names())
def test_each_explorable_draws_says_and_is_small(name):
    made = explore.find(name)
    picture = made.picture()
    still = picture.html()
    image = unquote(re.search(r'src="data:image/svg\+xml,([^"]+)"', still)[1])
    assert ET.fromstring(image).attrib["aria-label"] == picture.words, "an image that any reader can parse"
    assert f'alt="{html.escape(picture.words, quote=True)}"' in still
    assert len(still) < 60_000 and len(picture.words) > 40 and made.caption.endswith(".")
    assert picture.canvas.width <= 700 and "nan" not in image
    for control in made.controls:
        assert control.accept(control.first()) == control.first(), control.name
    table = made.table()
    if table:
        assert len(json.dumps(table)) < LARGEST_TABLE
        assert all("svg" in state for state in table["states"].values())


@pytest.mark.parametrize("stride, offset", [(1, 0), (2, 3), (32, 31)])
def test_sectors_are_the_engines(stride, offset):
    load, indices = sectors.counted(stride, offset)
    assert indices == [stride * i + offset for i in range(32)]
    assert load.sectors == len({at // 8 for at in indices})
    said = words("sectors", stride=stride, offset=offset)
    assert f"{100 * load.bytes / load.moved:.3g}% of them were asked for" in said
    assert f"{load.bytes} bytes in {load.sectors} sectors, so {32 * load.sectors} bytes move" in said


@pytest.mark.parametrize("pitch, read, expected",
                         [(32, "column", 32), (33, "column", 1), (36, "column", 4), (32, "row", 1)])
def test_banks_are_the_engines(pitch, read, expected):
    load, places = banks.counted(pitch, read)
    fullest = max(sum(word % 32 == bank for word in places) for bank in range(32))
    assert load.wavefronts == fullest == expected and load.excess == expected - 1
    assert f"takes {banks.passes(expected)}, {expected - 1} of them lost" in words("banks", pitch=pitch, read=read)


@pytest.mark.parametrize("name, said, state", [
    ("weights", "product: 'much' is not a number", {"product": "much"}),
    ("looking", "line: type at least one", {"text": ""}),
    ("looking", "'ï', which is not in the vocabulary", {"text": "naïve"}),
    ("gaussians", "a: 3 is not a point", {"a": 3}), ("ideas", "idea: 'sieve' is none of", {"idea": "sieve"}),
    ("small_model", "prompt: type at least one", {"text": ""}),
    ("small_model", "not in the vocabulary", {"text": "naïve"}),
    ("configuration", "'heads' is not name=value", {"edit": "heads"}),
    ("configuration", "at most 1,000", {"edit": "num_hidden_layers=5000"}),
    ("configuration", "head_dim must be between 0", {"edit": "head_dim=-3"}),
    ("configuration", "num_key_value_heads divides", {"edit": "num_key_value_heads=5"})])
def test_a_bad_value_is_refused_by_name(name, said, state):
    with pytest.raises(ValueError, match=said):
        words(name, **state)


def test_one_of_a_thing_is_singular():
    assert [amount(n, "slots") for n in (0, 1, 2000)] == ["0 slots", "1 slot", "2,000 slots"]
    for name, state in (("waves", {"splits": 1, "heads": 1}), ("cache_sizes", {"batch": 1, "bytes": 1}),
                        ("shared_heads", {"n_heads": 8, "n_kv_heads": 1}), ("small_model", {"new": 1}),
                        ("pages", {"size": 2}), ("chunks", {"size": 24}), ("drafts", {"n": 1})):
        said = re.findall(r"(?<![\d.,/])\b1 (?!computes)([a-z]+s)\b", words(name, **state))
        assert not said, (name, said)


def test_a_state_outside_is_brought_inside_or_refused():
    made = Powers()
    assert made.state(n=99) == {"n": 7, "fill": "soft", "name": "two"}
    assert made.state(name="123456789")["name"] == "12345"
    for wrong, said in (({"n": "x"}, "n: 'x' is not a number"),
                        ({"fill": "red"}, "fill: 'red' is none of soft, accent"),
                        ({"m": 1}, "Powers|no control 'm'"), ({"name": 3}, "name: 3 is not a text")):
        with pytest.raises(ValueError, match=said):
            made.state(**wrong)
    assert made.answer({"name": ""}) == {"problem": "name: type at least one character"}
    assert Point("p", (0, 1, 0.25), (0, 2, 1), (0, 0, 10, 10), (0, 0)).accept([0.6, 9]) == (0.5, 2)


@pytest.mark.parametrize("name, state, ranges", [
    ("tile_walk", {}, {"step": 10}), ("tile_walk", {"rows": 8, "columns": 8, "causal": "no"}, {"step": 64}),
    ("chunks", {"size": 6}, {"step": 4}), ("shared_heads", {"n_heads": 8}, {"n_kv_heads": 4, "head": 8}),
    ("online_softmax", {"tile": 4}, {"done": 3}), ("audit", {"task": "MQAR"}, {"softmax": 4, "w2": 4})])
def test_a_slider_offers_what_its_state_has(name, state, ranges):
    made = explore.find(name)
    found = made.answer(state)["ranges"]
    assert {control: len(values) for control, values in found.items()} == ranges
    last = {control: values[-1] for control, values in found.items()}
    beyond = {c.name: c.values[-1] for c in made.controls if c.name in ranges}
    assert made.state(**state, **beyond) == made.state(**state, **last), "what is beyond is the last"
    for answer in made.table()["states"].values():
        offered = {c.name: set(c.values) for c in map(made._offered, made.controls)}
        assert all(set(values) <= offered[control] for control, values in answer["ranges"].items())


def test_the_table_of_a_page_has_every_state():
    table = Powers().table()
    assert [c["kind"] for c in table["spec"]["controls"]] == ["slider", "choice", "choice"]
    assert set(table["states"]) == {f"{n},0,{name}" for n in range(3) for name in range(2)}
    assert table["states"]["2,0,1"]["words"] == "2 < 3 to the 2 is 4."
    assert table["spec"]["state"] == {"n": 1, "fill": "accent", "name": "two"}


def test_a_mark_says_what_it_is_and_escapes():
    canvas = Canvas(10, 10)
    canvas.rect(0, 0, 1, 1, about='"<&', set={"head": 3}, hover=True)
    canvas.circle(1, 1, 1, drag="p", about="mean")
    canvas.rect(0, 0, 9, 9, place="p")
    canvas.text(0, 0, "<script>")
    root = ET.fromstring(canvas.svg('a "b"'))
    rect, circle, ground, text = root
    assert ground.attrib["data-place"] == circle.attrib["data-drag"] and "tabindex" not in ground.attrib
    assert json.loads(rect.attrib["data-set"]) == {"head": 3} and rect.attrib["aria-label"] == '"<&'
    assert rect[0].text == '"<&' and rect.attrib["tabindex"] == circle.attrib["tabindex"] == "0"
    assert text.text == "<script>"


def test_nothing_is_loaded_from_elsewhere():
    text = front.module(FILE) + front.module(*SCRIPTS) + front.css()
    assert (not re.search(r"\bimport\b[^;]*from|import\(|https?://(?!www\.w3\.org/2000/svg)|@import|url\(",
                          text))


def test_the_javascript_that_computes(needs, tmp_path):
    """The tests in the two languages are of one module: the one that the browser gets."""
    node = needs("node")
    names = "nearest, onSteps, pointAt, pointMoved, keyOf, asker, changed, themeOf, withUnit, freshId"
    for name in ("front.mjs", "second.mjs"):
        (tmp_path / name).write_text(front.module(FILE) + f"\nexport {{{names}}};\n")
    (tmp_path
     / "front.test.mjs").write_text((FILE.parents[3] / "tests" / "tools" / "explore.test.mjs").read_text())
    done = subprocess.run([node, "--test", "front.test.mjs"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_gets_an_answer_whatever_happens(monkeypatch):
    class Widget:
        def __init__(self, data, answer):
            self.answer = answer

        def observe(self, told, name):
            self.ask = told
    monkeypatch.setattr(front, "widget_class", lambda *_: Widget)
    powers = Powers()
    made = powers._widget({})
    monkeypatch.setattr(powers, "draw", lambda **state: 1 / 0)
    made.ask({"new": {"state": powers.state(), "number": 7}})
    assert made.answer == {"problem": "ZeroDivisionError: division by zero", "number": 7}
