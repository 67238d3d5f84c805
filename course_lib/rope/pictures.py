"""The figures of chapter 2. Each function draws and shows one, its text alternative made from the data."""
import math

import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK
from course_lib.rope.rotation import rope_frequencies

ACCENT, GREY = COLOURS[5], "#999999"
# One look per way of reading a longer text, in every figure of the chapter.
LOOKS = {"a longer table": 7, "last row repeated": 4, "linear": 0, "NTK-aware": 1, "YaRN": 2, "Llama 3.1": 5,
         "Llama 3.1, window of 256": 3, "window of 256": 6}


def clock_hands(theta=math.pi / 5, distance=2, starts=(0, 3)):
    """A key and a later query as arrows, at one place of the text and further on."""
    fig, panels = figures.new(7.0, 2.6, columns=len(starts))
    told = []
    for ax, start in zip(panels, starts):
        turn = torch.linspace(0, 2 * math.pi, 100)
        ax.plot(turn.cos(), turn.sin(), color="#cccccc", lw=1)
        for name, position, colour in (("key", start, INK), ("query", start + distance, ACCENT)):
            x, y = math.cos(position * theta), math.sin(position * theta)
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "lw": 2, "color": colour})
            side = "left" if x > 0.5 else "right" if x < -0.5 else "center"
            ax.text(1.12 * x, 1.2 * y, f"{name} at {position}", ha=side, va="center", color=colour)
        arc = torch.linspace(start * theta, (start + distance) * theta, 30)
        ax.plot(0.42 * arc.cos(), 0.42 * arc.sin(), color=INK, lw=1)
        middle, degrees = (start + distance / 2) * theta, math.degrees(distance * theta)
        ax.text(0.66 * math.cos(middle), 0.66 * math.sin(middle), f"{degrees:.0f}°", ha="center", va="center")
        figures.plain(ax, xlim=(-2.2, 2.2), ylim=(-1.3, 1.3), aspect="equal")
        told.append(f"key at {start}, turned by {math.degrees(start * theta):.0f} degrees, query at "
                    f"{start + distance}, turned by {math.degrees((start + distance) * theta):.0f}; "
                    f"{degrees:.0f} degrees between them")
    figures.show(fig,
                 alt="Two clock faces. "
                 + ". ".join(f"{side}: {text}" for side, text in zip(("Left", "Right"), told)) + ".",
                 caption="Further on in the text both arrows have turned more; the angle between them is "
                 "the same.")


