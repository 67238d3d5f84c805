"""Explorables and the player in a real JupyterLab: keyboard and pointer, Python's words, both themes."""
import json

import pytest

from browser_kit import BOOK, notebook, opened, page  # noqa: F401  (fixtures)
from course_lib import cuda, explore
from laptop_cuda.pictures.player import Trace

ROOT_OF = "[...document.querySelectorAll('.lc-root')]"
ARROW_RIGHT = 39


@pytest.fixture
def ran(opened):  # noqa: F811
    """A notebook with a cell per source, opened and run: `ran(source, ...)`."""
    def run(*sources):
        browser = opened(notebook(*sources))
        browser.call("Emulation.setDeviceMetricsOverride", width=1300, height=1500, deviceScaleFactor=1,
                     mobile=False)
        browser.js("jupyterapp.commands.execute('notebook:run-all-cells')")
        return browser
    return run


def words(browser, n: int, wanted: str):
    browser.wait(f"{ROOT_OF}[{n}]?.querySelector('.lc-words').textContent === {json.dumps(wanted)}", 30)


def place(browser, n: int, selector: str) -> dict:
    """Where an element is on the page, scrolled into view."""
    return browser.js(f"""(() => {{ const e = {ROOT_OF}[{n}].querySelector({json.dumps(selector)});
        e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
        return {{x: r.x, y: r.y, width: r.width, height: r.height}}; }})()""")


@pytest.mark.slow
def test_nothing_is_from_elsewhere_and_a_dead_kernel_is_told(ran):
    browser = ran("from course_lib import explore\nexplore.show('sectors', stride=2)")
    sectors = explore.find("sectors")
    browser.wait(f"{ROOT_OF}.length === 1", 120)
    words(browser, 0, sectors.picture(stride=2).words)
    # Three steps to the right, which JupyterLab's own shortcuts do not take.
    browser.js(f"{ROOT_OF}[0].querySelector('input[name=stride]').focus()")
    for _ in range(3):
        browser.key("ArrowRight", ARROW_RIGHT)
    words(browser, 0, sectors.picture(stride=5).words)
    elsewhere = browser.js("performance.getEntriesByType('resource').map(e => e.name).filter(name => "
                           "!name.startsWith(location.origin) && !/^(data|blob):/.test(name))")
    assert elsewhere == [], "everything comes from this machine"
    assert browser.errors == []
    # After a restart nobody answers, and the page says so.
    browser.js(f"({BOOK}).sessionContext.restartKernel()")
    browser.js(f"{ROOT_OF}[0].querySelector('input[name=stride]').focus()")
    browser.key("ArrowRight", ARROW_RIGHT)
    browser.wait(f"{ROOT_OF}[0].querySelector('.lc-waits').textContent === 'Waiting for the kernel.'", 9)


def key_change(browser, n: int, made) -> dict:
    """One value of explorable n changed by keyboard: a slider, a list or a handle by an arrow, else typed."""
    slider = next((c for c in made.controls if c.kind == "slider"), None)
    listed = next((c for c in made.controls if c.kind == "choice" and len(c.values) > 6), None)
    point = next((c for c in made.controls if c.kind == "point"), None)
    if slider is None and point:
        browser.js(f"{ROOT_OF}[{n}].querySelector('[data-drag={point.name}]').focus()")
        browser.key("ArrowRight", ARROW_RIGHT)
        return {point.name: (point.start[0] + point.xs[2], point.start[1])}
    if slider is None and listed:
        browser.js(f"{ROOT_OF}[{n}].querySelector('select[name={listed.name}]').focus()")
        browser.key("ArrowDown", 40)
        return {listed.name: listed.values[listed.values.index(listed.first()) + 1]}
    if slider is None:
        text = next(c for c in made.controls if c.kind == "text")
        browser.js(f"{ROOT_OF}[{n}].querySelector('input[name={text.name}]').select()")
        browser.call("Input.insertText", text="num_key_value_heads=2")
        return {text.name: "num_key_value_heads=2"}
    browser.js(f"{ROOT_OF}[{n}].querySelector('input[name={slider.name}]').focus()")
    at = slider.values.index(slider.first())
    step = 1 if at + 1 < len(slider.values) else -1
    browser.key(*(("ArrowRight", ARROW_RIGHT) if step == 1 else ("ArrowLeft", 37)))
    return {slider.name: slider.values[at + step]}


