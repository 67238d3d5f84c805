"""The figures of chapter 9. Each function draws one and shows it; its text alternative is made from what it
draws."""
import numpy as np
import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK

CLOUD, WAY, GREY = COLOURS[0], COLOURS[5], "#666666"
LOOKS = {"softmax": ("o", COLOURS[0]), "w2": ("s", COLOURS[5]), "overlap": ("^", COLOURS[2])}


def sand(start, goal):
    """The best plan on a line: sorted grains go to sorted places."""
    fig, ax = figures.new(6.4, 1.9)
    moves = list(zip(sorted(start), sorted(goal)))
    for x, y in moves:
        ax.annotate("", (y, 0.08), (x, 0.92), arrowprops={"arrowstyle": "->", "color": WAY})
        ax.text((x + y) / 2 + 0.2, 0.5, f"{(x - y) ** 2}", fontsize=9, color=WAY, va="center")
        ax.plot(x, 1, "o", color=CLOUD, ms=9)
        ax.plot(y, 0, "s", color=CLOUD, ms=8, markerfacecolor="white")
    ax.set(xlim=(-0.5, 5.5), ylim=(-0.25, 1.25), yticks=(0, 1), yticklabels=("places", "grains"))
    cost = sum((x - y) ** 2 for x, y in moves)
    told = ", ".join(f"{x} to {y} for {(x - y) ** 2}" for x, y in moves)
    figures.show(fig, alt=f"Grains on a line and their places: {told}. No two arrows cross.",
                 caption="The cheapest plan keeps the order; it costs "
                 f"{' + '.join(str((x - y) ** 2) for x, y in moves)} = {cost}.")


def gaussians_moved(line=((0.0, 1.0), (3.0, 5.0)),
                    plane=(((0.0, 0.0), (1.0, 0.4)), ((4.0, 1.0), (0.5, 1.2)))):
    """Two Gaussians on a line as points of a half-plane; two clouds of the plane with their best plan."""
    fig, (left, right) = figures.new(8.4, 3.6, columns=2)
    (mu_a, s_a), (mu_b, s_b) = line
    left.plot([mu_a, mu_b], [s_a, s_b], color=WAY, lw=2)
    left.plot([mu_a, mu_b, mu_b], [s_a, s_a, s_b], color=GREY, ls=":")
    across, up = mu_b - mu_a, s_b - s_a
    apart = (across**2 + up**2) ** 0.5
    for x, y, text in ((mu_a, s_a - 0.6, f"N({mu_a:g}, {s_a:g}²)"),
                       (mu_b + 0.1, s_b + 0.1, f"N({mu_b:g}, {s_b:g}²)"),
                       ((mu_a + mu_b) / 2 - 0.5, (s_a + s_b) / 2 + 0.2, f"{apart:g}"),
                       ((mu_a + mu_b) / 2 - 0.1, s_a - 0.5, f"{across:g}"),
                       (mu_b + 0.1, (s_a + s_b) / 2, f"{up:g}")):
        left.text(x, y, text, fontsize=10, color=INK)
    left.plot([mu_a, mu_b], [s_a, s_b], "o", color=CLOUD, ms=8)
    left.set(xlabel="mean", ylabel="standard deviation", xlim=(-0.6, 4.9), ylim=(0, 5.8), aspect="equal")
    grains = _clouds(right, *plane)
    figures.show(fig, alt=f"Left: mean to the right, standard deviation upwards, on one scale. N({mu_a:g}, "
                          f"{s_a:g}²) and N({mu_b:g}, {s_b:g}²) are {across:g} apart to the right and {up:g} "
                          f"upwards; the line between has length {apart:g}. Right: an ellipse around "
                          f"{plane[0][0]} with widths {plane[0][1]} and one around {plane[1][0]} with widths "
                          f"{plane[1][1]}; {grains} arrows lead from points of the first to the same points, "
                          "shifted and stretched, of the second.",
                 caption="Left: a Gaussian on a line is a point in a half-plane; W2 is the ordinary distance "
                         "there. Right: two clouds in the plane; the best plan shifts every grain and "
                         "stretches each coordinate.")


