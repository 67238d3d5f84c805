"""The pictures of chapters 4 to 9: what their words say follows from what is drawn."""
import pytest
import torch

from course_lib.flash_attention import pictures as flash
from course_lib.kv_cache import pictures as cache
from course_lib.linear_attention import pictures as linear
from course_lib.paged_attention import pictures as paged
from course_lib.sparse_attention import pictures as sparse, sliding_window_mask
from course_lib.w2_attention import pictures as w2
from references import reference

P, Q = torch.tensor([0.6, 0.4, 0.0]), torch.tensor([0.2, 0.4, 0.4])
KEEP, INSTEAD = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
CARDS = {"one": (100e12, 2e12)}
# name: (drawing, words that must occur, the same drawing with other data)
DRAWN = {
    "memories": (flash.memories, "L2, 50 MiB, for all SMs", None),
    "roofline": (lambda: flash.roofline(CARDS, {"here": 7}), "one, 50. Marked in FLOP per byte: here, at 7",
                 lambda: flash.roofline(CARDS, {"here": 8})),
    "merging": (lambda: flash.merging((1.0, 3.0), (2.0, 4.0)), "merged: m 4, l 1.55, terms 0.05, 0.37, 0.14, 1.00",
                lambda: flash.merging((1.0, 3.0), (2.0, 5.0))),
    "walk": (flash.walk, "6 of them hidden. Frame by frame: q2 with k0, 3 done, 6 to come",
             lambda: flash.walk(3, ((1, 0), (1, 1)))),
    "who holds": (flash.who_holds, "k tile: 32 × 64", lambda: flash.who_holds(columns=16)),
    "backward": (flash.backward_flow, "dS = P (dP − δ) to dQ += dS k", None),
    "fragments": (flash.fragments, "A: register 0 from row 0, column 0, register 1 from row 8, column 0", None),
    "ping-pong": (flash.ping_pong, "group 2: products 1 at 4, softmax 1 at 6", lambda: flash.ping_pong(2)),
    "patch": (flash.patch, "rows [2, 10, 18, 26] with keys [3, 11, 19, 27]: 16 products from 4 + 4 loads", lambda: flash.patch(0, 0)),
    "ring": (paged.ring, "6 nothing to do, 4 half of the pairs, 6 all pairs", lambda: paged.ring(3)),
    "growing": (cache.growing_cache, "reads k and v of tokens 0 to 3 from the cache",
                lambda: cache.growing_cache((2, 1))),
    "intensity": (lambda: cache.roofline(CARDS, {"here": 7}, (1,)), "from 50 operations per byte. Marked",
                  lambda: cache.roofline(CARDS, {"here": 8}, (1,))),
    "phases": (lambda: cache.two_phases(420, 8.4), "prefill for 420 ms", lambda: cache.two_phases(420, 9.4)),
    "split": (cache.split_and_merge, "part 3: keys 9 to 11", lambda: cache.split_and_merge(2, 8)),
    "steps": (cache.shared_steps, "a step per channel, 6 groups of 4 entries", lambda: cache.shared_steps(3, 6)),
    "errors": (lambda: cache.errors({"int8": (2048, 0.01)}), "int8: 2 KiB, 1.0% off",
               lambda: cache.errors({"int8": (2048, 0.02)})),
    "kept": (lambda: cache.kept_and_replaced(P, Q, KEEP, INSTEAD),
             "token 0: draft 0.2, kept 0.2, replacement 0.4, target 0.6",
             lambda: cache.kept_and_replaced(Q, P, KEEP, INSTEAD)),
    "speculation": (cache.speculation, "1 discarded: 3 new tokens", lambda: cache.speculation(1)),
    "table": (lambda: paged.table_lookup({"x": [3, 1]}, {"x": 7}, 5), "x: 7 tokens, block table [3, 1]",
              lambda: paged.table_lookup({"x": [1, 3]}, {"x": 7}, 5)),
    "shared": (lambda: paged.shared_pages({"a": ["to", "be"], "b": ["to", "do"]}, {"a": [0, 1], "b": [0, 2]}, [2, 1, 1]),
               "In more than one table: [0]",
               lambda: paged.shared_pages({"a": ["to", "be"]}, {"a": [0, 1]}, [1, 1])),
    "preempted": (lambda: paged.preempted([5, 3, 4, 2], [1, 1, 0, 1], 1, 3, 1), "after: pages [6, 4, 4], free 1",
                  lambda: paged.preempted([5, 3, 4, 2], [1, 1, 0, 1], 3, 4, 0)),
    "sand": (lambda: w2.sand((0, 1, 5), (2, 3, 4)), "0 to 2 for 4, 1 to 3 for 4, 5 to 4 for 1",
             lambda: w2.sand((0, 1, 5), (2, 3, 5))),
    "gaussians": (w2.gaussians_moved, "3 apart to the right and 4 upwards; the line between has length 5",
                  lambda: w2.gaussians_moved(line=((0.0, 1.0), (2.0, 5.0)))),
    "rates": (lambda: w2.loss_against_rate({"t": {"w2": [(0.1, [1.0, 3.0]), (1, [5.0])]}, "u": {"w2": [(0.1, [0.9]), (1, [0.5])]}}, {}, ("u",)),
              "t, w2: 0.1 2, 1 5. u, w2: 0.1 0.1, 1 0.5.",
              lambda: w2.loss_against_rate({"t": {"w2": [(0.1, [4.0]), (1, [5.0])]}, "u": {"w2": [(0.1, [0.9]), (1, [0.5])]}}, {}, ("u",))),
}


