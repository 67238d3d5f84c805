"""Top-k: the keys that a query keeps against what dense attention reads (chapter 5)."""
from functools import cache

import torch

from course_lib import language_model
from course_lib.attention import scaled_dot_product_attention
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.sparse_attention import choose, chosen_mask, select_blocks, sliding_window_mask

TEXT = """CASSIUS:
Why, man, he doth bestride the narrow world
Like a Colossus, and we petty men
Walk under his huge legs and peep about
To find ourselves dishonourable graves.
"""
TOKENS, BLOCK, LEFT, FOOT, WIDE = 128, 8, 30, 150, 5


@cache
def heads():
    """(queries and keys, weights) of the small model on the text: each (layers, heads, tokens, ...)."""
    model, tokenizer = language_model.pretrained()
    seen = []

    def attend(q, k, v):
        out, weights = scaled_dot_product_attention(q, k, v, causal=True, return_weights=True)
        seen.append((q[0], k[0], weights[0]))
        return out

    model.set_attention(attend)
    with torch.no_grad():
        model(tokenizer.encode(TEXT)[None, :TOKENS])
    return [torch.stack(part) for part in zip(*seen)]


def kept_keys(way: str, keep: int, layer: int, head: int):
    """(TOKENS, TOKENS) boolean: what each query of a head keeps."""
    q, k, weights = (part[layer, head] for part in heads())
    causal = torch.ones(TOKENS, TOKENS).tril().bool()
    if way == "the nearest":
        return sliding_window_mask(TOKENS, keep)
    if way == "best blocks":
        blocks = select_blocks(q[None, None], k[None, None], BLOCK, max(keep // BLOCK, 1))[0, 0]
        return blocks.repeat_interleave(BLOCK, 1) & causal
    return chosen_mask(choose(weights.masked_fill(~causal, -torch.inf)[None], keep), TOKENS)[0]


class ChosenKeys(Explorable):
    title = "Which keys to keep"
    caption = ("One query of the small model, its weight on every key. Keeping a few keys holds most of the "
               "weight if they are the right ones, but the best keys are known only after all scores are.")
    controls = (Choice("way", ("the best", "best blocks", "the nearest"), label="keep"),
                Slider("keep", (8, 16, 32, 64), 16, "keys kept"), Slider("query", range(15, TOKENS, 8), 127),
                Slider("layer", range(4), 3), Slider("head", range(4), 0))
    page = {"way": ("the best", "best blocks", "the nearest"), "keep": (8, 32), "query": (127,),
            "layer": (3,), "head": (0,)}

    def draw(self, way, keep, query, layer, head):
        weights = heads()[2][layer, head, query, :query + 1].double()
        masks = {name: kept_keys(name, keep, layer, head) for name in self.controls[0].values}
        held = {name: float(weights[mask[query, :query + 1]].sum()) for name, mask in masks.items()}
        kept, n = masks[way][query, :query + 1], query + 1
        count, read = int(kept.sum()), int(masks[way].any(0).sum())
        scored = {"the best": n, "best blocks": query // BLOCK + 1, "the nearest": 0}[way]
        canvas = Canvas(700, 292)
        canvas.text(LEFT, 20, f"{way}: {count} of {n} keys hold {held[way]:.0%} of the weight", bold=True)
        draw_weights(canvas, weights, kept)
        draw_ways(canvas, held, way)
        canvas.text(420, 222, f"keys and values read: {count} of {n}, {count / n:.1%}")
        canvas.text(420, 244, f"scores computed to choose them: {scored}")
        canvas.text(420, 266, f"kept by some query: {read} of {TOKENS} keys")
        others = "; ".join(f"{name}: {share:.0%}" for name, share in held.items())
        return canvas, (f"Layer {layer}, head {head}, query {query}, keep {way}, {keep} keys: {count} of "
                        f"{n} keys are read, {count / n:.1%}, and hold {held[way]:.0%} of the weight. "
                        f"Choosing them takes {scored} scores. Over all queries {read} of {TOKENS} keys are "
                        f"kept by some query. The weight held, by way: {others}.")


def draw_weights(canvas: Canvas, weights, kept) -> None:
    """A bar per key; those kept are the accent. The largest weight is as high as the panel.

    Heights are hundredths of it, so that the picture is the same where the model rounds otherwise."""
    for at, (weight, keep) in enumerate(zip((weights / weights.max()).tolist(), kept.tolist())):
        x, weight = LEFT + WIDE * at, round(weight, 2)
        if keep:
            canvas.rect(x, FOOT, WIDE, 6, fill="accent", stroke=None)
        if weight:
            canvas.rect(x, FOOT - 110 * weight, WIDE - 1, 110 * weight, fill="accent" if keep else "line",
                        stroke=None)
    canvas.line(LEFT, FOOT, LEFT + WIDE * TOKENS, FOOT, stroke="faint")
    canvas.text(LEFT, FOOT + 22, "key 0", size=11, fill="faint")
    canvas.text(LEFT + WIDE * len(weights), FOOT + 22, f"key {len(weights) - 1}", size=11, anchor="end",
                fill="faint")


def draw_ways(canvas: Canvas, held: dict, way: str) -> None:
    for row, (name, share) in enumerate(held.items()):
        y = 208 + 24 * row
        canvas.text(LEFT + 74, y + 13, name, anchor="end", bold=name == way)
        fill = "accent" if name == way else "soft"
        canvas.rect(LEFT + 82, y, 240 * share, 17, fill=fill, set={"way": name},
                    about=f"keep {name}: {share:.0%}")
        canvas.text(LEFT + 88 + 240 * share, y + 13, f"{share:.0%}", bold=name == way)
