"""The small model while it writes: text, cache, heads and next character (chapters 1, 7 and 10)."""
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider, Text, amount
from course_lib.explore.looking import LEFT, draw_heads, draw_line, shown, small_model
from course_lib.gqa import grouped_query_attention
from course_lib.kv_cache import GrowingCache, RollingCache, next_token_probabilities

MOST, STEPS, WINDOW, OFFERED = 32, 24, 16, 8
WIDE, STRIPS, STRIP = 584, 158, 12.5       # of the line; the rows of the heads, and how high one is
CACHES = {"keeps all": GrowingCache, f"keeps the last {WINDOW}": lambda: RollingCache(WINDOW)}
VIEWS = ("of the newest character", "of all, as a heat map")


@dataclass(frozen=True)
class Read:
    """A character when it was read: the positions that the cache held, its weights on them, bytes added."""
    held: list[int]
    weights: torch.Tensor       # (n_layers, n_heads, held)
    grown: int


@dataclass(frozen=True)
class Step:
    """After a pass: the text read, character by character, the bytes held, and what the pass found."""
    text: str
    reads: list[Read]
    bytes: int
    logits: torch.Tensor
    chances: torch.Tensor

    @property
    def held(self) -> list[int]:
        return self.reads[-1].held

    @property
    def weights(self) -> torch.Tensor:
        return self.reads[-1].weights


def draws() -> list[float]:
    """Numbers in [0, 1), one per character, that choose it where a temperature is set: the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(STEPS + 1, generator=generator, dtype=torch.float64).tolist()


@lru_cache(maxsize=16)
def written(text: str, temperature: float, kind: str) -> list[Step]:
    """The prompt read and STEPS characters written, each from one pass through the cache."""
    model, tokenizer = small_model()
    caches = [CACHES[kind]() for _ in model.blocks]
    new, reads, steps, before = tokenizer.encode(text)[None], [], [], 0
    for drawn in draws():
        logits, weights = passed(model, new, caches)
        chances = next_token_probabilities(logits, temperature or 1.0)
        held = range(caches[0].length) if caches[0].rotated else caches[0].key_positions().tolist()
        size = sum(c.bytes for c in caches)
        reads = reads + [Read(list(held), row, (size - before) // new.shape[1]) for row in weights]
        before = size
        steps.append(Step(text, reads, size, logits, chances))
        new = ((chances.double().cumsum(-1) > drawn).nonzero()[0] if temperature
               else logits.argmax(keepdim=True))[None]
        text += tokenizer.decode(new[0])
    return steps


@torch.no_grad()
def passed(model, tokens, caches) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass over new tokens: the logits of the next, (n_new, n_layers, n_heads, held) weights."""
    seen = []

    def look(layer, args, given, _):
        (x, rope), cache = args, given["cache"]
        positions = None if cache.rotated else cache.key_positions()
        here = torch.arange(cache.length - x.shape[1], cache.length)
        q, (k, v) = layer.rotate(layer.project(x)[0], rope, here), cache.view()
        k = k if positions is None else layer.rotate(k, rope, positions)
        mask = cache.mask(x.shape[1])
        seen.append(grouped_query_attention(q, k, v, mask, causal=True, return_weights=True)[1][0])

    hooks = [block.attention.register_forward_hook(look, with_kwargs=True) for block in model.blocks]
    try:
        logits = model(tokens, caches)[0, -1]
    finally:
        for hook in hooks:
            hook.remove()
    return logits, torch.stack(seen).permute(2, 0, 1, 3)


class SmallModel(Explorable):
    title = "The small model writes"
    caption = ("A box of the line is a character; the bars above it are the weights that the newest "
               "character gives in the chosen head. Below, a row per head: a frame is a character whose "
               "key and value the cache holds. At the foot is what may come next. Click a row to see its "
               "head, a written character to go back to it, or another next character to write that "
               f"instead: the line then becomes the prompt (at most {MOST} characters, / is a new line).")
    controls = (Text("text", "My lord, the king", "prompt", MOST),
                Slider("new", range(STEPS + 1), 6, "characters written", play=True),
                Slider("layer", range(4), 0), Slider("head", range(4), 1),
                Slider("temperature", (0, 0.5, 1, 2), 0), Choice("cache", tuple(CACHES)),
                Choice("view", VIEWS, label="weights"))

    def draw(self, text, new, layer, head, temperature, cache, view):
        if not text:
            raise ValueError("prompt: type at least one character")
        prompt = text.replace("/", "\n")
        step = written(prompt, temperature, cache)[new]
        mapped, cell = view == VIEWS[1], min(20.0, WIDE / (len(text) + STEPS))
        rows = len(step.text) if mapped else step.weights.shape[0] * step.weights.shape[1]
        foot = STRIPS + STRIP * rows + 94
        canvas = Canvas(700, foot + 38)
        draw_line(canvas, "text", in_line(step.text), cell, step.held, step.weights[layer, head], lambda at: {
            "fill": "accent" if at == len(step.text) - 1 else "empty" if at < len(text) else "soft",
            "set": {"new": at - len(text) + 1} if at >= len(text) - 1 else None})
        (draw_map if mapped else draw_cache)(canvas, step, (layer, head), cell)
        draw_next(canvas, step, foot)
        grown = 2 * 4 * small_model()[0].config.d_model * len(step.weights)
        needed = f"; its pass needs them all, the next forgets all but {WINDOW}" \
            if not new and cache != "keeps all" and len(step.held) > WINDOW else ""
        return canvas, " ".join([
            f"The prompt {text!r} and {amount(new, 'characters')} written, "
            f"{in_line(step.text[len(text):])!r}. The cache {cache}: keys and values of {len(step.held)} of "
            f"{len(step.text)} characters in {len(step.weights)} layers, {step.bytes:,} bytes, {grown:,} per "
            f"character{needed}.",
            (all_look if mapped else looks)(step, layer, head), chances(step, temperature)])


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


