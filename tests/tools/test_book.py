"""The book: what becomes a page, and in a browser what a reader sees of it."""
import json
import re
import subprocess
import sys

import nbformat
import pytest

from browser_kit import page  # noqa: F401  (a fixture)

from course_lib import explore
from course_lib.exercises.declare import all_exercises
from course_lib.files import ROOT
from course_lib.tools.book import build, code, index, moving, pages, texts
from course_lib.tools.book.pages import Page, chapters, emptied, narrowest, solution

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def page_of(tmp_path, *cells):
    path = tmp_path / "03_gqa.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), path)
    page = Page(path, build.page_names())
    return page, page.build().cells


def test_a_figure_has_its_text_alternative(tmp_path):
    output = nbformat.v4.new_output("display_data", data={"image/png": PIXEL, "text/plain": "Figure"},
                                    metadata={"image/png": {"alt": 'Two "heads" < 3'}})
    page, cells = page_of(tmp_path, nbformat.v4.new_code_cell("draw()", outputs=[output]))
    shown = cells[0].outputs[0].data["text/html"]
    assert 'alt="Two &quot;heads&quot; &lt; 3"' in shown
    assert list(page.pictures) == ["03_gqa-1.png"] and "figures/03_gqa-1.png" in shown


def test_a_figure_that_holds_its_drawing_is_shown_drawn(tmp_path):
    output = nbformat.v4.new_output("display_data", data={"image/png": PIXEL, "text/plain": "Figure"},
                                    metadata={"image/png": {"alt": "A line.", "svg": "<svg/>", "narrow": "<svg />"}})
    page, cells = page_of(tmp_path, nbformat.v4.new_code_cell("draw()", outputs=[output]))
    drawn = '<svg width="704" viewBox="0 0 460.8 216"><g transform="scale(0.06 -0.06)"/></svg>'
    assert narrowest(drawn) == 692 and narrowest("<svg/>") == 0, "letters stay readable"
    shown = cells[0].outputs[0].data["text/html"]
    assert page.pictures == {"03_gqa-1.svg": b"<svg/>", "narrow-03_gqa-1.svg": b"<svg />"} and 'alt="A line."' in shown
    assert shown.startswith("<picture><source") and 'srcset="../_static/figures/narrow-03_gqa-1.svg"' in shown


def test_links_lead_to_pages(tmp_path):
    text = "see [the words](../NOTATION.md#glossary), [chapter 2](02_rope.ipynb), [a kernel](../kernels/rope.cu), [gone](../x/y.md)"
    _, cells = page_of(tmp_path, nbformat.v4.new_markdown_cell(text))
    assert (
        cells[0].source
        == ("see [the words](../notation.md#glossary), [chapter 2](../chapters/02_rope.ipynb), [a "
            "kernel](../code/kernels/rope-cu.md), gone"))


def test_a_chapter_can_be_downloaded_without_outputs(tmp_path, monkeypatch):
    output = nbformat.v4.new_output("stream", text="seen")
    page, cells = page_of(tmp_path, nbformat.v4.new_markdown_cell("# 3 · Grouped queries"),
                          nbformat.v4.new_code_cell("draw()", outputs=[output], execution_count=3))
    assert 'href="../_static/notebooks/03_gqa.ipynb" download' in cells[0].source
    assert "```bash\nmake lab ARGS=3\n```" in cells[0].source and "colab" not in cells[0].source
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/a/b.git"\n')
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert "research.google.com/github/a/b/blob/main/notebooks/03_gqa.ipynb" in pages.ways_in("03_gqa.ipynb")
    copied = nbformat.reads(emptied(page.path), as_version=4).cells
    assert copied[0].source == "# 3 · Grouped queries"
    assert (copied[1].source, copied[1].outputs, copied[1].execution_count) == ("draw()", [], None)


def test_a_solution_is_behind_a_click_below_its_check(tmp_path):
    check = nbformat.v4.new_code_cell('kib = check("3.2", kib)', metadata={"tags": ["check"]})
    _, cells = page_of(tmp_path, check)
    assert (cells[1].source == solution("3.2")
            and cells[1].source.startswith('<details class="solution"><summary>'))


def test_code_that_is_shown_is_linked_once(tmp_path):
    cell = lambda: nbformat.v4.new_code_cell('cuda.show("rope", "rope_pairs")')
    _, cells = page_of(tmp_path, cell(), cell())
    assert ([c.source for c in cells if c.cell_type == "markdown"]
            == ["*Read the file: [kernels/rope.cu](../code/kernels/rope-cu.md)*"])


