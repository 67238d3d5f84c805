"""The figures of chapter 6. Each function draws and shows one, its text alternative made from the data."""
import itertools
import math

import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK
from course_lib.flash_attention.orders import tile_kinds

ACCENT, GREY, PALE = COLOURS[5], "#666666", "#f4f4f4"
QUERY, KEY, VALUE, OUT = "#d6e6f4", "#fbe6c4", "#cfeade", "#f6dcc8"

# An H200, from NVIDIA's data sheets and its tuning guide for Hopper: name, KiB, as it is told, for whom.
LEVELS = (("registers", 132 * 256, "132 × 256 KiB", "each thread its own"),
          ("shared memory and L1", 132 * 256, "132 × 256 KiB", "each block its own"),
          ("L2", 50 * 1024, "50 MiB", "for all"),
          ("HBM, 4.8 TB/s", 141e9 / 1024, "141 GB", "for all"))


def memories(rows=64, d=64):
    """The memories of an H200 on one axis of sizes, and a tile of keys and its place among them."""
    fig, ax = figures.new(7.2, 2.7)
    for i, (_, kib, *_) in enumerate(LEVELS):
        ax.barh(i, 1024 * kib, 0.6, color=KEY if i == 1 else PALE if i < 3 else QUERY, edgecolor=INK,
                linewidth=0.7)
    ax.axvline(4 * rows * d, color=ACCENT, lw=1.3, ls="--")
    ax.text(4 * rows * d, -0.55, f"a tile, {rows} × {d} floats: {4 * rows * d // 1024} KiB", color=ACCENT,
            ha="center", va="bottom", fontsize=8.5)
    ax.set(xscale="log", xlim=(1e3, 1e12), ylim=(3.5, -0.5), yticks=range(4),
           yticklabels=[f"{name}\n{size}, {user}" for name, _, size, user in LEVELS],
           xticks=[1e3, 1e6, 1e9, 1e12], xticklabels=["1 KB", "1 MB", "1 GB", "1 TB"])
    told = "; ".join(f"{name}, {size}, {user}" for name, _, size, user in LEVELS)
    figures.show(fig, alt="Bars on a logarithmic axis of bytes, from the innermost memory to the outermost: "
                          f"{told}. "
                 f"A tile of {rows} by {d} floats has {4 * rows * d // 1024} KiB.",
                 caption="The memories of an H200; each tick is a thousand times the one before. The model "
                         "of this chapter keeps two: shared memory, fast and small, and HBM, slow and large.")


