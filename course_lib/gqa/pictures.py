"""The figures of chapter 3. Each function draws and shows one, its text alternative made from the data."""
from course_lib import figures
from course_lib.figures import COLOURS, INK
from course_lib.gqa.cache_size import cache_bytes

ACCENT, GREY = COLOURS[5], "#999999"
KV, QUERY = "#FFE9B8", "#d6e6f4"


def sharing(n_heads=4):
    """Which key-value head each query head reads, with one per head, in groups of two, and one for all."""
    kinds = (("MHA: one each", n_heads), ("GQA: groups of 2", n_heads // 2), ("MQA: one for all", 1))
    fig, axes = figures.new(8.0, 2.4, columns=len(kinds))
    told = []
    for ax, (name, n_kv_heads) in zip(axes, kinds):
        pairs = [(h, h * n_kv_heads // n_heads) for h in range(n_heads)]
        for h, kv in pairs:
            x = (kv + 0.5) * n_heads / n_kv_heads - 0.5
            ax.plot([h, x], [1, 0], color=INK, lw=1)
            for place, text, shape, fill in (((h, 1), f"Q{h}", "circle", "white"),
                                             ((x, 0), f"KV{kv}", "square", KV)):
                ax.text(*place, text, ha="center", va="center", fontsize=10,
                        bbox={"boxstyle": shape, "fc": fill})
        figures.plain(ax, title=name, xlim=(-0.6, n_heads - 0.4), ylim=(-0.4, 1.4))
        told.append(f"{name}: " + ", ".join(f"Q{h} reads KV{kv}" for h, kv in pairs))
    figures.show(fig, alt="Query heads above, key-value heads below. " + ". ".join(told) + ".",
                 caption="Query head h reads key-value head h // group_size: neighbours share.")


def folded_queries(n_heads=4, n_kv_heads=2, keys=5):
    """The queries of a group, stacked into one matrix, beside the keys that they share."""
    g = n_heads // n_kv_heads
    fig, ax = figures.new(7.4, 2.9)
    row, width = 0.42, 1.6
    for h in range(n_heads):
        colour = COLOURS[h // g]
        _row(ax, 0, 2 * row * h, width, row, colour, f"q of head {h}")
        group, place = divmod(h, g)
        top = group * 4 * row + place * row
        _row(ax, 3.2, top, width, row, colour, f"q of head {h}")
        figures.arrow(ax, (width + 0.05, 2 * row * h + row / 2), (3.15, top + row / 2), GREY)
    for group in range(n_kv_heads):
        for j in range(keys):
            _row(ax, 5.6 + j * 0.36, group * 4 * row, 0.34, 2 * row, KV, "")
        ax.text(5.6 + keys * 0.18, group * 4 * row - 0.12, f"keys of head {group}, transposed",
                ha="center", fontsize=8.5)
        ax.text(5.2, group * 4 * row + row, "×", ha="center", va="center", fontsize=13)
    figures.plain(ax, xlim=(-0.1, 7.6), ylim=(2 * row * n_heads, -0.5))
    groups = "; ".join(f"{', '.join(str(k * g + i) for i in range(g))} in matrix {k}"
                       for k in range(n_kv_heads))
    figures.show(fig, alt=f"Left: {n_heads} query rows, one per head. Middle: the same rows as {n_kv_heads} "
                 f"matrices of {g} rows, heads {groups}. Right: {n_kv_heads} key matrices with {keys} keys "
                 "each, one per query matrix.", caption="Nothing is copied: the queries of a group become "
                 "the rows of one matrix, multiplied by the keys they share.")


def _row(ax, x, y, width, height, colour, text):
    figures.box(ax, x, y, width, height, colour, text, size=8.5, ink="black", alpha=0.45)


def tile_and_group(group_size=4, tile=32):
    """What a block of rung 3 holds in shared memory, and what it reads."""
    fig, ax = figures.new(7.4, 2.7)
    ax.add_patch(figures.rectangle(2.9, 0.1, 4.3, 2.5, facecolor="#f5f5f5", edgecolor=GREY, linewidth=1))
    ax.text(5.05, 2.52, "shared memory of one block", ha="center", va="top", fontsize=8.5)
    for j in range(12):
        here = 4 <= j < 8
        _row(ax, 0.2, 0.15 + j * 0.19, 1.5, 0.17, ACCENT if here else KV, "")
    ax.text(0.95, -0.02, "keys in memory", ha="center", va="top", fontsize=8.5)
    _row(ax, 3.1, 0.75, 1.6, 0.9, ACCENT, f"tile of {tile} keys")
    figures.arrow(ax, (1.75, 1.28), (3.05, 1.2), ACCENT)
    ax.text(2.32, 1.42, "once", ha="center", fontsize=9, color=ACCENT)
    for h in range(group_size):
        _row(ax, 5.6, 0.35 + (group_size - 1 - h) * 0.5, 1.4, 0.32, COLOURS[0], f"query head {h}")
        figures.arrow(ax, (4.75, 1.2), (5.55, 0.51 + (group_size - 1 - h) * 0.5), GREY)
    figures.plain(ax, xlim=(0, 7.4), ylim=(-0.25, 2.7))
    figures.show(fig, alt=f"Keys in memory, a tile of {tile} of them marked. An arrow, once, leads into the "
                 f"shared memory of a block; from the tile {group_size} arrows lead to the query heads of "
                 "the group.", caption="Rung 3: a tile of keys is read from memory once and used by the "
                 f"{group_size} query heads of the group.")


def roofline(points, peak, bandwidth):
    """points {name: FLOPs per byte} under the roof of a card: peak in TFLOP/s, bandwidth in TB/s."""
    ridge = peak / bandwidth
    fig, ax = figures.new(6.6, 3.4)
    xs = [0.5, ridge, 2000]
    ax.plot(xs, [min(peak, bandwidth * x) for x in xs], color=INK, lw=1.5)
    ax.axvline(ridge, color=GREY, lw=1, linestyle="--")
    ax.text(ridge * 1.07, peak / 400, f"{ridge:.0f} FLOPs\nper byte", fontsize=8.5, color=INK)
    reached = {name: min(peak, bandwidth * x) for name, x in points.items()}
    for name, x in points.items():
        ax.plot([x], [reached[name]], "o", color=ACCENT, markersize=7)
        left = ridge / 8 < x < ridge        # a text to the right would cross the dashed line
        ax.annotate(f"{name}: {x:.0f}", (x, reached[name]), xytext=(-9, 5) if left else (9, -11),
                    textcoords="offset points", ha="right" if left else "left", fontsize=9, color=ACCENT)
    ax.set_xscale("log")
    ax.set_yscale("log")
    figures.plain_ticks(ax.xaxis, ax.yaxis)
    ax.set_xlabel("FLOPs per byte read", color=INK)
    ax.set_ylabel("at most, TFLOP/s", color=INK)
    told = ", ".join(f"{name} at {x:.0f} FLOPs per byte, at most {reached[name]:.0f} TFLOP/s"
                     for name, x in points.items())
    figures.show(fig, alt=f"Roofline: {bandwidth} TB/s up to {ridge:.0f} FLOPs per byte, {peak} TFLOP/s "
                 f"beyond. {told}.", caption="One decoding step over a long text: what the memory of an "
                 "H200 allows each kind of attention to compute.")


def cache_bars(models):
    """KiB per token at full context, layer by layer, for models of data/models.json."""
    sizes = {}
    for m in models:
        kinds = ", ".join(dict.fromkeys(group["kind"] for group in m["layers"]))
        sizes[f"{m['name']} ({kinds})"] = cache_bytes(m, m["context"]) / m["context"] / 1024
    figures.bars(dict(sorted(sizes.items(), key=lambda item: -item[1])), unit="KiB",
                 caption="Cache per token of context, averaged over the model's full context, at 2 bytes "
                 "per number.")


def latent_flow(heads=128, width=128, latent=512, rotated=64, d_model=7168):
    """The numbers of a token in DeepSeek-V3's layer, to scale: its vector, what is kept, what is unfolded."""
    unfolded, kept = 2 * heads * width, latent + rotated
    rows = [(f"the token's vector: {d_model:,} numbers", "W down", [(d_model, "white")]),
            (f"kept: a latent of {latent}, a rotated key of {rotated}", "W up",
             [(latent, ACCENT), (rotated, KV)]),
            (f"keys and values of {heads} heads: {unfolded:,}", "",
             [(heads * width, "#d6e6f4"), (heads * width, KV)])]
    fig, ax = figures.new(7.6, 2.7)
    for n, (name, then, parts) in enumerate(rows):
        whole, y = sum(size for size, _ in parts), 1.5 * n
        left = (unfolded - whole) / 2
        for size, colour in parts:
            figures.box(ax, left, y, size, 0.6, colour)
            left += size
        place = (unfolded / 2, y + 0.9, "center") if n == 2 else (left + 500, y + 0.3, "left")
        ax.text(*place[:2], name, ha=place[2], va="center", fontsize=9, color=INK)
        if then:
            after = sum(size for size, _ in rows[n + 1][2])
            for side in (-1, 1):
                ax.plot([(unfolded + side * whole) / 2, (unfolded + side * after) / 2], [y + 0.6, y + 1.5],
                        color=GREY, lw=0.8, zorder=0)
            ax.text(unfolded / 2, y + 1.1, then, ha="center", va="center", fontsize=8.5, color=INK)
    figures.plain(ax, xlim=(-200, unfolded + 200), ylim=(4.1, -0.1))
    figures.show(fig, alt="Bars to scale. " + "; ".join(name for name, *_ in rows) + ".",
                 caption=f"To scale, for one token in one layer of DeepSeek-V3: {kept} numbers are kept in "
                         f"place of {unfolded:,}. Absorbing moves W up to the query, so that nothing is "
                         "unfolded.")


def absorbed(tokens=8192, width=128, latent=512):
    """The two orders of the product q W c: boxes with their sides to scale, except the number of tokens."""
    fig, ax = figures.new(7.6, 4.0)
    w, c, n, one = width / 200, latent / 200, 1.9, 0.12       # what 128, 512, the tokens and 1 measure here
    rows = {"unfold": [("latents", n, c, "#f6dcc8"), ("Wᵀ", c, w, KV), ("keys", n, w, KV),
                       ("qᵀ", w, one, QUERY)],
            "absorb": [("q", one, w, QUERY), ("W", w, c, KV), ("q W", one, c, QUERY),
                       ("latentsᵀ", c, n, "#f6dcc8")]}
    cost = {"unfold": 2 * tokens * latent * width + 2 * tokens * width,
            "absorb": 2 * width * latent + 2 * tokens * latent}
    for row, (order, parts) in enumerate(rows.items()):
        x, middle = 0.0, 3.2 * row
        for sign, (name, high, wide, colour) in zip("·=·=", parts):
            figures.box(ax, x, middle - high / 2, wide, high, colour, name if min(high, wide) > 0.3 else "")
            if min(high, wide) < 0.3:
                ax.text(x + wide / 2, middle + high / 2 + 0.08, name, ha="center", va="top", fontsize=8.5)
            ax.text(x + wide + 0.25, middle, sign, ha="center", va="center", fontsize=12, color=INK)
            x += wide + 0.5
        ax.text(x, middle, "scores", va="center", fontsize=9, color=INK)
        ax.text(0, middle - 1.5, f"{order}: {cost[order]:,} FLOPs", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-0.1, 10.6), ylim=(4.9, -1.8), aspect="equal")
    told = "; ".join(f"{name}: {' times '.join(part for part, *_ in parts[:2])} is {parts[2][0]}, times "
                     f"{parts[3][0]}, {cost[name]:,} FLOPs" for name, parts in rows.items())
    figures.show(fig, alt=f"Two rows of boxes. {told}.",
                 caption=f"One query, one head of DeepSeek-V3 and {tokens:,} kept latents. Above, all keys "
                         "are unfolded first; below, W goes to the one query. (Sides to scale, but not the "
                         "tokens.)")