def test_a_picture_moves_where_its_states_are_few_and_else_says_where_it_does(tmp_path):
    def cell(**metadata):
        output = nbformat.v4.new_output("display_data",
                                        data={"text/html": "<figure>still</figure>", "text/plain": "words"},
                                        metadata=metadata)
        return nbformat.v4.new_code_cell("show()", outputs=[output])
    _, cells = page_of(tmp_path, cell(explorable="sectors", start={"stride": 2}), cell(player=True))
    moved, still = (c.outputs[0].data["text/html"] for c in cells if c.cell_type == "code")
    assert ('data-name="sectors" data-start="{&quot;stride&quot;: 2}"' in moved
            and "explorables/sectors.js" in moved)
    assert moved.endswith('.js"></script>') and f"{moving.STANDS_STILL}</p></div>" in moved
    assert (moving.NEEDS_A_KERNEL in still and still.startswith("<figure>still</figure>")
            and "<script" not in still)


def test_every_exercise_of_a_notebook_shows_its_solution():
    ids = {e.id for e in all_exercises()}
    shown = set()
    for path in chapters():
        shown |= {id for cell in Page(path, {}).build().cells if cell.cell_type == "markdown"
                  for id in re.findall(r"### Exercise ([\d.]+)", cell.source)}
    assert shown == ids


def test_every_kernel_has_a_page():
    names = {p.relative_to(ROOT).as_posix() for p in code.files()}
    assert {p.relative_to(ROOT).as_posix() for p in (ROOT / "kernels").rglob("*.cu")} <= names
    assert "course_lib/attention/functions.py" in names and "laptop_cuda/module.py" in names


def test_a_term_leads_to_where_it_is_first_taught_and_is_marked_where_it_is_meant():
    assert index.places()["sector"][0].startswith("00") and index.places()["block table"][0].startswith("08")
    file, cell = index.places()["race"]
    marked = [c.source for c in Page(ROOT / "notebooks" / file, {}).build().cells if 'id="term-race"' in c.source]
    assert len(marked) == 1 and "**race**" in marked[0]
    assert index.anchored("## A\ntext", (file, cell)).startswith('## A\n\n<span id="term-')
    assert 'chapters/00_start_here.html#term-race">chapter 0</a>: two threads' in index.page()
    table = json.loads(index.script().removeprefix("window.courseTerms = ").rstrip(";\n"))
    assert set(table) == set(texts.terms()) and table["page"][1] == [8, 9, 10, 11, 12] and 5 not in table["block"][1]


def test_citations_lead_to_the_chapters_own_sources():
    listed = ("**Sources.** Kwon et al., *Paged* (2023, SOSP). Dao et al., *Flash* (2022). Dao, *Flash-2* (2023). Ye, Wu, *A, b* and "
              "Lin, *C* (T, 2020). Yang et al., *D* (2024), and *E* (2024). Yang et al., *F* (2024). Li, *G* (2501.00001).")
    known = texts.entries([nbformat.v4.new_markdown_cell(listed)])
    assert known == {("Kwon", "2023"), ("Dao", "2022"), ("Dao", "2023"), ("Ye", "2020"), ("Lin", "2020")}
    link = lambda place, text: f'<a href="#source-{place}">{text}</a>'
    assert (texts.cited("In Kwon et al., Ye and Wu (2020), Dao 2023", known)
            == f"In {link('kwon-2023', 'Kwon et al.')}, {link('ye-2020', 'Ye and Wu (2020')}), {link('dao-2023', 'Dao 2023')}")
    for text in ("## Kwon et al.", "Kwon et al. 2019, `Kwon et al.`, Dao", "Dao et al.", "Yang et al., 2024"):
        assert texts.cited(text, known) == text
    shown = texts.cited(listed, known)
    assert shown.count("<span") == 5 and '<span id="source-dao-2023"></span>Dao, *Flash-2*' in shown
    assert "([2501.00001](https://arxiv.org/abs/2501.00001))" in shown and "href=" not in shown


