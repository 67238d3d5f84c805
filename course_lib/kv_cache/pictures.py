"""The figures of chapter 7. Each function draws and shows one, its text alternative made from the data."""
import numpy as np
import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK

ACCENT, GREY, PALE = COLOURS[5], "#666666", "#f4f4f4"
QUERY, KEY, VALUE, OUT = "#d6e6f4", "#fbe6c4", "#cfeade", "#f6dcc8"


def growing_cache(steps=(3, 1, 1)):
    """What each pass computes and what it finds in the cache: `steps` are the new tokens of each pass."""
    fig, axes = figures.new(7.8, 2.7, columns=len(steps))
    told, held = [], 0
    for ax, new in zip(axes, steps):
        total = held + new
        for row, (name, colour) in enumerate((("q", QUERY), ("k", KEY), ("v", VALUE))):
            ax.text(-0.3, row + 0.4, name, ha="right", va="center", fontsize=10, color=INK)
            for t in range(total):
                fresh = t >= held
                if fresh or name != "q":
                    _box(ax, t, row, 0.9, 0.8, colour if fresh else "white", str(t), "-" if fresh else ":")
        figures.plain(ax, title=f"{new} new token{'s' * (new > 1)}, {held} cached",
                      xlim=(-0.8, sum(steps) + 0.1), ylim=(3.1, -0.2))
        told.append(f"{new} new: computes q, k and v of {_span(held, total)}, reads k and v of "
                    f"{_span(0, held) if held else 'none'} from the cache")
        held = total
    figures.show(fig, alt="Passes side by side. " + "; ".join(told) + ".",
                 caption="Filled: computed in this pass. Dotted: read from the cache. Old queries are not "
                         "needed.")


def _span(first, end):
    return f"token {first}" if end - first == 1 else f"tokens {first} to {end - 1}"


def roofline(cards, points, heights):
    """cards {name: (FLOP/s, bytes/s)}; points {text: FLOP per byte}; heights: where each text begins."""
    fig, ax = figures.new(6.6, 3.8)
    x = torch.logspace(-0.5, 4, 200)
    for (card, (peak, bandwidth)), dash in zip(cards.items(), ("-", "--")):
        ax.plot(x, (x * bandwidth).clamp(max=peak) / 1e12, dash, label=card)
    for (name, intensity), height in zip(points.items(), heights):
        ax.axvline(intensity, color=GREY, linestyle=":")
        ax.annotate(name, (intensity, height), (-6, 0), textcoords="offset points", rotation=90, ha="right",
                    fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="operations per byte from HBM", ylabel="TFLOP/s within reach")
    figures.plain_ticks(ax.xaxis, ax.yaxis)
    ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.54, 0))
    roofs = "; ".join(f"{card} up to {peak / 1e12:.0f} TFLOP/s, from {peak / bandwidth:.0f} operations per "
                      "byte" for card, (peak, bandwidth) in cards.items())
    marked = "; ".join(f"{name}, at {intensity}" for name, intensity in points.items())
    figures.show(fig, alt=f"Rooflines: {roofs}. Marked in operations per byte: {marked}.",
                 caption="Prefill computes; decode waits for memory. Batching lifts the weights, not the "
                         "attention.")


def two_phases(prefill_ms, step_ms, steps=6):
    """One request in time: the prompt in one pass, then a pass per token."""
    fig, ax = figures.new(7.6, 1.7)
    _box(ax, 0, 0, prefill_ms, 0.8, KEY, f"prefill, {prefill_ms:.0f} ms")
    for i in range(steps):
        _box(ax, prefill_ms + i * step_ms, 0, step_ms, 0.8, QUERY, "")
    end = prefill_ms + steps * step_ms
    ax.text(prefill_ms + steps * step_ms / 2, -0.12, f"{steps} decode steps of {step_ms:.1f} ms", ha="center",
            va="bottom", fontsize=8.5, color=INK)
    for start, stop, y, text in ((0, prefill_ms, 1.1, "time to first token (TTFT)"),
                                 (prefill_ms, prefill_ms + step_ms, 1.1, "per output token (TPOT)")):
        ax.annotate("", (stop, y), (start, y), arrowprops={"arrowstyle": "<->", "color": ACCENT})
        middle = (start + stop) / 2 if stop - start > end / 4 else start
        ax.text(middle, y + 0.12, text, ha="center" if middle != start else "left", va="top", fontsize=8.5,
                color=ACCENT)
    figures.plain(ax, xlim=(-2, max(end, prefill_ms * 1.35) + 2), ylim=(1.7, -0.5))
    figures.show(fig, alt=f"A time line: prefill for {prefill_ms:.0f} ms, which is the time to first token; "
                          f"then {steps} decode steps of {step_ms:.1f} ms, each the time per output token.",
                 caption="One request alone on the server, at the lower bounds of this section.")


