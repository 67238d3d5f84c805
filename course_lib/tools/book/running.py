"""Kernels that run on a page: a chapter's launches are recorded once, and its kernels built for the page.

A chapter's script has the module, the arrays and the launches, packed; run.js shows a button per launch. Nothing
of it is made where no compiler for WebAssembly is installed: `page.missing` says what."""
import base64
import gzip
import html
import json
import re
import shutil
from functools import cache
from pathlib import Path

import nbformat
import numpy as np

from course_lib.files import ROOT
from course_lib.tools import notebooks
from course_lib.tools.book import working
from course_lib.tools.book.drawn import PAGE
from laptop_cuda import page, replay
from laptop_cuda.asynchronous.errors import TEXTS
from laptop_cuda.errors.facts import VERBS, WORDS
from laptop_cuda.page import live as page_compiler
from laptop_cuda.pictures import front as pictures
from laptop_cuda.machine import Machine
from laptop_cuda.pictures.player import SCRIPTS
from laptop_cuda.replay.element_values import GUESS
from laptop_cuda.text.shared_types import all_declared
from laptop_cuda.build import cache as build_cache
from laptop_cuda.build import engine_digest
from laptop_cuda.toolchain.cache import digest

ASSETS = Path(__file__).parent / "assets"
LARGEST = 3e6                # bytes of a chapter's script
COMPILER = "compiler"        # the folder of a book's compiler
ROWS = ("global loads", "global stores", "shared loads", "shared stores", "global atomics", "shared atomics", "barriers", "", "",
        "copies in", "copies out", "tensor cores")       # of a result's table, by the engine's number of an operation
# What a field holds, and what it says of anything else.
SIZES = r"\d{1,9}([ ,x]+\d{1,9}){0,2}", "one to three whole numbers, as in 4 or 4, 2"
NUMBERS = {"int32": (r"-?\d{1,10}", "a whole number"), "uint32": (r"\d{1,10}", "a whole number, not below 0"),
           "float32": (r"-?(\d+\.?\d*|\.\d+)(e[+\-]?\d+)?", "a number")}
FIELD = ('<label>{} <input name="{}" value="{}" size="{}" pattern="{}" title="{}" required autocomplete="off" '
         'spellcheck="false"></label>')
INPUTS = ('<label>inputs <select name="inputs"><option value="given">of the chapter</option><option value="counted">0, 1, 2, ...'
          '</option><option value="random">random</option></select></label>')
START = "from laptop_cuda.page import record; record.start({!r})"


@cache
def recorded(path: Path) -> dict:
    """A notebook's launches, with the ids of their cells. The notebook runs for it where something has changed."""
    notebook = nbformat.read(path, as_version=4)
    word = path.stem.partition("_")[2]
    parts = [path, page.RECORD, *sorted((ROOT / "kernels").rglob("*.cu*")), *sorted((ROOT / "course_lib" / word).rglob("*.py"))]
    folder = build_cache() / f"launches-{digest(engine_digest(), *(p.read_bytes() for p in parts))}"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(START.format(str(folder))))
        notebooks.execute(notebook, path)
        (folder / "done").touch()
    found = json.loads((folder / "launches.json").read_text(encoding="utf-8"))
    # a kernel exercise's check runs solutions
    for kind in ("launches", "left"):
        cells = [(one, code[one["cell"] - 1]) for one in found[kind]]
        found[kind] = [one | {"cell": cell["id"]} for one, cell in cells if "check" not in cell.metadata.get("tags", [])]
    return found | {"data": (folder / "data.bin").read_bytes()}


@cache
def built(path: Path) -> tuple[dict, bytes]:
    """The launches that a page makes, and the module of their kernels."""
    found, word = recorded(path), path.stem.partition("_")[2]
    used = sorted({one["source"] for one in found["launches"]})
    sources = [found["sources"][n] for n in used]
    texts = [page.Source(s["text"], tuple(s["files"]), (f"-std={s['std']}",)) for s in sources]
    module = page.module(texts) if texts else b""
    counted: dict[str, int] = {}
    for one in found["launches"]:
        name = re.sub(r"\W+", "-", one["kernel"]).strip("-")
        counted[name] = counted.get(name, 0) + 1
        one["name"] = f"{word}/{name}" + (f"-{counted[name]}" if counted[name] > 1 else "")
        one["source"] = used.index(one["source"])
    return found | {"sources": sources}, module


