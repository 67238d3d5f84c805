"""From an element back to the thread, the line and the elements that it was made from."""
import numpy as np
import planted
import pytest
from engine_kit import compiled, data_of, line_of, ramp

import laptop_cuda as cuda
from laptop_cuda.why.edits import edits
from laptop_cuda.text.effects import at_line, effects, reached_from

SOURCE = data_of("why.toml")["source"]
MODULE = compiled(SOURCE)


def counted(kernel, grid, block, *arguments, **how):
    with cuda.profile(**how) as report:
        MODULE[kernel][grid, block](*arguments)
    return report


def line(marker: str) -> int:
    (found,) = line_of(SOURCE, "// " + marker)
    return found


def test_an_element_leads_to_its_thread_line_and_loads():
    out = np.zeros(70, np.float32)
    why = counted("add", 3, 33, ramp(70), ramp(70) + 1, out, 70).why(out, 68)
    assert (why.access.block, why.access.thread, why.access.value) == ((2, 0, 0), (2, 0, 0), 137)
    assert why.access.line == line("add, and the last is left out") and why.writes == 1
    assert [(s.array, s.index, s.value) for s in why.access.sources] == [("x", 68, 68), ("y", 68, 69)]
    assert all("had not written" in s.origin for s in why.access.sources)
    assert str(why).startswith("add: out[68] was stored by thread 2 of block 2.")


def test_an_element_that_no_thread_wrote():
    out = np.zeros(70, np.float32)
    why = counted("add", 3, 33, ramp(70), ramp(70), out, 70).why("out", 69)
    assert why.access is None and why.writes == 0
    assert line("add, and the last is left out") in [s.line for s in why.lines]
    assert "no thread stored anything in out[69]" in str(why) and why._repr_html_()


def test_shared_memory_leads_to_the_thread_that_filled_it():
    out = np.zeros(45, np.float32)
    why = counted("neighbours", 2, 32, ramp(45), out, 45).why(out, 33)
    assert why.access.line == line("store") and why.access.block == (1, 0, 0)
    tile = next(s for s in why.access.sources if s.array == "tile")
    assert (tile.line, tile.index, tile.more) == (line("gather"), 3, 2)
    (filled,) = tile.sources
    assert (filled.kind, filled.line, filled.thread) == ("store", line("fill"), (3, 0, 0))
    assert [(s.array, s.index) for s in filled.sources] == [("x", 35)]


@pytest.mark.parametrize("index, marker", [(3, "odd"), (4, "even")])
def test_diverged_threads_have_lines_of_their_own(index, marker):
    out = np.zeros(7, np.float32)
    why = counted("odd_and_even", 1, 32, ramp(7), out, 7).why(out, index)
    assert why.access.line == line(marker) and why.access.thread == (index, 0, 0)


def test_the_last_store_counts_and_a_load_of_the_element_is_a_reader():
    out = np.zeros(5, np.float32)
    why = counted("twice", 1, 5, out).why(out, 4)
    assert (why.access.line, why.access.value, why.writes) == (line("again"), 2, 2)
    (source,) = why.access.sources
    assert (source.array, source.value, source.sources[0].line) == ("out", 1, line("once"))
    assert [r.line for r in why.readers] == [line("again")] * 5
    assert f"Its sector is loaded from by line {line('again')} (5 times)." in str(why)


def test_an_atomic_is_the_last_of_many():
    bins = np.zeros(5, np.int32)
    why = counted("count", 3, 31, np.arange(80, dtype=np.int32) % 5, bins, 80).why(bins, 3)
    assert (why.access.kind, why.access.value, why.writes) == ("atomic", 16, 16)
    assert [(s.array, s.index) for s in why.access.sources] == [("x", 78)]


def test_the_last_launch_that_wrote_it_answers():
    x, out = ramp(6), np.zeros(6, np.float32)
    with cuda.profile() as report:
        MODULE.odd_and_even[1, 6](x, out, 6)
        MODULE.add[1, 6](x, x, out, 6)
    assert [report.why(out, i).kernel for i in (4, 5)] == ["add", "odd_and_even"]


def test_several_dimensions_and_bad_indices():
    out = np.zeros((5, 14), np.float32)
    report = counted("add", 3, 33, ramp(70), ramp(70), out, 70)
    assert report.why(out, (4, 12)).access.value == 2 * 68
    for bad in (70, -1, (5, 0), (1,), (0, 14)):
        with pytest.raises(ValueError, match=r"index: the array has shape \(5, 14\)"):
            report.why(out, bad)


def test_an_array_that_the_launch_did_not_have():
    out = np.zeros(70, np.float32)
    report = counted("add", 3, 33, ramp(70), ramp(70), out, 70)
    for other in ("z", np.zeros(70, np.float32)):
        with pytest.raises(ValueError, match="no launch had the array .*; they had x, y, out"):
            report.why(other, 0)


