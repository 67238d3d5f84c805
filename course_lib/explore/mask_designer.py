"""A mask designer: window, sinks, strides and block size against the share of useful work (chapter 5)."""
from functools import cache

from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.sparse_attention import BlockMask, causal_rule, dilated_rule, mask_of, sink_rule

TOKENS, CELL, LEFT, TOP, SIDE = 64, 5, 56, 12, 412


def rule_of(window: int, sinks: int, stride: int):
    """The chapter's rules joined: a window with sinks, and every stride-th key before it; 0 is no stride."""
    near = sink_rule(window, sinks)
    if stride == 0:
        return near
    far = dilated_rule(TOKENS // stride + 1, stride)
    return lambda b, h, i, j: near(b, h, i, j) | far(b, h, i, j)


@cache
def designed(window: int, sinks: int, stride: int, block: int):
    """(mask, its blocks, their useful fraction, blocks that causal attention visits)."""
    rule = rule_of(window, sinks, stride)
    causal = int(BlockMask.from_rule(causal_rule, TOKENS, TOKENS, block).visited().sum())
    blocks = BlockMask.from_rule(rule, TOKENS, TOKENS, block)
    return mask_of(rule, TOKENS), blocks, blocks.useful_fraction, causal


class MaskDesigner(Explorable):
    title = "A mask designer"
    caption = ("A card computes whole blocks, so a block costs the same whether it holds one allowed pair or "
               "all of them. Allowed pairs are drawn in ink; a visited block that is only partly used is the "
               "accent.")
    controls = (Slider("window", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64), 16, "window", "keys"),
                Slider("sinks", range(9), 2), Slider("stride", (0, 2, 4, 8, 16), 0, "stride"),
                Slider("block", (1, 2, 4, 8, 16, 32), 8, "block size", "tokens"))
    page = {"window": (4, 16, 32), "sinks": (0, 2), "stride": (0,), "block": (8, 16)}

    def draw(self, window, sinks, stride, block):
        mask, blocks, useful, causal = designed(window, sinks, stride, block)
        canvas = Canvas(700, TOP + CELL * TOKENS + 26)
        draw_mask(canvas, mask, blocks)
        possible, allowed = TOKENS * (TOKENS + 1) // 2, int(mask.sum())
        full, partial = int(blocks.full.sum()), int(blocks.partial.sum())
        visited = full + partial
        pairs = visited * block**2
        draw_bars(canvas, (("of the causal pairs are allowed", allowed / possible, "soft"),
                           ("of the causal blocks are visited", visited / causal, "soft"),
                           ("of the computed pairs are useful", useful, "accent")))
        lines = (f"{allowed:,} of {possible:,} pairs allowed", f"{visited} of {causal} blocks visited",
                 f"{full} full, {partial} partial", f"{pairs:,} pairs computed")
        for row, text in enumerate(lines):
            canvas.text(SIDE, 214 + 22 * row, text)
        every = f"every {stride}th key before it" if stride else "no stride"
        return canvas, (f"A window of {window}, {amount(sinks, 'sinks')}, {every}, {TOKENS} tokens: "
                        f"{allowed:,} of the {possible:,} causal pairs are allowed, "
                        f"{allowed / possible:.0%}. In blocks of {block}: {visited} of the {causal} causal "
                        f"blocks are visited, {visited / causal:.0%}; {full} are full and {partial} partial. "
                        f"Of the {pairs:,} pairs computed {useful:.0%} are useful.")


def runs(row: list[bool]) -> list[tuple[int, int]]:
    """(first, length) of each stretch of True."""
    found = []
    for at, here in enumerate(row):
        if here and at and row[at - 1]:
            found[-1] = found[-1][0], found[-1][1] + 1
        elif here:
            found.append((at, 1))
    return found


def draw_mask(canvas: Canvas, mask, blocks: BlockMask) -> None:
    """Visited blocks as squares, the allowed pairs on them, row by row."""
    edge = CELL * blocks.block
    places = [(LEFT + edge * j, TOP + edge * i) for i, j in blocks.visited().nonzero().tolist()]
    canvas.frames(places, edge, edge, fill="accent", stroke=None)
    lengths = {}
    for i, row in enumerate(mask.tolist()):
        for first, length in runs(row):
            lengths.setdefault(length, []).append((LEFT + CELL * first, TOP + CELL * i))
    for length, places in lengths.items():
        canvas.frames(places, CELL * length, CELL, fill="ink", stroke=None)
    canvas.frames(places, edge, edge)
    side = CELL * TOKENS
    canvas.frames([(LEFT, TOP)], side, side, stroke="faint")
    canvas.text(LEFT + side / 2, TOP + side + 18, "key", anchor="middle")
    canvas.text(LEFT - 8, TOP + side / 2, "query", anchor="end")


def draw_bars(canvas: Canvas, shares) -> None:
    for row, (text, share, fill) in enumerate(shares):
        y = 20 + 56 * row
        canvas.text(SIDE, y + 12, f"{share:.0%} {text}", bold=fill == "accent")
        canvas.rect(SIDE, y + 18, 260, 14)
        canvas.rect(SIDE, y + 18, 260 * share, 14, fill=fill, stroke="ink")
