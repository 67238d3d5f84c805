"""The explorables of chapters 1, 2, 4 and 5: their words against the same numbers computed in another way."""
import math
import re

import pytest
import torch

from course_lib.explore import chosen_keys, state_recall
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
