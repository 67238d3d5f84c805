"""Pictures that move on a page of the book: the states that an explorable offers, drawn when it is made."""
import html
import json
import re
from functools import cache
from pathlib import Path

from course_lib import explore
from course_lib.explore.frame.explorable import FILE
from laptop_cuda.pictures import front

NEEDS_A_KERNEL = "In JupyterLab this picture moves: a kernel computes each of its states."


def shown(still: str, metadata: dict) -> str:
    """The still, which moves between the states that are drawn, or says below where it moves."""
    name = metadata.get("explorable")
    if name is None or not has_table(name):
        return f'{still}<p class="needs-a-kernel">{NEEDS_A_KERNEL}</p>'
    start = html.escape(json.dumps(metadata.get("start", {})), quote=True)
    return (f'<div class="explorable" data-name="{name}" data-start="{start}">{still}</div>'
            f'<script defer src="../_static/explorables/{name}.js"></script>')


def has_table(name: str) -> bool:
    return name in explore.names() and explore.find(name).page is not None


def is_moving(output) -> bool:
    return bool({"explorable", "player"} & output.get("metadata", {}).keys())


def write(static: Path) -> None:
    """The front end as a plain script (pages from a disk load no module), its style, its states."""
    (static / "explorables").mkdir()
    (static / "explore.js").write_text(script(), encoding="utf-8")
    (static / "explore.css").write_text(front.css(), encoding="utf-8")
    for name in filter(has_table, explore.names()):
        (static / "explorables" / f"{name}.js").write_text(states(name), encoding="utf-8")


@cache
def states(name: str) -> str:
    table = json.dumps(explore.find(name).table(), ensure_ascii=False)
    return f"(window.courseExplorables ??= {{}})[{json.dumps(name)}] = {table};\n"


def script() -> str:
    """The widget's module without its export, and what puts it in the place of each still."""
    module, exports = re.subn(r"(?m)^export default .*$", "", front.module(FILE))
    assert exports == 1
    return f"""(() => {{
{module}
addEventListener("DOMContentLoaded", () => {{
  for (const root of document.querySelectorAll(".explorable")) {{
    const table = window.courseExplorables?.[root.dataset.name];
    if (table) mountTable(root, table, JSON.parse(root.dataset.start));
  }}
}});
}})();
"""
