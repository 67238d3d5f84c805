"""`python -m course_lib book [--out FOLDER] [--live]`: write the sources, run Sphinx over them, weigh the result."""
import argparse
import re
import shutil
import subprocess
import sys
import time
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import nbformat

from course_lib.files import ROOT
from course_lib.tools.book import code, index, moving, running, texts
from course_lib.tools.book.pages import Page, chapters, emptied
from laptop_cuda.page import live

ASSETS = Path(__file__).parent / "assets"
OUT = ROOT / ".build" / "book"
LARGEST, LARGEST_PAGE = 40e6, 1.5e6
ICON = re.compile(r'"?\b([\w-]+)"?:\[\d+,\d+,\[[^\]]*\],"[0-9a-f]+",(?:"[^"]*"|\[[^\]]*\])\],?')
NEEDED = {"sphinx": "sphinx", "myst_nb": "myst-nb", "sphinx_book_theme": "sphinx-book-theme",
          "sphinx_copybutton": "sphinx-copybutton", "sphinx-mathjax-offline": "sphinx-mathjax-offline"}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib book",
                                     description="A static site from the committed notebooks. It opens from "
                                     "the disk and asks nothing of the network.")
    parser.add_argument("--out", type=Path, default=OUT / "html", metavar="FOLDER",
                        help="default: .build/book/html")
    parser.add_argument("--live", action="store_true", help="with a compiler in the pages, for kernels of a reader's "
                        "own: fetches it once from npm's registry, and makes the book 39 MB larger")
    args = parser.parse_args(argv)
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        print(f"book: {', '.join(missing)} not installed: `make book` installs what it needs, or "
              '.venv/bin/pip install -e ".[book]"', file=sys.stderr)
        return 2
    if args.live and (why := running.page.missing() or live.missing()):
        print(f"book: no compiler for the pages: {why}", file=sys.stderr)
        return 2
    start = time.monotonic()
    source = OUT / "source"
    try:
        write_source(source, args.live)
    except running.page.NoWasm as why:
        print(f"book: {why}", file=sys.stderr)
        return 1
    shutil.rmtree(args.out / "_static" / running.COMPILER, ignore_errors=True)     # of a book before
    if not run_sphinx(source, args.out):
        return 1
    strip_network(args.out)
    shutil.rmtree(args.out / "_static" / "locales", ignore_errors=True)   # the theme's other languages
    compiler = args.out / "_static" / running.COMPILER      # which no page loads before an edit
    size = sum(p.stat().st_size for p in args.out.rglob("*") if p.is_file() and not p.is_relative_to(compiler))
    heaviest = max(args.out.glob("chapters/*.html"), key=weight)
    print(f"{args.out / 'index.html'}: {size / 1e6:.1f} MB in {time.monotonic() - start:.0f} s; {heaviest.name} "
          f"{weight(heaviest) / 1e6:.2f} MB")
    for what, found, limit in (("the book", size, LARGEST), (heaviest.name, weight(heaviest), LARGEST_PAGE)):
        if found > limit:
            print(f"book: {what} has more than {limit / 1e6:.2g} MB", file=sys.stderr)
    return int(size > LARGEST or weight(heaviest) > LARGEST_PAGE)


def weight(page: Path) -> int:
    """Bytes of a page before a click: its text, its figures and pictures that move; what all pages share is apart."""
    text = page.read_text(encoding="utf-8")
    own = {p for p in re.findall(r'src="([^"?]+)', text) if "/explorables/" in p or "/figures/" in p}
    return len(text.encode()) + sum((page.parent / p).stat().st_size for p in own)


def page_names() -> dict[str, str]:
    """file of the repository -> its page in the book, relative to the book's root."""
    found = {"NOTATION.md": "notation.md", "docs/marking.md": "marking.md",
             "docs/where_to_run.md": "where_to_run.md",
             "CONTRIBUTING.md": "contributing.md", "README.md": "index.md", "data/map.png": "_static/map.png",
             "docs/player.svg": "_static/player.svg"}
    found |= {f"notebooks/{p.name}": f"chapters/{p.name}" for p in chapters()}
    found |= {p.name: f"chapters/{p.name}" for p in chapters()}
    return found | {p.relative_to(ROOT).as_posix(): f"{code.page_name(p)}.md" for p in code.files()}


