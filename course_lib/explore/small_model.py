"""The small model while it writes: text, cache, heads and next character (chapters 1, 7 and 10)."""
from dataclasses import dataclass
from functools import lru_cache

import torch

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider, Text, amount
from course_lib.explore.looking import shown, small_model
from course_lib.gqa import grouped_query_attention
from course_lib.kv_cache import GrowingCache, RollingCache, next_token_probabilities

MOST, STEPS, WINDOW, OFFERED = 32, 24, 16, 8
LEFT, WIDE = 104, 584
BARS, LINE, STRIPS, STRIP, NEXT = 80, 92, 158, 12.5, 452    # feet of the bars, the characters, the heads
CACHES = {"keeps all": GrowingCache, f"keeps the last {WINDOW}": lambda: RollingCache(WINDOW)}


@dataclass(frozen=True)
class Step:
    """After a pass: the text read, the positions that the cache holds, and what the pass found."""
    text: str
    held: list[int]
    bytes: int
    weights: torch.Tensor       # (n_layers, n_heads, held) of the newest character
    logits: torch.Tensor
    chances: torch.Tensor


@lru_cache(maxsize=16)
def written(text: str, temperature: float, kind: str) -> list[Step]:
    """The prompt read and STEPS characters written, each from one pass through the cache."""
    model, tokenizer = small_model()
    caches = [CACHES[kind]() for _ in model.blocks]
    new, steps = tokenizer.encode(text)[None], []
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS + 1):
        logits, weights = passed(model, new, caches)
        chances = next_token_probabilities(logits, temperature or 1.0)
        held = range(caches[0].length) if caches[0].rotated else caches[0].key_positions().tolist()
        steps.append(Step(text, list(held), sum(c.bytes for c in caches), weights, logits, chances))
        new = (torch.multinomial(chances, 1, generator=generator) if temperature
               else logits.argmax(keepdim=True))[None]
        text += tokenizer.decode(new[0])
    return steps


