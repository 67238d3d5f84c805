"""What the extension course-pictures does to figures, in a real JupyterLab in a real browser."""
import base64

import pytest
from nbformat.v4 import new_output

from course_lib import figures

from browser_kit import BOOK, notebook, opened, page  # noqa: F401  (fixtures)
from test_figures import shown  # noqa: F401

CELL = """from course_lib import figures
fig, ax = figures.new(3, 2)
ax.plot([0, 1])
figures.show(fig, alt="A line from 0 to 1.", caption="A line.")
figures.show(figures.new(3, 2)[0], alt="Empty axes.", caption="Nothing.")
view = {"application/vnd.jupyter.widget-view+json": {"version_major": 2, "model_id": "of a dead kernel"}}
display(view | {"text/html": "<p id='still'>Still</p>", "text/plain": ""}, raw=True)"""
IMAGES = "[...document.querySelectorAll('.jp-RenderedImage img')].map(i => [i.alt, getComputedStyle(i).filter])"
KINDS = "[...document.querySelectorAll('.jp-RenderedImage img')].map(i => [i.src.slice(0, 18), i.naturalWidth])"


@pytest.fixture
def stored(shown):  # noqa: F811
    """The output of a figure, 330 pixels wide, as a notebook holds it."""
    figures.show(figures.new(3, 2)[0], alt="Stored.", caption="Nothing.")
    data, metadata = shown[0]
    picture = base64.b64encode(data["image/png"]).decode()
    return new_output("display_data", data=data | {"image/png": picture}, metadata=metadata)


@pytest.mark.slow
def test_figures_have_their_words_and_are_dark_in_the_dark_theme(opened, stored):  # noqa: F811
    page = opened(notebook(CELL, outputs=[stored]))
    page.wait("document.querySelectorAll('.jp-RenderedImage img.course-figure').length === 1", 90)
    assert page.js(f"({BOOK}).content.model.cells.get(0).trusted") is False
    page.wait(f"({KINDS})[0][1] > 0", 10)
    assert page.js(KINDS) == [["data:image/svg+xml", 330]], "drawn, though nobody trusted this notebook"
    page.js("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait("document.querySelectorAll('.jp-RenderedImage img.course-figure').length === 2", 90)
    assert page.js(IMAGES) == [["A line from 0 to 1.", "none"], ["Empty axes.", "none"]]
    # JupyterLab looks two seconds for the widget before it shows an error
    page.wait("document.querySelector('#still')?.closest('.jupyter-widgets').textContent.includes('gone')", 20)
    assert page.js("document.querySelector('.Toastify__toast') === null"), "no question about news"
    page.js("jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait("document.body.dataset.jpThemeLight === 'false'", 30)
    assert all("invert(0.9)" in how for _, how in page.js(IMAGES))