def write_source(source: Path, compiler: bool = False) -> None:
    """Everything that Sphinx reads, made anew."""
    shutil.rmtree(source, ignore_errors=True)
    pages = page_names()
    static = source / "_static"
    (static / "figures").mkdir(parents=True)
    for name, text in texts.around(pages).items():
        put(source / f"{name}.md", text)
    for path in code.files():
        put(source / f"{code.page_name(path)}.md", code.page(path))
    indexes = code.indexes()
    for name, text in indexes.items():
        put(source / f"{name}.md", text)
    for path in chapters():
        page = Page(path, pages, compiler)
        put(source / "chapters" / path.name, nbformat.writes(page.build()))
        put(static / "notebooks" / path.name, emptied(path))
        for name, content in page.pictures.items():
            (static / "figures" / name).write_bytes(content)
    put(source / "index.md", texts.front(pages, [f"chapters/{p.stem}" for p in chapters()], list(indexes)))
    put(source / "terms.md", index.page())
    put(static / "terms.js", index.script())
    for picture in (ROOT / "data" / "map.png", ROOT / "docs" / "player.svg"):
        shutil.copy(picture, static)
    shutil.copy(ASSETS / "conf.py", source)
    put(source / "_templates" / "code-links.html", (ASSETS / "code-links.html").read_text(encoding="utf-8"))
    for name in ("course.css", "glossary.js"):
        shutil.copy(ASSETS / name, static)
    moving.write(static)
    print(f"book: {running.write(static, chapters(), compiler)}")
    mathjax = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax" / "tex-svg.js"
    (static / "mathjax").mkdir()
    shutil.copy(mathjax, static / "mathjax" / mathjax.name)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run_sphinx(source: Path, out: Path) -> bool:
    """Warnings are errors: a dead link inside the book, a heading that skips a level."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-j", "auto",
               "-d", str(OUT / "doctrees"), str(source), str(out)]
    return subprocess.run(command, cwd=ROOT).returncode == 0


# Where the theme leaves a name away or says another than what is to be read: a pattern, what takes its place.
NAMED = ((r'(<button class="btn search-button-field[^>]*) aria-label="Search"', r"\1"),
         (r'<div id="pst-primary-sidebar"', r'\g<0> role="navigation" aria-label="The book"'),
         (r'<summary(?=><span class="toctree-toggle")', r'\g<0> aria-label="Its pages"'),
         (r'<th class="head([^"]*)">((?:<p></p>)?)</th>', r'<td class="head\1">\2</td>'))


def strip_network(out: Path) -> None:
    """Preconnects and scripts that a theme would load from elsewhere, maps for debugging the theme, the index
    of the search on every other page, and drawings of 2,000 icons of which a dozen are used."""
    for path in out.rglob("*.map"):
        path.unlink()
    outside = re.compile(r'\s*<(?:script|link)[^>]*(?:src|href)="https?://[^"]*"[^>]*>(?:</script>)?')
    search = re.compile(r'<script src="[./]*(?:\w+/searchtools|\w+/language_data|searchindex)\.js.*?/script>')
    icons = set()
    for path in out.rglob("*.html"):
        text = outside.sub("", path.read_text(encoding="utf-8"))
        icons |= set(re.findall(r"\bfa-([\w-]+)", text))
        put(path, lighter(text if path.name == "search.html" else search.sub("", text)))
    drawn = out / "_static" / "scripts" / "fontawesome.js"
    put(drawn, ICON.sub(lambda hit: hit[0] if hit[1] in icons else "", drawn.read_text(encoding="utf-8")))


def lighter(page: str) -> str:
    """A page without comments and indentation, where no text is set as it was typed. In code: without the
    marks of names, blanks, punctuation and operators, and line numbers as <i>; code is most of the book."""
    parts = re.split(r"(<(pre|script|style|textarea)\b.*?</\2>)", page, flags=re.S)
    for n in range(0, len(parts), 3):
        parts[n] = re.sub(r"\s*\n\s*", "\n", re.sub(r"<!--.*?-->", "", parts[n], flags=re.S))
        if n + 2 < len(parts):
            plain = re.sub(r'<span class="[npwo]">([^<]*)</span>', r"\1", parts[n + 1])
            parts[n + 1] = re.sub(r'<span class="linenos">([^<]*)</span>', r"<i>\1</i>", plain)
            parts[n + 2] = ""                   # the tag's name alone
    return reduce(lambda page, named: re.sub(*named, page), NAMED, "".join(parts))