def _clouds(ax, a, b):
    angle = torch.arange(0, 6.3, 0.05)
    circle = torch.stack([angle.cos(), angle.sin()])
    (mu_a, s_a), (mu_b, s_b) = (tuple(torch.tensor(x) for x in cloud) for cloud in (a, b))
    for mu, s, text in ((mu_a, s_a, "a"), (mu_b, s_b, "b")):
        ax.plot(*(mu[:, None] + s[:, None] * circle), color=CLOUD)
        ax.text(*(mu + torch.tensor([-0.1, 1.35 * s[1]])), text, fontsize=10, color=INK)
    picked = circle[:, ::21].T
    for grain in picked:
        ax.annotate("", mu_b + s_b * grain, mu_a + s_a * grain, arrowprops={"arrowstyle": "->", "color": WAY})
    ax.set(xlabel="first coordinate", ylabel="second coordinate", xlim=(-1.6, 5.2), ylim=(-1, 3),
           aspect="equal")
    return len(picked)


def fused_block(rows=64, keys=32):
    """What one thread block of the fused kernel loads, makes and writes."""
    q, k, v = (f"q tile: {rows} rows\nof mean, width", f"k tile: {keys} rows\nof mean, width",
               f"v tile: {keys} rows")
    scores, softmax, out = (f"squared differences\n{rows} × {keys} scores", "online softmax,\nweighted sum",
                            f"out: {rows} rows")
    figures.boxes({q: (0, 0), k: (1, 0), scores: (0.5, 1), v: (2, 0), softmax: (1.6, 1), out: (2.7, 1)},
                  arrows=[(q, scores), (k, scores), (scores, softmax), (v, softmax), (softmax, out)],
                  width=8.4, height=2.6,
                  caption="One block of the fused kernel. Its queries stay; tiles of keys, twice as wide as "
                          "values, replace each other. The scores never leave the chip.")


def loss_against_rate(panels, floors, one_minus=()):
    """panels {title: {arm: [(rate, values), ...]}}, in rows of three; in `one_minus` a value is an area,
    drawn as 1 - area. An arm begins with its mechanism and may end with its width; the wider is dashed."""
    rows = -(-len(panels) // 3)
    fig, axes = figures.new(10.4, 3.0 * rows, columns=min(3, len(panels)), rows=rows)
    told = []
    for ax, (title, arms) in zip(np.ravel(axes), panels.items()):
        widest = max((width for _, width in map(_mechanism_and_width, arms)), default=0)
        for arm, by_rate in arms.items():
            kept = ((rate, [1 - x if title in one_minus else x for x in values if x is not None])
                    for rate, values in by_rate)
            points = [(rate, sum(values) / len(values)) for rate, values in kept if values]
            if points:
                mechanism, width = _mechanism_and_width(arm)
                marker, colour = LOOKS[mechanism]
                ax.plot(*zip(*points), marker=marker, color=colour, ms=4, lw=1, label=arm,
                        ls="--" if 0 < width == widest else "-")
                told.append(f"{title}, {arm}: " + ", ".join(f"{rate:g} {x:.2g}" for rate, x in points) + ".")
        ax.set(title=title, xscale="log", yscale="log", xlabel="learning rate",
               ylabel="1 - area" if title in one_minus else "loss, nats")
        ax.legend(frameon=False, fontsize=8)
        if title in floors:
            ax.axhline(floors[title], color=GREY, ls=":")
        _plain_ticks(ax, {rate for by_rate in arms.values() for rate, _ in by_rate})
    figures.show(fig, alt=" ".join(told),
                 caption="Loss against learning rate, for every arm, with seed 0. Lower is better. "
                         "Dotted: the least that any model can expect.")


def _plain_ticks(ax, rates):
    """Numbers without powers where an axis spans less than a decade; of two rates, both."""
    low, high = ax.get_ylim()
    ax.yaxis.set_minor_formatter(lambda y, _: f"{y:.2g}" if high < 10 * low else "")
    ax.xaxis.set_minor_formatter(lambda x, _: "")
    if high < 10 * low:
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:.2g}")
    if len(rates) < 3:
        ax.set_xticks(sorted(rates), [f"{rate:g}" for rate in sorted(rates)])


def _mechanism_and_width(arm):
    """"softmax 96" -> ("softmax", 96); 0 where an arm has no width in its name."""
    mechanism, _, rest = arm.replace(",", "").partition(" ")
    return mechanism, int(rest) if rest.isdigit() else 0