def split_and_merge(parts=4, keys=12):
    """One query, its keys cut into parts, a state from each, one merge."""
    fig, ax = figures.new(7.6, 2.9)
    size = keys // parts
    _box(ax, 0, 1.3, 1.0, 0.7, QUERY, "q")
    for p in range(parts):
        y = p * 0.9
        for j in range(size):
            _box(ax, 2.0 + 0.5 * j, y, 0.46, 0.6, KEY, str(p * size + j))
        _box(ax, 2.6 + 0.5 * size, y, 1.9, 0.6, OUT, f"m, l, o of part {p}")
        figures.arrow(ax, (1.0, 1.65), (1.95, y + 0.3), GREY, 0.9)
        figures.arrow(ax, (2.05 + 0.5 * size, y + 0.3), (2.55 + 0.5 * size, y + 0.3), GREY, 0.9)
        figures.arrow(ax, (4.55 + 0.5 * size, y + 0.3), (5.5 + 0.5 * size, 1.65), GREY, 0.9)
    _box(ax, 5.55 + 0.5 * size, 1.3, 1.3, 0.7, PALE, "merge")
    ax.text(2.0 + 0.25 * size, parts * 0.9, f"{keys} keys and values,\none thread block per part",
            ha="center", va="top", fontsize=8.5, color=GREY)
    figures.plain(ax, xlim=(-0.1, 7 + 0.5 * size), ylim=(parts * 0.9 + 0.6, -0.1))
    told = "; ".join(f"part {p}: keys {p * size} to {p * size + size - 1}" for p in range(parts))
    figures.show(fig, alt=f"One query goes to {parts} parts of {keys} keys. {told}. Each part gives m, l and "
                          "o; one merge joins them.",
                 caption="Split-KV: the parts do not wait for each other, and chapter 6's merge joins their "
                         "states.")


def shared_steps(tokens=4, channels=6):
    """Which entries of a group share a step: those of a channel in keys, those of a token in values."""
    fig, axes = figures.new(6.8, 2.4, columns=2)
    sharing = (("keys: a step per channel", lambda t, c: c), ("values: a step per token", lambda t, c: t))
    told = []
    for ax, (name, group) in zip(axes, sharing):
        groups = {}
        for t in range(tokens):
            for c in range(channels):
                k = group(t, c)
                groups.setdefault(k, []).append((t, c))
                ax.add_patch(figures.rectangle(c, t, 1, 1, **figures.filling(k)))
        ax.set(title=name, xlim=(0, channels), ylim=(tokens, 0), xticks=[], yticks=[], xlabel="channels",
               ylabel="tokens", aspect="equal")
        told.append(f"{name}, {len(groups)} groups of {len(groups[0])} entries")
    figures.show(fig, alt="Two grids, tokens by channels. " + "; ".join(told) + ".",
                 caption="Entries with one pattern share a step and a lowest value.")