@torch.no_grad()
def passed(model, tokens, caches) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass over new tokens: the logits of the next, the weights that the newest gives in each head."""
    seen = []

    def look(layer, args, given, _):
        (x, rope), cache = args, given["cache"]
        positions = None if cache.rotated else cache.key_positions()
        newest = torch.tensor([cache.length - 1]) if positions is None else positions[-1:]
        q, (k, v) = layer.rotate(layer.project(x[:, -1:])[0], rope, newest), cache.view()
        k = k if positions is None else layer.rotate(k, rope, positions)
        weights = grouped_query_attention(q, k, v, cache.mask(1), causal=True, return_weights=True)[1]
        seen.append(weights[0, :, 0])

    hooks = [block.attention.register_forward_hook(look, with_kwargs=True) for block in model.blocks]
    try:
        logits = model(tokens, caches)[0, -1]
    finally:
        for hook in hooks:
            hook.remove()
    return logits, torch.stack(seen)


class SmallModel(Explorable):
    title = "The small model writes"
    caption = ("A box of the line is a character; the bars above it are the weights that the newest "
               "character gives in the chosen head. Below, a row per head: a frame is a character whose "
               "key and value the cache holds. At the foot is what may come next. Click a row to see its "
               "head, a written character to go back to it, or another next character to write that "
               "instead.")
    controls = (Text("text", "My lord, the king", "prompt", MOST),
                Slider("new", range(STEPS + 1), 6, "characters written", play=True),
                Slider("layer", range(4), 0), Slider("head", range(4), 1),
                Slider("temperature", (0, 0.5, 1, 2), 0), Choice("cache", tuple(CACHES)))

    def draw(self, text, new, layer, head, temperature, cache):
        if not text:
            raise ValueError("prompt: type at least one character")
        prompt = text.replace("/", "\n")
        step = written(prompt, temperature, cache)[new]
        canvas, cell = Canvas(700, 490), min(20.0, WIDE / (len(text) + STEPS))
        draw_text(canvas, step, len(text), step.weights[layer, head], cell)
        draw_cache(canvas, step, (layer, head), cell)
        draw_next(canvas, step)
        grown = 2 * 4 * small_model()[0].config.d_model * len(step.weights)
        return canvas, " ".join([
            f"The prompt {text!r} and {amount(new, 'characters')} written, "
            f"{in_line(step.text[len(text):])!r}. The cache {cache}: keys and values of {len(step.held)} of "
            f"{len(step.text)} characters in {len(step.weights)} layers, {step.bytes:,} bytes, {grown:,} per "
            "character.",
            looks(step, layer, head), chances(step, temperature)])


def in_line(text: str) -> str:
    return text.replace("\n", "/")


def looks(step: Step, layer: int, head: int) -> str:
    """What the newest character looks at in one head."""
    row, text = step.weights[layer, head].double(), in_line(step.text)
    best = row.topk(min(3, len(row)))
    named = ", ".join(f"'{shown(text[step.held[at]])}' at {step.held[at]} ({weight:.0%})"
                      for at, weight in zip(best.indices.tolist(), best.values.tolist()))
    return (f"In layer {layer}, head {head}, the newest character, '{shown(text[-1])}' at {len(text) - 1}, "
            f"gives most weight to {named}.")


def offered(step: Step) -> list[tuple[str, float, float]]:
    """(character, logit, probability) of the likeliest next characters."""
    _, tokenizer = small_model()
    best = step.chances.topk(OFFERED)
    return [(in_line(tokenizer.decode([at])), step.logits[at].item(), chance)
            for at, chance in zip(best.indices.tolist(), best.values.tolist())]


def chances(step: Step, temperature: float) -> str:
    named = ", ".join(f"'{shown(c)}' {chance:.0%}" for c, _, chance in offered(step)[:4])
    rule = f"drawn at temperature {temperature:g}" if temperature else "the likeliest"
    return f"Likeliest next: {named}; written is {rule}."


def draw_text(canvas: Canvas, step: Step, prompt: int, row: torch.Tensor, cell: float) -> None:
    """The characters, and the weights of the chosen head above those that the cache holds."""
    canvas.text(LEFT - 10, BARS, "weight", anchor="end", fill="faint")
    canvas.text(LEFT - 10, LINE + 15, "text", anchor="end", fill="faint")
    for at, share in zip(step.held, row.tolist()):
        share = round(share, 2)
        if share:
            x = LEFT + cell * at
            canvas.rect(x + 1, BARS - 60 * share, cell - 2, 60 * share, fill="2", about=f"{share:.0%}")
            if share >= 0.15:
                canvas.text(x + cell / 2, BARS - 60 * share - 4, f"{share:.0%}", size=10, anchor="middle")
    for at, character in enumerate(in_line(step.text)):
        newest = at == len(step.text) - 1
        control = {"set": {"new": at - prompt + 1}} if at >= prompt - 1 else {}
        canvas.rect(LEFT + cell * at, LINE, cell, 22, text=shown(character), size=min(12, cell),
                    fill="accent" if newest else "empty" if at < prompt else "soft",
                    about=f"character {at}, '{shown(character)}'", **control)
    canvas.line(LEFT, BARS + 0.5, LEFT + cell * len(step.text), BARS + 0.5, stroke="faint")


def draw_cache(canvas: Canvas, step: Step, chosen: tuple, cell: float) -> None:
    """A row per head: a frame per key and value held, as strong as the weight that it gets."""
    canvas.text(20, STRIPS - 12, f"The cache: {len(step.held)} keys and values in each of "
                f"{step.weights.shape[0] * step.weights.shape[1]} heads, {step.bytes / 1024:g} KiB. "
                "Click a row to see it above.", size=11, fill="faint")
    rows = [STRIPS + STRIP * n for n in range(step.weights.shape[0] * step.weights.shape[1])]
    canvas.frames([(LEFT + cell * at, y) for y in rows for at in step.held], cell, STRIP - 2.5)
    for n, (y, row) in enumerate(zip(rows, step.weights.flatten(0, 1).tolist())):
        layer, head = divmod(n, step.weights.shape[1])
        here = (layer, head) == chosen
        canvas.text(LEFT - 10, y + 9, f"layer {layer}, head {head}", size=10, anchor="end", bold=here)
        for at, share in zip(step.held, row):
            if share >= 0.05:
                canvas.rect(LEFT + cell * at, y, cell, STRIP - 2.5, fill="2", stroke=None,
                            shade=round(share, 1))
        first = LEFT + cell * step.held[0]
        canvas.rect(first, y, LEFT + cell * (step.held[-1] + 1) - first, STRIP - 2.5, shade=0,
                    stroke="ink" if here else "line", thick=2 if here else 1,
                    set={"layer": layer, "head": head}, about=f"layer {layer}, head {head}")


def draw_next(canvas: Canvas, step: Step) -> None:
    """The likeliest next characters; a click writes one."""
    canvas.text(LEFT - 10, NEXT + 15, "next", anchor="end", fill="faint")
    canvas.text(LEFT - 10, NEXT + 33, "logit", anchor="end", fill="faint")
    for n, (character, logit, chance) in enumerate(offered(step)):
        x, high = LEFT + 72 * n, round(60 * chance, 1)
        canvas.rect(x, NEXT - high, 56, high, fill="0")
        canvas.text(x + 28, NEXT - high - 4, f"{chance:.0%}", size=10, anchor="middle")
        canvas.rect(x, NEXT, 56, 22, text=shown(character), size=12,
                    about=f"write '{shown(character)}' instead",
                    set={"text": (in_line(step.text) + character)[-MOST:], "new": 0})
        canvas.text(x + 28, NEXT + 33, f"{logit:z.1f}", size=10, anchor="middle", fill="faint")
