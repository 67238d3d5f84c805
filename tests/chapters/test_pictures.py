"""The pictures of chapters 2 to 12: what their words say follows from what is drawn."""
import pytest
import torch

from course_lib.asynchrony import pictures as asynchrony
from course_lib.field_guide import layers_in_order
from course_lib.flash_attention import pictures as flash
from course_lib.gqa import pictures as gqa
from course_lib.kv_cache import pictures as cache
from course_lib.language_model import pictures as model_pictures
from course_lib.linear_attention import pictures as linear
from course_lib.paged_attention import pictures as paged
from course_lib.paged_attention.batching import chart, static_batches
from course_lib.paged_attention.memory_maps import FREE, LATER, USED, draw_maps
from course_lib.paged_attention.trace import Arrival
from course_lib.rope import pictures as rope
from course_lib.sparse_attention import pictures as sparse, sliding_window_mask
from course_lib.w2_attention import pictures as w2

P, Q = torch.tensor([0.6, 0.4, 0.0]), torch.tensor([0.2, 0.4, 0.4])
KEEP, INSTEAD = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
HAND = [Arrival(0, 3, 2), Arrival(0, 5, 4), Arrival(1, 2, 1)]
CARDS = {"one": (100e12, 2e12)}
# name: (drawing, words that must occur, the same drawing with other data)
DRAWN = {
    "parity": (asynchrony.parity, "phase 2, parity 0, from 4 to 5.5", lambda: asynchrony.parity((1, 2))),
    "schedules": (asynchrony.schedules, "its softmax: s0 at 1, s1 at 4, s2 at 7", lambda: asynchrony.schedules(2)),
    "roles": (asynchrony.roles, "consumers the other warps to empty (arrive); empty to producer one thread (may order)", None),
    "memories": (flash.memories, "A tile of 64 by 64 floats has 16 KiB", lambda: flash.memories(32)),
    "delta": (linear.replace_at_a_key, "S returns for k: (1.8, -0.6, 1.2); value v: (0, 2, -2); missing: (-1.8, 2.6, -3.2)",
              lambda: linear.replace_at_a_key(value=(1.0, 2, -2))),
    "latent": (gqa.latent_flow, "kept: a latent of 512, a rotated key of 64; keys and values of 128 heads: 32,768",
               lambda: gqa.latent_flow(heads=64)),
    "induction": (rope.induction, "Tybalt, finds itself in the second slot of dies",
                  lambda: rope.induction(("a", "b", "c", "a"))),
    "model": (model_pictures.model, "attention, 4 heads of 32; feed-forward, 128 → 256 → 128; norm, logits, 128 → 65",
              lambda: model_pictures.model("O")),
    "roofline": (lambda: flash.roofline(CARDS, {"here": 7}), "one, 50. Marked in FLOP per byte: here, at 7",
                 lambda: flash.roofline(CARDS, {"here": 8})),
    "merging": (lambda: flash.merging((1.0, 3.0), (2.0, 4.0)), "merged: m 4, l 1.55, terms 0.05, 0.37, 0.14, 1.00",
                lambda: flash.merging((1.0, 3.0), (2.0, 5.0))),
    "walk": (flash.walk, "6 of them hidden. Frame by frame: q2 with k0, 3 done, 6 to come",
             lambda: flash.walk(3, ((1, 0), (1, 1)))),
    "who holds": (flash.who_holds, "k tile: 32 × 64", lambda: flash.who_holds(columns=16)),
    "backward": (flash.backward_flow, "dS = P (dP − δ) to dQ += dS k", None),
    "fragments": (flash.fragments, "A: register 0 from row 3, column 2, register 1 from row 11, column 2", lambda: flash.fragments(0)),
    "ping-pong": (flash.ping_pong, "group 2: products 1 at 4, softmax 1 at 6", lambda: flash.ping_pong(2)),
    "patch": (flash.patch, "rows [2, 10, 18, 26] with keys [3, 11, 19, 27]: 16 products from 4 + 4 loads", lambda: flash.patch(0, 0)),
    "absorbed": (gqa.absorbed, "unfold: latents times Wᵀ is keys, times qᵀ, 1,075,838,976 FLOPs", lambda: gqa.absorbed(9)),
    "lanes": (paged.lane_groups, "Warp 3: slots 6, 7, 14, 15. In warp 0, lanes 0 to 15", lambda: paged.lane_groups(32)),
    "layers": (lambda: layers_in_order("Kimi Linear 48B-A3B"), "Kimi Linear 48B-A3B: 20 state, 7 latent, 1.03 GiB",
               lambda: layers_in_order("Llama 3 8B")),
    "separated": (lambda: w2.separated({"t": (2.0, 0.5, 1.0), "u": (-0.1, 0.5, 1.0)}), "t: +2.0, apart from 0; u: -0.1, open",
                  lambda: w2.separated({"t": (-2.0, 0.5, 1.0)})),
    "ring": (paged.ring, "6 nothing to do, 4 half of the pairs, 6 all pairs", lambda: paged.ring(3)),
    "growing": (cache.growing_cache, "reads k and v of tokens 0 to 3 from the cache",
                lambda: cache.growing_cache((2, 1))),
    "intensity": (lambda: cache.roofline(CARDS, {"here": 7}, (1,)), "from 50 operations per byte. Marked",
                  lambda: cache.roofline(CARDS, {"here": 8}, (1,))),
    "phases": (lambda: cache.two_phases(420, 8.4), "prefill for 420 ms", lambda: cache.two_phases(420, 9.4)),
    "split": (cache.split_and_merge, "part 3: keys 9 to 11", lambda: cache.split_and_merge(2, 8)),
    "steps": (cache.shared_steps, "a step per channel, 6 groups of 4 entries", lambda: cache.shared_steps(3, 6)),
    "errors": (lambda: cache.errors({"int8": (2048, 0.01), "int4": (1024, 0.1)}), "for each bit less, 16% at 4 bits",
               lambda: cache.errors({"int8": (2048, 0.02), "int4": (1024, 0.1)})),
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
    "fused": (w2.fused_block, "2 done, number 2 on the chip", lambda: w2.fused_block(now=1)),
    "rates": (lambda: w2.ratio_by_rate({"t": {"softmax": [(0.001, [2.0, 4.0]), (1, [5.0])], "w2": [(0.001, [1.5]), (1, [4.0])]}}),
              "t: 0.001 0.5, 1 0.8, best of each 0.5.",
              lambda: w2.ratio_by_rate({"a hierarchy": {"softmax": [(1, [0.9])], "w2": [(1, [0.8])], "overlap": [(1, [0.7])]}})),
}


