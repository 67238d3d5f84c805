"""Cross-attention, beams and drafts of chapter 7, each against what it must equal; a head that drafts."""
import itertools
import json
from collections import defaultdict
from functools import partial

import pytest
import torch

from course_lib import language_model
from course_lib.attention import MultiHeadAttention
from course_lib.datasets import DATA
from course_lib.kv_cache import CrossCache, GrowingCache, MultiTokenHead, StaticCache, generate
from course_lib.kv_cache.generation import _readers, beam_search, cross_attention, generate_speculative
from course_lib.kv_cache.sampling import every_outcome, next_token_probabilities
from course_lib.language_model import Block, Config, LanguageModel
from course_lib.studies import multi_token as study
import references
from references import names_the_argument


small_model = partial(references.small_model, scale=6, vocab_size=3, n_layers=1, d_model=8, d_hidden=8,
                      context=40)


def law(model, prompt, n_new, **options):
    """{continuation: probability}, from one pass over each sequence."""
    out = {}
    for new in itertools.product(range(model.config.vocab_size), repeat=n_new):
        text = torch.cat((prompt, torch.tensor([new])), 1)
        rows = next_token_probabilities(model(text)[0, prompt.shape[1] - 1:-1], **options)
        out[new] = float(rows[range(n_new), list(new)].prod())
    return out


PROMPT = torch.tensor([[0, 1]])


@pytest.mark.parametrize("n_draft", [0, 2])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_k": 2}])
@torch.no_grad()
def test_drafts_leave_the_distribution_as_it_is(n_draft, options):
    """All ways in which drafts, refusals and replacements can fall, by their probabilities."""
    model, draft = small_model(0), small_model(1)
    options = {"temperature": 1.0} | options
    got, paths = dict.fromkeys(itertools.product(range(3), repeat=3), 0.0), 0
    for probability, text in every_outcome(
            lambda draw: generate_speculative(model, draft, PROMPT, 3, n_draft, **options, draw=draw)):
        assert text[0, :2].tolist() == [0, 1]
        got[tuple(text[0, 2:].tolist())] += probability
        paths += 1
    want = law(model, PROMPT, 3, **options)
    assert got == pytest.approx(want, abs=1e-12) and sum(got.values()) == pytest.approx(1)
    assert (paths == sum(p > 0 for p in want.values()) if n_draft == 0
            else paths > 27 / (1 + 3 * ("top_k" in options)))
    assert got != pytest.approx(law(draft, PROMPT, 3, **options), abs=0.05)


@pytest.mark.parametrize("make", [GrowingCache, lambda: StaticCache(40)])
@pytest.mark.parametrize("n_draft", [0, 4])
def test_greedy_drafts_write_the_models_text(make, n_draft):
    model, prompt = small_model(0, vocab_size=11, n_layers=2), torch.tensor([[1, 2, 3]])
    want = generate(model, prompt, 30)
    for draft in (small_model(1, vocab_size=11), model):
        kept = []
        got = generate_speculative(model, draft, prompt, 30, n_draft, make_cache=make, kept=kept)
        assert torch.equal(got, want) and sum(kept) + len(kept) == 30
        if draft is model:
            assert all(count == n_draft for count in kept[:-1])
    stop = int(want[0, 9])
    stopped = generate_speculative(model, model, prompt, 30, n_draft, stop=stop)
    assert torch.equal(stopped, generate(model, prompt, 30, stop=stop))


