"""README, NOTATION, docs and CONTRIBUTING as pages of the book."""
import re

from course_lib.files import ROOT

REPOSITORY_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
ARXIV = re.compile(r"\b(\d{4}\.\d{4,5})\b")
NO_PROSE = re.compile(r"(^#[^\n]*|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\[[^\]]*\]\([^)]*\)|<[^>]*>)",
                      re.S | re.M)
# An entry of a chapter's sources: its first author, the others, and after its title the year.
ENTRY = re.compile(r"\b([A-Z][\w-]+)(?:,? (?:and )?[A-Z][\w-]+| et al\.)*, (?=\*[^*]+\*[^.;]*?\b(\d{4})[,)])")
CITED = re.compile(r"\b([A-Z][\w-]+)( et al\.|(?:,? [A-Z][\w-]+)*,? and [A-Z][\w-]+)?(?:,? \(?(\d{4})\b)?")


def section(text: str, heading: str) -> str:
    """The part of a Markdown text under `## heading`, without the heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ValueError(f"README.md has no section '{heading}', which the book shows")
    return found[1].strip()


def relinked(text: str, here: str, pages: dict[str, str]) -> str:
    """Links to files of the repository become links to their pages; what has no page keeps its text alone.

    `here` is the page's own folder in the book ("" or "chapters/"), `pages` maps a file to its page."""
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


def entries(cells: list) -> set[tuple[str, str]]:
    """(first author, year) of what a chapter names under *Sources*, where these two name one entry."""
    found = ENTRY.findall(cells[-1].source.partition("**Sources.**")[2])
    return {entry for entry in found if found.count(entry) == 1}


def cited(text: str, known: set[tuple[str, str]]) -> str:
    """Citations in a chapter as links to the entries of its sources, arXiv numbers as links to the papers."""
    prose, sources, listed = text.partition("**Sources.**")
    def link(hit: re.Match) -> str:
        name, others, year = hit.groups()
        fits = [entry for entry in known if entry[0] == name and year in (entry[1], None)]
        if len(fits) != 1 or not year and others != " et al.":
            return hit[0]
        return f'<a href="#{place("source", *fits[0])}">{hit[0]}</a>'
    id = lambda entry: f'<span id="{place("source", *entry)}"></span>' if entry in known else ""
    parts = NO_PROSE.split(prose)
    parts[::2] = (bibliography(CITED.sub(link, part)) for part in parts[::2])
    return "".join(parts) + sources + bibliography(ENTRY.sub(lambda hit: id(hit.groups()) + hit[0], listed))


def place(*words: str) -> str:
    return re.sub(r"\W+", "-", "-".join(words).lower()).strip("-")


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
    around = ["terms", "notation", "sources", "where_to_run", "instructors", "marking", "contributing"]
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
