"""JupyterLab and Chromium for the tests: one page by its debugging protocol, one server of `make lab`."""
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]

class Page:
    """One page of Chromium, by its debugging protocol."""

    def __init__(self, address: str):
        from websocket import create_connection

        self.socket = create_connection(address, timeout=60, suppress_origin=True)
        self.count = 0
        self.errors: list[str] = []          # exceptions, and what scripts wrote to the console as an error

    def call(self, method: str, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv())
            self._note(answer)
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def _note(self, event: dict) -> None:
        about = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:2000])
        elif event.get("method") == "Runtime.consoleAPICalled" and about["type"] == "error":
            self.errors.append(json.dumps(about["args"])[:2000])

    def key(self, name: str, code: int):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def click(self, x: float, y: float):
        self.drag((x, y), (x, y))

    def drag(self, start: tuple, end: tuple):
        """The pointer goes down at one place and up at another."""
        for kind, (x, y), held in (("mouseMoved", start, 0), ("mousePressed", start, 1),
                                   ("mouseMoved", end, 1), ("mouseReleased", end, 0)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=held,
                      clickCount=kind != "mouseMoved" and 1 or 0, button="left" if held
                      or kind == "mouseReleased" else "none")

    def js(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.js(expression):
                return value
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s: {expression}")


def started(command, log: Path, pattern: str, seconds: float, **options):
    """A process that writes to `log`, and what the pattern found there."""
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return process, found
        time.sleep(0.2)
    process.kill()
    raise AssertionError(f"{command[0]} did not say {pattern}:\n{log.read_text(errors='replace')[-2000:]}")


def lab_command(work: Path, notebook: str) -> tuple[list[str], dict]:
    """JupyterLab on a folder, as `make lab` starts it: the command and its environment."""
    from course_lib.tools.lab import command, environment

    home = work.parent
    env = (os.environ | environment()
           | {"PYTHONPATH": str(ROOT), "COURSE_PROGRESS": str(home / "progress.json"),
              "JUPYTER_CONFIG_DIR": str(home / "config"), "OMP_NUM_THREADS": "1"})
    env.pop("PYTEST_CURRENT_TEST", None)
    arguments = [a for a in command([])
                 if not a.startswith(("--ServerApp.root_dir", "--LabApp.default_url", "--no-browser"))]
    return [sys.executable, *arguments, f"--ServerApp.root_dir={work}", "--no-browser", "--port=0",
            "--LabApp.expose_app_in_browser=True", f"--LabApp.default_url=/lab/tree/{notebook}"], env


def serve(work: Path, notebook: str):
    """The server's process and the address of its page."""
    command, env = lab_command(work, notebook)
    process, found = started(command, work.parent / "lab.log", r"http://127\.0\.0\.1:\d+/\S+token=\w+", 60,
                             env=env)
    return process, found[0]


@pytest.fixture
def page(needs, tmp_path):
    browser = needs("chromium", "chromium-browser", "google-chrome")
    process, found = started([browser, "--headless=new", "--no-sandbox", "--disable-gpu",
                              "--disable-dev-shm-usage", "--remote-debugging-port=0",
                              f"--user-data-dir={tmp_path / 'chromium'}", "about:blank"],
                             tmp_path / "chromium.log", r"DevTools listening on ws://([\d.]+:\d+)", 60)
    tabs = json.load(urllib.request.urlopen(f"http://{found[1]}/json"))
    yield Page(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
    process.terminate()
    process.wait(20)


# The notebook in the main area; a page that nobody has clicked has no current widget.
BOOK = "[...(window.jupyterapp?.shell.widgets('main') ?? [])].find(widget => widget.sessionContext)"


@pytest.fixture
def opened(page, tmp_path):
    """`opened(notebook)`: the page, with the notebook in front in a JupyterLab of its own; no cell has run."""
    processes = []

    def open_(notebook, name="book.ipynb"):
        work = tmp_path / "wörk space"
        work.mkdir()
        nbformat.write(notebook, work / name)
        process, address = serve(work, name)
        processes.append(process)
        page.call("Runtime.enable")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Page.navigate", url=address)
        page.wait(f"({BOOK})?.sessionContext.isReady === true && ({BOOK}).context.isReady", 120)
        page.js(f"jupyterapp.shell.activateById(({BOOK}).id); "
                f"({BOOK}).content.node.querySelector('.jp-Cell').focus()")
        page.wait("jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", 60)
        return page
    yield open_
    for process in processes:
        process.terminate()
        process.wait(20)


def notebook(*sources, **outputs):
    """A cell per source."""
    cells = [nbformat.v4.new_code_cell(source, **outputs) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)
