"""The figures of chapter 12. Each function draws one and shows it; its text alternative is made from what it
draws."""
from course_lib import figures
from course_lib.asynchrony.pipeline import schedule
from course_lib.figures import COLOURS, INK

ACCENT, GREY, PALE, PRODUCT, SOFTMAX = COLOURS[5], "#666666", "#f4f4f4", "#d6e6f4", "#fbe6c4"


def roles():
    """Who does what in a kernel with a producer warp."""
    producer, engine, stages = "producer\none thread", "copy engine\n(TMA)", "stages\nin shared memory"
    consumers = "consumers\nthe other warps"
    figures.boxes(
        {producer: (0, 0), engine: (1.5, 0), stages: (3, 0), consumers: (3, 1.4), "full": (1.5, 0.95),
         "empty": (1.5, 1.85)},
        [(producer, engine, "orders"), (engine, stages, "writes"), (engine, "full", "bytes"),
         ("full", consumers, "may read"), (consumers, stages, "read"), (consumers, "empty", "arrive"),
         ("empty", producer, "may order")], width=7.8, height=4.0,
        caption="Two barriers per stage. A phase of full ends with the last of the bytes that the producer announced, "
                "a phase of empty when every consumer has arrived.")


def parity(ends=(1, 4, 5.5, 9)):
    """The phases of one mbarrier, and when a wait for either parity blocks."""
    fig, ax = figures.new(7.6, 2.5)
    phases = list(enumerate(zip((0, *ends), ends)))
    for n, (begin, end) in phases:
        figures.box(ax, begin, 0, end - begin, 0.7, (PALE, SOFTMAX)[n % 2], f"phase {n}\nparity {n % 2}", size=7.5)
        for asked in (0, 1):
            look = (ACCENT, "blocks", "white") if n % 2 == asked else ("white", "returns", INK)
            figures.box(ax, begin, 1 + 0.65 * asked, end - begin, 0.45, *look[:2], size=7.5, ink=look[2])
    for y, name in ((0.35, "in progress"), (1.22, "wait(bar, 0)"), (1.87, "wait(bar, 1)")):
        ax.text(-0.15, y, name, ha="right", va="center", fontsize=8.5, color=INK)
    ax.text(0, 2.45, "time →", fontsize=8.5, color=GREY)
    figures.plain(ax, xlim=(-1.9, ends[-1] + 0.1), ylim=(2.6, -0.1))
    told = "; ".join(f"phase {n}, parity {n % 2}, from {begin:g} to {end:g}" for n, (begin, end) in phases)
    figures.show(fig, alt=f"An mbarrier in {len(ends)} phases: {told}. A wait for a parity blocks in the phases of "
                          "that parity and returns at once in the others.",
                 caption="A wait for a parity blocks while a phase of that parity is in progress. In phase 0 a "
                         "wait for parity 1 returns at once, as if a phase before it were over.")


def schedules(tiles=3, product=1, softmax=2):
    """Products and softmax of a few tiles in three schedules. There is one set of tensor cores."""
    fig, ax = figures.new(8.2, 3.6)
    rows = {}
    for way, overlapped in (("one after another", False), ("overlapped in a warpgroup", True)):
        parts = schedule(tiles, product, softmax, overlapped=overlapped)
        rows[f"{way}: products"] = [part for part in parts if part.kind != "softmax"]
        rows["softmax" if not overlapped else "its softmax"] = [part for part in parts if part.kind == "softmax"]
    parts = schedule(tiles, product, softmax, groups=2)
    for group in (0, 1):
        rows[f"ping-pong: warpgroup {group + 1}"] = [part for part in parts if part.group == group]
    short = {"scores": "k", "softmax": "s", "values": "v"}
    for y, (name, parts) in enumerate(rows.items()):
        ax.text(-0.2, y + 0.36, name, ha="right", va="center", fontsize=8.5, color=INK)
        for part in parts:
            long, colour = (softmax, SOFTMAX) if part.kind == "softmax" else (product, PRODUCT)
            figures.box(ax, part.begin, y, long, 0.72, colour, f"{short[part.kind]}{part.tile}")
    ax.set(xlim=(-4.4, parts[-1].begin + product + 0.3), ylim=(len(rows) + 0.3, -0.1))
    ax.text(0, len(rows) + 0.2, "steps →", fontsize=8.5, color=GREY)
    ax.axis("off")
    told = ". ".join(f"{name}: " + ", ".join(f"{short[part.kind]}{part.tile} at {part.begin}" for part in parts)
                     for name, parts in rows.items())
    figures.show(fig, alt=f"Schedules of products, k and v, and softmax, s, of {product} and {softmax} steps. {told}.",
                 caption="k1: the scores of tile 1. s1: their softmax. v1: the weights of tile 1 times its values. Overlapped, "
                         "a softmax has the product with the values beside it; in ping-pong, the products of the other "
                         "warpgroup. A drawing of the idea, in steps.")
