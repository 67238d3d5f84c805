"""The figures of chapter 12. Each function draws one and shows it; its text alternative is made from what it draws."""
from course_lib import figures
from course_lib.figures import COLOURS, INK

ACCENT, GREY, PALE = COLOURS[5], "#666666", "#f4f4f4"
COPY, PRODUCT, SOFTMAX = "#cfeade", "#d6e6f4", "#fbe6c4"


def roles():
    """Who does what in a kernel with a producer warp."""
    figures.boxes(
        {"producer\none thread": (0, 0), "copy engine\n(TMA)": (1.5, 0), "stages\nin shared memory": (3, 0),
         "consumers\na warpgroup": (3, 1), "full": (1.5, 1), "empty": (0, 1)},
        [("producer\none thread", "copy engine\n(TMA)", "orders"), ("copy engine\n(TMA)", "stages\nin shared memory", "writes"),
         ("copy engine\n(TMA)", "full", "bytes"), ("full", "consumers\na warpgroup", "may read"),
         ("consumers\na warpgroup", "stages\nin shared memory", "read"), ("empty", "producer\none thread", "may order")],
        width=7.8, height=2.9,
        caption="Two barriers per stage. The copy engine ends a phase of full; the consumers end a phase of empty, by arriving.")


def parity(phases=4, arrivals=(1, 4, 5.5, 9)):
    """The phases of one mbarrier: when each ends, and when the waits for either parity return."""
    fig, ax = figures.new(7.6, 2.5)
    begins, told = (0, *arrivals[:-1]), []
    for n, (begin, end) in enumerate(zip(begins, arrivals)):
        figures.box(ax, begin, 0, end - begin, 0.7, (PALE, SOFTMAX)[n % 2], f"phase {n}\nparity {n % 2}", size=7.5)
        told.append(f"phase {n}, parity {n % 2}, from {begin:g} to {end:g}")
    for row, asked in enumerate((0, 1)):
        for n, (begin, end) in enumerate(zip(begins, arrivals)):
            waits = n % 2 == asked
            figures.box(ax, begin, 1 + 0.65 * row, end - begin, 0.45, ACCENT if waits else "white", "blocks" if waits else "returns",
                        size=7.5, ink="white" if waits else INK)
        ax.text(-0.15, 1.22 + 0.65 * row, f"wait(bar, {asked})", ha="right", va="center", fontsize=8.5, family="monospace", color=INK)
    ax.text(-0.15, 0.35, "in progress", ha="right", va="center", fontsize=8.5, color=INK)
    ax.text(0, 2.45, "time →", fontsize=8.5, color=GREY)
    ax.set(xlim=(-1.9, arrivals[-1] + 0.1), ylim=(2.6, -0.1))
    ax.axis("off")
    figures.show(fig, alt=f"An mbarrier in {phases} phases: {'; '.join(told)}. A wait for parity 0 blocks during phases of parity 0 and "
                          "returns at once during those of parity 1; a wait for parity 1 the other way round.",
                 caption="A wait for a parity blocks while a phase of that parity is in progress. In phase 0 a wait for parity 1 returns "
                         "at once: the phase before counts as over.")


def schedules(tiles=3, product=2, softmax=2):
    """Products and softmax of a few tiles in three schedules. Products of all groups share the tensor cores."""
    fig, ax = figures.new(8.2, 3.6)
    rows = _one_after_another(tiles, product, softmax) + _overlapped(tiles, product, softmax) + _in_turns(tiles, product, softmax)
    told = []
    for y, (name, parts) in enumerate(rows):
        ax.text(-0.2, y + 0.36, name, ha="right", va="center", fontsize=8.5, color=INK)
        for text, begin, long in parts:
            figures.box(ax, begin, y, long, 0.72, PRODUCT if text[0] == "p" else SOFTMAX, text)
        told.append(f"{name}: " + ", ".join(f"{text} from {begin:g} to {begin + long:g}" for text, begin, long in parts))
    ends = max(begin + long for _, parts in rows for _, begin, long in parts)
    ax.set(xlim=(-4.2, ends + 0.3), ylim=(len(rows) + 0.3, -0.1))
    ax.text(0, len(rows) + 0.2, "steps →", fontsize=8.5, color=GREY)
    ax.axis("off")
    figures.show(fig, alt=f"Schedules of products (p) and softmax (s) by tile. {'. '.join(told)}.",
                 caption="p: the products of a tile, s: its softmax. Overlapped or in turns, the tensor cores work in nearly every step. "
                         "A drawing of the idea, not a measurement.")


def _one_after_another(tiles, product, softmax):
    both = product + softmax
    return [("one after another: products", [(f"p{n}", both * n, product) for n in range(tiles)]),
            ("softmax", [(f"s{n}", both * n + product, softmax) for n in range(tiles)])]


def _overlapped(tiles, product, softmax):
    step = max(product, softmax)
    return [("overlapped in a warpgroup: products", [(f"p{n}", step * n, product) for n in range(tiles)]),
            ("softmax", [(f"s{n}", step * n + product, softmax) for n in range(tiles)])]


def _in_turns(tiles, product, softmax):
    both = product + softmax
    return [(f"ping-pong: warpgroup {g + 1}", [part for n in range(tiles) for part in (
        (f"p{n}", both * n + product * g, product), (f"s{n}", both * n + product * (g + 1), softmax))]) for g in range(2)]
