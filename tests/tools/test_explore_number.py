"""One number followed: query, key, owner, line and sectors of every weight, from the layout of each kernel."""
import pytest
import torch

from course_lib import explore
from course_lib.gqa import grouped_query_attention


def in_attention(row, key):
    """(block, thread, {array: (rows of one request)}), as attention_scores is laid out: tiles of 16 x 16."""
    pair = {"q": [row // 2 * 2, row // 2 * 2 + 1], "k": [key // 2 * 2, key // 2 * 2 + 1]}
    return key // 16, row % 16 * 16 + key % 16, pair


def in_group(row, key):
    """A thread per pair of a head of the group and one of 32 keys."""
    q = [n for n in range(row // 3 * 3, row // 3 * 3 + 3) if n % 3 // 2 == row % 3 // 2]
    k = row // 3 * 20 + key // 2 * 2
    return row // 3, (row % 3 * 32 + key) % 128, {"q": q, "k": [k, k + 1]}


def in_flash(row, key):
    """A lane per key of a tile, 8 rows per warp. 16 lanes load a row's 16 numbers, the others fill in zeros."""
    return 0, row // 8 * 32 + key % 32, {"q": [row], "k": [key]}


def in_pages(row, key):
    """A thread per position, a block per head; of a feature all 18 threads ask at once."""
    table = [0, 2, 4, 6, 8]                             # two sequences that grow in turns
    return row, key, {"q": [row], "k": [(table[j // 4] * 2 + row // 2) * 4 + j % 4 for j in range(18)]}


LINES = {"attention": (in_attention, "dot += q_tile", "scores[(head * n + i) * m + j] =",
                       "expf(kept[c] - state.largest)", "sum += w_tile"),
         "gqa": (in_group, "score += q_row", "weight[pair] = score", "weight[h * TILE + row] = w",
                 "total += weight"),
         "flash": (in_flash, "s += q_tile[row][c]", "p_tile[row][lane] = p", "sum += p_tile"),
         "pages": (in_pages, "s += q[c] * k[c]", "scores[j] = scale * s", "scores[j] = weight",
                   "sum += scores[j]")}


@pytest.mark.parametrize("name", LINES)
def test_every_weight_has_its_query_key_owner_line_and_sectors(name):
    made, (where, *lines, used) = explore.find(f"number_{name}"), LINES[name]
    want = grouped_query_attention(*made.tensors, causal=True, return_weights=True)[1].view(made.rows, -1)
    weights = torch.tensor([[n.weight for n in line] for line in made.numbers()])
    torch.testing.assert_close(weights, want, atol=2e-7, rtol=1e-5)
    q, k = (x.reshape(-1, 16).tolist() for x in made.tensors[:2])
    for row, key in torch.cartesian_prod(torch.arange(made.rows), torch.arange(made.keys)).tolist():
        number, (block, thread, requests) = made.numbers()[row][key], where(row, key)
        assert [number.made[name] for name in ("block", "thread")] == [block, thread], (row, key)
        assert (number.made["warp"], number.made["lane"]) == divmod(thread, 32)
        values = {"q": q[row], "k": k[row * made.k[0] // made.rows * made.keys + key]}
        for array, flat in zip("qk", made.made_of(row, key)):
            loads = number.row(array)
            assert [x["value"] for x in loads] == values[array] and flat in requests[array]
            for c, x in enumerate(loads):
                assert x["index"] == 16 * flat + c and x["sector"] == (64 * flat + 4 * c) // 32
                parts = [c] if name == "pages" else range(16)
                asked = {(64 * r + 4 * p) // 32 for r in requests[array] for p in parts}
                assert x["asked"] == asked and x["sectors"] == len(asked), (array, row, key)
        text = [number.launch.text[line - 1] for line in (number.line, *(s["line"] for s in number.stores))]
        assert len(text) == len(lines) and all(map(str.__contains__, text, lines))
        assert want[row, key] == 0 or used in number.launch.text[number.reads.most_common(1)[0][0] - 1]
    scores = torch.tensor([[n.dot / 4 for n in line] for line in made.numbers()])
    assert_stored(name, made, scores.masked_fill(want == 0, -torch.inf))


def assert_stored(name, made, scores):
    """The stored numbers: the scores, the weights, or powers under the largest score, in flash so far."""
    first, last = (torch.tensor([[n.stores[at]["value"] for n in line] for line in made.numbers()])
                   for at in (0, -1))
    largest = scores.amax(1, keepdim=True).repeat(1, made.keys)
    if name == "flash":
        largest[:, :32] = scores[:, :32].amax(1, keepdim=True)
    else:
        torch.testing.assert_close(first, scores)
    torch.testing.assert_close(last, scores.softmax(1) if name == "attention" else (scores - largest).exp())


def test_the_words_say_the_five_steps():
    pages, plain = explore.find("number_pages"), explore.find("number_attention")
    said = [state["words"] for state in pages.table()["states"].values()]
    assert len(said) == 5 and all(words.startswith("head 2, position 10: weight ") for words in said)
    assert "The kernel does not store it." in said[0] and "Divided by √16: score " in said[1]
    assert "Warp 0 made 18 of them" in said[2] and "lane 10, thread (10, 0, 0)" in said[2]
    assert "line 54, the lane sums up the products here;" in said[3] and "16 lanes multiply it" in said[3]
    assert "page 10 // 4 = 2 of the sequence, slot 2" in said[4] and "reads table[2] = 4" in said[4]
    assert "does not see key 19" in plain.picture(at=(19, 11)).words
    assert "no lane reads it" in plain.picture(at=(19, 11), step="line").words
