"""The second explorables of chapters 3, 8, 9 and 11 and the small model inside: words, by other ways."""
import json
import re

import pytest
import torch

from course_lib.files import ROOT
from course_lib.language_model import pretrained
from test_explore import words


@pytest.mark.parametrize("prompt, new, layer, head",
                         [("My lord, the king", 6, 0, 1), ("/PROSPERO:/", 24, 3, 2), ("O", 0, 1, 0)])
def test_the_small_model_writes_as_without_a_cache(prompt, new, layer, head):
    model, tokenizer = pretrained()
    whole = model.generate(tokenizer.encode(prompt.replace("/", "\n"))[None], new)
    row = model.attention_weights(whole)[layer, 0, head, -1]
    with torch.no_grad():
        chances = model(whole)[0, -1].softmax(-1)
    best, line, text = int(row.argmax()), tokenizer.decode(whole[0]).replace("\n", "/"), words(
        "small_model", text=prompt, new=new, layer=layer, head=head)
    assert f"{new} characters written, {line[len(prompt):]!r}" in text
    assert f"{len(line)} of {len(line)} characters in 4 layers, {len(line) * 4096:,} bytes" in text
    assert f"weight to '{line[best].replace(' ', '_')}' at {best} ({row[best]:.0%})" in text
    likeliest = tokenizer.decode([int(chances.argmax())]).replace(" ", "_").replace("\n", "/")
    assert f"Likeliest next: '{likeliest}' {chances.max():.0%}" in text


def test_a_rolling_cache_keeps_sixteen_and_writes_as_a_window_does():
    from course_lib.attention import scaled_dot_product_attention
    from course_lib.sparse_attention import sliding_window_mask

    model, tokenizer = pretrained()
    tokens = tokenizer.encode("My lord, the king")[None]
    model.set_attention(lambda q, k, v: scaled_dot_product_attention(q, k, v,
                                                                     mask=sliding_window_mask(q.shape[2],
                                                                                              16)))
    written = tokenizer.decode(model.generate(tokens, 16)[0])[17:]
    text = words("small_model", new=16, cache="keeps the last 16")
    assert f"{written!r}" in text and "16 of 33 characters in 4 layers, 65,536 bytes" in text
    assert written != tokenizer.decode(pretrained()[0].generate(tokens, 16)[0])[17:]


def test_a_temperature_draws_and_the_same_again():
    drawn = [words("small_model", new=24, temperature=2) for _ in range(2)]
    assert drawn[0] == drawn[1] != words("small_model", new=24) and "drawn at temperature 2" in drawn[0]


