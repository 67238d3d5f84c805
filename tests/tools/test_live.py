"""A reader's own kernel in a page: the text passes run alone, and a browser compiles, counts and ends what it is given."""
import functools
import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import nbformat
import pytest

from browser_kit import page as tab  # noqa: F401  (a fixture)

import laptop_cuda as cuda
from course_lib.exercises import find
from course_lib.exercises.judging.judge import evaluate
from course_lib.tools.book import running, working
from course_lib.tools.book.pages import chapters
from laptop_cuda import page
from laptop_cuda.page import live
from laptop_cuda.report import COPY_IN
from test_running import by_operation

ALONE = """
import sys
for name in ("torch", "numpy", "ctypes", "_ctypes"):
    sys.modules[name] = None
import laptop_cuda.page.edited as edited
print(edited.prepared(sys.stdin.read()))
"""
TEXT = """#include <cuda_fp16.h>
#include "rows.cuh"
template <int N> __global__ void tile(const __half* x, float* out) {
    __shared__ float t[N];
    t[threadIdx.x] = row_sum(__half2float(x[threadIdx.x]));
}
"""
BESIDE = "__device__ inline float row_sum(float x) { return 2 * x; }\n"


def test_the_pages_python_writes_the_laptops_text_without_torch_and_ctypes(tmp_path):
    zipfile.ZipFile(BytesIO(live.packed())).extractall(tmp_path / "page")

    def prepared(text: str) -> dict:
        job = {"text": text, "lines": [TEXT.split("\n"), BESIDE.split("\n")], "places": ["rows.cuh"], "name": "tile.cu",
               "kernel": "tile<32>", "define": []}
        ran = subprocess.run([sys.executable, "-c", ALONE], input=json.dumps(job), capture_output=True, text=True,
                             cwd=tmp_path / "page", env={"LAPTOP_CUDA_CACHE": str(tmp_path / "cache")})
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)
    (tmp_path / "tile.cu").write_text(TEXT)
    (tmp_path / "rows.cuh").write_text(BESIDE)
    module = cuda.load(tmp_path / "tile.cu")
    laptop = (module._library(True, module._texts[0], "<32>").path.parent / "kernel.cu.cpp").read_text().splitlines()
    made = prepared(TEXT)
    (header, copy), = made["copies"].items()
    assert [line for line in made["text"].splitlines() if header not in line] == [line for line in laptop if "rows.cuh" not in line]
    assert f'#include "{header}"' in made["text"] and BESIDE in copy and made["entry"] == 0
    assert "has none" in prepared(TEXT.replace("tile(", "tiles("))["error"]
    said = prepared(TEXT.replace("float* out)", "float* out, int n)"))["error"]
    assert "gives tile (const __half *, float *)" in said and "takes (const __half *, float *, int)" in said


def test_no_text_pass_knows_torch_or_ctypes():
    engine = Path(cuda.__file__).parent
    rooms = [p for room in ("text", "rewrite", "ptx", "regions") for p in sorted((engine / room).glob("*.py"))]
    assert len(rooms) > 20 and not [p for p in rooms if {"import ctypes", "import torch"} & set(p.read_text().splitlines())]


@pytest.fixture
def site(tmp_path):
    """The cells of the first chapter, with a compiler, from a server of this machine."""
    if why := page.missing() or live.missing():
        pytest.skip(why)
    path = chapters()[0]
    found, _ = running.built(path)
    for name in ("_static", "chapters"):
        (tmp_path / name).mkdir()
    try:
        running.write(tmp_path / "_static", [path], True)
    except page.NoWasm as why:
        pytest.skip(str(why))
    cells = [text for id in {one["cell"] for one in found["launches"]} for text in running.after(path, {"id": id})]
    exercises = [cell for chapter in chapters() for cell in nbformat.read(chapter, as_version=4).cells
                 if working.after(cell)]
    working.write(tmp_path / "_static" / running.COMPILER, exercises)
    cells += [text for cell in exercises for text in working.after(cell)]
    (tmp_path / "chapters" / "page.html").write_text("<script src=../_static/run.js></script>" + "".join(cells))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/chapters/page.html"
    server.shutdown()


