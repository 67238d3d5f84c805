"""The explorables of chapters 3 and 6 to 10: their words against the same numbers computed in another way."""
import json
import math
import re

import pytest
import torch

from course_lib import explore
from course_lib.files import ROOT
from test_explore import words


@pytest.mark.parametrize("model, per_token",
                         [("Llama 2 7B", 2 * 32 * 32 * 128), ("Llama 3 70B", 2 * 80 * 8 * 128),
                          ("DeepSeek-V3", 61 * (512 + 64))])
@pytest.mark.parametrize("tokens, batch, size", [(1024, 1, 2), (131072, 16, 1)])
def test_a_cache_weighs_tokens_times_numbers_per_token(model, per_token, tokens, batch, size):
    text = words("cache_sizes", model=model, tokens=tokens, batch=batch, bytes=size)
    total = tokens * batch * size * per_token / 2**30
    assert f"As published: {total:.2f} GiB" in text
    assert ("more than a card of 80 GiB" in text.split("A head of keys")[0]) == (total > 80)
    assert f"at most {3.35e12 / (tokens * size * per_token):,.0f} tokens per second" in text, (
        "an H100, which reads the cache alone")


def test_fewer_heads_of_keys_are_compared_where_there_are_any():
    assert "One head of keys: 0.12 GiB" in words("cache_sizes", model="Llama 3 8B", tokens=8192, batch=1)
    assert "One head" not in words("cache_sizes", model="DeepSeek-V3")
    assert ("16 query heads per head of keys: 0.25 GiB" in words("cache_sizes", model="Llama 3 8B", shared=16,
                                                                 tokens=8192, batch=1))
    assert "28 query heads do not form groups of 8" in explore.find("cache_sizes").answer(
        explore.find("cache_sizes").state(model="Qwen2.5 7B", shared=8))["problem"]


@pytest.mark.parametrize("model", explore.find("cache_sizes").controls[0].values)
def test_every_model_on_offer_can_be_drawn(model):
    assert words("cache_sizes", model=model).startswith(f"{model}, 8 sequences of 8,192 tokens")


@pytest.mark.parametrize("scores, tile, done",
                         [("mixed", 2, 3), ("rising", 1, 5), ("falling", 4, 1), ("mixed", 8, 1)])
def test_the_online_softmax_carries_max_sum_and_output(scores, tile, done):
    from course_lib.explore.online_softmax import SCORES
    seen = SCORES[scores][:tile * done]
    m = max(seen)
    terms = [math.exp(s - m) for s in seen]
    o = sum(t * v for t, v in zip(terms, range(1, 9)))
    text = words("online_softmax", scores=scores, tile=tile, done=done)
    assert (f"m = {m:.2f}, l = {sum(terms):.4f}, o = {o:.4f}" in text
            and f"o / l = {o / sum(terms):.4f}" in text)
    if done > 1:
        before = max(SCORES[scores][:tile * (done - 1)])
        assert f"last factor for l and o: {math.exp(before - m):.4f}" in text


def test_before_the_first_tile_nothing_is_known_and_beyond_the_last_nothing_changes():
    assert "m = -inf, l = 0.0000" in words("online_softmax", done=0)
    assert words("online_softmax", tile=4, done=2) == words("online_softmax", tile=4, done=8)


@pytest.mark.parametrize("rows, n", [(4, 32), (16, 96), (32, 100)])
def test_the_tiles_bytes_are_those_that_the_engine_counts(rows, n):
    """In whole sectors: a head's q, out and lse once, keys and values once per tile of queries."""
    moved = int(re.search(r"counts (\d+) bytes", words("tile_traffic", rows=rows, n=n))[1])
    walk = 4 * (2 * n * 32 + math.ceil(n / rows) * 2 * n * 32)
    assert walk + 4 * n <= moved <= 1.1 * walk
    assert (words("tile_traffic", rows=rows, n=n, causal="yes").replace("causal", "no mask")
            == words("tile_traffic", rows=rows, n=n))