@pytest.fixture
def words(monkeypatch):
    """draw -> the text alternative of the one figure that it shows."""
    made = []
    for name, made_of_it in (("svg", ""), ("fewer_colours", b"")):       # every notebook draws them all
        monkeypatch.setattr(f"course_lib.figures.frame.{name}", lambda *drawn, made_of_it=made_of_it: made_of_it)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *to, **how: None)
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


# name: (drawing, words that are printed with it)
PRINTED = {
    "states": (lambda: linear.state_fills(torch.tensor([[1.0, 0], [2, 1]]), torch.tensor([[3.0, 0], [0, -1]])),
               ["after token 1: (3, 0), (0, 0)", "after token 2: (3, -2), (0, -1)"]),
    "orders": (lambda: linear.two_orders(n=5, m=3),
               ["makes a matrix of 25 numbers first", "makes a matrix of 9 numbers first"]),
    "estimates": (lambda: linear.estimates([1, 2], [1.0, 1.3], [0.1, 0.1], draws=1000),
                  ["2: 1.300 ± 0.200", "1 of 2 bars contain it"]),
    "masks": (lambda: sparse.masks({"window": sliding_window_mask(8, 3), "all": torch.ones(8, 8).bool()}),
              ["window: causal, 58%; its last query sees keys 5 to 7", "all: both ways, 100%"]),
    "reach": (lambda: sparse.reach(sliding_window_mask(9, 3), layers=2),
              ["after layer 2: tokens 8; after layer 1: tokens 6 to 8; input: tokens 4 to 8",
               "5 tokens after 2 layers"]),
    "packed": (lambda: sparse.packed([4, 4], block=4), ["2 empty, 2 partial, 0 full"]),
    "best keys": (lambda: sparse.best_keys(torch.tensor([0.5, 0.1, 0.1, 0.3]), 2),
                  ["The 2 largest hold 80% of the weight; 1 of them are among the nearest 2 keys"]),
    "recall": (lambda: sparse.recall({"rows": [{"recall": {"window": {"4": x, "8": 0.9}}} for x in (0.4, 0.6)]}),
               ["window: 50% with 4, 90% with 8"]),
    "memory": (lambda: draw_maps({"exact": [(7, USED), (3, LATER), (4, FREE)]}, "A strip."),
               ["A strip.", "exact: 50% in use, 21% reserved, used later, 0% reserved, never used, 29% free"]),
    "batches": (lambda: chart({"static": static_batches(HAND, 2, 6)}, caption="Two at a time."),
                ["Two at a time.", "static: request 0 in steps 0 to 2, place kept until 4"])}


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_with_a_picture_follows_from_it(name, capsys):
    draw, parts = PRINTED[name]
    draw()
    said = " ".join(capsys.readouterr().out.split())
    assert all(part in said for part in parts), said
