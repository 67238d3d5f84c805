"""The figures of chapter 5. Each function draws and shows one, its text alternative made from the data."""
import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK
from course_lib.sparse_attention.blocks import BlockMask
from course_lib.sparse_attention.rules import document_rule, documents

ACCENT, GREY, SEEN, EMPTY = COLOURS[5], "#999999", "#9dbfd9", "white"


def masks(shown):
    """{name: mask} as images, each with the share of the pairs that it allows."""
    rows = -(-len(shown) // 3)
    fig, axes = figures.new(6.4, 2.5 * rows, columns=min(3, len(shown)), rows=rows)
    told = []
    for ax, (name, mask) in zip(axes.flat, shown.items()):
        n, causal = len(mask), not mask.triu(1).any()
        kind, possible = ("causal", n * (n + 1) // 2) if causal else ("both ways", n * n)
        share = int(mask.sum()) / possible
        ax.imshow(figures.array(1.0 - mask.double()), cmap="gray", vmin=-1.6, vmax=1, interpolation="none")
        ax.set(title=f"{name}\n{kind}: {share:.0%}", xticks=[0, n - 1], yticks=[0, n - 1])
        ax.spines[:].set(visible=True, color=GREY)
        ax.title.set_fontsize(9)
        told.append(f"{name}: {kind}, {share:.0%}; its last query sees keys {_ranges(mask[-1])}")
    figures.show(fig, alt=f"{len(shown)} square masks of {n} tokens. " + ". ".join(told) + ".",
                 caption="Rows are queries, columns keys, grey is allowed. The share is of the causal "
                 "pairs, or of all where a mask looks both ways.")


def reach(mask, layers):
    """Which tokens can have reached the last one: the input below, one row per layer above it."""
    n = len(mask)
    fig, ax = figures.new(0.42 * n + 1.4, 0.62 * (layers + 1) + 0.3)
    needed, told = torch.arange(n) == n - 1, []
    for row in range(layers + 1):
        seen = mask[needed].any(0)
        for token in range(n):
            colour = (ACCENT if row == 0 else SEEN) if needed[token] else EMPTY
            ax.add_patch(figures.rectangle(token, 1.5 * row, 0.9, 0.9, facecolor=colour, edgecolor=GREY,
                                           linewidth=0.8))
        place = "input" if row == layers else f"after layer {layers - row}"
        ax.text(-0.3, 1.5 * row + 0.45, place, ha="right", va="center", fontsize=8.5, color=INK)
        told.append(f"{place}: tokens {_ranges(needed)}")
        if row < layers:
            for query in needed.nonzero().flatten().tolist():
                for key in mask[query].nonzero().flatten().tolist():
                    ax.plot([key + 0.45, query + 0.45], [1.5 * row + 1.5, 1.5 * row + 0.9],
                            color=GREY, lw=0.6)
            needed = seen
    figures.plain(ax, xlim=(-0.1, n), ylim=(1.5 * layers + 1.1, -0.2))
    figures.show(fig, alt="What the last token's output depends on. " + "; ".join(told) + ".",
                 caption="The last token's output (orange) and everything that it can depend on: "
                         f"{int(needed.sum())} tokens after {layers} layers.")


def packed(lengths, block):
    """Documents packed into one row: which blocks of the mask are empty, partial and full."""
    kinds = BlockMask.from_rule(document_rule(documents(lengths)), sum(lengths), sum(lengths), block)
    grid = kinds.partial.long() + 2 * kinds.full.long()
    ends = torch.tensor(lengths).cumsum(0).tolist()
    figures.tiles(grid.tolist(), names={0: "empty", 1: "partial", 2: "full"}, empty=0,
                  row_label="block of queries", column_label="block of keys",
                  caption=f"{len(lengths)} documents that end at {', '.join(map(str, ends))}, in blocks of "
                  f"{block}: {int((grid == 0).sum())} of {grid.numel()} blocks are empty.")


def best_keys(weights, count):
    """The attention weights of one query over its keys, the `count` largest marked."""
    best = set(weights.topk(count).indices.tolist())
    share = sum(float(weights[j]) for j in best)
    fig, ax = figures.new(7.4, 2.2)
    ax.bar(range(len(weights)), weights.tolist(), width=1.0,
           color=[ACCENT if j in best else "#a8a8a8" for j in range(len(weights))])
    ax.set_xlabel("key", color=INK)
    ax.set_ylabel("weight", color=INK)
    near = sum(j >= len(weights) - count for j in best)
    figures.show(fig, alt=f"Bars of the weights of one query on {len(weights)} keys. The {count} largest "
                          f"hold {share:.0%} of the weight; {near} of them are among the nearest {count} "
                          "keys.",
                 caption=f"One query of one head: {count} of its {len(weights)} keys (orange) hold "
                         f"{share:.0%} of the weight.")


def recall(study):
    """The share of the dense attention on the chosen tokens, by how many are chosen; mean over the seeds."""
    ways = study["rows"][0]["recall"]
    counts = [int(k) for k in next(iter(ways.values()))]
    rows = study["rows"]
    lines = {way: [sum(row["recall"][way][str(k)] for row in rows) / len(rows) for k in counts]
             for way in ways}
    told = "; ".join(f"{way}: {line[0]:.0%} with {counts[0]}, {line[-1]:.0%} with {counts[-1]}"
                     for way, line in lines.items())
    figures.curves(lines, x=counts, logx=True, xlabel="tokens chosen per query", ylabel="share of the weight",
                   alt=f"Share of the dense attention's weight on the chosen tokens. {told}.",
                   caption="What the chosen tokens hold of the dense attention, of up to 256 tokens.")


def _ranges(flags):
    """True places as text: 0, 3 to 7."""
    places, parts = flags.nonzero().flatten().tolist(), []
    for place in places:
        if parts and parts[-1][1] == place - 1:
            parts[-1][1] = place
        else:
            parts.append([place, place])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts) or "none"
