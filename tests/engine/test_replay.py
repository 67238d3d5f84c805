"""A launch replayed: the totals are the profile's counts, and each row says what the source did."""
import json

import numpy as np
import pytest
from engine_kit import ORDERS, PLAYED, PLAYED_WITH, compiled, counted, fault, line_of, ramp

import laptop_cuda as cuda

SOURCE = PLAYED + """
__global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];                            // add
}
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[8][8], tb[8][8];
    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += 8) {
        ta[threadIdx.y][threadIdx.x] = row < n && t + threadIdx.x < n ? a[row * n + t + threadIdx.x] : 0;
        tb[threadIdx.y][threadIdx.x] = col < n && t + threadIdx.y < n ? b[(t + threadIdx.y) * n + col] : 0;
        __syncthreads();                                        // first
        for (int k = 0; k < 8; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
        __syncthreads();                                        // second
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
__global__ void through(float** rows, float* out) { out[threadIdx.x] = 2 * rows[threadIdx.x][1]; }
__global__ void wide(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
MODULE = compiled(SOURCE)
N = 20


LAUNCHES = PLAYED_WITH | {
    "add": lambda: (3, 33, ramp(70), ramp(70), np.zeros(70, np.float32), 70),
    "product": lambda: ((3, 3), (8, 8), ramp(N, N), ramp(N, N), np.zeros((N, N), np.float32), N),
    "wide": lambda: (1, 33, ramp(33, 4), np.zeros((33, 4), np.float32))}


def launched(name: str, **how):
    grid, block, *arguments = LAUNCHES[name]()
    return counted(MODULE[name], grid, block, *arguments, **how), arguments


@pytest.mark.parametrize("how", ORDERS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_totals_of_all_blocks_are_the_profiles_counts(name, how):
    launch, _ = launched(name, **how)
    totals = launch.replay(blocks="all", events=100_000).totals
    for kind in ("global_load", "global_store", "shared_load", "shared_store"):
        counted = getattr(launch, kind)
        assert totals[kind] == {count: getattr(counted, count) for count in totals[kind]}, kind
    assert totals["atomics"]["requests"] == launch.atomics


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_blocks_one_by_one_are_the_whole(name):
    launch, _ = launched(name)
    count = int(np.prod(launch.grid))
    whole = launch.replay(blocks="all", events=100_000)
    parts = [launch.replay(blocks=[b]) for b in range(count)]
    assert sum(len(p.events) for p in parts) == len(whole.events)
    for kind, sums in whole.totals.items():
        assert sums == {name: sum(p.totals[kind][name] for p in parts) for name in sums}
    assert [p.blocks for p in parts] == [[b] for b in range(count)]


def test_an_event_names_thread_line_element_and_value():
    launch, (x, y, out, _) = launched("add")
    replay = launch.replay(blocks=[1])
    (store,) = [e for e in replay.events if e["kind"] == "store" and e["thread"] == 32]
    assert (store["array"], store["index"], store["value"], store["before"]) == ("out", 65, x[65] + y[65], 0)
    assert {store["line"]} == line_of(SOURCE, "// add")
    assert (store["block"], store["warp"], store["lane"], store["occurrence"]) == (1, 1, 0, 0)
    loads = [e for e in replay.events if e["kind"] == "load" and e["thread"] == 32]
    assert [(e["array"], e["site"], e["value"]) for e in loads] == [("x", 0, 65), ("y", 1, 65)]
    assert replay.steps[store["step"]]["lanes"] == 1


def test_a_wide_access_has_a_list_of_values():
    launch, (x, _) = launched("wide")
    loads = [e for e in launch.replay().events if e["kind"] == "load"]
    assert [e["value"] for e in loads] == x.tolist()


def test_intervals_end_at_their_barriers():
    launch, _ = launched("product")
    replay = launch.replay(blocks=[4])
    barriers = [*line_of(SOURCE, "// first"), *line_of(SOURCE, "// second")]
    assert [i["number"] for i in replay.intervals] == list(range(7))
    assert [i["line"] for i in replay.intervals] == barriers * 3 + [0]
    assert [i["ends"] for i in replay.intervals] == ["barrier"] * 6 + ["end"]
    covered = [s for i in replay.intervals for s in range(i["first_step"], i["first_step"] + i["n_steps"])]
    assert covered == list(range(len(replay.steps)))
    for e in replay.events:
        assert e["interval"] == replay.steps[e["step"]]["interval"]


def test_diverged_lanes_are_masked():
    launch, _ = launched("odd_ones")
    replay = launch.replay(blocks=[0])
    asked = [s for s in replay.steps if s["kind"] == "load" and s["warp"] == 0]
    assert [s["lanes"] for s in asked] == [0x55555555, 0xAAAAAAAA] * 2
    assert {s["line"] for s in asked} == line_of(SOURCE, "// diverges")


def test_an_atomic_has_the_value_before_and_after():
    launch, (x, bins, _) = launched("histogram")
    replay = launch.replay(blocks="all")
    by_time = sorted((e for e in replay.events if e["kind"] == "atomic" and e["index"] == 3),
                     key=lambda e: e["time"])
    assert [(e["before"], e["value"]) for e in by_time] == [(k, k + 1) for k in range(bins[3])]


def test_a_shuffle_is_a_step():
    launch, _ = launched("lane_sum")
    steps = [s for s in launch.replay().steps if s["kind"] == "exchange"]
    assert [(s["lanes"], {s["line"]}) for s in steps] == [(0xFFFFFFFF, line_of(SOURCE, "// shuffles"))] * 5


def test_a_replay_changes_nothing_and_works_on_what_was():
    launch, (x, y, out, n) = launched("add")
    first = launch.replay(blocks="all").events
    x[:], out[:] = -1, 5
    assert launch.replay(blocks="all").events == first and (x == -1).all() and (out == 5).all()
    launched("histogram")
    before = int(MODULE.globals["calls"][0])
    again, _ = launched("histogram")
    stores = [e for e in again.replay().events if e["array"] == "calls" and e["kind"] == "store"]
    assert [e["before"] for e in stores] in ([before], [None])
    assert int(MODULE.globals["calls"][0]) == before + 1


def test_arrays_behind_pointers_are_kept_too():
    rows, out = [ramp(3), ramp(5) + 7], np.zeros(2, np.float32)
    launch = counted(MODULE.through, 1, 2, cuda.pointers(*rows), out)
    rows[1][:] = 0
    events = launch.replay().events
    assert [e["value"] for e in events if e["kind"] == "store"] == [2, 16] == out.tolist()


def test_it_is_bounded_and_says_so():
    launch, _ = launched("product")
    replay = launch.replay()
    assert replay.blocks == [0, 1] and "2 of 9 blocks" in replay.cut
    short = launch.replay(blocks="all", events=1000)
    assert 900 < len(short.events) <= 1000 and "cut at 1,000 events" in short.cut
    assert short.intervals[-1]["ends"] == "cut"
    longer = launch.replay(blocks="all").to_dict()["events"]["rows"]
    assert short.to_dict()["events"]["rows"] == longer[:len(short.events)]
    assert launch.replay(blocks="all", events=100_000).cut is None


def test_plain_data_for_json():
    launch, _ = launched("product")
    replay = launch.replay()
    data = json.loads(json.dumps(replay.to_dict(), allow_nan=False))
    assert data["version"] == 1 and data["source"]["files"][data["source"]["name"]] == SOURCE
    columns = data["events"]["columns"]
    row = dict(zip(columns, data["events"]["rows"][5]))
    assert data["arrays"][row["array"]]["name"] == replay.events[5]["array"]
    assert [len(r) for r in data["steps"]["rows"]] == [len(data["steps"]["columns"])] * len(replay.steps)


@pytest.mark.parametrize("how", ORDERS)
def test_a_race_is_marked_on_both_sides(how):
    error = fault(MODULE.reverse, 1, 64, ramp(64), np.zeros(64, np.float32), **how)
    replay = error.replay()
    mine, other = (replay.events[i] for i in replay.error["events"])
    assert replay.error["kind"] == "race" and mine["thread"] == error.thread[0] and mine["line"] == error.line
    assert {mine["line"], other["line"]} == line_of(SOURCE, "// writes") | line_of(SOURCE, "// reads")
    assert mine["array"] == other["array"] == "s" and mine["index"] == other["index"]
    assert mine["thread"] != other["thread"] and mine["interval"] == other["interval"]
    assert {mine["kind"], other["kind"]} == {"load", "store"}


def test_an_index_past_the_end_is_the_last_event():
    x = ramp(40)
    error = fault(MODULE.add, 2, 32, x, x, np.zeros(30, np.float32), 40)
    replay = error.replay()
    (refused,) = (replay.events[i] for i in replay.error["events"])
    assert (refused["array"], refused["index"], refused["kind"]) == ("out", 30, "store")
    assert refused["value"] is None and refused["thread"] == 30 and replay.blocks == [0]


def test_the_end_of_a_long_failed_launch_is_kept():
    a, c = ramp(N, N), np.zeros((N, N), np.float32)
    error = fault(MODULE.product, (3, 3), (8, 8), a, a, c.reshape(-1)[:N * N - 1], N)
    replay = error.replay(events=64)
    assert len(replay.events) <= 64 + 1 and "cut at 64 events" in replay.cut
    assert replay.events[replay.error["events"][0]]["index"] == N * N - 1


def test_a_launch_too_large_says_how_to_ask():
    launch, _ = launched("add", keep=100)
    with pytest.raises(ValueError, match=r"840 bytes, more .* profile\(keep=1_680\)"):
        launch.replay()
    assert launched("add", keep=840)[0].replay().events


def test_arrays_that_do_not_change_are_kept_once():
    x, out = ramp(100), np.zeros(100, np.float32)
    with cuda.profile(keep=1200) as report:
        for _ in range(4):
            MODULE.add[4, 32](x, x, out, 100)
    stored = [e for e in report.launches[-1].replay().events if e["kind"] == "store"]
    assert [e["before"] for e in stored[:3]] == [0, 2, 4] == [e["value"] for e in stored[:3]]


@pytest.mark.parametrize("bad", [0, -1, [9], [], [(3, 0, 0)], "some", 1.5])
def test_blocks_that_the_grid_has_not(bad):
    launch, _ = launched("product")
    with pytest.raises(ValueError, match="blocks"):
        launch.replay(blocks=bad)
    assert launch.replay(blocks=[(2, 1)]).blocks == [5]


def test_a_number_of_events_that_is_none():
    launch, _ = launched("add")
    with pytest.raises(ValueError, match="events must be at least 32"):
        launch.replay(events=3)


def test_an_error_of_a_plain_run_says_that_it_cannot():
    with pytest.raises(cuda.KernelError) as caught:
        MODULE.add[1, 2000](ramp(8), ramp(8), np.zeros(8, np.float32), 8)
    with pytest.raises(ValueError, match="inside `profile"):
        caught.value.replay()