def angles_image(n=256, head_dim=64, base=10000.0):
    """cos(position * frequency) for every pair and position, as an image."""
    frequencies = rope_frequencies(head_dim, base)
    waves = torch.cos(torch.arange(n)[:, None] * frequencies).T
    fig, ax = figures.new(7.0, 2.8)
    image = ax.imshow(waves, cmap="Blues_r", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    turns = n * frequencies / (2 * math.pi)
    last = int((turns >= 1).sum())
    ax.axhline(last - 0.5, color=INK, linestyle="--", linewidth=1)
    ax.text(n - 3, last - 0.9, f"above: at least one full turn in {n} positions",
            ha="right", va="bottom", fontsize=8.5, bbox=figures.paper())
    ax.set_xlabel("position", color=INK)
    ax.set_ylabel("pair", color=INK)
    fig.colorbar(image, ax=ax, shrink=0.9, pad=0.02, label="cosine of the angle")
    figures.show(fig, alt=f"Image of the cosines of {head_dim // 2} pairs at positions 0 to {n - 1}. Pair 0 "
                 f"makes {turns[0]:.0f} turns, pair {head_dim // 8} makes {turns[head_dim // 8]:.0f}, pairs "
                 f"from {last} on less than one; the last turns by {n * frequencies[-1]:.2f} radians.",
                 caption="Each row is a pair. Fast pairs tell neighbours apart, slow pairs tell distant "
                 "parts of a text apart.")


def rounded(x):
    """One decimal, and 0.0 without a sign."""
    return round(float(x), 1) + 0.0


def score_by_distance(distances, series):
    """{name: scores} over all distances."""
    figures.curves(series, x=distances.tolist(), xlabel="distance", ylabel="score / d",
                   alt="Scores by distance. "
                   + " ".join(f"{name}: {rounded(values[0])} at 0, {rounded(values[100])} at 100; from 100 "
                              f"on between {rounded(values[100:].min())} and {rounded(values[100:].max())}."
                              for name, values in series.items()),
                   caption="Equal arrows score less with distance; independent ones score 0 on average at "
                   "any distance.")


def two_layouts(d=8):
    """The entries of one head, and which of them form a pair, in the two layouts."""
    layouts = {"interleaved: (2i, 2i + 1)": [(2 * i, 2 * i + 1) for i in range(d // 2)],
               "split halves: (i, i + d/2)": [(i, i + d // 2) for i in range(d // 2)]}
    fig, panels = figures.new(7.4, 1.9, columns=2)
    for ax, (name, pairs) in zip(panels, layouts.items()):
        for i, pair in enumerate(pairs):
            for place in pair:
                ax.add_patch(figures.rectangle(place, 0, 1, 1, facecolor=COLOURS[i % 8], alpha=0.35,
                                               edgecolor=INK, linewidth=0.8))
                ax.text(place + 0.5, 0.5, f"{'ab'[pair.index(place)]}{i}",
                        ha="center", va="center", fontsize=10)
            first, second = (place + 0.5 for place in pair)
            arc = torch.linspace(0, math.pi, 30)
            ax.plot((first + second) / 2 + (second - first) / 2 * arc.cos(),
                    1.05 + 0.28 * (second - first) * arc.sin(), color=COLOURS[i % 8], lw=1.5)
        for place in range(d):
            ax.text(place + 0.5, -0.35, str(place), ha="center", va="center", fontsize=8, color=INK)
        figures.plain(ax, xlim=(-0.1, d + 0.1), ylim=(-0.7, 2.4), title=name)
    figures.show(fig, alt="Two rows of the entries of a head. "
                 + " ".join(f"{name}: pairs {', '.join(f'({a}, {b})' for a, b in pairs)}."
                            for name, pairs in layouts.items()), caption=f"A head of width {d}: (a0, b0) "
                 "turns fastest in both layouts, and is stored in different places.")


def slowdown(rules, frequencies, trained):
    """By what factor each rule slows each pair. rules {name: new frequencies}."""
    turns = trained * frequencies / (2 * math.pi)
    fig, ax = figures.new(6.6, 3.2)
    told = []
    for name, new in rules.items():
        k, factors = LOOKS[name], frequencies / new
        ax.plot(turns, factors, linestyle=figures.DASHES[k], marker=figures.MARKERS[k], markersize=4,
                color=COLOURS[k], label=name)
        kept = int((factors < 1.01).sum())
        told.append(f"{name}: {kept} of {len(new)} pairs unchanged, the fastest slowed {factors[0]:.1f} "
                    f"times, the slowest {factors[-1]:.1f} times")
    ax.axvline(1, color=GREY, linewidth=1)
    ax.text(0.9, 1.03, f"one turn in {trained} positions", fontsize=8, color=INK, va="bottom")
    ax.set_xscale("log")
    ax.invert_xaxis()
    ax.set_xlabel("turns of the pair in training (fast pairs at the left)", color=INK)
    ax.set_ylabel("slowed by", color=INK)
    ax.legend(fontsize=8, frameon=False, loc="center left")
    figures.show(fig, alt="; ".join(told) + ".", caption="The rules differ in which pairs they slow: all, "
                 "gradually more, or only those below a number of turns.")


def loss_by_position(study, names, caption):
    """The mean loss of data/rope_study.json by position, for some of its rows."""
    middle = range(study["width"] // 2, study["width"] * len(study["rules"][names[0]]), study["width"])
    quarter = len(middle) // 4
    told = [f"{name}: {sum(y[:quarter]) / quarter:.2f} within {study['trained_length']}, "
            f"{sum(y[-quarter:]) / quarter:.2f} at the end" for name in names for y in [study["rules"][name]]]
    figures.curves({name: study["rules"][name] for name in names}, x=list(middle),
                   xlabel="position", ylabel="loss, nats per character", edge=study["trained_length"],
                   edge_label=f"trained: {study['trained_length']}", looks=LOOKS,
                   alt="Loss by position. " + "; ".join(told) + ".", caption=caption)


def needle_found(needle, names):
    """In what share of texts a head finds the needle, by distance: the mean over the seeds."""
    curves = {name: torch.tensor(needle["rules"][name]).mean(0) for name in names}
    near = sum(distance < needle["trained_length"] for distance in needle["distances"])
    told = [f"{name}: {y[:near].mean():.2f} within the trained length, {y[near:].mean():.2f} beyond, "
            f"{y[-1]:.2f} at the end" for name, y in curves.items()]
    figures.curves(curves, x=needle["distances"], xlabel="distance to the needle", ylabel="share found",
                   edge=needle["trained_length"], edge_label=f"trained: {needle['trained_length']}",
                   looks=LOOKS, alt="Share of needles found. " + "; ".join(told) + ".",
                   caption=f"A head trained at {needle['trained_length']} tokens, tested in texts of "
                   f"{needle['length']}.")


def induction(words=("Tybalt", "dies", ",", "and", "Tybalt")):
    """Both slots of each word: layer 1 fills the second, layer 2 finds the last word in one of them."""
    fig, ax = figures.new(7.0, 2.5)
    last, before = words[-1], ("", *words[:-1])
    found = before.index(last)
    for i, (word, noted) in enumerate(zip(words, before)):
        for y, text, mine in ((0, word, i in (found, len(words) - 1)), (1.2, noted, i == found)):
            figures.box(ax, i - 0.4, y, 0.8, 0.5, "#f6dcc8" if mine and text else "white", text, size=10,
                        edge=ACCENT if mine else INK)
        if i:
            figures.arrow(ax, (i - 0.9, 0.55), (i - 0.1, 1.15), ACCENT if i == found else GREY)
    right = len(words) - 0.4
    ax.plot([right - 0.2, right, right, found], [0.25, 0.25, 2.1, 2.1], color=ACCENT, lw=1.5)
    figures.arrow(ax, (found, 2.1), (found, 1.75), ACCENT, 1.5)
    ax.text(right, 2.25, f"layer 2: who has {last} noted? Read its word, {words[found]}.",
            ha="right", va="top", fontsize=9.5, color=ACCENT)
    for y, text in ((0.25, "the word"), (0.85, "layer 1"), (1.45, "the word before")):
        ax.text(-0.55, y, text, ha="right", va="center", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-1.9, len(words) - 0.3), ylim=(2.6, -0.1))
    figures.show(fig, alt=f"The words {' '.join(words)}, each with two slots. Layer 1 copies each word into "
                          "the "
                 "second slot of the next: "
                 f"{', '.join(f'{a!r} to {b!r}' for b, a in zip(words, before) if a)}. Layer 2: the last "
                 f"word, {last}, finds itself in the second slot of {words[found]} and reads that word.",
                 caption=f"Layer 1 notes each word's predecessor. Layer 2 looks for {last} among the notes, "
                         f"finds it at {words[found]}, and returns {words[found]}.")
