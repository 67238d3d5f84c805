"""A notebook's cells, run in a process that is forked from one that has imported torch and matplotlib.

It costs what the cells cost: no kernel is started and nothing is imported twice. The shell is IPython's own, so
magics, `display` and `check` work as in a kernel. What only a kernel does (comms, captured C output, interrupts) is
tested by `pytest --nbval`, which runs every notebook in one."""
import atexit
import base64
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

SECONDS = 300
_server: subprocess.Popen | None = None


def execute(notebook, path: Path, package: Path | None = None, **environment: str) -> None:
    """Fill in the outputs of every code cell, run in the folder of `path`.

    The first cell that raises without the tag `raises-exception` ends it as `CellFailed`. `package` is the folder
    whose course_lib is imported, ours if not named."""
    import nbformat

    from course_lib.files import ROOT
    from course_lib.tools.notebooks import CellFailed

    request = {"notebook": nbformat.writes(notebook), "folder": str(Path(path).resolve().parent),
               "package": str(package or ROOT), "environment": environment}
    server = _running_server()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    reply = json.loads(server.stdout.readline())
    if "outputs" not in reply:
        raise CellFailed(f"{Path(path).name}: {reply['ended']}")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, (cell, outputs) in enumerate(zip(code, reply["outputs"]), 1):
        cell.execution_count, cell.outputs = count, [nbformat.from_dict(output) for output in outputs]
    if len(reply["outputs"]) < len(code) or reply["failed"]:
        last = code[len(reply["outputs"]) - 1]
        error = last.outputs[-1]
        raise CellFailed(f"{Path(path).name}: {error.ename}: {error.evalue}, in the cell\n{last.source}")


def _running_server() -> subprocess.Popen:
    global _server
    if _server is None or _server.poll() is not None:
        from course_lib.tools.clean_kernel import environment

        _server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True, env=environment())
        atexit.register(_server.kill)
    return _server


def serve() -> None:
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"        # as a kernel sets it
    # torch._dynamo: what torch loads for the first check that watches calls
    for module in ("torch", "torch._dynamo", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "IPython",
                   "einops", "anywidget", "safetensors.torch"):
        importlib.import_module(module)

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)                # what C code prints is no reply
    for line in sys.stdin:
        result = Path(tempfile.gettempdir()) / f"cells-{os.getpid()}.json"
        result.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _child(json.loads(line), result)
        ended = _await(pid)
        said = result.read_text() if ended == 0 else json.dumps({"ended": f"ended by {ended}"})
        result.unlink(missing_ok=True)
        print(said, file=replies, flush=True)


def _await(pid: int) -> int | str:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return f"its time, {SECONDS} s"


def _child(request: dict, result: Path) -> None:
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:] = [request["package"]] + [p for p in sys.path if p != request["package"]]
    try:
        result.write_text(json.dumps(_run(json.loads(request["notebook"])["cells"]), default=_base64))
    except BaseException:
        result.write_text(json.dumps({"ended": traceback.format_exc()}))
    os._exit(0)


def _base64(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def _run(cells: list[dict]) -> dict:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    shell._showtraceback = lambda *parts: None          # an error is an output of its own
    made: list[list[dict]] = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        with capture_output() as captured:
            ran = shell.run_cell("".join(cell["source"]), store_history=True)
        made.append(_outputs(captured))
        error = ran.error_before_exec or ran.error_in_exec
        if error is not None:
            made[-1].append({"output_type": "error", "ename": type(error).__name__, "evalue": str(error),
                             "traceback": []})
            if "raises-exception" not in cell["metadata"].get("tags", []):
                return {"outputs": made, "failed": True}
    return {"outputs": made, "failed": False}


def _outputs(captured) -> list[dict]:
    """As nbformat keeps them. A stream is kept before the displays of its cell."""
    streams = [{"output_type": "stream", "name": name, "text": text}
               for name, text in (("stdout", captured.stdout), ("stderr", captured.stderr)) if text]
    return streams + [{"output_type": "display_data", "data": shown.data, "metadata": shown.metadata or {}}
                      for shown in captured.outputs]


if __name__ == "__main__":
    serve()
