"""Pictures that move on a page of the book: their states were drawn when it was made, or the page draws them."""
import html
import json
import re
from functools import cache
from pathlib import Path

from course_lib import explore
from course_lib.explore.frame.explorable import FILE
from course_lib.tools.book import drawn
from laptop_cuda.pictures import front

MOUNT = Path(__file__).parent / "assets" / "moving.js"
STANDS_STILL = ("This picture stands still: scripts are switched off, this browser is too old for them, or a file "
                "of the book is missing. In JupyterLab it moves.")
PLAYS_BELOW = "This launch runs below: Run, then Step through. In JupyterLab the picture itself moves."
NEEDS_A_KERNEL = "In JupyterLab this picture moves: a kernel computes each of its states."


def shown(still: str, metadata: dict, runs: bool = False) -> str:
    """The still, which moves between the states that are drawn, or says below where it moves; `runs`: its launch does here."""
    name = metadata.get("explorable")
    if name is None or not moves(name):
        return f'{still}<p class="needs-a-kernel">{PLAYS_BELOW if runs and "player" in metadata else NEEDS_A_KERNEL}</p>'
    start = html.escape(json.dumps(metadata.get("start", {})), quote=True)
    return (f'<div class="explorable" data-name="{name}" data-start="{start}">{still}'
            f'<p class="needs-a-kernel">{STANDS_STILL}</p></div>'
            f'<script defer src="../_static/explorables/{name}.js"></script>')


def moves(name: str) -> bool:
    return name in explore.names() and (name in drawn.names() or explore.find(name).page is not None)


def is_moving(output) -> bool:
    return bool({"explorable", "player"} & output.get("metadata", {}).keys())


def write(static: Path) -> None:
    """The front end as a plain script (pages from a disk load no module), its style, its states."""
    (static / "explorables").mkdir()
    (static / "explore.js").write_text(script(), encoding="utf-8")
    (static / "explore.css").write_text(front.css(), encoding="utf-8")
    (static / "explorables" / "model.js").write_text(drawn.weights(), encoding="utf-8")
    for name in filter(moves, explore.names()):
        (static / "explorables" / f"{name}.js").write_text(states(name), encoding="utf-8")


@cache
def states(name: str) -> str:
    if name in drawn.names():
        return drawn.script(name)
    table = json.dumps(explore.find(name).table(), ensure_ascii=False)
    return f"(window.courseExplorables ??= {{}})[{json.dumps(name)}] = {table};\n"


def script() -> str:
    """The widget's module without its export, and what puts it in the place of each still."""
    module, exports = re.subn(r"(?m)^export default .*$", "", front.module(FILE))
    assert exports == 1
    return f"""(() => {{
{module}
{MOUNT.read_text(encoding="utf-8")}
}})();
"""
