"""Explorables and the player in a real JupyterLab: moved by keyboard and pointer, their words are Python's, both themes."""
import json

import nbformat
import pytest

from browser_kit import BOOK, page, serve  # noqa: F401  (page is a fixture)
from course_lib import cuda, explore
from laptop_cuda.player import Trace

ROOT_OF = "[...document.querySelectorAll('.lc-root')]"
ARROW_RIGHT = 39


@pytest.fixture
def opened(page, tmp_path):  # noqa: F811
    """A notebook with a cell per explorable, opened and run: `opened(source, ...)`."""
    processes = []

    def open_(*sources):
        work = tmp_path / "work"
        work.mkdir()
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), work / "explore.ipynb")
        process, address = serve(work, "explore.ipynb")
        processes.append(process)
        page.call("Runtime.enable")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setDeviceMetricsOverride", width=1300, height=1500, deviceScaleFactor=1, mobile=False)
        page.call("Page.navigate", url=address)
        page.wait(f"({BOOK})?.sessionContext.isReady === true && ({BOOK}).context.isReady", 120)
        page.js(f"jupyterapp.shell.activateById(({BOOK}).id)")
        page.wait("jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", 60)
        page.js("jupyterapp.commands.execute('notebook:run-all-cells')")
        return page
    yield open_
    for process in processes:
        process.terminate()
        process.wait(20)


def words(browser, n: int, wanted: str):
    browser.wait(f"{ROOT_OF}[{n}]?.querySelector('.lc-words').textContent === {json.dumps(wanted)}", 30)


def place(browser, n: int, selector: str) -> dict:
    """Where an element is on the page, scrolled into view."""
    return browser.js(f"""(() => {{ const e = {ROOT_OF}[{n}].querySelector({json.dumps(selector)});
        e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
        return {{x: r.x, y: r.y, width: r.width, height: r.height}}; }})()""")


@pytest.mark.slow
def test_moved_by_keyboard_and_pointer_in_both_themes(opened):
    browser = opened("from course_lib import explore\nexplore.show('sectors')", "explore.show('banks', pitch=31)")
    sectors, banks = explore.find("sectors"), explore.find("banks")
    browser.wait(f"{ROOT_OF}.length === 2", 120)
    words(browser, 0, sectors.picture().words)
    words(browser, 1, banks.picture(pitch=31).words)
    # The keyboard: three steps to the right, which JupyterLab's own shortcuts do not take.
    browser.js(f"{ROOT_OF}[0].querySelector('input[name=stride]').focus()")
    for _ in range(3):
        browser.key("ArrowRight", ARROW_RIGHT)
    words(browser, 0, sectors.picture(stride=4).words)
    # The pointer: the far end of a slider, and one of two choices.
    box = place(browser, 0, "input[name=offset]")
    browser.drag((box["x"] + 8, box["y"] + box["height"] / 2), (box["x"] + box["width"] - 2, box["y"] + box["height"] / 2))
    words(browser, 0, sectors.picture(stride=4, offset=31).words)
    box = place(browser, 1, "input[value=row]")
    browser.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    words(browser, 1, banks.picture(pitch=31, read="row").words)
    grounds = {}
    for theme in ("Light", "Dark"):
        browser.js(f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
        browser.wait(f"{ROOT_OF}[0].dataset.theme === '{theme.lower()}'", 20)
        grounds[theme] = browser.js(f"getComputedStyle({ROOT_OF}[0]).backgroundColor")
    elsewhere = browser.js("performance.getEntriesByType('resource').map(e => e.name)"
                           ".filter(name => !name.startsWith(location.origin) && !/^(data|blob):/.test(name))")
    assert elsewhere == [], "everything comes from this machine"
    assert grounds == {"Light": "rgb(255, 255, 255)", "Dark": "rgb(23, 25, 28)"}
    assert browser.errors == []


KERNEL = """
__global__ void column(float* out) {
    __shared__ float tile[32][32];
    tile[threadIdx.x][0] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x][0];
}
"""


def launched():
    with cuda.profile() as report:
        cuda.compile(KERNEL).column[1, 32](cuda.empty(32))
    return report.launches[0]


@pytest.mark.slow
def test_the_player_steps_by_keyboard_and_pointer(opened):
    browser = opened("from course_lib import cuda", f"with cuda.profile() as report:\n"
                     f"    cuda.compile({KERNEL!r}).column[1, 32](cuda.empty(32))\nreport.launches[0].play()")
    trace = Trace(launched().replay())
    browser.wait(f"{ROOT_OF}.length === 1", 120)
    words(browser, 0, trace.words(trace.first))
    browser.js(f"{ROOT_OF}[0].focus()")
    browser.key("ArrowRight", ARROW_RIGHT)
    words(browser, 0, trace.words(trace.first + 1))
    browser.key("Home", 36)
    words(browser, 0, trace.words(0))
    box = place(browser, 0, "button[title='key: b']")
    browser.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    barrier = next(n for n, step in enumerate(trace.steps) if step["kind"] == "barrier")
    words(browser, 0, trace.words(barrier))
    assert browser.js(f"{ROOT_OF}[0].querySelector('.lc-now').textContent").strip() == "__syncthreads();"
    assert browser.errors == []