ADD = "__global__ void add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int n)"
COPYING = f"""#include <cuda/ptx>
namespace ptx = cuda::ptx;
{ADD} {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ alignas(16) float tile[256];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {{
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, 128);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x + 256 * blockIdx.x, 128, &full);
    }}
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {{}}
    if (i < n) out[i] = threadIdx.x < 32 ? tile[threadIdx.x] : y[i];
}}
"""


@pytest.mark.slow
def test_a_reader_edits_a_kernel_right_and_wrong(tab, site):  # noqa: F811
    tab.call("Page.navigate", url=site)

    def run(name: str, old: str, new: str, ends: str) -> dict:
        root = f"document.querySelector('course-cell[data-kernel=\\'start_here/{name}\\']')"
        area, result = f"{root}.querySelector('textarea')", f"{root}.querySelector('[data-result]')"
        tab.wait(f"!!{root}?.querySelector('textarea')", 30)
        tab.js(f"{root}.querySelector('details').open = true")
        tab.wait(f"!!{area}.value", 30)
        tab.js(f"{root}.querySelector('[name=reset]').click()")
        assert old in tab.js(f"{area}.value")
        tab.js(f"{area}.value = {area}.value.replace({json.dumps(old)}, {json.dumps(new)}); {root}.querySelector('[name=submit]').click()")
        tab.wait(f"['done', 'finding', 'error'].includes({result}.dataset.state)", 240)
        assert tab.js(f"{result}.dataset.state") == ends, tab.js(f"{result}.innerText")
        return {"text": tab.js(f"{result}.innerText"), "answer": json.loads(tab.js(f"{result}.dataset.answer") or "null")}

    laptop = {one["name"].partition("/")[2]: by_operation(one["laptop"].get("sites", [])) for one in running.built(chapters()[0])[0]["launches"]}
    for name in ("add", "matmul", "warp_sum"):         # one with barriers, and one whose lanes meet
        assert by_operation(run(name, "{", "{ ", "done")["answer"]) == laptop[name]
    assert "out (1000) = [1, 0, " in run("add", "x[i] + y[i]", "i == 0", "done")["text"]
    assert "line 3: use of undeclared identifier 'z'" in run("add", "x[i] + y[i]", "z[i]", "error")["text"]
    assert "add reads x[1000], of 1,000 elements" in run("add", "i < n", "i <= n", "finding")["text"]
    assert "timeout" in run("add", "if (i < n)", "for (;;); if (i < n)", "finding")["text"]
    assert "gives add" in run("add", "int n", "int n, int m", "error")["text"]
    assert by_operation(run("add", "{", "{  ", "done")["answer"]) == laptop["add"], "the page lives on"
    given = tab.js("document.querySelector('course-cell[data-kernel=\\'start_here/add\\'] textarea').value.replace('{  ', '{')")
    copied = dict(by_operation(run("add", given, COPYING, "done")["answer"]))[COPY_IN,]
    assert (copied["requests"], copied["bytes"]) == (4, 512), "an asynchronous kernel, and its pack"
    assert "race" in run("add", given, COPYING.replace("while", "if (i < 0) while"), "finding")["text"]
    cell = "document.querySelector('course-cell[data-kernel=\\'start_here/add\\']')"
    area = f"{cell}.querySelector('textarea')"
    tab.js(f"{area}.style.fieldSizing = 'fixed'; {area}.value += '// more\\n'.repeat(60); {area}.dispatchEvent(new Event('input'))")
    assert tab.js(f"{area}.scrollHeight <= {area}.clientHeight"), "in an older browser, too, numbers scroll with their lines"
    tab.js(f"{cell}.querySelector('[name=play]').click()")
    tab.wait(f"!!{cell}.querySelector('.lc-problem')", 60)
    assert "access 1: warp 0" in tab.js(f"{cell}.querySelector('.lc-root').innerText")


