"""The scaling rules beside each other: wavelength per pair against the trained length (chapter 2)."""
import math

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.rope import interpolate, llama3, ntk_aware, rope_frequencies, yarn

HEAD_DIM = 32
RULES = {"linear": lambda f, factor, trained, base: interpolate(f, factor),
         "NTK-aware": lambda f, factor, trained, base: ntk_aware(f, factor),
         "YaRN": lambda f, factor, trained, base: yarn(f, factor, trained, base),
         "Llama 3.1": lambda f, factor, trained, base: llama3(f, factor, trained)}
LEFT, TOP, WIDTH, HEIGHT, LEAST, MOST = 76, 40, 470, 230, 0.5, 7.5     # the axis is log10 of positions


def wavelengths(frequencies) -> list[float]:
    return (2 * math.pi / frequencies).tolist()


def place(pair: int, positions: float) -> tuple[float, float]:
    level = (math.log10(positions) - LEAST) / (MOST - LEAST)
    return LEFT + 14 + (WIDTH - 28) * pair / (HEAD_DIM // 2 - 1), TOP + HEIGHT * (1 - level)


class RopeScaling(Explorable):
    title = "Rules for longer texts"
    caption = ("Each rule slows the pairs for texts longer than those of the training. Pairs whose turn is "
               "longer than the trained text must slow, or they reach angles that training never showed; "
               "the fast ones, which spell words, should stay.")
    controls = (Choice("rule", tuple(RULES), "YaRN"), Slider("factor", (1, 2, 4, 8, 16, 32), 4, unit="times"),
                Slider("trained", (256, 1024, 2048, 4096, 8192), 256, "trained length", "positions"),
                Slider("base", (10_000, 500_000, 1_000_000), 10_000))
    page = {"rule": tuple(RULES), "factor": (4, 16), "trained": (256,), "base": (10_000,)}

    def draw(self, rule, factor, trained, base):
        before = rope_frequencies(HEAD_DIM, base)
        turns = {name: wavelengths(scaled(before, factor, trained, base)) for name, scaled in RULES.items()}
        plain, slower = wavelengths(before), (before / RULES[rule](before, factor, trained, base)).tolist()
        canvas = Canvas(700, 322)
        draw_axis(canvas, trained, factor)
        for name in sorted(RULES, key=rule.__eq__):
            draw_rule(canvas, name, turns[name], name == rule)
        canvas.curve([place(*point) for point in enumerate(plain)], stroke="ink", dash="4 3")
        draw_side(canvas, rule, slower)
        kept = sum(abs(x - 1) < 1e-9 for x in slower)
        whole = sum(abs(x - factor) < 1e-9 for x in slower) if factor > 1 else 0
        longer = sum(turn > trained for turn in plain)
        pairs = ", ".join(f"{turn:,.0f}" for turn in turns[rule])
        return canvas, (f"{rule}, factor {factor}, trained on {trained:,} positions, base {base:,}: of the "
                        f"{len(plain)} pairs {kept} turn as before, {whole} turn {factor} times slower, and "
                        f"{len(plain) - kept - whole} are in between. Before, {longer} pairs did not "
                        f"complete a turn within the trained length. Positions per turn from pair 0 on: "
                        f"{pairs}; pair by pair slower by {', '.join(f'{x:.2f}' for x in slower)}.")


def draw_axis(canvas: Canvas, trained: int, factor: int) -> None:
    """Positions per turn upwards, in powers of ten; the trained length and the longer one as lines."""
    canvas.text(LEFT, 22, "positions per turn", bold=True)
    for power in range(1, 8):
        y = place(0, 10**power)[1]
        canvas.line(LEFT, y, LEFT + WIDTH, y, stroke="soft")
        canvas.text(LEFT - 8, y + 4, f"{10**power:,}", size=10, anchor="end", fill="faint")
    ends = [(trained, "trained", 13), (factor * trained, "wanted", -5)]
    for length, label, below in ends[:1 + (factor > 1)]:
        y = place(0, length)[1]
        canvas.line(LEFT, y, LEFT + WIDTH, y, stroke="faint", dash="2 3")
        canvas.text(LEFT + 4, y + below, f"{label} {length:,}", size=11, fill="faint")
    for pair in range(0, HEAD_DIM // 2, 5):
        canvas.text(place(pair, 10)[0], TOP + HEIGHT + 18, pair, size=11, anchor="middle", fill="faint")
    canvas.text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, anchor="middle",
                text="pair, fastest first. Dashed: before. Grey: the other rules.")


def draw_rule(canvas: Canvas, name: str, turns: list[float], chosen: bool) -> None:
    points = [place(*point) for point in enumerate(turns)]
    canvas.curve(points, stroke="accent" if chosen else "line", thick=3 if chosen else 1.5)
    if chosen:
        for pair, (x, y) in enumerate(points):
            canvas.circle(x, y, 4, fill="accent", about=f"pair {pair}: {turns[pair]:,.0f} positions per turn")


def draw_side(canvas: Canvas, rule: str, slower: list[float]) -> None:
    """Every pair's slowdown by the chosen rule, as a bar with its number."""
    canvas.text(LEFT + WIDTH + 24, 22, f"slower by ({rule})", bold=True)
    for pair, times in enumerate(slower):
        y = TOP + 15.4 * pair
        canvas.text(LEFT + WIDTH + 44, y + 10, pair, size=10, anchor="end", fill="faint")
        canvas.rect(LEFT + WIDTH + 50, y, 60 * times / max(slower), 12, fill="accent")
        canvas.text(LEFT + WIDTH + 54, y + 10, f"{times:.2f}", size=10)
