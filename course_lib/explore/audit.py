"""Loss against learning rate in the audit, each arm's rate chosen by hand (chapter 9)."""
import json
import math
from functools import cache

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.files import ROOT

BOX = (60, 34, 400, 220)
TASKS = {"copying": "fair", "MQAR": "mqar", "noisy keys": "noisy", "hierarchy": "hierarchy"}
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
ARMS = {"softmax": "0", "w2": "5", "overlap": "2"}
NAMES = {"softmax": "softmax", "w2": "W2", "overlap": "overlap"}


@cache
def runs() -> list[dict]:
    text = (ROOT / "data" / "w2_audit.json").read_text(encoding="utf-8")
    return list(json.loads(text)["runs"].values())


def losses(task: str, arm: str, stage: str) -> dict[float, list[float]]:
    """rate -> the losses of its seeds, in one stage of a task; runs that diverged have none."""
    found = {}
    for run in runs():
        s = run["settings"]
        if (s["task"], s["arm"], s["stage"]) == (TASKS[task], arm, stage) and run["loss"] is not None:
            found.setdefault(s["rate"], []).append(run["loss"])
    return dict(sorted(found.items()))


def swept(task: str) -> dict[str, dict[float, float]]:
    """arm -> rate -> loss of the sweep's one seed, for the arms that the task has."""
    curves = {arm: {rate: mean(seeds) for rate, seeds in losses(task, arm, "sweep").items()} for arm in ARMS}
    return {arm: curve for arm, curve in curves.items() if curve}


class Audit(Explorable):
    title = "A headline chosen by its learning rates"
    caption = ("Each point is one run of the sweep, seed 0. Two rings mark the runs that are compared; "
               "the dotted lines are the best of each arm. Below, the five fresh seeds at each arm's best "
               "rate.")
    controls = (Choice("task", tuple(TASKS)), Slider("softmax", RATES, 0.001, "rate of softmax"),
                Slider("w2", RATES, 0.01, "rate of W2"))
    page = {"task": ("copying", "MQAR"), "softmax": (0.001, 0.003, 0.01), "w2": (0.001, 0.003, 0.01)}

    def ranges(self, task, **_):
        return {arm: list(swept(task)[arm]) for arm in ("softmax", "w2")}

    def draw(self, task, softmax, w2):
        curves, chosen = swept(task), {"softmax": softmax, "w2": w2}
        canvas, best = Canvas(700, 300), {arm: min(curve.values()) for arm, curve in curves.items()}
        place = log_axes(canvas, curves)
        for arm in sorted(curves, key=chosen.__contains__):     # the rings last, so that no point covers them
            draw_curve(canvas, place, arm, curves[arm], best[arm], chosen.get(arm))
        for n, arm in enumerate(curves):
            canvas.circle(495, 44 + 20 * n, 5, fill=ARMS[arm])
            canvas.text(506, 48 + 20 * n, f"{NAMES[arm]}, best {best[arm]:.4f}")
        a, b = (curves[arm][rate] for arm, rate in chosen.items())
        canvas.text(488, 140, f"softmax at {chosen['softmax']:g}: {a:.4f}")
        canvas.text(488, 160, f"W2 at {chosen['w2']:g}: {b:.4f}")
        canvas.text(488, 184, f"W2 minus softmax: {b - a:+.4f}", bold=True)
        canvas.text(488, 204, f"best minus best: {best['w2'] - best['softmax']:+.4f}", fill="faint")
        fresh = [f"{NAMES[arm]} at {rate:g}: {min(seeds):.4f} to {max(seeds):.4f}"
                 for arm in curves for rate, seeds in losses(task, arm, "final").items()]
        canvas.text(488, 230, "five fresh seeds, at the best rate", size=11, fill="faint")
        for n, line in enumerate(fresh):
            canvas.text(488, 247 + 17 * n, line, size=11)
        sweep = "; ".join(f"{NAMES[arm]} " + ", ".join(f"{rate:g} {loss:.4f}" for rate, loss in curve.items())
                          for arm, curve in curves.items())
        return canvas, (f"{task}, loss in nats by learning rate: {sweep}. Compared: softmax at "
                        f"{chosen['softmax']:g}, {a:.4f}, and W2 at {chosen['w2']:g}, {b:.4f}: the "
                        f"difference is {b - a:+.4f}; between the best of each it is "
                        f"{best['w2'] - best['softmax']:+.4f}. Five fresh seeds, {'; '.join(fresh)}.")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def log_axes(canvas: Canvas, curves: dict):
    """Axes of powers of ten; the function from (rate, loss) to a place."""
    rates = [math.log10(rate) for curve in curves.values() for rate in curve]
    sizes = [math.log10(loss) for curve in curves.values() for loss in curve.values()]
    xs = min(rates), max(rates)
    ys = math.floor(min(sizes)), math.ceil(max(sizes))
    left, top, width, height = BOX

    def place(rate, loss):
        return (left + width * (math.log10(rate) - xs[0]) / (xs[1] - xs[0]),
                top + height * (ys[1] - math.log10(loss)) / (ys[1] - ys[0]))

    for rate in sorted({rate for curve in curves.values() for rate in curve}):
        x = place(rate, 1)[0]
        canvas.text(x, top + height + 15, f"{rate:g}", size=11, anchor="middle", fill="faint")
    for power in range(ys[0], ys[1] + 1):
        y = place(10**xs[0], 10**power)[1]
        canvas.line(left, y, left + width, y, stroke="soft")
        canvas.text(left - 6, y + 4, f"{10**power:g}", size=11, anchor="end", fill="faint")
    canvas.text(left + width / 2, top + height + 33, "learning rate", anchor="middle")
    canvas.text(left - 40, top - 14, "loss, nats")
    return place


def draw_curve(canvas: Canvas, place, arm: str, curve: dict, best: float, chosen: float | None) -> None:
    """The runs of one arm, each a button where its rate can be chosen."""
    places = [place(rate, loss) for rate, loss in curve.items()]
    canvas.curve(places, stroke=ARMS[arm], thick=2)
    y = place(1, best)[1]
    canvas.line(BOX[0], y, BOX[0] + BOX[2], y, stroke=ARMS[arm], dash="2 3")
    for (rate, loss), (x, y) in zip(curve.items(), places):
        control = {} if chosen is None else {"set": {arm: rate}}
        ring = rate == chosen
        canvas.circle(x, y, 8 if ring else 5, fill=ARMS[arm], thick=3 if ring else 1,
                      about=f"{NAMES[arm]} at {rate:g}: {loss:.4f}", **control)