@pytest.mark.parametrize("rows, columns", [(8, 8), (16, 32), (32, 8)])
@pytest.mark.parametrize("order", ["query-outer", "key-outer"])
@pytest.mark.parametrize("causal", ["yes", "no"])
def test_the_walk_ends_with_the_bytes_of_the_formula(rows, columns, order, causal):
    from course_lib.flash_attention import traffic

    text = words("tile_walk", step=63, rows=rows, columns=columns, order=order, causal=causal)
    whole = traffic(64, 64, rows, columns, order, causal=causal == "yes")
    assert f"{whole:,} bytes are moved so far" in text and f"{order} {whole:,}" in text
    seen = sum(any(k <= q or causal == "no" for q in range(rows * i, rows * (i + 1))
                   for k in range(columns * j, columns * (j + 1))) for i in range(64 // rows)
               for j in range(64 // columns))
    assert f"tile {seen} of {seen}," in text


@pytest.mark.parametrize("n_heads, n_kv_heads, head", [(32, 8, 5), (8, 8, 7), (64, 1, 40), (4, 16, 63)])
def test_heads_share_by_neighbours(n_heads, n_kv_heads, head):
    n_kv_heads, head = min(n_kv_heads, n_heads), min(head, n_heads - 1)
    size = n_heads // n_kv_heads
    group = [h for h in range(n_heads) if h // size == head // size]
    text = words("shared_heads", n_heads=n_heads, n_kv_heads=n_kv_heads, head=head)
    assert (f"Query head {head} reads key head {head // size}, which serves query "
            f"head{'s' * (size > 1)} {', '.join(map(str, group))}." in text)
    assert (f"keeps {2 * 2 * 32 * 128 * n_kv_heads:,} bytes" in text
            and f"would keep {2 * 2 * 32 * 128 * n_heads:,}" in text)
    assert f"a latent {2 * 32 * 576:,}" in text


@pytest.mark.parametrize("size, prefixes, preemption",
                         [(2, "shared", "swap"), (4, "shared", "recompute"), (16, "not shared", "recompute")])
def test_pages_are_held_by_the_requests_that_run(size, prefixes, preemption):
    for step in range(0, 40, 3):
        text = words("scheduler", step=step, size=size, prefixes=prefixes, preemption=preemption)
        tables = {name: json.loads(pages)
                  for name, pages in re.findall(r"(\w) running, \d+ tokens stored in pages (\[.*?\])", text)}
        stored = sum(int(n) for n in re.findall(r"running, (\d+) tokens", text))
        held = {page for pages in tables.values() for page in pages}
        computed = sum(map(int, re.findall(r"computes (\d+) token", text)))
        assert f"{len(held)} of {48 // size} pages are held" in text and computed <= 8
        if sum(map(len, tables.values())) == len(held):         # nothing is shared
            empty = len(held) * size - stored
            assert f"in them {empty} slot{'s' * (empty != 1)} without a key" in text


def test_a_prefix_is_shared_and_a_request_loses_its_pages():
    assert ("A running, 20 tokens stored in pages [0, 1, 2, 3, 4]; B running, 18 tokens stored in pages [0, "
            "1, 2, 5, 6]" in words("scheduler", step=3))
    assert "C loses its pages" in words("scheduler", step=8) and "C preempted." in words("scheduler", step=8)
    assert "C computes 7 tokens" in words("scheduler", step=14), "computed again"
    assert "loses" not in "".join(words("scheduler", step=n, slots=96) for n in range(40))


@pytest.mark.parametrize("task, measure",
                         [("copying", "fair"), ("MQAR", "mqar"), ("noisy keys", "noisy"),
                          ("hierarchy", "hierarchy")])
@pytest.mark.parametrize("softmax, w2", [(0.001, 0.01), (0.01, 0.01), (3.0, 0.0003)])
def test_the_audit_compares_the_runs_of_the_file(task, measure, softmax, w2):
    runs = json.loads((ROOT / "data/w2_audit.json").read_text())["runs"].values()
    found = {(r["settings"]["arm"], r["settings"]["rate"]): r["loss"] for r in runs
             if r["settings"]["task"] == measure and r["settings"]["stage"] == "sweep"}
    rates = sorted({rate for arm, rate in found if arm == "w2"})
    a, b = (found[arm, min(max(rate, rates[0]), rates[-1])]
            for arm, rate in (("softmax", softmax), ("w2", w2)))
    best = [min(loss for (arm, _), loss in found.items() if arm == one) for one in ("w2", "softmax")]
    text = words("audit", task=task, softmax=softmax, w2=w2)
    assert f"the difference is {b - a:+.4f}; between the best of each it is {best[0] - best[1]:+.4f}" in text


@pytest.mark.parametrize("question, since, idea, kept",
                         [("all questions", 2019, 2, 25), ("What is seen?", 2025, 8, 4),
                          ("Or is a state kept?", 2019, 20, 5)])
def test_the_tree_keeps_the_ideas_asked_for(question, since, idea, kept):
    from course_lib.field_guide import IDEAS, models_by_idea

    chosen, text = IDEAS[idea], words("ideas", question=question, since=since,
                                       idea=IDEAS[idea].name)
    assert (text.startswith(f"{kept} of {len(IDEAS)} ideas")
            and f"{chosen.name} ({chosen.date}, {chosen.source})" in text)
    table = models_by_idea().splitlines()
    marks = [line.split()[-1][idea] for line in table[len(IDEAS) + 2:]]
    assert f"Used by {len(marks) - marks.count('.')} of {len(marks)} models" in text


@pytest.mark.parametrize("edit, per_token, far",
                         [("", 32 * 8 * 256 * 2, 32 * 8 * 256 * 2 * 131072),
                          ("num_key_value_heads=4, num_hidden_layers=16", 16 * 4 * 256 * 2,
                           16 * 4 * 256 * 2 * 131072),
                          ("model_type=mine sliding_window_pattern=4 sliding_window=1024", 8 * 8 * 256 * 2,
                           2 * 8 * 256 * (8 * 131072 + 24 * 1024))])
def test_an_edited_configuration_costs_what_its_layers_cost(edit, per_token, far):
    from course_lib.field_guide.costs import in_words

    text = words("configuration", edit=edit)
    assert f"One more token: {in_words(per_token)} (published 128 KiB)" in text
    assert (f"cache at 128k: {in_words(far)} (published 16 GiB)" in text
            and f"read per step at 128k: {in_words(far)} (" in text)


def test_a_key_that_cannot_be_placed_is_named():
    assert words("configuration", edit="attention_swirl=3").endswith("Not placed: attention_swirl.")
    assert "cache at 8k: 256 MiB (published 512 MiB)" in words("configuration", bytes=1)


def test_a_ring_waits_as_its_pipeline_does_and_a_swizzled_column_meets_its_banks():
    from course_lib.asynchrony import pipeline, swizzled

    last = pipeline(8, 3, 6, 2, 3)[-1].finished
    assert f"the last is used after {last} steps" in words("ring", stages=3, latency=6, copy=2, use=3)
    assert f"is stored at byte {swizzled(6, 32, 128)} of the tile" in words("swizzle", row=6, piece=2)
    for mode, passes in (("none", "8 passes"), ("64 bytes", "1 pass"), ("128 bytes", "1 pass")):
        assert words("swizzle", swizzle=mode).endswith(f": {passes}.")
