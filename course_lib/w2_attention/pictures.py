"""The figures of chapter 9. Each function draws and shows one, its text alternative made from the data."""
import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK

CLOUD, WAY, GREY = COLOURS[0], COLOURS[5], "#666666"


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


def fused_block(rows=64, keys=32, d=64, tiles=4, now=2):
    """One thread block of the fused kernel on its walk, lengths to scale, and one score of it."""
    fig, ax = figures.new(6.4, 4.2)
    shade = lambda j: "#fbe6c4" if j == now else "white" if j > now else "#eeeeee"
    for x, text in ((0, "means"), (d, "widths")):
        figures.box(ax, x - 2 * d - 8, 0, d, rows, "#d6e6f4", f"q {text}\n{rows} × {d}")
    for j in range(tiles):
        for y, text in ((-d, "widths"), (-2 * d, "means")):
            figures.box(ax, keys * j, y - 8, keys, d, shade(j), f"k{j}\n{text}")
        figures.box(ax, keys * j, rows + 8, keys, d, "#cfeade" if j == now else shade(j), f"v{j}")
        figures.box(ax, keys * j, 0, keys, rows, WAY if j == now else shade(j),
                    "scores" if j == now else "done" if j < now else "", ink="white" if j == now else INK)
    figures.box(ax, -d - 8, rows + 8, d, d, "#f6dcc8", f"o: {rows} × {d}\nm and l")
    left, top, right, low = -150, -30, -60, -110
    ax.plot([left, right, right], [top, top, low], color=GREY, ls=":")
    ax.plot([left, right], [top, low], color=WAY, lw=2)
    ax.plot([left, right], [top, low], "o", color=CLOUD, ms=6)
    for x, y, text in ((-105, -18, "mean − mean"), (-56, -72, "width\n− width"), (-112, -90, "distance")):
        ax.text(x, y, text, fontsize=8.5, color=WAY if text == "distance" else INK, va="center",
                ha="left" if x == -56 else "right" if text == "distance" else "center")
    ax.set(xlim=(-2 * d - 26, keys * tiles + 2), ylim=(rows + d + 12, -2 * d - 10), aspect="equal")
    ax.axis("off")
    figures.show(fig, alt=f"A row of {tiles} tiles of {rows} by {keys} scores: {now} done, number {now} on "
                          f"the chip, the rest to come. At their left the q tile, {rows} rows of {d} means "
                          f"and {d} widths, which stays. Above each, a k tile of {keys} keys, as long as q's "
                          f"rows; below, a v tile, {d} numbers for each key. Under q the output, {rows} by "
                          f"{d}. In the corner a right triangle: the legs are the differences of a mean and "
                          "of a width, the long side is the distance, whose square is added up.",
                 caption="Chapter 6's walk with a distance in the corner. The queries stay; tiles of keys, "
                         "twice as long as values, replace each other. Only the orange scores exist, on the "
                         "chip.")


def ratio_by_rate(panels, low=1e-3):
    """panels {title: {arm: [(rate, values), ...]}}: for each task, and width where arms have one, the loss of
    W2 over that of softmax at each rate that both had, and at the best rate of each, where the overlap's
    stands too. Areas are taken from 1."""
    fig, ax = figures.new(7.2, 3.9)
    looks = (("o", GREY, "white", "W2, another rate"), ("^", COLOURS[2], "white", "overlap, best rates"),
             ("D", CLOUD, CLOUD, "W2, best rates"), ("s", WAY, WAY, f"W2, both at {low:g}"))
    rows, told = [], []
    for title, arms in panels.items():
        for arm in (arm for arm in arms if _mechanism_and_width(arm)[0] == "softmax"):
            softmax, w2, overlap = (_losses(arms.get(arm.replace("softmax", name), []), "hierarchy" in title)
                                    for name in ("softmax", "w2", "overlap"))
            width = _mechanism_and_width(arm)[1]
            rows.append(title + f", width {width}" * bool(width))
            ratios = {rate: w2[rate] / softmax[rate] for rate in sorted(softmax) if rate in w2}
            best, third = ([min(x.values()) / min(softmax.values())] if x else [] for x in (w2, overlap))
            for n, xs in enumerate(([x for rate, x in ratios.items() if rate != low], third, best,
                                    [x for rate, x in ratios.items() if rate == low])):
                marker, colour, face, text = looks[n]
                ax.plot(xs, [len(rows) - 1] * len(xs), marker, color=colour, markerfacecolor=face,
                        ms=7 if n else 5, label=text if len(rows) == 1 else None)
            told.append(f"{rows[-1]}: " + ", ".join(f"{rate:g} {x:.2g}" for rate, x in ratios.items())
                        + "".join(f", best of each {x:.2g}" for x in best)
                        + "".join(f", overlap at its best {x:.2g}" for x in third) + ".")
    ax.axvline(1, color=INK, lw=1)
    ax.set(xscale="log", yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.5, -0.5),
           xlabel="loss / loss of softmax (left of 1: ahead of softmax)")
    ax.margins(x=0.05)
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    figures.plain_ticks(ax.xaxis)
    fig.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
    figures.show(fig, alt="Loss of W2 divided by that of softmax, by learning rate. " + " ".join(told),
                 caption="Losses as multiples of softmax's, with seed 0; for the hierarchies the loss is "
                         "1 − area. Best rates: each arm at its own.")


def separated(tests):
    """tests {title: (difference, half of one interval, half of the corrected one)}: is 0 inside?"""
    fig, ax = figures.new(6.4, 0.5 * len(tests) + 0.9)
    told = []
    for y, (title, (gap, half, wider)) in enumerate(tests.items()):
        at = gap / wider
        ax.plot([at - 1, at + 1], [y, y], color=WAY, lw=1.5)
        ax.plot([at - half / wider, at + half / wider], [y, y], color=WAY, lw=5)
        ax.plot(at, y, "s", color=WAY, ms=8)
        told.append(f"{title}: {at:+.1f}, {'apart from 0' if abs(at) > 1 else 'open'}")
    ax.axvline(0, color=INK, lw=1)
    ax.set(yticks=range(len(tests)), yticklabels=tests, ylim=(len(tests) - 0.5, -0.5),
           xlabel="W2 minus softmax; 1 is half the corrected interval")
    figures.show(fig, alt="Differences of W2 and softmax in halves of their corrected intervals. "
                          + "; ".join(told) + ".",
                 caption="Thick: the interval of one test. Thin: corrected for five. An interval that "
                         "contains 0 leaves the question open. (Of a loss, left is better; of an accuracy or "
                         "area, right.)")


def _losses(by_rate, from_one):
    """{rate: mean}; of areas, what they lack to 1."""
    kept = {rate: [x for x in values if x is not None] for rate, values in by_rate}
    return {rate: abs(from_one - sum(values) / len(values)) for rate, values in kept.items() if values}


def _mechanism_and_width(arm):
    """"softmax 96" -> ("softmax", 96); 0 where an arm has no width in its name."""
    mechanism, _, rest = arm.replace(",", "").partition(" ")
    return mechanism, int(rest) if rest.isdigit() else 0
