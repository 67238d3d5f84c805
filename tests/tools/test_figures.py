"""Figures: drawn, told in words, captioned, the same bytes each time; what cannot be drawn is refused."""
import io
import re
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from course_lib import figures
from course_lib.figures.narrow import narrowed
from course_lib.tools.book.pages import narrowest

WORDS = ["the", "cat", "sat"]
WEIGHTS = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]])
DRAW = {
    "heatmap": lambda: figures.heatmap(WEIGHTS, rows=WORDS, columns=WORDS, mask=WEIGHTS > 0, caption="Causal."),
    "heatmaps": lambda: figures.heatmap({"a": WEIGHTS, "b": -WEIGHTS}, caption="Two."),
    "large": lambda: figures.heatmap(torch.rand(40, 64), caption="Many."),
    "bars": lambda: figures.bars({"naive": 8.0, "tiled": 1.5}, ceiling=0.5, ceiling_label="least", unit="MB", caption="Moved."),
    "groups": lambda: figures.bars({"naive": {"asked": 8, "moved": 9}, "tiled": {"moved": 2}}, log=True, caption="Parts."),
    "curves": lambda: figures.curves({"a": [3, 2, 1.5], "b": ([0, 2], [3, 1])}, floor=1.2, floor_label="entropy", xlabel="step",
                                     ylabel="loss", spread={"a": ([2.9, 1.9, 1.4], [3.1, 2.1, 1.6])}, caption="Loss."),
    "log": lambda: figures.curves({"a": [1, 10, 100]}, x=[1, 2, 4], logx=True, logy=True, caption="Log."),
    "tiles": lambda: figures.tiles([[1, 0], [2, 1]], names={0: "skipped", 1: "whole", 2: "masked"}, outline=[(0, 0, 1, 2)],
                                   labels=[["a", ""], ["b", "c"]], caption="Tiles."),
    "memory": lambda: figures.memory({"table": ["a0", "a1"], "pool": ["a1", "", "b0", "a0"]},
                                     arrows=[(("table", 0), ("pool", 3))], caption="Pool."),
    "wrapped": lambda: figures.memory({"lanes": [f"s{i // 8}" for i in range(64)]}, caption="Sectors."),
    "boxes": lambda: figures.boxes({"HBM": (0, 0), "shared": (1, 0), "up": (0, 1)}, [("HBM", "shared", "load"), ("HBM", "up")], caption="B."),
    "map": lambda: figures.chapter_map()}


@pytest.fixture
def shown(monkeypatch):
    """What `show` would display in a notebook: [(data, metadata)]."""
    made = []
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: object())
    monkeypatch.setattr(
        "IPython.display.display", lambda data, metadata=None, raw=False: made.append((data, metadata)))
    return made


@pytest.mark.parametrize("name", DRAW)
def test_each_figure_has_picture_words_and_caption(name, shown):
    assert DRAW[name]() is None
    (picture, metadata), (caption, _) = shown
    assert picture["image/png"].startswith(b"\x89PNG") and len(picture["image/png"]) < 150_000
    assert len(picture["text/plain"]) > 10 and metadata["image/png"]["alt"] == picture["text/plain"]
    check_drawing(metadata["image/png"]["svg"], picture["image/png"])
    assert caption["text/markdown"].startswith("*") and picture["text/plain"] in caption["text/markdown"]
    assert b"matplotlib" not in picture["image/png"].lower(), (
        "the version would be in the diff of every re-run")


def check_drawing(svg: str, png: bytes) -> None:
    """As wide as the PNG; letters as outlines (no font of a reader's machine); nothing to fetch or run."""
    drawing = ElementTree.fromstring(svg)
    assert ((int(drawing.get("width")), int(drawing.get("height")))
            == pytest.approx(Image.open(io.BytesIO(png)).size, abs=1))
    assert len(svg) < 100_000
    tags = {part.tag.partition("}")[2] for part in drawing.iter()}
    assert "path" in tags and not tags & {"text", "script", "metadata", "foreignObject"}
    ids = {part.get("id") for part in drawing.iter()}
    links = [part.get("href") for part in drawing.iter() if part.get("href")]
    assert all(link[1:] in ids if link[0] == "#" else link.startswith("data:image/png") for link in links)