@pytest.mark.parametrize("heads, splits, multiprocessors", [(8, 1, 132), (64, 1024, 132), (256, 16, 16)])
def test_waves_hold_every_block_once(heads, splits, multiprocessors):
    text = words("waves", heads=heads, splits=splits, multiprocessors=multiprocessors)
    blocks, slots = heads * splits, 16 * multiprocessors
    waves = -(-blocks // slots)
    assert f"places, {waves} wave" in text and f"{blocks / slots / waves:.1%} busy" in text


@pytest.mark.parametrize("shift, sharpness, n", [(0, 1, 4), (1, 1, 1), (2, 4, 8)])
def test_a_draft_is_accepted_as_often_as_both_agree(shift, sharpness, n):
    p = [0.05, 0.15, 0.4, 0.3, 0.1]
    q = [p[(i - shift) % 5] ** sharpness for i in range(5)]
    q = [x / sum(q) for x in q]
    rate = sum(min(a, b) for a, b in zip(p, q))
    expected = n + 1 if rate > 1 - 1e-9 else (1 - rate ** (n + 1)) / (1 - rate)
    text = words("drafts", shift=shift, sharpness=sharpness, n=n)
    assert f"probability {rate:.3f};" in text and f"this gives {expected:.2f} tokens per pass" in text


def test_a_round_keeps_the_draft_up_to_a_refusal():
    seen = set()
    for number in range(1, 21):
        drafted, kept, end = re.search(r"drafted ([\w ]+); (\d) kept, (.*)\.$",
                                       words("drafts", number=number)).groups()
        drafted, kept = drafted.split(), int(kept)
        assert len(drafted) == 4 and (" added" in end) == (kept == 4)
        if kept < 4:
            refused, instead = re.fullmatch(r"(\w+) refused, (\w+) instead", end).groups()
            assert refused == drafted[kept] and refused in ("the", "lord",
                                                            "crown"), ("the others are accepted always")
            assert instead in ("a", "king"), "of which p has more than q"
        seen.add(kept)
    assert len(seen) >= 4


@pytest.mark.parametrize("size", [2, 4, 8])
def test_pages_are_held_by_whoever_the_tables_say(size):
    for step in range(11):
        text = words("pages", step=step, size=size)
        held = {int(n) for row in re.findall(r"pages \[([\d, ]*)\]", text) for n in row.split(",")
                if n.strip()}
        assert f"{len(held)} of {48 // size} pages are held" in text


def test_a_shared_page_is_copied_before_it_is_written():
    before, after = (re.search(r"A2: \d+ tokens in pages (\[.*?\])", words("pages", step=n))[1]
                     for n in (5, 6))
    assert json.loads(before)[:2] == json.loads(after)[:2] and json.loads(before)[2] != json.loads(after)[2]


@pytest.mark.parametrize("a, b, width_a, width_b",
                         [((0, 0), (0, 0), 1, 1), ((-3, 1), (2, -1.5), 0.25, 2), ((1, 1), (1, 1), 0.5, 1.5)])
def test_the_distance_is_that_of_means_and_widths(a, b, width_a, width_b):
    text = words("gaussians", a=a, b=b, width_a=width_a, width_b=width_b)
    means, widths = sum((x - y) ** 2 for x, y in zip(a, b)), (width_a - width_b) ** 2
    assert f"{means:.3f} of the means plus {widths:.3f} of the widths" in text
    assert f"W2 is {math.sqrt(means + widths):.3f}." in text
    spread = width_a**2 + width_b**2, 2 * 0.5**2                # variances, along x and y
    score = -sum((x - y)**2 / s + math.log(s) for x, y, s in zip(a, b, spread)) / 2
    assert text.endswith(f"as variances, is {score:z.3f}.")


def test_the_plane_names_what_no_other_beats():
    rows = json.loads((ROOT / "data/attention_table.json").read_text())["rows"]
    for name, row in rows.items():
        text = words("trade_offs", chosen=name)
        mean = torch.tensor(list(row["losses"].values()), dtype=torch.float64).mean()
        assert text.startswith(f"{name}: mean loss {mean:.3f}")
    best = re.search(r"Not beaten in both: (.*)\.", text)[1].split(", ")
    losses = {name: sum(r["losses"].values()) / len(r["losses"]) for name, r in rows.items()}
    lowest = min(losses, key=losses.get)
    assert (lowest in best
            and all(rows[n]["cache_bytes"]["256"] <= rows[lowest]["cache_bytes"]["256"] for n in best))
