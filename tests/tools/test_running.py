"""Kernels that run on the book's pages: every count and finding there is the laptop's."""
import json
import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

from browser_kit import page as tab  # noqa: F401  (a fixture)

import laptop_cuda as cuda
from course_lib.tools.book import running
from course_lib.tools.book.pages import chapters
from laptop_cuda import page
from laptop_cuda.page import record
from laptop_cuda.page.hooked import CODE, hooked, plain_name
from laptop_cuda.pictures.player import Trace
from laptop_cuda.text.shared_types import all_declared

needs = pytest.mark.skipif(bool(page.missing()) or not shutil.which("node"),
                           reason=page.missing() or "node is not installed, which runs the modules here")
NODE = """
const fs = require("fs"), [folder] = process.argv.slice(1), read = name => fs.readFileSync(`${folder}/${name}`);
eval(read("launch.js") + "; globalThis.laptopLaunch = laptopLaunch");
const module = new WebAssembly.Module(read("page.wasm")), data = new Uint8Array(read("data.bin"));
console.log(JSON.stringify(JSON.parse(read("launches.json")).map(launch => {
  const { arrays, ...answer } = laptopLaunch(module, launch, data);
  answer.bytes = Buffer.concat(arrays.flatMap(a => [a.after, a.written ?? []].map(Buffer.from))).toString("base64");
  return answer;
})));
"""
TEXT = """
@weights = hidden global [2 x float] zeroinitializer, align 4, !dbg !1
define hidden void @laptop_entry_0(ptr %0) #0 !dbg !2 {
  %2 = call ptr @llvm.returnaddress(i32 0), !dbg !3
  call void @__tsan_func_entry(ptr %2), !dbg !3
  call void @__tsan_read4(ptr @weights), !dbg !5
  ret void
}
attributes #0 = { noinline optnone sanitize_thread }
!2 = distinct !DISubprogram(name: "add", file: !4)
!3 = !DILocation(line: 7, column: 1, scope: !2)
!4 = !DIFile(filename: "work/add.cu", directory: "")
!5 = !DILocation(line: 3, column: 1, scope: !6, inlinedAt: !3)
!6 = distinct !DISubprogram(name: "vector", file: !7)
!7 = !DIFile(filename: "vector_types.h", directory: "")
"""


