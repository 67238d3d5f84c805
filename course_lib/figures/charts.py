"""Bars and curves."""
import numpy as np

from course_lib.figures.frame import (COLOURS, DASHES, HATCHES, INK, MARKERS, array, new, number, plain_ticks,
                                      show)


def bars(values: dict, *, caption: str, alt: str | None = None, unit: str = "", ceiling: float | None = None,
         ceiling_label: str = "limit", xlabel: str = "", log: bool = False) -> None:
    """Horizontal bars (dots on a log scale) with their numbers; a dashed line for the ceiling or floor.

    values {"name": number}, or {"name": {"part": number, ...}} for groups of bars, one hatch per part.

        figures.bars({"naive": 8, "tiled": 1}, unit="MB", ceiling=0.5, ceiling_label="least", caption="...")
    """
    # over the guide: one picture, drawn from top to bottom
    groups = {str(n): v if isinstance(v, dict) else {"": v} for n, v in values.items()}
    parts = list(dict.fromkeys(part for group in groups.values() for part in group))
    thick = 0.8 / len(parts)
    fig, ax = new(6.4, 0.8 + (0.34 * len(parts) + 0.12) * len(groups) + (0.3 if ceiling is not None else 0))
    for k, part in enumerate(parts):
        places = [(i + (k - (len(parts) - 1) / 2) * thick, group[part])
                  for i, group in enumerate(groups.values()) if part in group]
        if log:                             # the length of a bar would mean nothing
            ys, xs = zip(*places)
            ax.plot(xs, ys, MARKERS[k % 8], color=COLOURS[k % 8], markersize=7, label=part)
        else:
            ax.barh(*zip(*places), thick * 0.92, color=COLOURS[k % 8], hatch=HATCHES[k % 8],
                    edgecolor="white", linewidth=0, label=part)
        for y, value in places:
            # a long unit is said once, at the axis
            ax.annotate(f"{number(value)} {unit if len(unit) < 4 else ''}".strip(), (value, y),
                        xytext=(8 if log else 4, 0), textcoords="offset points", va="center", fontsize=8.5,
                        color=INK)
    ax.set_yticks(range(len(groups)), groups)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    if log:
        ax.set_xscale("log")
        ax.set_ylim(len(groups) - 0.5, -0.5)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    largest = max([v for g in groups.values() for v in g.values()]
                  + ([ceiling] if ceiling is not None else []))
    smallest = min([v for g in groups.values() for v in g.values()] + [0])
    ax.set_xlim(right=largest * (3 if log else 1.18))
    if smallest < 0:
        ax.axvline(0, color=INK, linewidth=0.8)
    if ceiling is not None:
        _ceiling(ax, ceiling, f"{ceiling_label}: {number(ceiling)} {unit}".strip(), ceiling > 0.6 * largest)
    ax.set_xlabel(xlabel or unit, color=INK)
    plain_ticks(ax.xaxis)
    if parts != [""]:
        ax.legend(fontsize=8, frameon=False, loc="best")
    if alt is None:
        told = [f"{name}: " + ", ".join(f"{part} {number(v)} {unit}".strip() for part, v in group.items())
                for name, group in groups.items()]
        line = ("" if ceiling is None
                else f" Dashed line, {ceiling_label}: {number(ceiling)} {unit}".rstrip() + ".")
        alt = f"{'Dots' if log else 'Bars'}. {'; '.join(told)}.{line}"
    show(fig, alt, caption)


