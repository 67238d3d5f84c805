"""The online softmax, tile by tile (chapter 6)."""
import torch

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.flash_attention import finish, merge, state_of

SCORES = {"mixed": (0.5, 2.0, 1.0, 3.0, -1.0, 2.5, 4.0, 0.0),
          "rising": (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
          "falling": (5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0)}
VALUES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
KEYS, LOW, HIGH = 8, -2.0, 5.0


def states(scores: tuple, tile: int) -> list:
    """The state before the first tile, and after each."""
    empty = (torch.tensor([-torch.inf]), torch.zeros(1), torch.zeros(1, 1))
    found = [empty]
    for first in range(0, KEYS, tile):
        part = slice(first, first + tile)
        of_tile = state_of(torch.tensor([scores[part]]), torch.tensor(VALUES[part])[:, None])
        found.append(merge(found[-1], of_tile))
    return found


class OnlineSoftmax(Explorable):
    title = "The online softmax, tile by tile"
    caption = ("One query and eight keys. Three numbers carry what was seen: the largest score m, the sum l "
               "of exp(score - m), and the sum o of exp(score - m) v. When m grows, l and o shrink by the "
               "same factor.")
    controls = (Choice("scores", tuple(SCORES)), Slider("tile", (1, 2, 4, 8), 2, "keys per tile"),
                Slider("done", range(KEYS + 1), 1, "tiles done", play=True))
    page = {"scores": tuple(SCORES), "tile": (2,), "done": range(5)}

    def ranges(self, tile, **_):
        return {"done": range(KEYS // tile + 1)}

    def draw(self, scores, tile, done):
        chosen, walk = SCORES[scores], states(SCORES[scores], tile)
        m, l, o = (x.item() for x in walk[done])
        shrink = torch.exp(walk[done - 1][0] - walk[done][0]).item() if done > 1 else None
        canvas = Canvas(700, 230)
        bars(canvas, chosen, tile, done)
        rows = [f"m = {m:.2f}" if done else "m = -inf", f"l = {l:.4f}", f"o = {o:.4f}"]
        for n, row in enumerate(rows):
            canvas.rect(470, 30 + 34 * n, 200, 28, fill="soft", text=row, size=13)
        said = f"last factor for l and o: {shrink:.4f}" if shrink is not None else "nothing to rescale yet"
        canvas.text(470, 148, said, size=12, fill="ink" if shrink == 1 or shrink is None else "warn")
        out = finish(walk[done])[0].item()
        canvas.text(470, 174, f"o / l = {out:.4f} over {done * tile} keys", bold=True)
        exact = (torch.tensor(chosen).softmax(0) * torch.tensor(VALUES)).sum().item()
        canvas.text(470, 198, f"softmax over all eight: {exact:.4f}", fill="faint")
        return canvas, (f"Scores {', '.join(f'{s:g}' for s in chosen)}; values 1 to 8; tiles of {tile}. "
                        f"After {done} of {len(walk) - 1} tiles: {', '.join(rows)}; {said}. o / l = "
                        f"{out:.4f}, softmax over all eight keys gives {exact:.4f}.")


def bars(canvas: Canvas, scores: tuple, tile: int, done: int) -> None:
    """The scores as bars; keys of tiles that are done in grey, those of the last one in the accent."""
    base, unit = 190, 150 / (HIGH - LOW)
    zero = base + unit * LOW
    for j, score in enumerate(scores):
        number = j // tile + 1
        fill = "accent" if number == done else "soft" if number < done else "empty"
        top = zero - unit * score
        canvas.rect(30 + 50 * j, min(top, zero), 36, max(abs(top - zero), 2), fill=fill, stroke="ink",
                    about=f"key {j}: score {score:g}, value {VALUES[j]:g}")
        canvas.text(48 + 50 * j, min(top, zero) - 5, f"{score:g}", size=11, anchor="middle")
        canvas.text(48 + 50 * j, 222, f"v = {VALUES[j]:g}", size=11, anchor="middle", fill="faint")
    canvas.line(20, zero, 430, zero, stroke="faint")
    for edge in range(tile, KEYS, tile):
        canvas.line(23 + 50 * edge, 14, 23 + 50 * edge, 205, stroke="line", dash="3 3")