@pytest.fixture
def words(monkeypatch):
    """draw -> the text alternative of the one figure that it shows."""
    made = []
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda data, metadata=None, raw=False: made.append(data))

    def told(draw):
        made.clear()
        draw()
        pictures = [data for data in made if "image/png" in data]
        assert len(pictures) == 1
        return pictures[0]["text/plain"]
    return told


@pytest.mark.parametrize("name", DRAWN)
def test_the_words_of_a_picture_follow_what_is_drawn(name, words):
    draw, part, other = DRAWN[name]
    text = words(draw)
    assert part in text
    if other:
        assert words(other) != text


def test_the_preempted_of_the_picture_are_those_of_the_exercise(words):
    held, needs, free = [5, 3, 4, 2], [1, 1, 0, 1], 1
    text = words(lambda: paged.preempted(held, needs, free, *reference("8.11")(held, needs, free)))
    assert "after: pages [6, 4, 4], free 1" in text


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_a_state_is_told_after_every_token(capsys):
    linear.state_fills(torch.tensor([[1.0, 0], [2, 1]]), torch.tensor([[3.0, 0], [0, -1]]))
    told = said(capsys)
    assert "after token 1: (3, 0), (0, 0)" in told and "after token 2: (3, -2), (0, -1)" in told


def test_both_orders_name_the_matrix_between(capsys):
    linear.two_orders(n=5, m=3)
    told = said(capsys)
    assert "makes a matrix of 25 numbers first" in told and "makes a matrix of 9 numbers first" in told


def test_the_bars_that_contain_the_truth_are_counted(capsys):
    linear.estimates([1, 2], [1.0, 1.3], [0.1, 0.1], draws=1000)
    assert "2: 1.300 ± 0.200" in (told := said(capsys)) and "1 of 2 bars contain it" in told


def test_masks_are_told_by_share_and_last_row(capsys):
    sparse.masks({"window": sliding_window_mask(8, 3), "all": torch.ones(8, 8, dtype=torch.bool)})
    told = said(capsys)
    assert "window: causal, 58%; its last query sees keys 5 to 7" in told and "all: both ways, 100%" in told


def test_reach_goes_back_layer_by_layer(capsys):
    sparse.reach(sliding_window_mask(9, 3), layers=2)
    told = said(capsys)
    assert "after layer 2: tokens 8; after layer 1: tokens 6 to 8; input: tokens 4 to 8" in told
    assert "5 tokens after 2 layers" in told


def test_packed_documents_leave_empty_blocks(capsys):
    sparse.packed([4, 4], block=4)
    assert "2 empty, 2 partial, 0 full" in said(capsys)


def test_the_best_keys_hold_their_share(capsys):
    sparse.best_keys(torch.tensor([0.5, 0.1, 0.1, 0.3]), 2)
    assert "The 2 largest hold 80% of the weight; 1 of them are among the nearest 2 keys" in said(capsys)


def test_recall_is_the_mean_over_the_seeds(capsys):
    rows = [{"recall": {"window": {"4": share, "8": 0.9}}} for share in (0.4, 0.6)]
    sparse.recall({"rows": rows})
    assert "window: 50% with 4, 90% with 8" in said(capsys)
