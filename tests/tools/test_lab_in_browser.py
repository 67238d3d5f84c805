"""The first notebook in a real JupyterLab in a real browser: opened, run to its end, CUDA coloured as C++."""
import json
import time

import nbformat
import pytest

from browser_kit import BOOK, ROOT, opened, page  # noqa: F401  (fixtures)

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