def roofline(cards, lines):
    """cards {name: (FLOP/s, bytes/s)}; lines {text: FLOP per byte}."""
    fig, ax = figures.new(6.6, 3.6)
    x = torch.logspace(0, 4, 200)
    ridges = []
    for (card, (flops, bandwidth, *_)), dash in zip(cards.items(), ("-", "--")):
        ridges.append(f"{card}, {flops / bandwidth:.0f}")
        ax.plot(x, (x * bandwidth).clamp(max=flops) / 1e12, dash,
                label=f"{card}, balance {flops / bandwidth:.0f}")
    for name, intensity in lines.items():
        ax.axvline(intensity, color=GREY, linestyle=":")
        ax.annotate(name, (intensity, 3), (-6, 0), textcoords="offset points", rotation=90, ha="right",
                    fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte from HBM", ylabel="TFLOP/s within reach")
    figures.plain_ticks(ax.xaxis, ax.yaxis)
    ax.legend(frameon=False, loc="upper left", fontsize=8)
    marked = "; ".join(f"{name}, at {intensity}" for name, intensity in lines.items())
    figures.show(fig, alt="Rooflines, a slope of bandwidth and then a flat roof of arithmetic, which meet at "
                          f"the balance: {'; '.join(ridges)}. Marked in FLOP per byte: {marked}.",
                 caption="HBM limits unfused attention, but not a kernel that reads each number from HBM "
                         "once.")


def merging(a, b):
    """Two sets of scores, their states, and the state of both: bars of exp(score - m)."""
    parts = {"set A": [a], "set B": [b], "merged": [a, b]}
    fig, axes = figures.new(7.6, 2.5, columns=3)
    told = []
    for ax, (name, sets) in zip(axes, parts.items()):
        m = max(max(one) for one in sets)
        bars = [(s, math.exp(s - m), k if len(sets) == 2 else int(name == "set B"))
                for k, one in enumerate(sets) for s in one]
        for j, (s, p, k) in enumerate(bars):
            ax.bar(j, p, 0.7, **figures.filling(k))
            ax.text(j, p + 0.03, f"{p:.2f}", ha="center", fontsize=8, color=INK)
        total = sum(p for _, p, _ in bars)
        ax.set(title=f"{name}: m = {m:g}, l = {total:.2f}", xticks=range(len(bars)), ylim=(0, 1.2), yticks=[],
               xticklabels=[f"{s:g}" for s, _, _ in bars])
        told.append(f"{name}: m {m:g}, l {total:.2f}, terms {', '.join(f'{p:.2f}' for _, p, _ in bars)}")
    axes[0].set_ylabel("exp(score − m)")
    axes[1].set_xlabel("scores")
    shrink = math.exp(max(a) - max(b))
    figures.show(fig, alt="Bars of exp(score - m). " + ". ".join(told) + ".",
                 caption=f"A was measured from {max(a):g}. To join B, its terms are multiplied by "
                         f"exp({max(a):g} − {max(b):g}) = {shrink:.2f}, and so are its sums.")


def walk(tiles=4, steps=((2, 0), (2, 1), (2, 2), (3, 0), (3, 1))):
    """Frames of the tile walk under a causal mask."""
    fig, axes = figures.new(8.8, 2.4, columns=len(steps))
    looks = {"now": ("#E69F00", "xx"), "done": ("#B5D4E9", ".."), "hidden": ("#eeeeee", ""),
             "to come": ("white", "")}
    kinds = tile_kinds(tiles, tiles, 1, 1)
    told = []
    for ax, now in zip(axes, steps):
        count = dict.fromkeys(looks, 0)
        for i in range(tiles):
            for j in range(tiles):
                kind = ("now" if (i, j) == now else "hidden" if kinds[i, j] == 0
                        else "done" if (i, j) < now else "to come")
                count[kind] += 1
                color, hatch = looks[kind]
                ax.fill([j, j + 1, j + 1, j], [i, i, i + 1, i + 1], facecolor=color, hatch=hatch,
                        edgecolor="#444444")
        ax.set(title=f"q{now[0]} with k{now[1]}, v{now[1]}", aspect="equal", xticks=[], yticks=[],
               ylim=(tiles, 0))
        told.append(f"q{now[0]} with k{now[1]}, {count['done']} done, {count['to come']} to come")
    axes[0].set(ylabel="query tiles", xlabel="key tiles")
    figures.show(fig, alt=f"{len(steps)} frames of a {tiles} by {tiles} grid of tiles under a causal mask, "
                          f"{count['hidden']} of them hidden. Frame by frame: {'; '.join(told)}.",
                 caption=f"{len(steps)} steps of the walk. Only the crossed tile exists, on the chip; "
                         "dotted tiles are done, grey ones hidden.")


def who_holds(n=1024, d=64, rows=64, columns=32):
    """What is in HBM, in shared memory and in registers while one block walks."""
    held = {"HBM": [(f"q, k, v: {n:,} × {d} each", QUERY), (f"out: {n:,} × {d}", OUT),
                    (f"lse: {n:,}", OUT)],
            "shared memory of a block": [(f"q tile: {rows} × {d}", QUERY), (f"k tile: {columns} × {d}", KEY),
                                         (f"v tile: {columns} × {d}", VALUE)],
            "registers of its threads": [(f"scores: {rows} × {columns}", PALE),
                                         (f"m and l: {rows} each", OUT), (f"o: {rows} × {d}", OUT)]}
    fig, ax = figures.new(8.0, 2.4)
    for x, (place, arrays) in enumerate(held.items()):
        figures.box(ax, 3.2 * x, 0, 2.5, 2.5, "white", "")
        ax.text(3.2 * x + 1.25, -0.08, place, ha="center", va="bottom", fontsize=9, color=INK)
        for i, (text, colour) in enumerate(arrays):
            figures.box(ax, 3.2 * x + 0.15, 0.15 + 0.78 * i, 2.2, 0.6, colour, text)
    for x, y, back, text in ((0, 0.6, False, "tile by tile"), (1, 0.6, False, "multiply")):
        figures.arrow(ax, (3.2 * x + 2.5, y), (3.2 * x + 3.2, y))
        ax.text(3.2 * x + 2.85, y - 0.08, text, ha="center", va="bottom", fontsize=7.5, color=GREY)
    ax.annotate("", (2.5, 2.3), (6.4, 2.3), zorder=5,
                arrowprops={"arrowstyle": "->", "color": ACCENT, "connectionstyle": "arc3,rad=-0.22"})
    ax.text(4.45, 3.1, "once, at the end: out = o / l, lse = m + ln l", ha="center", fontsize=8, color=ACCENT)
    figures.plain(ax, xlim=(-0.1, 9.1), ylim=(3.2, -0.4))
    told = "; ".join(f"{place}: {', '.join(text for text, _ in arrays)}" for place, arrays in held.items())
    figures.show(fig, alt=f"{told}. Arrows: from HBM to shared memory, tile by tile; from shared memory to "
                          "registers, to multiply; from registers to HBM, once at the end, out and lse.",
                 caption=f"Who holds what, for {n:,} rows of width {d} and tiles of {rows} and {columns} "
                         f"rows. No array of {n:,} × {n:,} numbers exists anywhere.")


def patch(ty: int = 2, tx: int = 3):
    """The scores of one thread of rung 5 in a tile of 32 x 32, and what it loads for them per column of d."""
    rows, keys = ([first + 8 * n for n in range(4)] for first in (ty, tx))
    fig, ax = figures.new(4.6, 4.2)
    for i, j in zip(rows, keys):
        figures.box(ax, 0, i, 32, 1, "#e8e8e8", line=0)
        figures.box(ax, j, 0, 1, 32, "#e8e8e8", line=0)
        figures.box(ax, -2.2, i, 1.6, 1, QUERY, line=0.5)
        figures.box(ax, j, -2.2, 1, 1.6, KEY, line=0.5)
    for i, j in itertools.product(rows, keys):
        figures.box(ax, j, i, 1, 1, ACCENT, line=0)
    ax.hlines(range(33), 0, 32, color="#bbbbbb", linewidth=0.4)
    ax.vlines(range(33), 0, 32, color="#bbbbbb", linewidth=0.4)
    ax.text(-2.6, 16, "4 numbers of q", rotation=90, ha="right", va="center", fontsize=9, color=INK)
    ax.text(16, -2.6, "4 numbers of k", ha="center", va="bottom", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-4, 32), ylim=(32, -4), aspect="equal")
    figures.show(fig, alt=f"A tile of 32 by 32 scores. The thread ({ty}, {tx}) has the scores of rows {rows} "
                          f"with keys {keys}: {len(rows) * len(keys)} products from {len(rows)} + "
                          f"{len(keys)} loads.",
                 caption=f"Rung 5: thread ({ty}, {tx}) of 8 × 8 keeps 16 scores in registers. For each of "
                         "the d columns it loads 4 + 4 numbers and uses each four times.")


