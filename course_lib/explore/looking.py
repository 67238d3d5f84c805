"""A sentence through the heads of the small model: who looks where (chapter 1)."""
from functools import cache

import torch

from course_lib import language_model
from course_lib.explore.frame import Canvas, Explorable, Slider, Text

MOST, LEFT, RIGHT = 48, 104, 688
FEET, STRIPS, STRIP = 80, 156, 11      # of the bars; the rows of all heads, and how high one is


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
        draw_line(canvas, "character", text, cell, range(token + 1), row, lambda at: {
            "fill": "accent" if at == token else "empty", "set": {"token": at}, "hover": True})
        canvas.text(20, STRIPS - 12, "The same character in every head. Click a strip to see it above.",
                    size=11, fill="faint")
        draw_heads(canvas, STRIPS, STRIP, cell, range(token + 1), weights[..., :token + 1].double(),
                   (layer, head))
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


def draw_line(canvas: Canvas, called: str, text: str, cell: float, held, row, box) -> None:
    """The characters, each as `box` says, and the weights on those held as bars above them.

    Whole per cents are drawn, so that the picture is the same where the model rounds otherwise."""
    canvas.text(LEFT - 10, FEET, "weight", anchor="end", fill="faint")
    canvas.text(LEFT - 10, FEET + 27, called, anchor="end", fill="faint")
    for at, share in zip(held, row.tolist()):
        x, share = LEFT + cell * at, round(share, 2)
        if share:
            canvas.rect(x + 1, FEET - 60 * share, cell - 2, 60 * share, fill="2", about=f"{share:.0%}")
        if share >= 0.15:
            canvas.text(x + cell / 2, FEET - 60 * share - 4, f"{share:.0%}", size=10, anchor="middle")
    for at, character in enumerate(text):
        canvas.rect(LEFT + cell * at, FEET + 12, cell, 22, text=shown(character), size=min(12, cell),
                    about=f"character {at}, '{shown(character)}'", **box(at))
    canvas.line(LEFT, FEET + 0.5, LEFT + cell * len(text), FEET + 0.5, stroke="faint")


def draw_heads(canvas: Canvas, top: float, high: float, cell: float, held, weights, chosen: tuple) -> None:
    """A strip per head on what is held, as strong as the weights; the frame of a strip is a button."""
    for n, row in enumerate(weights.flatten(0, 1)):
        layer, head = divmod(n, weights.shape[1])
        y, here = top + 12.5 * n, (layer, head) == chosen
        canvas.text(LEFT - 10, y + 9, f"layer {layer}, head {head}", size=10, anchor="end", bold=here)
        for at, share in zip(held, row.tolist()):
            if share >= 0.05:
                canvas.rect(LEFT + cell * at, y, cell, high, fill="2", stroke=None, shade=round(share, 1))
        first = LEFT + cell * held[0]
        canvas.rect(first, y, LEFT + cell * (held[-1] + 1) - first, high, stroke="ink" if here else "line",
                    thick=2 if here else 1, shade=0, set={"layer": layer, "head": head},
                    about=f"layer {layer}, head {head}")