def answers(folder, module: bytes, launches: list, data: bytes) -> list[dict]:
    shutil.copy(page.LAUNCH, folder)
    (folder / "page.wasm").write_bytes(module)
    (folder / "data.bin").write_bytes(data)
    (folder / "launches.json").write_text(json.dumps(launches))
    ran = subprocess.run(["node", "-e", NODE, str(folder)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def by_operation(sites: list[dict], key=lambda site: ()) -> list:
    """[(*key, operation), its counts without zeros]: the sums over a launch's sites, in order."""
    sums: dict[tuple, Counter] = {}
    for site in sites:
        sums.setdefault((*key(site), site["operation"]), Counter()).update({name: site[name] for name in record.COUNTS[1:]})
    return [(of, dict(+sums[of])) for of in sorted(sums)]


def by_line(sites: list[dict], files: list[str]) -> list:
    file = lambda site: site["file"] if isinstance(site["file"], str) else files[site["file"]] if site["line"] else ""
    return by_operation(sites, lambda site: (file(site), site["line"]))


def apart(mine: list, theirs: list) -> set[int]:
    """Lines with other counts. A statement has several: compilers name one or its neighbour."""
    left = {row[0][:2] for one, other in ((mine, theirs), (theirs, mine)) for row in one if row not in other}
    return {n for f, n in left if not {(f, n - 1), (f, n + 1)} & left}


def compare(launch: dict, answer: dict, files: list[str]) -> None:
    laptop = launch["laptop"]
    if "error" in laptop:
        wanted, error = laptop["error"], answer["error"]
        assert error["kind"] == wanted["kind"] and error["who"]["line"] == wanted["line"]
        assert all(wanted[name] in (None, error["who"][name]) for name in ("block", "thread"))
        if "other" in error:
            assert f"line {error['other']['line']}" in wanted["message"]
        if "array" in error:
            size = error["itemsize"]
            assert error["array"] + (f"[{error['offset'] // size}" if size else "") in wanted["message"]
        return
    assert "error" not in answer, answer["error"]
    assert all(answer[name] == laptop[name] for name in ("unique", "barriers", "longest_thread"))
    assert by_operation(answer["sites"]) == by_operation(laptop["sites"])
    assert [note["kind"] for note in answer["notes"]] == [note["kind"] for note in laptop["notes"]]
    assert not apart(by_line(answer["sites"], files), by_line(laptop["sites"], files))


@pytest.mark.slow
@needs
@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_every_launch_of_the_book_counts_as_on_the_laptop(path, tmp_path):
    found, module = running.built(path)
    if not found["launches"]:
        pytest.skip(f"no launch of {path.stem} runs on a page: {found['left']}")
    for launch, answer in zip(found["launches"], answers(tmp_path, module, found["launches"], found["data"])):
        compare(launch, answer, found["sources"][launch["source"]]["files"])


@pytest.mark.slow
@needs
def test_a_reader_runs_a_kernel_changes_a_size_and_reads_the_finding(tab, tmp_path):  # noqa: F811
    path = chapters()[0]
    found, _ = running.built(path)
    cells = [text for id in {one["cell"] for one in found["launches"]} for text in running.after(path, {"id": id})]
    for name in ("_static", "chapters"):
        (tmp_path / name).mkdir()
    running.write(tmp_path / "_static", [path])
    (tmp_path / "chapters" / "page.html").write_text("<script src=../_static/run.js></script>" + "".join(cells))
    tab.call("Page.navigate", url=(tmp_path / "chapters" / "page.html").as_uri())
    root, other = (f"document.querySelector('course-cell[data-kernel=\\'start_here/{name}\\']')" for name in ("add", "matmul"))
    tab.wait(f"!!{root}?.querySelector('[name=submit]')", 20)
    run = f"{root}.querySelector('[name=submit]').click()"
    tab.js(run.replace(root, other) + ";" + run)        # one behind the other, though both are asked at once
    for name, at in (("add", root), ("matmul", other)):
        sites = json.loads(tab.wait(f"{at}.querySelector('[data-state=done]')?.dataset.answer", 30))
        assert by_operation(sites) == next(by_operation(one["laptop"]["sites"]) for one in found["launches"] if one["name"] == f"start_here/{name}")
    tab.js(f"{root}.querySelector('[name=value-n]').value = '1001'; {run}")
    said = tab.wait(f"{root}.querySelector('[data-state=finding]')?.innerText", 30)
    assert "add reads x[1000], of 1,000 elements" in said and "block 3, thread 232: reads" in said
    tab.js(f"{root}.querySelector('[name=play]').click()")
    assert "load x[1000]" in tab.wait(f"{root}.querySelector('.lc-root [aria-live]')?.innerText", 30), "the refused access"
    tab.js(f"{root}.querySelector('[name=grid]').value = '-1'; {run}")
    assert tab.js(f"{root}.querySelector('[name=grid]').matches(':invalid') && !!{root}.querySelector('[data-state=finding]')")


FAULTY = """
__constant__ float scale = 2;
__global__ void race(const float* x, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = scale * tile[63 - threadIdx.x];
}
__global__ void past_end(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x + 1]; }
__global__ void own_array(const float* x, float* out) {
    float own[4] = {1, 2, 3, 4};
    out[threadIdx.x] = own[threadIdx.x];
}
__global__ void apart(const float* x, float* out) {
    if (threadIdx.x < 32) __syncthreads();
    else out[0] = 1;
    __syncthreads();
}
__global__ void alone(const float* x, float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffff, x[threadIdx.x], 31);
}
__global__ void by_zero(const float* x, float* out) { out[threadIdx.x] = 64 / (threadIdx.x - 5); }
__global__ void constant(const float* x, float* out) { *(float*)&scale = x[threadIdx.x]; }
"""
RIGHT = """      // threads wait below a pointer, and between many accesses
__device__ float met(float x) { __syncthreads(); return __shfl_xor_sync(~0u, x, 1); }
extern "C" __device__ float given(float (*way)(float), float x) { return way(x); }
__global__ void by_pointer(const float* x, float* out) { out[threadIdx.x] = given(*x ? met : nullptr, x[threadIdx.x]); }
__global__ void in_one_block(const float* x, float* out) { %s }
""" % ("out[threadIdx.x] += x[threadIdx.x]; " * 800)


def recorded(module, folder, grid: int, x: np.ndarray) -> record.Recorder:
    recorder, library = record.Recorder(folder / "recorded"), module._library(True)
    for (text, _), entry in library.entries.items():
        recorder.note(getattr(module, text.name)[grid, 64], entry, library, [x, np.zeros(64, np.float32)])
    return recorder


@pytest.mark.slow
@needs
def test_a_faulty_kernel_has_the_laptops_finding_and_a_right_one_its_counts(tmp_path):
    recorder = recorded(cuda.compile(FAULTY + RIGHT, "faulty.cu"), tmp_path, 1, np.ones(64, np.float32))
    assert not recorder.left
    built = page.module([page.Source(recorder.sources[0]["text"], ("faulty.cu",))])
    found = answers(tmp_path, built, recorder.launches, bytes(recorder.data))
    for launch, answer in zip(json.loads(json.dumps(recorder.launches)), found):
        assert ("error" in launch["laptop"]) != (launch["kernel"] in RIGHT), launch["kernel"]
        compare(launch, answer, ["faulty.cu"])


PLAYED = FAULTY + """
__global__ void columns(const float* x, float* out) {
    __shared__ double tile[8][32];
    for (int r = threadIdx.x / 32; r < 8; r += blockDim.x / 32) tile[r][threadIdx.x % 32] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x % 3) out[threadIdx.x] = tile[threadIdx.x % 8][threadIdx.x / 8] + __shfl_xor_sync(~0u, 0, 1);
    else atomicAdd(&out[0], 1.0f / 3);
}
__global__ void early(const float* x, float* out) { __shared__ short s[64]; out[threadIdx.x] = s[threadIdx.x]; }
"""
PLAY = """
const fs = require("fs"), [folder] = process.argv.slice(1), read = name => fs.readFileSync(`${folder}/${name}`);
globalThis.window = globalThis.addEventListener = () => {}, globalThis.document = { currentScript: { src: "file:///x" } };
eval(read("launch.js") + "; globalThis.laptopLaunch = laptopLaunch");
eval(read("front.js") + "; Object.assign(globalThis, { asked, packed });");
const module = new WebAssembly.Module(read("page.wasm")), data = new Uint8Array(read("data.bin")), source = JSON.parse(read("source.json"));
console.log(JSON.stringify(JSON.parse(read("launches.json")).map(launch => {
  const made = { ...launch, record: asked(launch, laptopLaunch(module, launch, data).error) };
  return packed(laptopLaunch(module, made, data), made, source, "");
})));
"""


def steps_of(data: dict) -> list:
    """A player's data without what a compiler decides: its blocks of code."""
    rows = [dict(zip(data["steps"]["columns"], row)) for row in data["steps"]["rows"]]
    for row in rows:
        row["array"] = None if row["array"] is None else data["arrays"][row["array"]]["name"]
    events = lambda row: data["events"][row["first_event"]:row["first_event"] + row["n_events"]]
    kept = [n for n, row in enumerate(rows) if row["kind"] != "line"]
    left_out = ("first_event", "file") + ("line",) * (data["kernel"] == "columns")
    shown = [[row for name, row in rows[n].items() if name not in left_out] + events(rows[n]) for n in kept]
    spans = [{name: of for name, of in one.items() if name not in ("first_step", "n_steps")} for one in data["intervals"]]
    error = data["error"] and [data["error"]["kind"], [(kept.index(a["step"]), a["lane"]) for a in data["error"]["accesses"]]]
    return [shown, spans, error, [a for a in data["arrays"] if a["bytes"]], data["blocks"], kept.index(data["first"]) if data["first"] in kept else None]


@pytest.mark.slow
@needs
def test_a_launch_is_played_as_on_the_laptop(tmp_path):
    module, x, wanted = cuda.compile(PLAYED, "played.cu"), np.linspace(0, 1, 64, dtype=np.float32), []
    recorder = recorded(module, tmp_path, 3, x)
    for launch in recorder.launches:
        kernel = getattr(module, launch["kernel"])[3, 64]
        try:
            with cuda.sanitize():
                kernel(x, np.zeros(64, np.float32))
            with cuda.profile() as report:
                kernel(x, np.zeros(64, np.float32))
            wanted.append(Trace(report.launches[0].replay()).data)
        except cuda.KernelError as error:
            wanted.append(Trace(error.replay()).data)
    built = page.module([page.Source(recorder.sources[0]["text"], ("played.cu",))])
    source = {"files": ["played.cu"], "lines": [PLAYED.split("\n")], "types": all_declared([PLAYED])}
    (tmp_path / "source.json").write_text(json.dumps(source))
    answers(tmp_path, built, recorder.launches, bytes(recorder.data))
    (tmp_path / "front.js").write_text(running.front().removeprefix("(() => {\n").removesuffix("})();\n"))
    ran = subprocess.run(["node", "-e", PLAY, str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    for made, known in zip(json.loads(ran.stdout), json.loads(json.dumps(wanted)), strict=True):
        assert steps_of(made) == steps_of(known), made["kernel"]


def test_a_call_has_a_number_and_the_number_a_line():
    made = hooked(TEXT, ("add.cu",))
    assert "optnone" not in made and "define internal void @laptop_entry_0" in made
    assert made.index(f"i32 {CODE + 2} to ptr") < made.index("@__tsan_read4")
    assert "%2 = bitcast ptr %laptop.from to ptr" in made
    assert "[3 x i32] [i32 0, i32 7, i32 7]" in made, "code that was put in line has the place of the call"
    assert 'section "laptop_kernels", align 4, !dbg !1' in made and "@laptop_source = internal constant" in made
    names = ("w", "_ZL7weights", "_ZN2ns7weightsE", "_ZZ4mainE1x")
    assert [plain_name(n) for n in names] == ["w", "weights", "ns::weights", "_ZZ4mainE1x"]


def test_without_a_compiler_a_book_is_as_before(monkeypatch, tmp_path):
    monkeypatch.setattr(page.build, "find_spec", lambda name: None)
    path = chapters()[0]
    assert running.after(path, None) == []
    assert 'pip install -e ".[page]"' in running.write(tmp_path, [path]) and not list(tmp_path.iterdir())
