"""`python -m course_lib lint voice [PATH...]`: phrases that a reader has to decipher.

A dozen patterns for the house's commonest riddles, over comments, docstrings, messages and prose. A line that
needs one says `voice: ok` in a comment. What it prints is a list to read: it finds plain sentences too."""
import json
import re
from collections.abc import Iterator
from pathlib import Path

from course_lib.files import ROOT

_UNIT = ("(?:head|token|row|block|thread|launch|step|kernel|element|warp|lane|tile|page|query|key|layer|"
         "sequence|request|student|notebook|exercise|line|file|function|chapter|call|pass|second|build|byte|"
         "float|number|score|access|sector|bank|word|"
         "column|character|card|group|sample|machine|compiler|session|run)")
_NUMBER = (r"(?:one|two|three|four|five|six|seven|eight|\d[\d,.]*|bytes?|tokens?|sectors?|access(?:es)?|"
           r"loads?|stores?|launch(?:es)?|threads?|warps?|blocks?|rows?|numbers?|entries|minutes|seconds|"
           r"FLOPs?|nats|requests?|keys|queries|heads|cells?|"
           r"products?|lines|files|once|twice|times)")
PATTERNS = {
    "use per for a rate": rf"\b{_NUMBER} an? {_UNIT}\b(?! (?:of|time|may|can|must|sees|has|reads|"
                          r"visits|keeps|gets|wants|is|needs|takes|holds)\b|'s)",
    "say whose, or that there is none": r"\bnobody's\b",
    "use a verb of the field for stands": r"\bstands? (?:there|in|on|at|twice|once|before|after|behind|"
                                          r"beside|above|below|for itself|under)\b",
    "use a verb of the field for lies": r"\blies? (?:in|on|at|beside|between|under|below|above|before|"
                                        r"behind)\b",
    "use a verb of the field for comes": r"\bcomes? (?:after|before|back|out|along) (?!of\b)",
    "say what is missing or present": r"\b(?:is|are|was|were) (?:not )?there"
                                      r"(?: (?:in|on|for|to|and)\b|[.,;:]|$)",
    "name the follow-on error": r"\becho(?:es)?\b(?! (?:server|\"|'))",
    "a riddle: what X is what": r"\b[Ww]hat (?:\w+ ){1,3}is what\b",
    "a riddle: is no X; a Y": r"\bis no \w+(?:[;,]| but)",
    "say who it is": r"\b(?:has|have|had) none to\b",
    "use a plain verb": r"\b(?:owes|lives from)\b",
    "say resumes": r"\bgoes on (?:where|from)\b"}
COMPILED = {say: re.compile(pattern) for say, pattern in PATTERNS.items()}
SKIPPED = ("course_lib/tools/lint/voice.py", "data/excerpt.txt", "requirements.txt")
KINDS = {".py", ".cu", ".cuh", ".h", ".cpp", ".md", ".ipynb", ".toml"}


def files(places: list[str] | None = None) -> list[Path]:
    roots = [ROOT / place for place in places or ["."]]
    found = [p for root in roots for p in ([root] if root.is_file() else sorted(root.rglob("*")))]
    hidden = lambda p: any(part.startswith(".") or part in ("__pycache__", "work", "build")
                           for part in p.relative_to(ROOT).parts)
    return [p for p in found
            if p.suffix in KINDS and not hidden(p) and p.relative_to(ROOT).as_posix() not in SKIPPED]


def prose(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of what a person reads: whole lines of a file, markdown and code cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    if path.suffix != ".ipynb":
        yield from ((f"{name}:{n}", line) for n, line in enumerate(text.splitlines(), 1))
        return
    for n, cell in enumerate(json.loads(text)["cells"]):
        yield from ((f"{name} cell {n}", line) for line in "".join(cell["source"]).splitlines())


def findings(places: list[str] | None = None) -> list[str]:
    said = []
    for path in files(places):
        for place, line in prose(path):
            if "voice: ok" not in line:
                said += [f"{place}: {say}: ...{line[max(0, m.start() - 40):m.end() + 40].strip()}..."
                         for say, pattern in COMPILED.items() if (m := pattern.search(line))]
    return said


def main(argv: list[str]) -> int:
    said = findings(argv)
    print("\n".join([*said, f"{len(said)} to read again"]))
    return 0