def backward_flow():
    """Which products the backward pass forms, and what crosses tiles."""
    places = {"q, k": (0, 0), "S again": (1, 0), "P = exp(S − lse)": (2, 0), "dV += Pᵀ dO": (3.1, 0),
              "dO, v": (0, 1), "dP = dO vᵀ": (1, 1), "dS = P (dP − δ)": (2, 1), "dK += dSᵀ q": (3.1, 0.75),
              "δ = dO · O": (1, 2), "dQ += dS k": (3.1, 1.5)}
    arrows = [("q, k", "S again"), ("S again", "P = exp(S − lse)"), ("P = exp(S − lse)", "dV += Pᵀ dO"),
              ("dO, v", "dP = dO vᵀ"), ("dP = dO vᵀ", "dS = P (dP − δ)"),
              ("P = exp(S − lse)", "dS = P (dP − δ)"), ("δ = dO · O", "dS = P (dP − δ)"),
              ("dS = P (dP − δ)", "dK += dSᵀ q"), ("dS = P (dP − δ)", "dQ += dS k")]
    inputs, sums = ("q, k", "dO, v", "δ = dO · O"), ("dV += Pᵀ dO", "dK += dSᵀ q", "dQ += dS k")
    kinds = {name: "read" if name in inputs else "summed over tiles" if name in sums
             else "one tile, on the chip" for name in places}
    figures.boxes(places, arrows, kinds=kinds, width=8.6, height=3.6,
                  caption="The backward pass of one pair of tiles. Five products; three sums cross tiles.")


