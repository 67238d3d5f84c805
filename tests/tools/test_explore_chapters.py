"""The explorables of chapters 1, 2, 4 and 5, the second ones of 3, 8, 9 and 11, the small model inside: their words
against the same numbers computed in another way."""
import json
import math
import re

import pytest
import torch

from course_lib.explore import chosen_keys, state_recall
from course_lib.files import ROOT
from course_lib.language_model import pretrained
from test_explore import words


@pytest.mark.parametrize("product, scale, temperature",
                         [(16, "divided by √64", 1), (-8, "as they are", 8), (32, "as they are", 0.1)])
def test_weights_are_exponentials_over_their_sum(product, scale, temperature):
    products = [-8, product, 4, -2, -6, 10]
    scores = [p / (8 if "64" in scale else 1) / temperature for p in products]
    total = sum(math.exp(s - max(scores)) for s in scores)
    p = torch.tensor([math.exp(s - max(scores)) / total for s in scores], dtype=torch.float64)
    jacobian = torch.diag(p) - p[:, None] * p
    text = words("weights", product=product, scale=scale, temperature=temperature)
    assert re.findall(r"weight ([\d.]+)%", text) == [f"{100 * x:.1f}" for x in p.tolist()]
    assert f"is {jacobian.norm():.3f}." in text


@pytest.mark.parametrize("layer, head, token", [(0, 1, 16), (1, 0, 9), (3, 3, 40)])
def test_looking_is_the_models_own_attention(layer, head, token):
    """The weights are recovered from what the layer returns for values that are unit vectors."""
    from course_lib import language_model

    line = "/My lord,/my lord, the king"
    model, tokenizer = language_model.pretrained()
    seen, n = [], len(line)

    def attend(q, k, v):
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~torch.ones(n, n).tril().bool(),
                                                                            -math.inf)
        seen.append(scores.softmax(-1))
        return seen[-1] @ v

    model.set_attention(attend)
    with torch.no_grad():
        model(tokenizer.encode(line.replace("/", "\n"))[None])
    at = min(token, n - 1)
    row = seen[layer][0, head, at]
    best = int(row.argmax())
    text = words("looking", layer=layer, head=head, token=token)
    letter = line[best].replace(" ", "_")
    assert f"at {at} gives most weight to '{letter}' at {best} ({row[best]:.0%})" in text


@pytest.mark.parametrize("position, distance, base", [(0, 2, 10_000), (37, 5, 100), (512, 64, 1_000_000)])
def test_clock_hands_are_angles_modulo_a_turn(position, distance, base):
    text, cosines = words("clock_hands", position=position, distance=distance, base=base), []
    for pair in range(4):
        speed = base ** (-pair / 4)
        key, query = (round(math.degrees(p * speed)) % 360 for p in (position, position + distance))
        cosines.append(math.cos(distance * speed))
        assert (
            (f"pair {pair} takes {2 * math.pi / speed:,.1f} positions per turn, its key is at {key} "
             f"degrees, its query at {query}, the cosine between them is {cosines[-1]:z.2f}") in text)
    assert text.endswith(f"is {sum(cosines) / 4:z.2f}.")


def slowed(rule, frequency, pair, factor, trained, base):
    """The four rules, pair by pair, as their papers and released code say."""
    turns = trained * frequency / (2 * math.pi)
    if rule == "linear":
        return factor
    if rule == "NTK-aware":
        return factor ** (pair / 15)
    if rule == "Llama 3.1":
        share = min(max((turns - 1) / 3, 0), 1)
    else:
        low, high = (16 * math.log(trained / (t * 2 * math.pi)) / math.log(base) for t in (32, 1))
        low, high = max(math.floor(low), 0), math.ceil(high)
        share = 1 - min(max((pair - low) / (high - low), 0), 1)
    return 1 / (share + (1 - share) / factor)


@pytest.mark.parametrize("rule", ["linear", "NTK-aware", "YaRN", "Llama 3.1"])
@pytest.mark.parametrize("factor, trained, base", [(4, 256, 10_000), (16, 8192, 500_000), (1, 2048, 10_000)])
def test_scaling_slows_each_pair_as_its_rule_says(rule, factor, trained, base):
    frequencies = [base ** (-pair / 16) for pair in range(16)]
    times = [slowed(rule, f, pair, factor, trained, base) for pair, f in enumerate(frequencies)]
    text = words("rope_scaling", rule=rule, factor=factor, trained=trained, base=base)
    assert text.endswith("slower by " + ", ".join(f"{x:.2f}" for x in times) + ".")
    assert ": " + ", ".join(f"{2 * math.pi * x / f:,.0f}" for x, f in zip(times, frequencies)) + ";" in text
    kept, whole = (sum(abs(x - end) < 1e-9 for x in times) for end in (1, factor))
    assert f"{kept} turn as before, {whole if factor > 1 else 0} turn {factor} times slower" in text