def test_without_launches_or_copies_it_says_so():
    with cuda.profile() as report:
        pass
    with pytest.raises(ValueError, match="not kept"):
        report.why("out", 0)
    out = np.zeros(70, np.float32)
    with pytest.raises(ValueError, match=r"profile\(keep="):
        counted("add", 3, 33, ramp(70), ramp(70), out, 70, keep=8).why(out, 0)


def test_statements_know_conditions_and_helpers():
    text = """
__device__ float twice(float v) {
    float w = 2 * v;
    return w;
}
__global__ void f(const float* x, float* out, int n) {
    int unrelated = 3;
    const float* row = x + blockIdx.x;
    for (int c = 0; c < n; ++c) {
        if (c == 1) continue;
        float t = twice(row[c]);
        out[c] = t;
    }
}
"""
    found = effects(text)
    reached = reached_from(found, at_line(found, 12))
    assert {s.line for s in reached} == {3, 4, 8, 9, 10, 11, 12}


TAKEN = compiled("""
__global__ void take(const float* nothing, const float* x, const long long* index, float* out) {
    int i = threadIdx.x;
    out[i] = x[index[i]];                                       // take
}
""")


def taken():
    x, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    with cuda.profile() as report:
        TAKEN.take[1, 256](np.zeros(0, np.float32), x, np.arange(256)[::-1].copy(), out)
    return report, out


def test_integers_of_64_bits_are_shown():
    report, out = taken()
    sources = {s.array: s.value for s in report.why(out, 3).access.sources}
    assert sources == {"x": 252.0, "index": 252}


def test_beside_an_array_without_elements():
    torch = pytest.importorskip("torch")
    out = torch.zeros(4)
    with cuda.profile() as report:
        TAKEN.take[1, 4](torch.empty(0), torch.ones(4), torch.arange(4), out)
    assert report.why(out, 3).access.value == 1


@pytest.mark.parametrize("index", [256, -1, None, 1.5, (0, 0), (None,), "x"])
def test_an_index_that_is_none_is_said(index):
    report, out = taken()
    with pytest.raises(ValueError, match="the array has shape"):
        report.why(out, index)


def test_a_block_with_more_accesses_than_are_recorded(monkeypatch):
    report, out = taken()
    monkeypatch.setattr("laptop_cuda.why.MOST_EVENTS", 200)
    found = report.why(out, 255)
    assert found.cut and found.access.value == 0 and not found.access.sources
    assert "// take" in found.lines[0].text


def changed_texts(text: str) -> set[str]:
    return {text[:e.start] + e.text + text[e.end:] for e in edits(text, effects(text))}


@pytest.mark.parametrize("wrong, right", [
    ("out[i] = a[i] * s;", "out[i] = a[i];"), ("out[i] = a[i];", "out[i] = (a[i] * s);"),
    ("out[i] = 0.0f;", "out[i] = -INFINITY;"), ("if (i < n) out[i] = s;", "if (i <= n) out[i] = s;"),
    ("out[i] = a[n] + s;", "out[i] = a[i] + s;"), ("twice(s);", "s = twice(s);"),
    ("out[i] = a[i, n];", "out[i] = a[i * n + n];"), ("out[i] = s + a[i] / n;", "out[i] = s;")])
def test_the_change_that_repairs_is_among_those_that_are_tried(wrong, right):
    text = ("__device__ float twice(float v) { return 2 * v; }\n"
            "__global__ void f(const float* a, float* out, float s, int n) { int i = threadIdx.x; BODY }")
    tried = {" ".join(t.split()) for t in changed_texts(text.replace("BODY", wrong))}
    assert (" ".join(text.replace("BODY", right).split()) in {t.replace(" ;", ";").replace("a[i  *", "a[i *")
                                                              for t in tried})


def test_a_variable_that_a_loop_forgets_is_assigned_in_it():
    text = """__global__ void f(const float* x, float* out) {
    float m = 0, largest;
    for (int i = 0; i < 3; ++i) { largest = fmaxf(m, x[i]); out[i] = largest - m; }
}"""
    assert text.replace("- m;", "- m; m = largest;") in changed_texts(text)


@pytest.mark.slow
def test_with_the_right_values_the_guilty_line_is_among_the_first_three():
    """Half of 16 planted bugs, of which 15 were measured one by one: 13 hits."""
    ranks = {}
    for bug in planted.BUGS:
        why, guilty = planted.traced(bug)
        ranks[bug] = guilty in [s.line for s in why.lines]
        assert not ranks[bug] or why.lines[0].reason
    assert sum(ranks.values()) >= 0.75 * len(ranks), ranks      # this sample: 6 of 8


def test_right_values_of_another_shape_change_nothing():
    report, out = taken()
    assert report.why(out, 3, np.zeros(5)).lines == report.why(out, 3).lines