def _ceiling(ax, value, text, text_left: bool) -> None:
    ax.axvline(value, color=INK, linestyle="--", linewidth=1.3)
    ax.annotate(text, (value, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="right" if text_left else "left", va="bottom", fontsize=8.5,
                color=INK)


def curves(series: dict, *, caption: str, alt: str | None = None, xlabel: str = "", ylabel: str = "", x=None,
           floor: float | None = None, floor_label: str = "floor", logx: bool = False, logy: bool = False,
           spread: dict | None = None, digits: int = 4, edge: float | None = None,
           edge_label: str = "", looks: dict | None = None) -> None:
    """Lines that differ in dash, marker and colour, named where they end or in a legend; a dashed floor.

    series {"name": ys} or {"name": (xs, ys)}; `x` is shared where only ys are given; `spread`
    {"name": (low, high)} shades a band; `edge` is an x where something ends. The words quote both ends and
    the extremes between, with `digits` significant digits: 1 for numbers from training, of which no two
    machines agree on more. `looks` {"name": number of a look}: for a name that several figures share.

        figures.curves({"model": losses}, floor=1.2, floor_label="entropy", xlabel="step", caption="...")"""
    # over the guide: one picture, drawn from top to bottom
    fig, ax = new(6.4, 3.6)
    told = []
    for k, (name, line) in enumerate(series.items()):
        k = (looks or {}).get(name, k)
        if isinstance(line, tuple):
            xs, ys = map(array, line)
        else:
            ys = array(line)
            xs = np.arange(len(ys)) if x is None else array(x)
        ax.plot(xs, ys, linestyle=DASHES[k % 8], marker=MARKERS[k % 8], markersize=4,
                markevery=max(1, len(xs) // 10), color=COLOURS[k % 8], linewidth=1.6, label=name)
        if spread and name in spread:
            ax.fill_between(xs, *map(array, spread[name]), color=COLOURS[k % 8], alpha=0.18, linewidth=0)
        told.append(f"{name}: {_told(xs, ys, digits)}")
    if logx:
        ax.set_xscale("log", base=2 if _powers_of_two(series, x) else 10)
    if logy:
        ax.set_yscale("log")
    if floor is not None:
        _floor(ax, floor, f"{floor_label}: {number(floor)}")
    if edge is not None:
        _edge(ax, edge, edge_label)
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    plain_ticks(ax.xaxis, ax.yaxis)
    ax.grid(color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    if len(series) > 1:
        _name_lines(fig, ax)
    if alt is None:
        alt = f"Curves of {ylabel or 'y'} against {xlabel or 'x'}. {'; '.join(told)}." + (
            f" Dashed line, {floor_label}: {number(floor)}." if floor is not None else "")
    show(fig, alt, caption)


def _name_lines(fig, ax) -> None:
    """The name of each line at its end; a legend where ends are too near each other, outside for many."""
    lines = [line for line in ax.lines if not line.get_label().startswith("_")]
    ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in lines]
    places = np.sort(ax.transAxes.inverted().transform(ax.transData.transform(ends))[:, 1])
    if len({x for x, _ in ends}) == 1 and np.diff(places).min() > 0.06:
        for line, end in zip(lines, ends):
            ax.annotate(line.get_label(), end, xytext=(8, 0), textcoords="offset points", va="center",
                        fontsize=8.5, color=INK)
    elif len(lines) > 4:
        fig.legend(fontsize=8, frameon=False, handlelength=4, loc="outside right center")
    else:
        ax.legend(fontsize=8, frameon=False, handlelength=4)


def _told(xs, ys, digits: int) -> str:
    """Both ends of a line, and its lowest and highest point where they are elsewhere."""
    rounded = [number(y) if digits == 4 else f"{float(f'{y:.{digits}g}'):.4g}" for y in ys]
    said = ["almost 0" if 0 < abs(y) < 1e-9 else text for y, text in zip(ys, rounded)]
    told = f"from {said[0]} at {number(xs[0])} to {said[-1]} at {number(xs[-1])}"
    for word, n in (("lowest", int(ys.argmin())), ("highest", int(ys.argmax()))):
        if said[n] not in (said[0], said[-1]):
            told += f", {word} {said[n]} at {number(xs[n])}"
    return told


def _floor(ax, value, text) -> None:
    ax.axhline(value, color=INK, linestyle=(0, (6, 3)), linewidth=1.2)
    ax.annotate(text, (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
                textcoords="offset points", fontsize=8.5, color=INK)


def _edge(ax, place, text) -> None:
    ax.axvline(place, color=INK, linestyle=":", linewidth=1.2)
    ax.annotate(text, (place, 1), xycoords=("data", "axes fraction"), xytext=(3, 3),
                textcoords="offset points", fontsize=8.5, color=INK)


def _powers_of_two(series, x) -> bool:
    first = next(iter(series.values()))
    xs = array(first[0] if isinstance(first, tuple) else (x if x is not None else np.arange(len(first))))
    return bool(len(xs) and (xs > 0).all() and (np.log2(xs) % 1 == 0).all())