def test_terms_and_sources():
    terms = texts.terms()
    assert terms["sector"].startswith("32 aligned bytes") and len(terms) > 30
    assert texts.bibliography("(1706.03762)") == "([1706.03762](https://arxiv.org/abs/1706.03762))"
    assert "](" not in texts.around({})["sources"].rpartition("MIT licence")[2], "a link to a file without a page"
    with pytest.raises(ValueError, match="no section 'Nothing'"):
        texts.section("# x\n", "Nothing")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for module, package in build.NEEDED.items():
        if build.find_spec(module) is None:
            pytest.skip(f"not run: {package} is missing (make book)")
    out = tmp_path_factory.mktemp("book")
    done = subprocess.run([sys.executable, "-m", "course_lib", "book", "--out", str(out)], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_it_is_whole_small_and_asks_nothing_of_the_network(site):
    pages = [p for p in site.rglob("*.html") if "_static" not in p.parts]
    assert sum(p.stat().st_size for p in site.rglob("*") if p.is_file()) < build.LARGEST
    for page in pages:
        text = page.read_text()
        assert build.weight(page) < build.LARGEST_PAGE, page
        assert not re.search(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', text), page
        assert "<img" not in text or all("alt=" in tag for tag in re.findall(r"<img[^>]*>", text)), page
        for link in re.findall(r'href="([^"#?]+)', text):
            if not re.match(r"\w+:", link):
                assert (page.parent / link).exists(), f"{page}: {link}"


@pytest.mark.slow
def test_the_small_model_runs_in_the_page(site, page):  # noqa: F811
    """After a click, from the disk; where its weights are missing a sentence says so and the still remains.
    A picture whose states were drawn moves at once."""
    root, made = "document.querySelector('[data-name=small_model]')", explore.find("small_model")
    click = lambda what: page.js(f"{root}.querySelector({json.dumps(what)}).click()")
    says = lambda **state: page.wait(
        f"{root}?.querySelector('.lc-words')?.textContent === {json.dumps(made.picture(**state).words)}", 30)
    weights = site / "_static" / "explorables" / "model.js"
    gone = weights.rename(weights.with_name("gone.js"))
    page.call("Page.navigate", url=(site / "chapters/10_language_model.html").as_uri())
    page.wait(f"!!{root}?.querySelector('button.move')", 60)
    click("button.move")
    page.wait(f"{root}.querySelector('[role=status]').textContent.includes('model.js is missing')", 20)
    assert page.js(f"!!{root}.querySelector('figure img') && !{root}.querySelector('button').disabled")
    gone.rename(weights)
    click("button.move")
    start = {"text": "JULIET:/O Romeo", "new": 12, "head": 3}
    says(**start)
    assert page.js("document.activeElement.name") == "text"
    click("input[value='of all, as a heat map']")
    says(**start, view="of all, as a heat map")
    page.call("Page.navigate", url=(site / "chapters/00_start_here.html").as_uri())
    root, made = "document.querySelector('[data-name=sectors]')", explore.find("sectors")
    says()
    page.js(f"{root}.querySelector('input[name=stride]').focus()")
    page.key("ArrowRight", 39)
    says(stride=2)


# Elements whose text has too little contrast with what is behind it: 4.5, or 3 for large letters (WCAG, AA).
FAINT = """(() => {
  const numbers = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
  const over = (top, below) => below.map((v, i) => top[i] * top[3] + v * (1 - top[3]));
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = e => { const layers = []; for (; e; e = e.parentElement) layers.unshift(numbers(getComputedStyle(e).backgroundColor));
    return layers.reduce((c, layer) => over(layer, c), [255, 255, 255]) };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim(), style = getComputedStyle(e);
    if (!text || e.closest("mjx-container, script, style, svg") || !e.getClientRects().length || style.visibility === "hidden") continue;
    const behind = ground(e), [a, b] = [light(over(numbers(style.color), behind)), light(behind)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(`${e.tagName} ${style.color}: ${text}`);
  }
  return found.slice(0, 5) })()"""


@pytest.mark.slow
def test_in_a_browser(site, page):  # noqa: F811
    """Opened from the disk at three widths and in both themes; searched."""
    page.call("Runtime.enable")
    for name in ("index", "chapters/01_attention", "chapters/06_flash_attention"):
        for width in (400, 700, 1400):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1,
                      mobile=False)
            page.call("Page.navigate", url=(site / f"{name}.html").as_uri())
            page.wait("document.readyState === 'complete' && document.querySelector('.bd-article') !== null",
                      60)
            assert page.js("document.documentElement.scrollWidth <= innerWidth"), (
                f"{name} is wider than {width}")
        if "chapters" in name:
            page.wait("document.querySelectorAll('mjx-container').length > 20 && "
                      "document.querySelector('.term') !== null", 60)
        for theme in ("light", "dark"):
            page.js(f"document.documentElement.dataset.theme = '{theme}'")
            assert page.js(FAINT) == [], f"{name}, {theme}"
    page.key("Tab", 9)
    assert (page.js("getComputedStyle(document.activeElement).outlineStyle + document.activeElement.tagName")
            != "noneBODY")
    page.call("Page.navigate", url=(site / "search.html").as_uri() + "?q=softmax")
    page.wait("document.querySelectorAll('#search-results li').length > 10", 60)
    # the theme's note on its default
    assert not [error for error in page.errors if "theme mode" not in error]


def test_a_page_loses_what_nobody_sees():
    page = '<p>a\n   b</p><!-- c --><pre>\n  <span class="n">x</span> <span class="k">if</span> <!-- d -->\n</pre>\n\n<i>e</i>'
    assert (build.lighter(page) == '<p>a\nb</p><pre>\n  x <span class="k">if</span> <!-- d '
            '-->\n</pre>\n<i>e</i>')
