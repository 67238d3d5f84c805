"""The table of attentions as a plane of loss and cache (chapter 10)."""
import json
import math
from functools import cache

from course_lib.explore.frame import Canvas, Choice, Explorable
from course_lib.files import ROOT

BOX = (60, 30, 560, 230)
SPAN = (4, 12)                  # log2 of KiB


@cache
def rows() -> dict[str, dict]:
    return json.loads((ROOT / "data" / "attention_table.json").read_text(encoding="utf-8"))["rows"]


def points(tokens: int) -> dict[str, tuple[float, float, float, int]]:
    """name -> (mean loss, lowest and highest of the seeds, bytes of the cache)."""
    found = {}
    for name, row in rows().items():
        losses = list(row["losses"].values())
        found[name] = sum(losses) / len(losses), min(losses), max(losses), row["cache_bytes"][str(tokens)]
    return found


def unbeaten(found: dict) -> list[str]:
    """Names for which no other is as good in both and better in one."""
    return [a for a, (loss, _, _, size) in found.items()
            if not any(other[0] <= loss and other[3] <= size and (other[0], other[3]) != (loss, size)
                       for other in found.values())]


class TradeOffs(Explorable):
    title = "Loss against cache"
    caption = ("Every attention of the course in the same small model, 600 steps. A bar spans the seeds. "
               "Orange: no other is as good in both and better in one.")
    controls = (Choice("tokens", (64, 256), 256, "tokens in the cache"),
                Choice("chosen", tuple(rows()), label="attention"))
    page = {"tokens": (256,), "chosen": tuple(rows())}

    def draw(self, tokens, chosen):
        found, name = points(tokens), chosen
        best = unbeaten(found)
        losses = (math.floor(10 * min(p[1] for p in found.values())) / 10,
                  math.ceil(10 * max(p[2] for p in found.values())) / 10)
        canvas = Canvas(700, 310)
        place = canvas.axes(BOX, SPAN, losses, xlabel="log2 of the cache in KiB, all layers, one sequence",
                            ylabel="loss, nats per character", ticks=SPAN[1] - SPAN[0])
        for mine, (loss, low, high, size) in found.items():
            x, y = place(math.log2(size / 1024), loss)
            canvas.line(x, place(0, low)[1], x, place(0, high)[1], stroke="ink", thick=1)
            canvas.circle(x, y, 8 if mine == name else 5, fill="accent" if mine in best else "soft",
                          thick=2 if mine == name else 1, set={"chosen": mine}, hover=True,
                          about=f"{mine}: loss {loss:.3f}, {size / 1024:g} KiB")
        for mine, (loss, _, _, size) in found.items():
            label(canvas, place(math.log2(size / 1024), loss), mine, mine == name)
        loss, low, high, size = found[name]
        return canvas, (f"{name}: mean loss {loss:.3f} ({low:.3f} to {high:.3f}), {size / 1024:g} KiB for "
                        f"{tokens} tokens. Not beaten in both: {', '.join(best)}.")


def label(canvas: Canvas, at: tuple[float, float], name: str, chosen: bool) -> None:
    """A name beside its point, where it covers no other."""
    anchor = "middle" if name == "softmax" else "end" if name.startswith("3") else "start"
    right = {"middle": 0, "end": -10, "start": 10}[anchor]
    down = 22 if anchor == "middle" else 24 if name.startswith("3 s") else 4
    canvas.text(at[0] + right, at[1] + down, name.removesuffix(" without positions"), size=11, bold=chosen,
                anchor=anchor, fill="ink" if chosen else "faint")
