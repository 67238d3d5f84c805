"""README, NOTATION, docs and CONTRIBUTING as pages of the book."""
from __future__ import annotations

import re

from course_lib.files import ROOT

REPOSITORY_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
ARXIV = re.compile(r"\b(\d{4}\.\d{4,5})\b")


def section(text: str, heading: str) -> str:
    """The part of a Markdown text under `## heading`, without the heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ValueError(f"README.md has no section '{heading}', which the book shows")
    return found[1].strip()


def relinked(text: str, here: str, pages: dict[str, str]) -> str:
    """Links to files of the repository become links to their pages; what has no page keeps its text alone.

    `here` is the page's own folder in the book ("" or "chapters/"), `pages` maps a file to its page.
    """
    up = "../" * here.count("/")

    def link(found: re.Match) -> str:
        target = re.sub(r"^(\.\./)+", "", found[1]).rstrip("/")
        page = pages.get(target)
        return f"]({up}{page}{found[2] or ''})" if page else f"](#{'' if not found[2] else found[2][1:]})"

    text = REPOSITORY_LINK.sub(link, text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\(#\)", r"\1", text)


def bibliography(text: str) -> str:
    """arXiv numbers as links."""
    return ARXIV.sub(r"[\1](https://arxiv.org/abs/\1)", text)


def terms() -> dict[str, str]:
    """term -> definition, from NOTATION's glossary."""
    text = section((ROOT / "NOTATION.md").read_text(encoding="utf-8"), "Glossary")
    found = re.findall(r"^- \*\*(.+?)\*\*(?: \([^)]*\))?: (.+(?:\n  .+)*)", text, re.M)
    plain = lambda words: re.sub(r"[*`]|\s*\n\s*", lambda m: " " if "\n" in m[0] else "", words)
    return {plain(term): plain(definition) for term, definition in found}


def front(pages: dict[str, str], chapters: list[str], code: list[str]) -> str:
    """The first page: the README up to its chapters, and the tables of contents."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("\n## What works where")[0]
    around = ["notation", "sources", "where_to_run", "instructors", "marking", "contributing"]
    parts = [relinked(opening, "", pages), _contents("Chapters", chapters),
             _contents("Around the course", around), _contents("The code", code)]
    return "\n\n".join(parts) + "\n"


def _contents(caption: str, names: list[str]) -> str:
    return "\n".join(["```{toctree}", f":caption: {caption}", ":hidden:", ":maxdepth: 1", "", *names, "```"])


def around(pages: dict[str, str]) -> dict[str, str]:
    """Page name -> Markdown, for what is neither a chapter nor code."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    read = lambda name: relinked((ROOT / name).read_text(encoding="utf-8"), "", pages)
    return {"notation": read("NOTATION.md"), "marking": read("docs/marking.md"),
            "where_to_run": read("docs/where_to_run.md"), "contributing": read("CONTRIBUTING.md"),
            "sources": "# Sources\n\n" + bibliography(relinked(section(readme, "Sources"), "", pages)),
            "instructors": "# For instructors\n\n" + relinked(section(readme, "For instructors"), "", pages)}
