"""The player: what goes to the browser, its words in both languages, where it opens, its still."""
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from engine_kit import PLAYED, PLAYED_WITH, compiled, counted, fault, line_of, ramp

import laptop_cuda as cuda
from laptop_cuda import Machine
from laptop_cuda.pictures import front
from laptop_cuda.pictures.player import SCRIPTS, Trace, bank_parts, lanes_in_words, sectors

SOURCE = PLAYED + """
__global__ void every(const float* x, float* out, int step) { out[threadIdx.x] = x[step * threadIdx.x + 1]; }
template <typename T> __device__ void stretch(T* out, int step, int lanes = 1) {
    __shared__ T tile[128];
    tile[step * threadIdx.x] = out[threadIdx.x];
    out[threadIdx.x] = tile[step * (threadIdx.x / lanes)];
}
__global__ void doubles(double* out, int step) { stretch(out, step); }
__global__ void quads(float4* out, int step) { stretch(out, step); }
__global__ void shared_quads(float4* out, int step) { stretch(out, step, 2); }
__global__ void shared_bins(const int* x, int* out) {
    __shared__ int bins[5];
    if (threadIdx.x < 5) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x]], 1);
    __syncthreads();
    if (threadIdx.x < 5) out[threadIdx.x] = bins[threadIdx.x];
}
"""
MODULE = compiled(SOURCE)
MACHINES = [Machine(), Machine(banks=20, sector_bytes=64)]


LAUNCHES = PLAYED_WITH | {
    "every": lambda: (1, 32, ramp(32 * 9), np.zeros(32, np.float32), 8),
    "doubles": lambda: (1, 31, np.zeros(31), 3), "quads": lambda: (1, 32, ramp(32, 4), 2),
    "shared_quads": lambda: (1, 32, ramp(32, 4), 2),
    "shared_bins": lambda: (1, 31, np.arange(31, dtype=np.int32) % 5, np.zeros(5, np.int32))}


def launch_of(name: str, **how):
    grid, block, *arguments = LAUNCHES[name]()
    return counted(MODULE[name], grid, block, *arguments, **how)


def race() -> cuda.KernelError:
    return fault(MODULE.reverse, 1, 64, ramp(64), np.zeros(64, np.float32))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("name", LAUNCHES)
def test_what_is_drawn_is_what_the_engine_counted(name, machine):
    trace = Trace(launch_of(name, machine=machine).replay(blocks="all"))
    for step in trace.steps:
        if step["array"] is None:
            continue
        array, events = trace.data["arrays"][step["array"]], trace.events(step)
        assert step["n_events"] == len(events) == step["lanes"].bit_count()
        if array["space"] == "shared":
            parts = [max(map(len, part.values())) for part in bank_parts(events, array, trace.machine, step["kind"])]
            assert ((sum(parts), sum(parts) - len(parts)) == (step["wavefronts"], step["excess"])
                    or step["kind"] == "atomic")
        elif step["kind"] != "atomic":
            assert len(sectors(events, array, trace.machine)) == step["sectors"]


@pytest.mark.parametrize("size", [8, 16])
def test_a_warp_has_the_lanes_of_the_machine(size):
    trace = Trace(launch_of("transpose", machine=Machine(warp_size=size)).replay())
    assert (trace.words(0).endswith(f"Lanes 0 to {size - 1} active.")
            or f"Lanes 0 to {size - 1}:" in trace.words(0))
    assert "".join(trace.picture(0).canvas.marks).count("<title>lane ") == size
    assert lanes_in_words(0b101, size) == f"2 of {size} lanes"


def test_it_opens_where_something_is_to_be_seen():
    conflict = Trace(launch_of("transpose").replay())
    assert conflict.steps[conflict.first]["excess"] == 31
    assert {conflict.steps[conflict.first]["line"]} == line_of(SOURCE, "// conflicts")
    assert ("load tile[0] to tile[992], 128 bytes in 32 passes, 31 lost to "
            "conflicts." in conflict.words(conflict.first))
    waste = Trace(launch_of("every").replay())
    assert "load x[1] to x[249], 128 bytes in 32 sectors, 1024 bytes moved." in waste.words(waste.first)
    plain = Trace(launch_of("lane_sum").replay())
    assert "load x[" in plain.words(plain.first)


def test_a_race_opens_at_its_accesses():
    trace = Trace(race().replay())
    accesses = trace.data["error"]["accesses"]
    assert len(accesses) == 2 and trace.first == max(a["step"] for a in accesses)
    assert ({trace.steps[a["step"]]["line"] for a in accesses} == line_of(SOURCE, "// writes")
            | line_of(SOURCE, "// reads"))
    assert len({trace.steps[a["step"]]["warp"] for a in accesses}) == 2
    assert "s[32] is written by one thread and read by another" in trace.picture(trace.first).words


def test_plain_numbers_once_and_fewer_than_in_the_replay():
    replay = launch_of("transpose").replay()
    text = json.dumps(Trace(replay).data, allow_nan=False)
    assert len(text) < 0.4 * len(json.dumps(replay.to_dict()))
    assert json.loads(text)["texts"] == {Trace(replay).data["source"]: SOURCE.splitlines()}


