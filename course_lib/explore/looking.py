"""A sentence through the heads of the small model: who looks where (chapter 1)."""
from functools import cache

import torch

from course_lib import language_model
from course_lib.explore.frame import Canvas, Explorable, Slider, Text

MOST, LEFT, RIGHT = 48, 104, 688
TOP, LINE, STRIPS, STRIP = 84, 96, 156, 11     # foot of the bars, the characters, the rows of all heads


@cache
def small_model():
    with torch.random.fork_rng(devices=[]):     # no picture changes what a later cell draws
        return language_model.pretrained()


@cache
def looks(text: str):
    """(n_layers, n_heads, n, n): the weights in every head; a `/` in the text is a line break."""
    model, tokenizer = small_model()
    return model.attention_weights(tokenizer.encode(text.replace("/", "\n"))[None])[:, 0]


def shown(character: str) -> str:
    return "_" if character == " " else character


class Looking(Explorable):
    title = "Who looks where"
    caption = ("Each head of the small model reads the same line and gives each character its own weights on "
               "the characters up to it. Point at a character, choose a head in the picture, or type another "
               "line; / is a line break, _ a space.")
    controls = (Text("text", "/My lord,/my lord, the king", "line", MOST),
                Slider("token", range(MOST), 16, "character"), Slider("layer", range(4), 0),
                Slider("head", range(4), 1))

    def draw(self, text, token, layer, head):
        if not text:
            raise ValueError("line: type at least one character")
        weights, token = looks(text)[:, :, min(token, len(text) - 1)], min(token, len(text) - 1)
        row = weights[layer, head, :token + 1].double()
        canvas, cell = Canvas(700, STRIPS + 16 * STRIP + 34), min(24.0, (RIGHT - LEFT) / len(text))
        best = row.topk(min(3, len(row)))
        draw_line(canvas, text, token, row, cell, set(best.indices.tolist()))
        draw_heads(canvas, weights[..., :token + 1].double(), (layer, head), cell)
        names = [f"'{shown(text[at])}' at {at} ({weight:.0%})"
                 for at, weight in zip(best.indices.tolist(), best.values.tolist())]
        heads = "; ".join(f"layer {n}: " + ", ".join(name_of(text, each) for each in part[:, :token + 1])
                          for n, part in enumerate(weights))
        return canvas, (f"The line {text!r}. In layer {layer}, head {head}, '{shown(text[token])}' at "
                        f"{token} gives most weight to {', '.join(names)}. In heads 0 to 3 of each layer it "
                        f"looks most at: {heads}.")


def name_of(text: str, row) -> str:
    at = int(row.argmax())
    return f"'{shown(text[at])}' at {at}"


def draw_line(canvas: Canvas, text: str, token: int, row, cell: float, best: set) -> None:
    """The characters, each a button, and the weights of the chosen one as bars above them.

    Whole per cents are drawn, so that the picture is the same where the model rounds otherwise."""
    canvas.text(LEFT - 10, TOP, "weight", anchor="end", fill="faint")
    canvas.text(LEFT - 10, LINE + 15, "character", anchor="end", fill="faint")
    for at, character in enumerate(text):
        x = LEFT + cell * at
        share = round(float(row[at]), 2) if at <= token else 0.0
        if share:
            canvas.rect(x + 1, TOP - 64 * share, cell - 2, 64 * share, fill="2", about=f"{share:.0%}")
        if at in best and share >= 0.1:
            canvas.text(x + cell / 2, TOP - 64 * share - 4, f"{share:.0%}", size=10, anchor="middle")
        canvas.rect(x, LINE, cell, 22, fill="accent" if at == token else "empty", text=shown(character),
                    size=min(12, cell), set={"token": at}, hover=True,
                    about=f"character {at}, '{shown(character)}'")
    canvas.line(LEFT, TOP + 0.5, LEFT + cell * len(text), TOP + 0.5, stroke="faint")


def draw_heads(canvas: Canvas, weights, chosen: tuple, cell: float) -> None:
    """The same row of weights in all heads, a strip each; the frame of a strip is a button."""
    canvas.text(20, STRIPS - 12, "The same character in every head. Click a strip to see it above.",
                size=11, fill="faint")
    for n, row in enumerate(weights.flatten(0, 1)):
        layer, head = divmod(n, weights.shape[1])
        y, here = STRIPS + (STRIP + 1.5) * n, (layer, head) == chosen
        canvas.text(LEFT - 10, y + 9, f"layer {layer}, head {head}", size=10, anchor="end", bold=here)
        for at, share in enumerate(row.tolist()):
            if share >= 0.05:
                canvas.rect(LEFT + cell * at, y, cell, STRIP, fill="2", stroke=None, shade=round(share, 1))
        canvas.rect(LEFT, y, cell * len(row), STRIP, stroke="ink" if here else "line", thick=2 if here else 1,
                    shade=0, set={"layer": layer, "head": head}, about=f"layer {layer}, head {head}")
