"""Pictures that move: a widget where a person sits at the kernel, a still everywhere else.

`show(picture, front)` displays one output. It always holds the still (an image with its text alternative,
caption and words) and the words as plain text, which are what a test compares. Only an interactive kernel
with `anywidget` adds the widget, because a widget's id is random and its page needs the kernel."""
import html
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from ..toolchain.watching import batch_under, in_batch, watched  # noqa: F401
from .svg import Canvas, style

BROWSER = Path(__file__).parents[1] / "browser"
WIDGET = "application/vnd.jupyter.widget-view+json"
MISSING = "anywidget is not installed, so this picture does not move: pip install anywidget"


@dataclass(frozen=True)
class Picture:
    """One state: what is drawn, and what it says in words."""
    canvas: Canvas
    words: str
    title: str
    caption: str

    def html(self) -> str:
        """The still, for every page: an image, its caption, and the same in words."""
        source = quote(self.canvas.svg(self.words, alone=True), safe=" /:;,=()'!*@[]{}|")
        words, caption = html.escape(self.words), html.escape(self.caption)
        return (f'<figure style="margin:0"><img style="max-width:100%" src="data:image/svg+xml,{source}" '
                f'alt="{html.escape(self.words, quote=True)}"><figcaption><em>{caption}</em>'
                f"<details><summary>In words</summary>{words}</details></figcaption></figure>")

    def text(self) -> str:
        return f"{self.title}. {self.caption}\n{self.words}"


def show(picture: Picture, front: Callable[[], object], metadata: dict | None = None) -> None:
    """Displays a picture; `front()` makes its widget, and is called only where a person can move it."""
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        print(picture.text())
        return
    from IPython.display import display

    data = {"text/html": picture.html(), "text/plain": picture.text()}
    if watched():
        if find_spec("anywidget") is None:
            print(MISSING)
        else:
            data |= {WIDGET: {"version_major": 2, "version_minor": 0, "model_id": front().model_id}}
    display(data, metadata=metadata or {}, raw=True)


def module(*files: Path) -> str:
    """One ES module: the shared kit, then the files of a front end."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (BROWSER / "kit.js", *files))


def css() -> str:
    return style() + (BROWSER / "front.css").read_text(encoding="utf-8")


@cache
def widget_class(name: str, *files: Path):
    """A widget whose module is made of `files`: `data` goes to the browser, `asked` comes, `answer` goes."""
    import anywidget
    import traitlets

    traits = {trait: traitlets.Dict().tag(sync=True) for trait in ("data", "asked", "answer")}
    return type(name, (anywidget.AnyWidget,), {"_esm": module(*files), "_css": css(), **traits})
