"""A real JupyterLab in a real browser: the first notebook is opened and runs to its end; figures have their words."""
import base64
import json
import time

import nbformat
import pytest

from course_lib import figures

from browser_kit import BOOK, ROOT, notebook, opened, page  # noqa: F401  (fixtures)
from test_figures import shown  # noqa: F401

FIRST = ROOT / "notebooks" / "00_start_here.ipynb"


# How many code cells there are and were run, and the errors they show.
STATE = f"""(() => {{
  const book = {BOOK};
  const cells = [...book.content.model.cells].filter(cell => cell.type === 'code');
  return {{cells: cells.length, run: cells.filter(cell => cell.executionCount).length,
          status: book.sessionContext.session?.kernel?.status,
          errors: cells.flatMap(cell => cell.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.ename))}};
}})()"""


@pytest.mark.slow
@pytest.mark.skipif(not FIRST.exists(), reason="not run: the first notebook is not there")
def test_the_first_notebook_opens_and_runs(opened):  # noqa: F811
    page = opened(nbformat.read(FIRST, 4), FIRST.name)
    # What the file shipped with is cleared, so that what is seen was run here.
    page.js("jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    cells = page.js(STATE)["cells"]
    assert cells > 5 and page.js(STATE)["run"] == 0
    page.js("jupyterapp.commands.execute('notebook:run-all-cells')")
    state = {}
    end = time.monotonic() + 240
    while time.monotonic() < end:
        state = page.js(STATE)
        if state["run"] == cells and state["status"] == "idle":
            break
        time.sleep(1)
    # A lesson raises on purpose, where it is shipped so.
    meant = [output["ename"] for cell in json.loads(FIRST.read_text())["cells"]
             for output in cell.get("outputs", []) if output["output_type"] == "error"]
    assert (state["run"], state["status"], state["errors"]) == (cells, "idle", meant), state
    said = page.js(f"[...({BOOK}).content.model.cells].flatMap(c => c.outputs?.toJSON() ?? []).find(o => o.data).data")
    assert said["text/plain"].startswith("Loaded torch and the course, in "), "the first import says what it does"
    cuda = page.js(f"({BOOK}).content.widgets.filter(w => "
                   "w.model.sharedModel.source.startsWith('%%cuda')).map(w => w.model.mimeType)")
    assert cuda and set(cuda) == {"text/x-c++src"}, "every %%cuda cell is coloured as C++"


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
    return nbformat.v4.new_output("display_data", data=data | {"image/png": picture}, metadata=metadata)


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