def fragments(lane=13):
    """Which numbers of A, B and D one lane of a warp holds in `mma.sync m16n8k16`."""
    fig, ax = figures.new(8.2, 2.9)
    for x in range(32):
        _piece(ax, 0, 0, 4 * (x % 4), 2 * (x // 4), 4, 2, x == lane, f"{x}")
    ax.text(8, -0.5, "which lane: 8 × 8", ha="center", va="bottom", fontsize=9, color=INK)
    told, row, column = [], lane // 4, 2 * (lane % 4)
    for name, left, starts, down in (("A: 16 × 16", 20, ((0, 0), (8, 0), (0, 8), (8, 8)), False),
                                     ("B: 16 × 8", 39, ((0, 0), (8, 0)), True),
                                     ("D: 16 × 8", 50, ((0, 0), (8, 0)), False)):
        held = []
        for register, (i, j) in enumerate(starts):
            figures.box(ax, left + j, i, 8, 8, (QUERY, KEY, VALUE, OUT)[register])
            at = (i + column, j + row) if down else (i + row, j + column)
            _piece(ax, left, 0, at[1], at[0], 1 if down else 2, 2 if down else 1, True)
            what = f"sums {2 * register}, {2 * register + 1}" if name[0] == "D" else f"register {register}"
            ax.text(left + j + 4, i + (6.5 if at[0] - i < 4 else 1.5), what, ha="center", va="center",
                    fontsize=8, color=INK)
            held.append(f"{what} from row {at[0]}, column {at[1]}")
        ax.text(left + starts[-1][1] / 2 + 4, -0.5, name, ha="center", va="bottom", fontsize=9, color=INK)
        told.append(f"{name[0]}: {', '.join(held)}")
    figures.plain(ax, xlim=(-0.2, 58.2), ylim=(16.2, -2), aspect="equal")
    figures.show(fig, alt="An 8 by 8 grid, two columns for each lane: row r belongs to lanes 4 r to 4 r + 3. "
                          f"Then what lane {lane} holds, two numbers at each place, in A and D side by side, "
                          f"in B one below the other. {'; '.join(told)}.",
                 caption=f"What lane {lane} holds (orange). Each 8 × 8 piece of A and D is dealt out as at "
                         "the left, each of B the same with rows and columns exchanged. One register of A or "
                         "B holds both numbers of a place; D has float32 sums, a register for each.")


def _piece(ax, left, top, x, y, wide, high, lit, text=""):
    figures.box(ax, left + x, top + y, wide, high, ACCENT if lit else PALE, text, size=8.5, line=0.5,
                ink="white" if lit else INK)


def ping_pong(tiles=3):
    """Two groups of warps that alternate between products and softmax, as in FlashAttention-3."""
    fig, ax = figures.new(7.6, 2.3)
    rows = ("copies", "group 1", "group 2")
    stages = [("copies", 2 * t, 2, f"tile {t + 1}", PALE) for t in range(tiles)]
    for t in range(tiles):
        for group in (1, 2):
            start = 2 + 4 * t + 2 * (group - 1)
            stages += [(f"group {group}", start, 2, f"products {t + 1}", QUERY),
                       (f"group {group}", start + 2, 2, f"softmax {t + 1}", KEY)]
    for row, start, long, text, colour in stages:
        figures.box(ax, start, rows.index(row), long, 0.72, colour, text)
    for i, row in enumerate(rows):
        ax.text(-0.2, i + 0.36, row, ha="right", va="center", fontsize=9, color=INK)
    ax.set(xlim=(-2, 4 * tiles + 4.4), ylim=(3.1, -0.1))
    ax.text(0, 2.95, "time →", fontsize=8.5, color=GREY)
    ax.axis("off")
    told = "; ".join(
        f"{row}: " + ", ".join(f"{text} at {start}" for r, start, _, text, _ in stages if r == row)
        for row in rows)
    figures.show(fig, alt=f"A schedule in three rows. {told}.",
                 caption="While one group of warps multiplies, the other computes exponentials; a third only "
                         "copies. A drawing of the idea, not a measurement.")