def after(path: Path, cell) -> list[str]:
    """The HTML below a code cell: a place for a button per launch, and why another launch has none."""
    if page.missing():
        return []
    found, _ = built(path)
    mine = [one for one in found["launches"] if one["cell"] == cell["id"]]
    made = [working.place({"kernel": one["name"], "page": path.stem}, _form(one), command(path)) for one in mine]
    return made + [working.cannot(f'{one["kernel"]} does not run', one["reason"], "it does", command(path))
                   for one in found["left"] if one["cell"] == cell["id"]]


def command(path: Path) -> str:
    """What opens a chapter in JupyterLab."""
    return f"make lab ARGS={int(path.name[:2])}"


def _form(launch: dict) -> str:
    """What a reader may change, before the chapter's script is loaded; the browser holds it to the patterns."""
    shown = lambda n: ", ".join(map(str, n[:3 if n[2] > 1 else 2 if n[1] > 1 else 1]))
    fields = [(name, name, shown(launch[name]), 9, *SIZES) for name in ("grid", "block")]
    fields += [(a["name"], f"value-{a['name']}", str(np.frombuffer(bytes(a["value"][:4]), a["dtype"])[0]).removesuffix(".0"), 6,
                *NUMBERS[a["dtype"]]) for a in launch["args"] if a.get("lanes") == 1 and a["dtype"] in NUMBERS]
    kernel = html.escape(launch["kernel"])
    return "".join([f'<button name="submit">Run <code>{kernel}</code></button>', working.STOP, *(FIELD.format(*f) for f in fields), INPUTS,
                    working.editor("Edit the kernel", f"Source of {kernel}").replace("<details", "<details hidden")])


def script(path: Path) -> str:
    """Of a chapter: its launches, arrays and module, packed into texts, as a page from a disk fetches no file."""
    found, module = built(path)
    texts = [{name: s[name] for name in ("files", "lines", "name", "places", "define")} | {"types": all_declared(["\n".join(lines) for lines in s["lines"]])}
             for s in found["sources"]]
    launches = {one["name"]: {k: v for k, v in one.items() if k not in ("cell", "name")}
                | {"laptop": one["laptop"].get("error")} for one in found["launches"]}
    head = json.dumps({"sources": texts, "launches": launches}, ensure_ascii=False).encode()
    packed = [base64.b64encode(gzip.compress(part, mtime=0)).decode() for part in (head, found["data"], module)]
    return f"(window.courseRuns ??= {{}})[{json.dumps(path.stem)}] = {json.dumps(packed)};\n"


def write(static: Path, chapters: list[Path], live: bool = False) -> str:
    """The scripts; what the book says of them when it is made."""
    if why := page.missing():
        return f"no kernel runs on the pages: {why}"
    (static / "page").mkdir()
    runs = 0
    for path in chapters:
        found, _ = built(path)
        runs += len(found["launches"])
        if found["launches"]:
            text = script(path)
            if len(text) > LARGEST:
                raise ValueError(f"{path.stem}: its kernels weigh {len(text) / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}")
            (static / "page" / f"{path.stem}.js").write_text(text, encoding="utf-8")
    (static / "run.js").write_text(front(live), encoding="utf-8")
    module = pictures.module(*SCRIPTS).replace("export default {render};", "window.coursePlayer = play;")
    (static / "player.js").write_text(f"(() => {{\n{module}\n}})();\n", encoding="utf-8")
    if not live:
        return f"{runs} launches run on the pages"
    weight = page_compiler.write(static / COMPILER, working.rooms())
    cells = [cell for path in chapters for cell in nbformat.read(path, as_version=4).cells]
    worked = working.write(static / COMPILER, cells)
    return f"{runs} launches run on the pages, {weight}, {worked} exercises are worked there"


def front(live: bool = False) -> str:
    """run.js with the text that its worker runs; edit.js where a page has a compiler."""
    own = ("run.js", "play.js", "edit.js", "work.js")[:4 if live else 2]
    parts = [pictures.BROWSER / "kit.js", PAGE / "float16.js", *(ASSETS / part for part in own)]
    worker, *texts = (path.read_text(encoding="utf-8") for path in (page.LAUNCH, *parts))
    known = {"most": replay.EVENTS, "blocks": replay.BLOCKS, "columns": replay.Rows.STEP_COLUMNS, "guess": GUESS,
             "machine": {name: getattr(Machine(), name) for name in replay.MACHINE}, "rows": ROWS, "verbs": VERBS,
             "words": {kind: {reason: what for reason, (what, _) in of.items()} for kind, of in [*WORDS.items(), ("", TEXTS)]
                       if kind != "causes of a race"}}
    return "\n".join([f"(() => {{\nwindow.courseLaunch = {json.dumps(worker)};\nconst ENGINE = {json.dumps(known)};", *texts, "})();\n"])
