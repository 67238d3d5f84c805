"""The first notebook in a real JupyterLab in a real browser: opened, run to its end, CUDA coloured as C++."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIRST = ROOT / "notebooks" / "00_start_here.ipynb"


class Page:
    """One page of Chromium, by its debugging protocol."""

    def __init__(self, address: str):
        from websocket import create_connection

        self.socket = create_connection(address, timeout=60, suppress_origin=True)
        self.count = 0

    def call(self, method: str, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def js(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.js(expression):
                return value
            time.sleep(0.5)
        raise AssertionError(f"not within {seconds} s: {expression}")


def started(command, pattern: str, seconds: float, **options):
    """A process, and what the pattern found in what it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    os.set_blocking(process.stdout.fileno(), False)
    said, end = "", time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        said += process.stdout.read() or ""
        if found := re.search(pattern, said):
            return process, found
        time.sleep(0.2)
    process.kill()
    raise AssertionError(f"{command[0]} did not say {pattern}:\n{said[-2000:]}")


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a copy of the first notebook, started as `make lab` does; the address of its page."""
    from course_lib.lab import command, environment

    work = tmp_path / "wörk space"
    work.mkdir()
    shutil.copy(FIRST, work)
    env = os.environ | environment() | {"PYTHONPATH": str(ROOT), "COURSE_PROGRESS": str(tmp_path / "progress.json"),
                                        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "OMP_NUM_THREADS": "1"}
    env.pop("PYTEST_CURRENT_TEST", None)
    arguments = [a for a in command([]) if not a.startswith(("--ServerApp.root_dir", "--LabApp.default_url", "--no-browser"))]
    process, found = started([sys.executable, *arguments, f"--ServerApp.root_dir={work}", "--no-browser", "--port=0",
                              "--LabApp.expose_app_in_browser=True", f"--LabApp.default_url=/lab/tree/{FIRST.name}"],
                             r"http://127\.0\.0\.1:\d+/\S+token=\w+", 60, env=env)
    yield found[0]
    process.terminate()
    process.wait(20)


@pytest.fixture
def page(needs, tmp_path):
    browser = needs("chromium", "chromium-browser", "google-chrome")
    process, found = started([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                              "--remote-debugging-port=0", f"--user-data-dir={tmp_path / 'chromium'}", "about:blank"],
                             r"DevTools listening on ws://([\d.]+:\d+)", 60)
    tabs = json.load(urllib.request.urlopen(f"http://{found[1]}/json"))
    yield Page(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
    process.terminate()
    process.wait(20)


WIDGET = "window.jupyterapp && jupyterapp.shell.currentWidget"
# The code cells that were run and the errors they show, once the kernel has come to rest.
STATE = """(() => {
  const cells = [...jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type === 'code');
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session?.kernel;
  return {cells: cells.length, run: cells.filter(c => c.executionCount).length, status: kernel?.status,
          errors: cells.flatMap(c => c.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.ename))};
})()"""


@pytest.mark.slow
@pytest.mark.skipif(not FIRST.exists(), reason="not run: the first notebook is not there")
def test_the_first_notebook_opens_and_runs(page, lab):
    page.call("Page.navigate", url=lab)
    page.wait(f"({WIDGET})?.sessionContext?.isReady === true", 120)
    cells = page.js(STATE)["cells"]
    assert cells > 5
    page.js("jupyterapp.commands.execute('notebook:restart-run-all') && null || "
            "[...document.querySelectorAll('.jp-Dialog button.jp-mod-warn')].forEach(b => b.click())")
    time.sleep(2)
    page.js("[...document.querySelectorAll('.jp-Dialog button.jp-mod-warn, .jp-Dialog button.jp-mod-accept')].slice(-1).forEach(b => b.click())")
    end = time.monotonic() + 180
    while time.monotonic() < end:
        state = page.js(STATE)
        if state["status"] == "idle" and state["run"] == cells:
            break
        time.sleep(1)
    time.sleep(2)
    state = page.js(STATE)
    assert state["run"] == cells and state["status"] == "idle", state
    assert state["errors"] == [], state
    cuda = page.js("""[...jupyterapp.shell.currentWidget.content.widgets].filter(w => w.model.sharedModel.source.startsWith('%%cuda'))
                      .map(w => w.model.mimeType)""")
    assert cuda and set(cuda) == {"text/x-c++src"}, "every %%cuda cell is coloured as C++"