HOSTILE = tomllib.loads(Path(__file__).with_name("hostile_kernels.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_what_a_page_is_given_to_break_it_ends_and_the_page_lives_on(tab, site):  # noqa: F811
    tab.call("Page.navigate", url=site)
    cell = "document.querySelector('course-cell[data-kernel=\\'start_here/add\\']')"
    tab.wait(f"!!{cell}?.querySelector('textarea')", 30)
    tab.js(f"{cell}.querySelector('summary').click()")
    tab.wait(f"!!{cell}.querySelector('textarea').value", 30)

    def told(text: str) -> str:
        tab.js(f"{cell}.querySelector('textarea').value = {json.dumps(text)}; {cell}.querySelector('[name=submit]').click()")
        tab.wait(f"!{cell}.querySelector('[name=submit]').disabled", 400)
        return tab.js(f"{cell}.querySelector('[data-result]').innerText")
    other = {}
    for name, one in HOSTILE.items():
        body = re.sub(r"([()])\*(\d+)", lambda found: found[1] * int(found[2]), one.get("body", ""))
        text = one.get("text", f"{one.get('before', '')}\n{ADD} {{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {body}\n}}\n")
        if not re.search(one["ends"], said := told(text)):
            other[name] = said[:300]
    assert not other and len(HOSTILE) == 50 and not tab.js("document.querySelectorAll('script:not([src])').length")
    assert "Counted and checked" in told(f"{ADD} {{ int i = 256 * blockIdx.x + threadIdx.x; if (i < n) out[i] = x[i] + y[i]; }}")


WORKED = ("0.2", "0.4", "0.6", "1.10", "1.11", "2.5", "3.6", "4.7", "5.6", "6.7", "7.7", "8.5")


@pytest.mark.slow
def test_a_reader_works_twelve_exercises_wrong_then_right(tab, site):  # noqa: F811
    tab.call("Page.navigate", url=site)

    def opened(id: str):
        root = f"document.querySelector('[data-exercise=\\'{id}\\']')"
        tab.wait(f"!!{root}?.querySelector('summary')", 30)
        tab.js(f"{root}.querySelector('summary').click()")

        def checked(text: str) -> tuple[str, str]:
            tab.js(f"{root}.querySelector('textarea').value = {json.dumps(text)}; {root}.querySelector('[name=submit]').click()")
            tab.wait(f"!{root}.querySelector('[name=submit]').disabled", 240)
            return tab.js(f"{root}.dataset.verdict"), tab.js(f"{root}.querySelector('[data-result]').innerText")
        return checked
    for id in WORKED:
        exercise, checked = find(id), opened(id)
        wrong = exercise.cell(exercise.wrong_code(exercise.misconceptions[0]))
        status, said = checked(wrong)
        verdict = evaluate(exercise, wrong)
        assert status == "wrong" and all((part or "").replace("`", "") in said for part in (verdict.headline, verdict.ask)), (id, said)
        assert checked(exercise.cell(exercise.solution))[0] == "passed", id
    exercise, checked = find("0.2"), opened("0.2")
    wrong = exercise.cell(exercise.wrong_code(exercise.misconceptions[0]))
    assert checked(exercise.cell(exercise.stub))[0] == "not attempted"
    assert "The kernel does not compile" in checked(wrong.replace("x[i]", "z[i]"))[1]
    assert "50,000,000 steps" in checked(wrong.replace("int i", "for (;;); int i"))[1]
    assert checked(exercise.cell(exercise.solution)) == ("passed", "\u2713 passed \u00b7 Exercise 0.2 \u00b7 Add two vectors\n\nAll 6 cases agree.")
    marks = json.loads(tab.js("localStorage['course-marks']"))
    assert checked(wrong)[0] == "wrong" and {id: marks[id]["status"] for id in WORKED} == dict.fromkeys(WORKED, "passed")