@pytest.mark.parametrize("name", ["heatmaps", "groups", "curves", "tiles", "map"])
def test_a_phone_gets_the_figure_laid_out_anew_or_none(name, shown, monkeypatch):
    """Letters of 9 px at 346 px; where they find no room (a map of seven columns) the wide figure scrolls."""
    monkeypatch.setenv("COURSE_NARROW", "1")
    DRAW[name]()
    drawn = shown[0][1]["image/png"].get("narrow")
    assert (drawn is None) == (name == "map")
    if drawn:
        assert 'width="346"' in drawn[:200] and narrowest(drawn) <= 346


def test_two_pictures_go_under_one_another_where_their_names_would_meet():
    fig, axes = figures.new(8, 2.4, columns=2)
    for ax in axes:
        figures.plain(ax, xlim=(0, 1), ylim=(0, 1), title="a name of forty letters, half of the sheet")
        ax.text(0.5, 0.5, "a text as long as half of the sheet")
    assert narrowed(fig, 110) and axes[0].bbox.y0 > axes[1].bbox.y1


def test_the_same_figure_is_the_same_bytes(shown):
    DRAW["bars"]()
    DRAW["bars"]()
    assert shown[0] == shown[2]


def test_the_words_say_what_the_picture_says(shown):
    DRAW["heatmap"]()
    assert ("cat -> cat (0.75)" in shown[0][0]["text/plain"]
            and "3 cells are masked" in shown[0][0]["text/plain"])
    DRAW["bars"]()
    assert ("naive: 8 MB; tiled: 1.5 MB" in shown[2][0]["text/plain"]
            and "least: 0.5 MB" in shown[2][0]["text/plain"])
    DRAW["tiles"]()
    assert "1 skipped, 2 whole, 1 masked" in shown[4][0]["text/plain"]
    DRAW["memory"]()
    assert "Row 0: 1 whole (a), 1 skipped. Row 1: 1 masked (b), 1 whole (c)." in shown[4][0]["text/plain"]
    assert ("pool: a1, free, b0, a0" in shown[6][0]["text/plain"]
            and "table 0 to pool 3" in shown[6][0]["text/plain"])


def test_the_words_of_a_curve_have_its_extremes_and_as_many_digits_as_are_sure(shown):
    figures.curves({"a": [3.14159, 1.0001, 2.71828]}, xlabel="step", ylabel="loss", caption="c")
    figures.curves({"a": [3.14159, 1.0001, 2.71828], "b": [100, 2e-13, 0.04]}, digits=1, caption="c")
    exact, rough = (data["text/plain"] for data, _ in shown[::2])
    assert "a: from 3.142 at 0 to 2.718 at 2, lowest 1 at 1." in exact
    assert ("a: from 3 at 0 to 3 at 2, lowest 1 at 1; b: from 100 at 0 to 0.04 at 2, lowest almost 0 at "
            "1." in rough)


def test_a_large_heat_map_says_where_each_row_looks(shown):
    figures.heatmap(torch.eye(20).roll(3, 1), row_label="query", column_label="key", caption="c")
    assert ("at key 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 1, "
            "2." in shown[0][0]["text/plain"])


def test_ticks_are_numbers_as_they_are_said():
    from matplotlib.figure import Figure

    def labels(values, scale):
        ax = Figure().subplots()
        ax.plot([1, 2], values)
        ax.set_yscale(scale)
        figures.plain_ticks(ax.yaxis)
        return [label.get_text() for label in ax.yaxis.get_ticklabels(which="both") if label.get_text()]

    assert ("20,000" in labels([0, 50_000], "linear")
            and not any("," in text for text in labels([0, 0.5], "linear")))
    assert {"0.5", "1", "2"} <= set(labels([0.4, 3], "log"))
    assert any("{-12}" in text for text in labels([1e-12, 1], "log"))