def test_drafts_are_repeatable():
    model, draft = small_model(0, vocab_size=11, scale=4), small_model(1, vocab_size=11, scale=4)
    once, again = (generate_speculative(model, draft, PROMPT, 20, temperature=1.0,
                                        generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(once, again) and once.shape == (1, 22)


def test_every_outcome_is_a_tree_walked_once():
    p = torch.tensor([0.5, 0.0, 0.5])

    def one_or_two(draw):
        first = draw(p)
        return first, draw(p) if first else None

    outcomes = [(result, probability) for probability, result in every_outcome(one_or_two)]
    assert len(outcomes) == 3 and dict(outcomes) == {(0, None): 0.5, (2, 0): 0.25, (2, 2): 0.25}


@pytest.mark.parametrize("stop", [None, 1])
@torch.no_grad()
def test_many_beams_are_an_exhaustive_search(stop):
    model = small_model(0, vocab_size=4)
    got, scores = beam_search(model, PROMPT, 3, 64, stop=stop)
    want = {}
    for new, probability in law(model, PROMPT, 3).items():
        text = torch.tensor([[0, 1, *new]])
        if stop in new:                     # what follows a stop is filled up, and costs nothing
            end = new.index(stop) + 1
            new = new[:end] + (stop,) * (3 - end)
            rows = model(text)[0, 1:1 + end].softmax(-1)
            probability = float(rows[range(end), list(new[:end])].prod())
        want[new] = probability
    assert len(got) == len(want)
    assert ({tuple(row[2:].tolist()): float(score.exp()) for row, score in zip(got, scores)}
            == pytest.approx(want, abs=1e-12))
    assert (scores.diff() <= 0).all()


@torch.no_grad()
def test_beams_carry_their_caches_with_them():
    model, prompt = small_model(0, vocab_size=7, n_layers=2), torch.tensor([[1, 2, 3]])
    assert torch.equal(beam_search(model, prompt, 12, 1)[0], generate(model, prompt, 12))
    texts, scores = beam_search(model, prompt, 12, 4)
    for text, score in zip(texts, scores):
        rows = model(text[None])[0, 2:-1].log_softmax(-1)
        torch.testing.assert_close(rows.gather(1, text[3:, None]).sum(), score)
    assert len({tuple(text.tolist()) for text in texts}) == 4
    greedy = float(beam_search(model, prompt, 12, 1)[1])
    assert scores[0] >= greedy - 1e-12
    stop = int(texts[0, 5])
    stopped, _ = beam_search(model, prompt, 30, 3, stop=stop)
    for text in stopped.tolist():
        if stop in text[3:]:
            assert set(text[text.index(stop, 3):]) == {stop}


@torch.no_grad()
def test_cross_attention_reads_its_context_once():
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 6, context_dim=10).double()
    x, context = torch.randn(2, 7, 24, dtype=torch.float64), torch.randn(2, 13, 10, dtype=torch.float64)
    cache = CrossCache()
    steps = [cross_attention(layer, x[:, :3], cache, context)]
    before = cache.bytes
    steps += [cross_attention(layer, x[:, t:t + 1], cache) for t in range(3, 7)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x, context))
    assert cache.bytes == before == 2 * 2 * 13 * 24 * 8
    cache.reorder(torch.tensor([1, 0, 1]))
    torch.testing.assert_close(cross_attention(layer, x[[1, 0, 1]], cache),
                               layer(x[[1, 0, 1]], context[[1, 0, 1]]))
    with pytest.raises(ValueError, match="^cache must be empty"):
        cache.append(*cache.view())
    with pytest.raises(ValueError, match="^context must "):
        cross_attention(layer, x, CrossCache())


test_bad_input = names_the_argument({
    "tokens": [lambda m: beam_search(m, torch.zeros(2, 3, dtype=torch.long), 3, 2),
        lambda m: generate_speculative(m, m, torch.zeros(1, 0, dtype=torch.long), 3),
        lambda m: generate_speculative(*toy(), torch.tensor([[1]]), 3)],
    "n_beams": [lambda m: beam_search(m, PROMPT, 3, 0)],
    "n_draft": [lambda m: generate_speculative(m, m, PROMPT, 3, -1)],
    "max_new_tokens": [lambda m: beam_search(m, PROMPT, -1, 2),
        lambda m: generate_speculative(m, m, PROMPT, 1.5)]},
    given=lambda: [small_model(0)])


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
    """The last entry's law, in one pass: the model's states at the first `known` tokens, then the head's."""
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
    (model, head), got = toy(2), defaultdict(float)
    for chance, out in every_outcome(lambda draw: generate_speculative(
            model, head, PROMPT, 3, n_draft=2, temperature=1.0, draw=draw)):
        got[tuple(out[0, 2:].tolist())] += chance
    with torch.no_grad():
        assert got == pytest.approx(law(model, PROMPT, 3), abs=1e-9)


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
