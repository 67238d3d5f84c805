"""The explorables of chapters 1, 2, 4 and 5: their words against the same numbers computed in another way."""
import math
import re

import pytest
import torch

from course_lib import explore


def words(name, **state):
    return explore.find(name).picture(**state).words


def numbers(text):
    return [float(x.replace(",", "")) for x in re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)]


@pytest.mark.parametrize("name, state, said", [
    ("weights", {"product": "much"}, "product: 'much' is not a number"), ("weights", {"scale": "twice"}, "scale: 'twice' is none of"),
    ("looking", {"text": ""}, "line: type at least one"), ("looking", {"text": "naïve"}, "'ï', which is not in the vocabulary"),
    ("looking", {"layer": None}, "layer: None is not a number"), ("looking", {"heads": 1}, "no control 'heads'")])
def test_a_bad_value_is_refused_by_name(name, state, said):
    with pytest.raises(ValueError, match=said):
        words(name, **state)


@pytest.mark.parametrize("product, scale, temperature", [(16, "divided by √64", 1), (-8, "as they are", 5), (32, "as they are", 0.1)])
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
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~torch.ones(n, n).tril().bool(), -math.inf)
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
