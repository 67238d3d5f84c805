"""The synthetic sets: what they promise, that they repeat, and that their splits never meet."""
import math
from collections import Counter
from datetime import date

import pytest
import torch

from course_lib import datasets
from course_lib.datasets import (GRAMMAR, NO_TARGET, WORDS, copying, dates, generator, grammar,
                                 grammar_entropy, induction, tree)
from references import names_the_argument


@pytest.mark.parametrize("task", [copying, induction, datasets.repeated_tokens, datasets.associative_recall,
                                  datasets.noisy_recall])
def test_a_seed_repeats_and_splits_never_meet(task):
    def rows(split, seed=0):
        first = task(500, generator(split, seed))
        first = first if isinstance(first, torch.Tensor) else first[0]
        return {tuple(row.flatten().tolist()) for row in first}

    assert rows("train") == rows("train") != rows("train", 1)
    assert len(rows("train") | rows("validation") | rows("test")) == 1500


def test_copying():
    tokens, targets = copying(5, generator(), length=4, symbols=9)
    assert tokens.shape == targets.shape == (5, 8) and (tokens[:, 4] == 0).all() and tokens[:, :4].min() > 0
    assert (targets[:, :4] == NO_TARGET).all() and torch.equal(targets[:, 4:], tokens[:, :4])
    assert torch.equal(tokens[:, 5:], tokens[:, :3])


def test_induction():
    tokens, targets = induction(300, generator(), vocab_size=20, n=12)
    assert (targets[:, :-1] == NO_TARGET).all()
    for row, answer in zip(tokens.tolist(), targets[:, -1].tolist()):
        assert row.count(row[-1]) == 2 and len(set(row)) == 11
        assert row[row.index(row[-1]) + 1] == answer


def test_dates_mean_what_they_say_and_a_day_is_in_one_split():
    pairs = {split: dates(4000, split) for split in datasets.SPLITS}
    assert pairs["train"] == dates(4000) != dates(4000, seed=1)
    days = [{iso for _, iso in pairs[split]} for split in datasets.SPLITS]
    assert not (days[0] & days[1] or days[0] & days[2] or days[1] & days[2])
    by_spelling = {}
    for spelling, iso in pairs["train"]:
        assert by_spelling.setdefault(spelling, iso) == iso, "a spelling means one day"
        day = date.fromisoformat(iso)
        assert 1900 <= day.year <= 2099 and str(day.year) in spelling and str(day.day) in spelling
    third = date(1987, 5, 3)
    assert ({s(third.year, third.month, third.day) for s in datasets.SPELLINGS}
            == {"3 May 1987", "May 3, 1987", "May. 3, 1987", "3.5.1987", "03.05.1987", "1987/05/03",
                "the 3rd of May, 1987", "MAY 3rd 1987", "03MAY1987"})
    assert [datasets._ordinal(day) for day in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "31st"]


def derivations(words, todo):
    """The probabilities of all ways to derive these words from a list of symbols."""
    if not todo:
        return [1.0] if not words else []
    first, *rest = todo
    if first not in GRAMMAR:
        return derivations(words[1:], rest) if words and words[0] == first else []
    return [p * q for p, right in GRAMMAR[first] for q in derivations(words, right + rest)]


def test_a_sentence_has_one_derivation_and_the_entropy_is_exact():
    assert all(sum(p for p, _ in rules) == pytest.approx(1) for rules in GRAMMAR.values())
    tokens = grammar(20_000)
    text = [WORDS[t] for t in tokens.tolist()]
    sentences, start = [], 0
    for i, word in enumerate(text):
        if word == ".":
            sentences.append(text[start:i + 1])
            start = i + 1
    total = Counter()
    for sentence in sentences:
        ways = derivations(sentence, ["sentence"])
        assert len(ways) == 1, sentence
        total["nats"] -= math.log(ways[0])
        total["words"] += len(sentence)
    assert total["nats"] / total["words"] == pytest.approx(grammar_entropy(), rel=0.02)
    # Exactly, on a grammar that can be done by hand: a fair coin, then one word that is certain.
    whole, datasets.GRAMMAR = datasets.GRAMMAR, {"sentence": [(0.5, ["a", "."]), (0.5, ["b", "."])]}
    try:
        assert grammar_entropy() == pytest.approx(math.log(2) / 2)
    finally:
        datasets.GRAMMAR = whole


test_sizes_that_do_not_fit_are_named = names_the_argument({
    "pairs": [lambda: datasets.associative_recall(2, generator(), vocab_size=16, pairs=9),
        lambda: datasets.associative_recall(2, generator(), n=20, pairs=8)], "count": [lambda: dates(-1)],
    "seed": [lambda: generator(seed=-1)], "branching": [lambda: tree(3, 1)],
    "shortest": [lambda: datasets.repeats(2, generator(), shortest=4, longest=3)],
    "n": [lambda: induction(2, generator(), vocab_size=8, n=10), lambda: induction(2, generator(), n=2)],
    "split": [lambda: generator("all"), lambda: dates(1, "all"), lambda: grammar(1, "all")]})


def test_sizes_that_just_fit():
    assert datasets.associative_recall(2, generator(), vocab_size=16, n=21, pairs=7)[1].shape == (2, 7)
    assert induction(2, generator(), vocab_size=8, n=9)[0].shape == (2, 9) and grammar(0).dtype == torch.int64
