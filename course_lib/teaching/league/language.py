"""A language drawn from a seed: nothing learnt elsewhere helps with it, and its own entropy is known."""
from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable

import torch

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = LETTERS + " ."
TRAIN, LONGEST, QUESTIONS = 250_000, 64, 2048
FOLLOWERS = (0.4, 0.25, 0.15, 0.12, 0.08)
NAME, END = 0.2, 0.1             # shares of the words: the sentence's name again, and the end of the sentence


@dataclass(frozen=True)
class Data:
    """`train` is a text; question i is what follows the 64 symbols `asked[i]`, with the answer `answers[i]`.

    `entropy` is the mean loss on the answers of the language itself, which knows the whole text before each.
    No model has a lower loss in expectation (Gibbs); on the drawn questions one may, by luck.
    """
    train: torch.Tensor
    asked: torch.Tensor
    answers: torch.Tensor
    entropy: float


@lru_cache(maxsize=2)
def data(seed: int) -> Data:
    """No question contains another one's answer: windows of 64 symbols, each followed by its answer."""
    rng = random.Random(f"the league's language {seed}")
    words = _words(rng)
    train, _ = _text(words, rng, TRAIN)
    text, known = _text(words, rng, QUESTIONS * (LONGEST + 1))
    windows = text.view(QUESTIONS, LONGEST + 1)
    mean = -sum(math.log(known(place)) for place in range(LONGEST, len(text), LONGEST + 1)) / QUESTIONS
    return Data(train, windows[:, :-1], windows[:, -1], mean)


def _words(rng: random.Random) -> dict[str, list[tuple[str, float]]]:
    """{word: [(what may follow it, share), ...]} of 100 words."""
    words = sorted({"".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 6))) for _ in range(100)})
    share = 1 - NAME - END
    return {word: [(next_, share * p) for next_, p in zip(rng.sample(words, len(FOLLOWERS)), FOLLOWERS)]
            for word in words}


def _text(words: dict, rng: random.Random, length: int) -> tuple[torch.Tensor, Callable]:
    """Sentences: a name of three letters, then words, among them the name again, each after the ordinary one
    before. The second result gives the probability that the language has for the symbol at a place, after all
    before it."""
    symbols, tokens, starts, before, name = [], [], [], None, None
    ordinary = list(words)
    while len(symbols) < length:
        starts.append(len(symbols))
        if name is None:
            name, before = "".join(rng.choice(LETTERS) for _ in range(3)), rng.choice(ordinary)
            symbols += name + " "
            tokens.append((name, None))
            continue
        choices = [(name, NAME), (".", END), *words[before]]
        chosen = rng.choices([word for word, _ in choices], [p for _, p in choices])[0]
        symbols += chosen + " "
        tokens.append((chosen, choices))
        before = chosen if chosen in words else before
        name = None if chosen == "." else name

    def known(place: int) -> float:
        token = bisect.bisect_right(starts, place) - 1
        return _share(*tokens[token], place - starts[token])
    codes = {symbol: code for code, symbol in enumerate(SYMBOLS)}
    return torch.tensor([codes[s] for s in symbols[:length]]), known


def _share(token: str, choices: list[tuple[str, float]] | None, at: int) -> float:
    """The probability of a token's symbol `at` after those before it. A new name's letters are drawn
    evenly."""
    if choices is None:
        return 1 / len(LETTERS) if at < len(token) else 1.0

    def weight(prefix: str) -> float:
        return sum(p for word, p in choices if (word + " ").startswith(prefix))
    return weight((token + " ")[:at + 1]) / weight((token + " ")[:at])