def pointer_change(browser, n: int, made, state: dict) -> dict:
    """Another value by the pointer: a handle dragged, a mark or choice clicked, a slider taken to its end."""
    point = next((c for c in made.controls if c.kind == "point"), None)
    if point is not None:
        box = place(browser, n, f"[data-drag={point.name}]")
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        target, (x, y) = (middle[0] + point.box[2] / 4, middle[1]), state[point.name]
        ground = browser.js(f"!!{ROOT_OF}[{n}].querySelector('[data-place={point.name}]')")
        browser.drag(target if ground else middle, target)          # the handle comes to its ground
        return {point.name: (x + (point.xs[1] - point.xs[0]) / 4, y)}
    mark = browser.js(FREE_MARK.replace("NTH", str(n)).replace("NOW", json.dumps(state)))
    if mark is not None:
        browser.click(mark["x"], mark["y"])
        return mark["set"]
    choice = next((c for c in made.controls if c.kind == "choice" and len(c.values) <= 6), None)
    if choice is not None:
        value = next(value for value in choice.values if value != state[choice.name])
        box = place(browser, n, f"input[value={json.dumps(str(value))}]")
        browser.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return {choice.name: value}
    slider = next(c for c in reversed(made.controls) if c.kind == "slider" and state[c.name] != c.values[-1])
    box = place(browser, n, f"input[name={slider.name}]")
    browser.drag((box["x"] + 8, box["y"] + box["height"] / 2),
                 (box["x"] + box["width"] - 2, box["y"] + box["height"] / 2))
    return {slider.name: slider.values[-1]}


# A mark that changes the state and that nothing covers: its middle, and what a click on it sets.
FREE_MARK = """(() => { const state = NOW; for (const mark of [...document.querySelectorAll('.lc-root')][NTH].querySelectorAll('[data-set]')) {
    const set = JSON.parse(mark.dataset.set);
    if (Object.entries(set).every(([name, value]) => state[name] === value)) continue;
    mark.scrollIntoView({block: 'center'});
    const r = mark.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
    if (document.elementFromPoint(x, y) === mark) return {x, y, set};
} return null; })()"""


@pytest.mark.slow
def test_every_explorable_is_moved_by_keyboard_and_pointer(ran):
    """At three states the words on the page are what the course's function says; no error, light and dark."""
    names = explore.names()
    browser = ran("from course_lib import explore", *(f"explore.show({name!r})" for name in names))
    browser.call("Emulation.setDeviceMetricsOverride", width=1300, height=700 * len(names),
                 deviceScaleFactor=1, mobile=False)
    browser.wait(f"{ROOT_OF}.length === {len(names)}", 180)
    for n, name in enumerate(names):
        made = explore.find(name)
        state = made.state()
        words(browser, n, made.picture().words)
        for change in (lambda: key_change(browser, n, made), lambda: pointer_change(browser, n, made, state)):
            before, state = made.picture(**state).words, made.state(**state | change())
            after = made.picture(**state).words
            assert after != before, f"{name}: {state} is no other state"
            words(browser, n, after)
        assert browser.js(f"{ROOT_OF}[{n}].querySelector('.lc-problem').textContent") == "", name
    for theme, ground in (("Light", "rgb(255, 255, 255)"), ("Dark", "rgb(23, 25, 28)")):
        browser.js(f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
        browser.wait(f"{ROOT_OF}.every(root => root.dataset.theme === '{theme.lower()}')", 20)
        assert browser.js(f"getComputedStyle({ROOT_OF}[0]).backgroundColor") == ground
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
def test_the_player_steps_by_keyboard_and_pointer(ran):
    browser = ran("from course_lib import cuda", f"with cuda.profile() as report:\n"
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