def all_look(step: Step, layer: int, head: int) -> str:
    """What each character looks at most in one head, and what the cache grew by."""
    text = in_line(step.text)
    runs = [(size, amount(len(list(run)), "characters"))
            for size, run in groupby(read.grown for read in step.reads)]
    best = [(int(row.argmax()), row.max().item()) for row in (r.weights[layer, head] for r in step.reads)]
    looks = ", ".join(f"'{shown(text[n])}' at {n}: '{shown(text[read.held[at]])}' at {read.held[at]} "
                      f"({weight:.0%})" for n, (read, (at, weight)) in enumerate(zip(step.reads, best)))
    grown = ", then by ".join(f"{size:+,} bytes per character for {count}" for size, count in runs)
    return f"The cache grew by {grown}. In layer {layer}, head {head}, each looks most at: {looks}."


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


def draw_cache(canvas: Canvas, step: Step, chosen: tuple, cell: float) -> None:
    """A row per head: a frame per key and value held, as strong as the weight that it gets."""
    layers, heads = step.weights.shape[:2]
    canvas.text(20, STRIPS - 12, f"The cache: {len(step.held)} keys and values in each of {layers * heads} heads, "
                f"{step.bytes / 1024:g} KiB. Click a row to see it above.", size=11, fill="faint")
    canvas.frames([(LEFT + cell * at, STRIPS + STRIP * n) for n in range(layers * heads) for at in step.held],
                  cell, STRIP - 2.5)
    draw_heads(canvas, STRIPS, STRIP - 2.5, cell, step.held, step.weights, chosen)


def draw_map(canvas: Canvas, step: Step, chosen: tuple, cell: float) -> None:
    """A row per character: its weights in the chosen head when it was read, and what the cache grew by."""
    canvas.text(20, STRIPS - 12, f"Layer {chosen[0]}, head {chosen[1]}: each row is the character that looks, "
                "each column the one looked at. Left: how the cache grew.", size=11, fill="faint")
    for n, (character, read) in enumerate(zip(in_line(step.text), step.reads)):
        y, first = STRIPS + STRIP * n, LEFT + cell * read.held[0]
        canvas.text(LEFT - 24, y + 9.5, f"{read.grown / 1024:+g} KiB", size=10, anchor="end", fill="faint")
        canvas.text(LEFT - 12, y + 9.5, shown(character), size=10, anchor="middle",
                    bold=n == len(step.reads) - 1)
        for at, share in zip(read.held, read.weights[chosen].tolist()):
            if share >= 0.05:
                canvas.rect(LEFT + cell * at, y, cell, STRIP, fill="2", stroke=None, shade=round(share, 1),
                            about=f"'{shown(character)}' at {n} gives '{shown(in_line(step.text)[at])}' at "
                                  f"{at} {share:.0%}")
        canvas.frames([(first, y)], LEFT + cell * (n + 1) - first, STRIP)


def draw_next(canvas: Canvas, step: Step, foot: float) -> None:
    """The likeliest next characters; a click writes one."""
    canvas.text(LEFT - 10, foot + 15, "next", anchor="end", fill="faint")
    canvas.text(LEFT - 10, foot + 33, "logit", anchor="end", fill="faint")
    full = len(step.text) >= MOST
    for n, (character, logit, chance) in enumerate(offered(step)):
        x, high = LEFT + 72 * n, round(60 * chance, 1)
        canvas.rect(x, foot - high, 56, high, fill="0")
        canvas.text(x + 28, foot - high - 4, f"{chance:.0%}", size=10, anchor="middle")
        control = {} if full else {"set": {"text": in_line(step.text) + character, "new": 0}}
        canvas.rect(x, foot, 56, 22, text=shown(character), size=12, **control,
                    about=f"a prompt has room for {MOST}" if full else f"write '{shown(character)}' instead")
        canvas.text(x + 28, foot + 33, f"{logit:z.1f}", size=10, anchor="middle", fill="faint")
