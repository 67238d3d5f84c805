"""What a page of the book computes itself, run under node: Python's pictures and words, PyTorch's logits."""
import json
import subprocess

import pytest
import torch

from course_lib import explore
from course_lib.datasets import DATA
from course_lib.explore.small_model import VIEWS
from course_lib.language_model import pretrained
from course_lib.tools.book import drawn

MAP, ROLLING = {"view": VIEWS[1]}, {"cache": "keeps the last 16"}
STATES = {
    "gaussians": [{}, {"a": (0, 0), "b": (0, 0), "width_a": 1, "width_b": 1}, {"a": (0.25, 0), "b": (0, 0)},
                  {"a": (-2.75, 1.25), "b": (3, -1.5), "width_a": 0.25, "width_b": 2}],
    "looking": [{}, {"text": "O", "token": 9}, {"text": "It's \"a\" & <b>"}, {"text": "naïve"}, {"text": ""},
                {"text": "To be, or not to be, that is the question: Wheth", "token": 47, "layer": 3, "head": 2}],
    "small_model": [{}, {"text": "O", "new": 0}, {"new": 24} | MAP, {"temperature": 1, "new": 24}, {"text": ""},
                    {"temperature": 2, "new": 20} | ROLLING | MAP,
                    {"text": "ROMEO:/What light, at whose 'soft", "new": 3, "layer": 3, "head": 2} | ROLLING]}
assert set(STATES) == set(drawn.names())


@pytest.fixture
def ran(needs, tmp_path):
    """What a line of JavaScript gives, run with the script of one picture and the weights as the book has them."""
    def run(name, line, weights=""):
        text = (f"const window = globalThis;\n{weights}\n{drawn.module(name)}\n"
                f"process.stdout.write(JSON.stringify({line}));")
        (tmp_path / "page.mjs").write_text(text, encoding="utf-8")
        done = subprocess.run([needs("node"), "page.mjs"], cwd=tmp_path, capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)
    return run


@pytest.mark.parametrize("name", STATES)
def test_a_page_draws_and_says_what_python_does(ran, name):
    made = explore.find(name)
    states = [made.state(**state) for state in STATES[name]]
    model = "new Model(courseWeights)" if name in drawn.MODEL else "null"
    found = ran(name, f"(model => {json.dumps(states)}.map(state => answerOf(draw, state, model)))({model})",
                drawn.weights() if name in drawn.MODEL else "")
    assert found == json.loads(json.dumps([made.answer(state) for state in states]))


def test_logits_and_weights_are_pytorchs(ran):
    model, tokenizer = pretrained()
    text = (DATA / "excerpt.txt").read_text(encoding="utf-8")[:200]
    tokens = tokenizer.encode(text)[None]
    found = ran("looking", f"(model => {{ const caches = model.caches(); return model.encode({json.dumps(text)})"
                ".map((token, at) => model.read(token, at, caches)).map(({logits, weights}) => "
                "[[...logits], weights]) })(new Model(courseWeights))", drawn.weights())
    with torch.no_grad():
        logits = model(tokens)[0]
    assert (torch.tensor([pair[0] for pair in found]) - logits).abs().max() < 1e-4
    weights = model.attention_weights(tokens)[:, 0]
    apart = [(torch.tensor(seen) - weights[:, :, n, :n + 1]).abs().max().item()
             for n, (_, seen) in enumerate(found)]
    assert max(apart) < 1e-5 and len(apart) == 200


def test_weights_that_are_not_whole_are_refused(ran):
    cut = drawn.weights().replace('"values": "', '"values": "' + "A" * 8)
    line = '(() => { try { new Model(courseWeights) } catch (problem) { return problem.message } })()'
    assert ran("looking", line, cut) == "the file of the weights is not whole"


def test_numbers_are_written_as_python_does(ran):
    numbers = [n / 2**k * sign for n in (0, 1, 3, 5, 7, 25, 1001) for k in range(7) for sign in (1, -1)]
    numbers += [0.045, 1.005, 2.675, -0.0004, 1e-9, 123456.785]
    found = ran("gaussians", f"{json.dumps(numbers)}.map(x => [0, 1, 2, 3].map(digits => fixed(x, digits)))")
    assert found == [[f"{x:z.{digits}f}" for digits in range(4)] for x in numbers]


def test_the_cache_grows_by_its_keys_and_values_and_the_map_is_the_models():
    made, (model, tokenizer) = explore.find("small_model"), pretrained()
    text = made.picture(text="My lord", new=5, layer=2, head=3, **MAP).words
    assert "The cache grew by +4,096 bytes per character for 12 characters." in text
    whole = model.generate(tokenizer.encode("My lord")[None], 5)
    weights, line = model.attention_weights(whole)[2, 0, 3], tokenizer.decode(whole[0]).replace(" ", "_")
    for n, row in enumerate(weights):
        best = int(row.argmax())
        assert f"'{line[n]}' at {n}: '{line[best]}' at {best} ({row[best]:.0%})" in text
    rolled = made.picture(new=6, **ROLLING, **MAP).words
    assert ("+4,096 bytes per character for 17 characters, then by -4,096 bytes per character for 1 character, "
            "then by +0 bytes per character for 5 characters.") in rolled