def points(d: str) -> list[tuple[float, float]]:
    """Where each step of a path of relative steps ends."""
    x = y = 0.0
    places, start = [], None
    for letter, numbers in re.findall(r"([a-z])([^a-z]*)", d):
        values = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        dx, dy = {"h": (values[:1] + [0])[:2], "v": [0] + values[:1], "z": (0, 0)}.get(letter, values[-2:])
        x, y = start if letter == "z" else (x + dx, y + dy)
        start = (x, y) if letter == "m" else start
        places.append((round(x, 2), round(y, 2)))
    return places


def test_a_shortened_path_ends_where_the_long_one_does():
    from course_lib.figures.vector import path

    assert path("M 1.004 2 \nL 5 2 \nL 5 9.126 \nz\n") == "m1 2h4v7.13z"
    assert (points(path("M 1 1 L 3 2 z M 10 10 Q 11 12 13 14 C 1 2 3 4 5 6"))
            == [(1, 1), (3, 2), (1, 1), (10, 10), (13, 14), (5, 6)])


def test_a_circle_is_two_arcs():
    from matplotlib.path import Path

    from course_lib.figures.vector import path

    curves = [f"C {' '.join(map(str, points))}" for points, code in Path.circle((4, 6), 2).iter_segments()
              if code == Path.CURVE4]
    assert len(curves) == 8
    short = path("M 4 4 " + " ".join(curves) + " z")
    assert short == "m4 4a2 2 0 1 1 0 4a2 2 0 1 1 0-4z" and points(short)[1:3] == [(4, 8), (4, 4)]
    ellipse = path("M 4 4 " + " ".join(curves).replace("6.0", "7.0") + " z")
    assert "a" not in ellipse


def test_in_a_terminal_the_words_are_printed(capsys):
    DRAW["bars"]()
    assert "Moved." in capsys.readouterr().out


def test_what_is_refused():
    fig, _ = figures.new()
    for alt, caption in [("", "c"), ("a", " ")]:
        with pytest.raises(ValueError, match="is empty"):
            figures.show(fig, alt=alt, caption=caption)
    with pytest.raises(ValueError, match="kind 3 at"):
        figures.tiles([[3]], names={0: "skipped"}, caption="c")


def luminance(colour: str) -> float:
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_kinds_are_told_apart_without_colour():
    assert len(set(figures.HATCHES)) == len(figures.HATCHES) == len(figures.COLOURS)
    assert len({str(dash) for dash in figures.DASHES}) == len(set(figures.MARKERS)) == len(figures.COLOURS)
    contrast = 1.05 / (luminance(figures.INK) + 0.05)
    assert contrast > 7, "text on white, WCAG AAA"


def test_the_ground_is_white_in_both_themes(shown):
    DRAW["curves"]()
    picture = Image.open(io.BytesIO(shown[0][0]["image/png"])).convert("RGBA")
    assert picture.getpixel((0, 0)) == (255, 255, 255, 255)


def test_the_map_is_the_house():
    from course_lib.exercises import CHAPTERS

    assert list(figures.CHAPTERS) == list(range(1, len(CHAPTERS)))
    for n, (title, *_, builds_on) in figures.CHAPTERS.items():
        assert all(earlier < n for earlier in builds_on)


def test_the_empty_kind_of_tile_is_white(monkeypatch):
    from course_lib.figures import grids

    drawn = []
    monkeypatch.setattr(grids, "show", lambda fig, alt, caption: drawn.append(fig))
    figures.tiles([[0, 1]], names={0: "skipped", 1: "whole"}, empty=0, caption="c")
    white = (1.0, 1.0, 1.0, 1.0)
    in_grid = [patch.get_facecolor() == white for patch in drawn[0].axes[0].patches]
    in_legend = [patch.get_facecolor() == white for patch in drawn[0].legends[0].get_patches()]
    assert in_grid == in_legend == [True, False]
