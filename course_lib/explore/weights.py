"""Scores through a softmax: the scale and the temperature (chapter 1)."""
import torch

from course_lib.attention import softmax
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider

WORDS = ("the", "cat", "sat", "on", "the", "mat")
PRODUCTS = (-8, 0, 4, -2, -6, 10)           # q . k of one query, heads 64 wide; the reader sets cat's
CAT, WIDTH = 1, 64
SCALES = {"divided by √64": WIDTH**-0.5, "as they are": 1.0}
ZERO, PER_UNIT, WEIGHTS, FULL = 205, 2.7, 420, 200    # where bars start, and how long they are


def weighed(products: list[int], scale: float, temperature: float):
    """(scores, weights, norm of the softmax's Jacobian)."""
    scores = torch.tensor(products, dtype=torch.float64) * scale / temperature
    slopes = torch.autograd.functional.jacobian(softmax, scores)
    return scores, softmax(scores), slopes.norm()


class Weights(Explorable):
    title = "From scores to weights"
    caption = ("Softmax turns scores into weights that add up to 1. Larger scores make it sharper, a higher "
               "temperature makes it flatter, and where one weight is nearly 1, hardly any gradient passes.")
    controls = (Slider("product", range(-32, 33, 2), 16, "q · k of cat"),
                Choice("scale", tuple(SCALES), label="products"),
                Slider("temperature", (0.1, 0.25, 0.5, 1, 2, 4, 8, 16), 1))
    page = {"product": (-8, 16), "scale": tuple(SCALES), "temperature": (0.25, 1, 8)}

    def draw(self, product, scale, temperature):
        products = [product if at == CAT else p for at, p in enumerate(PRODUCTS)]
        scores, weights, slope = weighed(products, SCALES[scale], temperature)
        canvas = Canvas(700, 262)
        for x, head in ((20, "key"), (ZERO - 125, "q · k"), (ZERO + 130, "score"), (WEIGHTS, "weight")):
            canvas.text(x, 22, head, bold=True)
        for row, (word, dot, score, weight) in enumerate(zip(WORDS, products, scores, weights)):
            draw_row(canvas, 32 + 30 * row, word, dot, f"{score:z.2f}", float(weight), row == CAT)
        canvas.line(ZERO, 30, ZERO, 212, stroke="faint")
        canvas.line(WEIGHTS, 30, WEIGHTS, 212, stroke="faint")
        root = " / √64" if SCALES[scale] < 1 else ""
        canvas.text(20, 246, f"score = q · k{root} / temperature {temperature:g}", code=True)
        canvas.text(680, 246, f"norm of the Jacobian {slope:.3f}", anchor="end", bold=True)
        said = "; ".join(f"{word} has q · k {dot}, score {score:z.2f}, weight {weight:.1%}"
                         for word, dot, score, weight in zip(WORDS, products, scores, weights))
        return canvas, (f"Products {scale}, temperature {temperature:g}: {said}. The norm of the softmax's "
                        f"Jacobian, through which gradients pass, is {slope:.3f}.")


def draw_row(canvas: Canvas, y: float, word: str, dot: int, score: str, weight: float, moved: bool) -> None:
    """One key: its product as a bar from zero, its score, its weight as a bar."""
    fill = "accent" if moved else "soft"
    canvas.text(20, y + 16, word, bold=moved)
    canvas.text(ZERO - 95, y + 16, dot, anchor="end")
    if dot:
        canvas.rect(ZERO + min(0, PER_UNIT * dot), y + 3, PER_UNIT * abs(dot), 18, fill=fill)
    canvas.text(ZERO + 165, y + 16, score, anchor="end")
    canvas.rect(WEIGHTS, y + 3, FULL * weight, 18, fill=fill, about=f"{word}: {weight:.1%}")
    canvas.text(WEIGHTS + FULL * weight + 6, y + 16, f"{weight:.1%}")