def errors(results):
    """{name: (bytes of the cache, relative error of the logits)} as points; a line doubles the error per bit."""
    fig, ax = figures.new(6, 3.2)
    (most, least), (fewest, _) = results["int8"], results["int4"]
    ax.plot([most / 2**10, fewest / 2**10], [100 * least, 1600 * least], "--", color=GREY, lw=1.2)
    ax.text(most / 2**10 - 6, 100 * least, "twice the error per bit less", ha="right", va="top",
            fontsize=8.5, color=GREY)
    for (name, (size, error)), mark in zip(results.items(), "os^D"):
        ax.plot(size / 2**10, 100 * error, mark, markersize=9, color=INK)
        ax.annotate(f"{name}, {error:.1%}", (size / 2**10, 100 * error), (8, 6), textcoords="offset points")
    ax.set(xlabel="KiB of cache for 192 characters", ylabel="logits, % off", yscale="log", ylim=(0.1, 20),
           xlim=(100, 300))
    figures.plain_ticks(ax.yaxis)
    figures.show(fig, alt="; ".join(f"{name}: {size // 1024} KiB, {error:.1%} off"
                                    for name, (size, error) in results.items())
                 + f". Dashed: from int8 on twice the error for each bit less, {16 * least:.0%} at 4 bits.",
                 caption="Error against bytes, each tick ten times the one before. In float32 the same cache "
                         "takes 768 KiB and is exact.")


def kept_and_replaced(target, draft, keep, instead):
    """What is kept of a draft's distribution, and what replaces the rest."""
    refused = 1 - (draft * keep).sum()
    fig, ax = figures.new(6, 3)
    x = np.arange(len(target))
    drafted, kept, replaced = (figures.array(y) for y in (draft, draft * keep, refused * instead))
    ax.bar(x - 0.2, drafted, 0.36, color=COLOURS[7], label="draft, q")
    ax.bar(x + 0.2, kept, 0.36, color=COLOURS[1], hatch="//", edgecolor="white", label="kept, min(p, q)")
    ax.bar(x + 0.2, replaced, 0.36, bottom=kept, color=COLOURS[2], hatch="..", edgecolor="white",
           label="replacement of what was refused")
    ax.plot(x + 0.2, figures.array(target), "k_", markersize=28, markeredgewidth=2.5, label="target, p")
    ax.set(xticks=range(len(target)), xlabel="token", ylabel="probability", ylim=(0, 0.7))
    ax.legend(frameon=False, fontsize=8)
    figures.show(fig,
                 alt="; ".join(f"token {i}: draft {draft[i]:.1f}, kept {draft[i] * keep[i]:.1f}, "
                               f"replacement {refused * instead[i]:.1f}, target {target[i]:.1f}"
                               for i in range(len(target))), caption="What is kept and what replaces "
                 "refusals add up to the target.")


def speculation(kept=2, drafted=4):
    """One round of speculative decoding in time."""
    fig, ax = figures.new(7.6, 2.0)
    for i in range(drafted):
        _box(ax, 1.1 * i, 0, 1.0, 0.7, QUERY, f"draft {i + 1}")
        fate, colour = (("keep", VALUE) if i < kept else ("replace", OUT) if i == kept
                        else ("discard", "white"))
        _box(ax, 1.1 * drafted + 3.1 + 1.1 * i, 0, 1.0, 0.7, colour, fate)
    _box(ax, 1.1 * drafted + 0.2, 0, 2.6, 0.7, KEY, "one pass of the large\nmodel over all")
    end = 1.1 * drafted + 3.1 + 1.1 * drafted
    ax.text(0, 1.0, f"{drafted} passes of the small model", fontsize=8.5, color=GREY, va="center")
    ax.text(1.1 * drafted + 3.1, 1.0, f"{kept + 1} new tokens; caches truncate the rest", fontsize=8.5,
            color=GREY, va="center")
    figures.plain(ax, xlim=(-0.1, end), ylim=(1.3, -0.1))
    figures.show(fig, alt=f"In time: {drafted} passes of the small model draft {drafted} tokens; one pass of "
                          f"the large model checks all; {kept} are kept, the next is replaced, "
                          f"{drafted - kept - 1} discarded: {kept + 1} new tokens.",
                 caption="One round: the large model reads its weights once for several tokens.")


def _box(ax, x, y, width, height, colour, text, line="-"):
    figures.box(ax, x, y, width, height, colour, text, line=0.8, linestyle=line)
