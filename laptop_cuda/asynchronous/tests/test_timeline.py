"""The timeline of a block: who waits for whom, how deep a pipeline is, and a deadlock's last steps."""
import re
from collections import defaultdict

import copies
import numpy as np
import pytest
import test_products
from engine_kit import compiled

import laptop_cuda as cuda


def timeline(launch, **how):
    with cuda.profile() as report:
        launch()
    return report.launches[0], report.timeline(**how)


def ring(fault=0):
    copies.launched("ring", fault)


@pytest.mark.parametrize("order", ["late", "early", "seeded"])
def test_a_ring_of_two_is_two_stages_deep_and_each_waits_for_its_cause(order):
    for launch in (ring, test_products.multiplied):
        report, made = timeline(launch, order=order)
        at, steps, issued = defaultdict(list), defaultdict(list), [r for r in made.rows if r["what"] == "copy issued"]
        assert made.depth == 2 and len(issued) == report.copies_in.requests + report.copies_out.requests
        for row in made.rows:
            steps[row["warp"]].append(row["step"])
            at[row["what"], row["barrier"], row["phase"]].append(row["step"])
        assert all(s == sorted(s) for s in steps.values())
        for (what, *stage), ends in list(at.items()):
            if what == "copy landed" and stage[0]:
                assert min(at["copy issued", *stage]) < ends[0] and max(ends) < min(at["wait ends", *stage])
            if what == "wait ends" and stage[0].startswith("empty"):
                assert max(at["arrive", *stage]) < min(ends)


def test_who_waits_for_whom():
    _, made = timeline(test_products.multiplied)
    assert set(made.waits) == {*((warp, "copy engine") for warp in range(4)), (4, 0)}
    assert {r["by"] for r in made.rows if r["barrier"].startswith("empty")} == {None, 0}
    assert sum(r["what"] == "product issued" for r in made.rows) == 4 * 20
    assert "at most 2." in made.svg() and len(re.findall("<rect", made.svg())) > 100
    line = next(r["line"] for r in made.rows if r["what"] == "product issued")
    assert "wgmma" in test_products.SOURCE.splitlines()[line - 1]


def test_one_buffer_is_one_stage():
    _, made = timeline(lambda: copies.launched("by_state", 0))
    assert made.depth == 1 and {barrier for barrier, _ in made.stages} == {"bar"}
    with pytest.raises(ValueError, match="order is one of"):
        timeline(ring, order="soon")


def test_the_player_marks_what_a_warp_did_last_on_its_lane():
    with cuda.profile() as report:
        ring()
    replay, lines = report.launches[0].replay(), copies.SOURCE.splitlines()
    lanes, of = replay.timelines[0], defaultdict(list)
    for n, step, last, top, said in lanes["at"]:
        text = lines[replay.steps[n]["line"] - 1]
        assert ("cp_async_bulk(" in text) == ("copy issued" in said) and ("try_wait" in text) == ("waits, full" in said or "waits, empty" in said)
        of[top].append((n, step, last))
    assert len(of) == 3 and all(sorted(rows, key=lambda row: row[1]) == rows for rows in of.values())
    assert len(lanes["pages"]) == lanes["last"] // lanes["each"] + 1 and "aria-label" in lanes["pages"][0]


def test_a_deadlock_has_a_timeline_that_ends_in_waits():
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        ring(3)
    made = caught.value.timeline()
    assert caught.value.kind == "deadlock" and set(made.waits) == {(warp, None) for warp in range(3)}
    assert "for what never comes" in str(made) and "lc-f-warn" in made.svg()


def test_a_kernel_without_any_of_this_has_an_empty_one():
    mod = compiled("__global__ void plain(float* x) { x[threadIdx.x] = 1; }")
    _, made = timeline(lambda: mod.plain[2, 32](np.zeros(32, np.float32)), block=1)
    assert _.replay().timelines == {} and made.rows == [] and made.depth == 0 and made.waits == {} and "<svg" in made.svg()
