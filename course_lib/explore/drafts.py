"""A draft accepted and refused (chapter 7)."""
import torch

from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.kv_cache.sampling import acceptance, residual, verify_draft

TARGET = torch.tensor([0.05, 0.15, 0.4, 0.3, 0.1], dtype=torch.float64)
TOKENS = "the", "a", "king", "lord", "crown"


def drafted(sharpness: float, shift: int) -> torch.Tensor:
    """What the small model says: the target's probabilities to a power, moved by some tokens."""
    p = TARGET.roll(shift) ** sharpness
    return p / p.sum()


def tokens_per_pass(rate: float, n: int) -> float:
    """Expected tokens of one pass of the large model: 1 + rate + ... + rate^n."""
    return sum(rate**k for k in range(n + 1))


def one_round(q: torch.Tensor, n: int, number: int) -> tuple[list[int], list[int]]:
    """(what the draft drew, what the large model made of it); the same number, the same tokens."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.multinomial(q, n, replacement=True, generator=generator)
    new = verify_draft(TARGET.expand(n + 1, -1), q.expand(n, -1), drawn, generator)
    return drawn.tolist(), new.tolist()


class Drafts(Explorable):
    title = "A draft accepted and refused"
    caption = ("Left bar: the large model's probability p. Right bar: the draft's, q. The accent is what "
               "both share, and is accepted; a refused token is replaced by one from what p has left. At the "
               "foot is one round, drawn: the draft's tokens, and what the large model makes of them.")
    controls = (Slider("shift", (0, 1, 2), 1, "draft moved by", "tokens"),
                Slider("sharpness", (0.0, 0.5, 1.0, 2.0, 4.0), 1.0, "sharpness of the draft"),
                Slider("n", range(1, 9), 4, "tokens drafted"),
                Slider("number", range(1, 21), 3, "round", play=True))
    page = {"shift": (0, 1, 2), "sharpness": (0.0, 1.0, 4.0), "n": (4,), "number": (1, 2, 3, 4)}

    def draw(self, shift, sharpness, n, number):
        q = drafted(sharpness, shift)
        chance, left = acceptance(TARGET, q), residual(TARGET, q)
        rate = (q * chance).sum().item()
        drawn, new = one_round(q, n, number)
        canvas = Canvas(700, 290)
        row(canvas, 224, "draft", drawn, kept=len(new) - 1)
        row(canvas, 256, "becomes", new, kept=len(new) - 1)
        for i, token in enumerate(TOKENS):
            column(canvas, 30 + 95 * i, TARGET[i].item(), q[i].item())
            canvas.text(62 + 95 * i, 190, token, anchor="middle")
            canvas.text(62 + 95 * i, 204, f"accept {chance[i]:.2f}", size=11, anchor="middle", fill="faint")
        canvas.text(520, 60, f"accepted: {rate:.3f}", bold=True)
        canvas.text(520, 84, f"{tokens_per_pass(rate, n):.2f} tokens per pass")
        canvas.text(520, 104, f"with {n} drafted", fill="faint")
        instead = [f" instead {part:.2f}" if rate < 1 else "" for part in left]     # nothing refused, nothing instead
        said = ", ".join(f"{t} p {TARGET[i]:.2f} q {q[i]:.2f} accept {chance[i]:.2f}{instead[i]}"
                         for i, t in enumerate(TOKENS))
        return canvas, (f"{said}. A drafted token is accepted with probability {rate:.3f}; with "
                        f"{amount(n, 'tokens')} drafted, each accepted alike, this gives "
                        f"{tokens_per_pass(rate, n):.2f} tokens per pass of the large model. Round {number}: "
                        f"{told(drawn, new)}.")


def told(drawn: list[int], new: list[int]) -> str:
    *kept, last = (TOKENS[i] for i in new)
    end = f"{TOKENS[drawn[len(kept)]]} refused, {last} instead" if len(kept) < len(drawn) else f"{last} added"
    return f"drafted {' '.join(TOKENS[i] for i in drawn)}; {len(kept)} kept, {end}"


def row(canvas: Canvas, y: float, name: str, tokens: list[int], kept: int) -> None:
    """Tokens as boxes: accent where kept, warned where refused or put in instead, pale behind a refusal."""
    canvas.text(84, y + 18, name, anchor="end", size=11, fill="faint")
    for i, token in enumerate(tokens):
        ended = "warn" if name == "draft" else "2"
        fill = "accent" if i < kept else ended if i == kept else "soft"
        canvas.rect(92 + 64 * i, y, 58, 26, fill=fill, text=TOKENS[token])


def column(canvas: Canvas, x: float, p: float, q: float) -> None:
    for at, value in ((x, p), (x + 34, q)):
        shared = min(p, q)
        canvas.rect(at, 175 - 200 * value, 30, 200 * value, stroke="ink", thick=0.5)
        canvas.rect(at, 175 - 200 * shared, 30, 200 * shared, fill="accent", stroke="ink", thick=0.5)
        canvas.text(at + 15, 170 - 200 * value, f"{value:.2f}", size=11, anchor="middle")