def test_the_still_is_an_image_with_words(capsys):
    launch_of("transpose").play()
    race().play(events=64)
    said = capsys.readouterr().out
    assert "A launch of transpose, replayed." in said and "A launch of reverse, replayed." in said
    picture = Trace(launch_of("transpose").replay()).picture(0)
    image = ET.fromstring(unquote(re.search(r'src="data:image/svg\+xml,([^"]+)"', picture.html())[1]))
    assert image.attrib["aria-label"] == picture.words
    assert "1 of 2 blocks" in Trace(launch_of("odd_ones").replay(blocks=[1])).picture(0).words


def test_variables_of_a_lane_have_their_names():
    replay = launch_of("odd_ones").replay(blocks="all")
    trace = Trace(replay)
    assert trace.variables(0, 3) == "The names of its variables are not known here."
    trace.with_more(replay)
    last = {(s["block"], s["warp"]): n for n, s in enumerate(trace.steps) if s["kind"] == "store"}
    x = ramp(4, 77)
    for (block, warp), n in last.items():
        for lane in range(32):
            i = 50 * block + 32 * warp + lane
            if trace.steps[n]["lanes"] >> lane & 1:
                assert trace.variables(n, lane) == f"i = {i}, s = {x[i & 1::2, i].sum():g}"


def test_variables_follow_loops_calls_and_masks():
    module = compiled("""
__device__ int twice(int v) { int w = 2 * v; return w; }
__global__ void walk(const int* x, int* out, int n) {
    int found = -1, t = threadIdx.x;
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < 2; ++j)
            if (x[i] == t + j) found = twice(i); else found += 0;
    out[t] = found;
}
""")
    launch = counted(module.walk, 1, 32, np.arange(9, dtype=np.int32) + 2, out := np.zeros(32, np.int32), 9)
    replay = launch.replay()
    trace = Trace(replay)
    trace.with_more(replay)
    end = next(n for n, s in enumerate(trace.steps) if s["kind"] == "store")
    assert trace.variables(end, 4) == f"found = {out[4]}, t = 4", "the loops are over"
    assert trace.variables(end - 3, 4).endswith(f"found = {out[4]}, t = 4, i = 8, j = 1")
    assert replay.registers["names"] == ["w of twice", "found", "t", "i", "j"]


def test_variables_in_a_namespace():
    module = compiled("#define N 4\nnamespace a { __global__ void f(float* x) { uint i = threadIdx.x; x[i] "
                      "= i + N; } }")
    found = counted(module["a::f"], 1, 4, np.zeros(4, np.float32)).replay().registers
    assert found["names"] == ["i"] and found["rows"][0][-1] == [0, 1, 2, 3]


def test_the_browser_says_what_python_says(needs, tmp_path):
    """Every step of every launch in both languages; jumps, and steps back, in the second."""
    node = needs("node")
    traces = [Trace(launch_of(name).replay(blocks="all")) for name in LAUNCHES] + [Trace(race().replay())]
    traces += [Trace(launch_of(name, machine=MACHINES[1]).replay(blocks="all")) for name in LAUNCHES]
    traces += [Trace(launch_of(name, machine=Machine(warp_size=size)).replay())
               for name, size in (("transpose", 16), ("every", 8))]
    traces[1].with_more(launch_of("odd_ones").replay(blocks="all"))
    (tmp_path / "traces.json").write_text(
        json.dumps([{"data": t.data, "words": [t.words(n) for n in range(len(t.steps))],
                     "variables": [t.variables(n, n % t.machine.warp_size) for n in range(len(t.steps))]}
                    for t in traces]))
    names = "unpack, wordsOf, jump, changedBetween, sectorsOf, touching, warpsAt, betweenInWords, bankParts, timeLine, drawArray, drawWarps, drawTimeline, laneInWords, variablesInWords"
    (tmp_path / "front.mjs").write_text(front.module(*SCRIPTS) + f"\nexport {{{names}}};\n")
    test = Path(__file__).with_name("player.test.mjs")
    (tmp_path / test.name).write_text(test.read_text())
    done = subprocess.run([node, "--test", test.name], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_no_step_is_recorded_it_says_so():
    trace = Trace(launch_of("every").replay())
    trace.steps = []
    drawn = trace.picture(0)
    assert ("no recorded step" in drawn.words and "no recorded step" in (svg := drawn.canvas.svg())
            and "step 1" not in svg)


def test_words_that_do_not_wait_are_not_painted_as_waiting():
    module = compiled("__global__ void wide(float4* out) { __shared__ float4 tile[32]; tile[threadIdx.x] = "
                      "make_float4(1, 2, 3, 4); out[threadIdx.x] = tile[threadIdx.x]; }")
    trace = Trace(counted(module.wide, 1, 32, np.zeros(128, np.float32)).replay())
    number = next(n for n, step in enumerate(trace.steps) if step["kind"] == "load")
    assert trace.steps[number]["wavefronts"] == 4 and not trace.steps[number]["excess"]
    assert ">4<" in (drawn := trace.picture(number).canvas.svg()) and 'lc-f-warn' not in drawn