@pytest.mark.parametrize("pairs, width, keys, shows",
                         [(16, 16, "random", 1), (8, 8, "alike", 2), (24, 32, "alike", 1)])
def test_recall_is_that_of_states_written_pair_by_pair(pairs, width, keys, shows):
    k, v = (x[:, 0] for x in state_recall.pairs(pairs, width, keys))
    right = {"plain": [], "delta rule": []}
    for key, value in zip(k, v):
        for rule in right:
            state = torch.zeros(width, width, dtype=torch.float64)
            for a, b in zip(key.repeat(shows, 1), value.repeat(shows, 1)):
                state += torch.outer(a, b - (a @ state if rule == "delta rule" else 0))
            answers = key @ state
            likeness = torch.stack([torch.cosine_similarity(row, value, dim=-1) for row in answers])
            right[rule].append(int((likeness.argmax(-1) == torch.arange(pairs)).sum()))
    text = words("state_recall", pairs=pairs, width=width, keys=keys, shows=shows)
    for rule, hits in right.items():
        share = sum(hits) / (pairs * len(hits))
        assert f"{rule} recalls {share:.1%}, in the first draw {hits[0]} of {pairs};" in text


@pytest.mark.parametrize("size, step, width", [(6, 3, 8), (1, 24, 4), (24, 9, 16)])
def test_chunks_count_pairs_and_products(size, step, width):
    """Products by hand: per chunk one matrix of size x size, and what makes and reads the state."""
    count = 24 // size
    at, triangle = min(step, count), size * (size + 1) // 2
    text = words("chunks", size=size, step=step, width=width)
    pairs = f"{triangle} pair{'s' * (triangle > 1)}"
    assert f"chunk {at} computes {pairs} inside and reads {(at - 1) * size} earlier keys" in text
    assert f"so far: {at * triangle}, in the end {count * triangle} of 300" in text
    for n in (1, 6, 24):
        products = 2 * 24 * (2 * n * width + 2 * width**2)
        assert f" {n}: {24 // n} step{'s' * (n < 24)} and " in text
        stated = int(re.search(rf" {n}: \d+ steps? and ([\d,]+) operations", text)[1].replace(",", ""))
        assert 0 <= stated - products <= 2 * 24 * width, "one more column at most, for the normaliser"


@pytest.mark.parametrize("window, sinks, stride, block",
                         [(16, 2, 0, 8), (4, 0, 8, 16), (1, 3, 2, 1), (64, 8, 16, 32)])
def test_a_designed_mask_is_counted_pair_by_pair(window, sinks, stride, block):
    allowed = [(i, j) for i in range(64) for j in range(i + 1) if i - j < window or j < sinks or stride
               and (i - j) % stride == 0]
    blocks = {}
    for i, j in allowed:
        blocks[i // block, j // block] = blocks.get((i // block, j // block), 0) + 1
    full, side = sum(pairs == block**2 for pairs in blocks.values()), 64 // block
    text = words("mask_designer", window=window, sinks=sinks, stride=stride, block=block)
    assert f"{len(allowed):,} of the 2,080 causal pairs are allowed" in text
    assert f"{len(blocks)} of the {side * (side + 1) // 2} causal blocks are visited" in text
    assert (f"{full} are full and {len(blocks) - full} partial. Of the {len(blocks) * block**2:,} pairs "
            "computed " in text)
    assert f"computed {len(allowed) / (len(blocks) * block**2):.0%} are useful." in text


@pytest.mark.parametrize("keep, query, layer, head", [(16, 127, 3, 0), (8, 63, 0, 1), (64, 31, 2, 2)])
def test_kept_keys_are_sorted_out_by_hand(keep, query, layer, head):
    q, k, _ = (part[layer, head].double() for part in chosen_keys.heads())
    scores = [float(q[query] @ k[j]) / 32**0.5 for j in range(query + 1)]
    total = sum(map(math.exp, scores))
    weights = [math.exp(s) / total for s in scores]
    own = query // 8
    others = sorted(range(own), key=lambda b: -float(q[query] @ k[8 * b:8 * b + 8].mean(0)))[:keep // 8 - 1]
    kept = {"the best": sorted(range(query + 1), key=weights.__getitem__)[-keep:],
            "the nearest": range(max(0, query + 1 - keep), query + 1),
            "best blocks": [j for b in [*others, own] for j in range(8 * b, 8 * b + 8) if j <= query]}
    held = "; ".join(f"{way}: {sum(weights[j] for j in kept[way]):.0%}"
                     for way in ("the best", "best blocks", "the nearest"))
    for way, keys in kept.items():
        text = words("chosen_keys", way=way, keep=keep, query=query, layer=layer, head=head)
        assert f"{len(keys)} of {query + 1} keys are read" in text and text.endswith(f"by way: {held}.")


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

    chosen, text = IDEAS[idea], words("ideas", question=question, since=since, idea=IDEAS[idea].name)
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
