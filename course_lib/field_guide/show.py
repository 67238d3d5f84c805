"""What the notebook shows of a family, of an idea, and of all models: text and one picture."""
import inspect
import json
import textwrap

from course_lib import figures
from course_lib.field_guide.costs import (
    LENGTHS, bytes_per_token, in_flops, in_words, kept_bytes, read_bytes, step_flops)
from course_lib.field_guide.describe import describe, kind_of
from course_lib.field_guide.families import FAMILIES
from course_lib.field_guide.ideas import BRANCHES, IDEAS, ideas_of
from course_lib.field_guide.recorded import EVERY, STEPS, WHOLE, padding, recorded, run_layers, three_axes
from course_lib.field_guide.table import Table
from course_lib.figures.frame import legend
from course_lib.files import ROOT


def published_models() -> dict[str, dict]:
    """{name: entry} of data/models.json: configuration, date and source of each model."""
    entries = json.loads((ROOT / "data" / "models.json").read_text(encoding="utf-8"))["models"]
    return {entry["name"]: entry for entry in entries}


def equality_table() -> dict:
    """What `python -m course_lib field-guide --record` measured: library, and one row per family."""
    return json.loads((ROOT / "data" / "field_guide" / "equality.json").read_text(encoding="utf-8"))


def largest_difference(model_type: str) -> float:
    """Our layers against the recorded outputs of the published ones: whole texts and step by step, padded."""
    family, worst = recorded(model_type), 0.0
    layers = family.layers()
    for way, positions, present in (("padded", None, padding()), ("three axes", three_axes(), None)):
        for pieces in (WHOLE, STEPS) if way in family.outputs else ():
            ours = run_layers(layers, model_type, pieces, present, positions)
            for place, want in family.outputs[way].items():
                gap = (ours[place][..., ::EVERY] - want).abs()
                worst = max(worst, float((gap if present is None else gap * present[..., None]).max()))
    return worst


def show_family(model_type: str, *more) -> None:
    """The difference as it is written, and whether it equals the published layer. `more`: what it calls."""
    for function in (*more, FAMILIES[model_type].recipe):
        print(inspect.getsource(function).rstrip(), end="\n\n")
    library = recorded(model_type).library
    verdict = "equal" if largest_difference(model_type) < 1e-5 else "NOT equal"
    print(f"{model_type}: {verdict} to {library} within 1e-5, float32, with and without a cache\n")


def show_costs(*models: str, ideas: tuple = ()) -> Table:
    """One row per kind of layer, of one layer each; with `ideas`, only kinds that use one of them."""
    head = ["one layer of", "kind", "kept per token", *(f"cache at {name}" for name in LENGTHS),
            *(f"FLOPs at {name}" for name in LENGTHS)]
    rows = {}
    for model in models:
        for layer in describe(published_models()[model]["config"]).recipes:
            for recipe in layer:
                if not ideas or set(ideas) & set(ideas_of(recipe)):
                    rows[(model, *costs(recipe))] = None
    return Table("One layer, one sequence, 2 bytes per number, states 4; FLOPs per step", head,
                 [list(row) for row in rows])


def costs(recipe) -> list[str]:
    return [kind_of(recipe), in_words(bytes_per_token(recipe)),
            *(in_words(kept_bytes(recipe, tokens)) for tokens in LENGTHS.values()),
            *(in_flops(step_flops(recipe, tokens)) for tokens in LENGTHS.values())]


def models_by_idea(branch: str | None = None) -> str:
    """All models: date, layers, cache at 128k, what a step reads there, and a mark for each idea used."""
    ideas = [idea for idea in IDEAS if branch in (None, idea.branch)]
    far = LENGTHS["128k"]
    lines = [f"{chr(97 + n)}  {idea.name}" for n, idea in enumerate(ideas)]
    lines += ["", f"{'model':26s} {'date':7s} {'layers':>6s} {'cache':>9s} {'read':>9s}  "
              + "".join(chr(97 + n) for n in range(len(ideas)))]
    for name, entry in sorted(published_models().items(), key=lambda item: item[1]["date"]):
        about = describe(entry["config"])
        marks = "".join(chr(97 + n) if idea.name in about.ideas else "." for n, idea in enumerate(ideas))
        kept, read = (in_words(about.total(count, far)) for count in (kept_bytes, read_bytes))
        lines.append(f"{name:26s} {entry['date']:7s} {len(about.recipes):6d} {kept:>9s} {read:>9s}  {marks}")
    return "\n".join(lines)


def ideas_tree(branch: str | None = None, since: str = "", caption: str | None = None) -> None:
    """The ideas by question and date; of one branch (keep, see, place, weigh, state), or since a date."""
    if branch is not None and branch not in BRANCHES:
        raise ValueError(f"branch must be None or one of {', '.join(BRANCHES)}; got {branch!r}")
    chosen = [idea for idea in IDEAS if branch in (None, idea.branch) and idea.date >= since]
    if not chosen:
        raise ValueError(
            f"since must leave an idea; the newest is of {max(idea.date for idea in IDEAS)}, got {since!r}")
    rows = [name for name in BRANCHES if any(idea.branch == name for idea in chosen)]
    placed = [
        (idea, row, lane) for row in rows for idea, lane in in_lanes([i for i in chosen if i.branch == row])]
    heights = {row: 1.6 + max(lane for _, r, lane in placed if r == row) for row in rows}
    base = {row: sum(heights[r] for r in rows[:n]) for n, row in enumerate(rows)}
    spots = {idea.name: (in_years(idea.date), base[row] + lane + 0.8) for idea, row, lane in placed}
    fig, ax = figures.new(9.6, 0.6 + 0.19 * sum(heights.values()))
    bands = {row: "#F4F4F4" if number % 2 else "white" for number, row in enumerate(rows)}
    for row in rows:
        ax.axhspan(base[row], base[row] + heights[row], color=bands[row], zorder=0)
    for idea, row, lane in placed:
        x, y = spots[idea.name]
        if idea.grew_from in spots:
            ax.plot(*zip(spots[idea.grew_from], (x, y)), color="#BBBBBB", lw=0.8, zorder=1)
        ax.plot(x, y, "o", ms=4, color=figures.COLOURS[list(BRANCHES).index(row)], zorder=3)
        ax.annotate(idea.name, (x, y), (6, 0), textcoords="offset points", va="center", fontsize=8.5,
                    zorder=3, bbox=figures.paper() | {"facecolor": bands[row]})
    first = min(int(in_years(idea.date)) for idea in chosen)
    # A letter takes 0.8 % of the width: the years that the longest name needs at the right.
    years = max((in_years(idea.date) - first) / (0.97 - 0.008 * len(idea.name)) for idea in chosen)
    ax.set(ylim=(sum(heights.values()), 0), xlim=(first - 0.1, first + years),
           xticks=range(first, first + int(years) + 1))
    ax.set_yticks(
        [base[row] + heights[row] / 2 for row in rows], [textwrap.fill(BRANCHES[row], 14) for row in rows])
    figures.show(fig, alt=f"Ideas by question, with dates. {told_in_words(chosen)}",
                 caption=caption or "Each idea at the date of its source; a line leads to what it grew from.")


def layers_in_order(*models: str) -> None:
    """A strip per model, a cell per layer: what it keeps, by colour and letter, and the cache at 128k."""
    fig, ax = figures.new(8.2, 0.34 * len(models) + 1.0)
    known, told = {}, []
    for row, model in enumerate(models):
        about = describe(published_models()[model]["config"])
        kinds = [kind_of(recipe).split()[0].rstrip(",") for layer in about.recipes for recipe in layer]
        for n, kind in enumerate(kinds):
            look = known.setdefault(kind, len(known))
            ax.add_patch(figures.rectangle(n, row + 0.15, 1, 0.7,
                                           **figures.filling(look) | {"linewidth": 0.4}))
        kept = in_words(about.total(kept_bytes, LENGTHS["128k"]))
        ax.text(len(kinds) + 0.6, row + 0.5, kept, va="center", fontsize=8.5, color=figures.INK)
        told.append(f"{model}: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
                    + f", {kept}")
    ax.set(xlim=(0, 70), ylim=(len(models), 0), xlabel="layer", yticks=[n + 0.5 for n in range(len(models))],
           yticklabels=models)
    ax.tick_params(axis="y", length=0)
    legend(fig, known, below=True)
    figures.show(fig, alt="A strip of layers for each model. " + "; ".join(told) + ".",
                 caption="Who keeps what, layer by layer, and the cache of one text of 131,072 tokens.")


def told_in_words(chosen: list) -> str:
    told = []
    for branch, question in BRANCHES.items():
        names = [f"{idea.name} ({', from '.join(filter(None, (idea.date, idea.grew_from)))})"
                 for idea in chosen if idea.branch == branch]
        told += [f"{question} {', '.join(names)}."] if names else []
    return " ".join(told)


def in_years(date: str) -> float:
    year, _, month = date.partition("-")
    return int(year) + (int(month) - 1) / 12 if month else int(year) + 0.5


def in_lanes(ideas: list) -> list[tuple]:
    """Each idea with the first lane in which its name meets no other, and its line no other's dot."""
    ends, placed, spots = [], [], {}
    for idea in sorted(ideas, key=lambda idea: idea.date):
        start, width = in_years(idea.date), 0.14 + 0.105 * len(idea.name)
        free = [n for n, end in enumerate(ends) if end < start] + [len(ends)]
        lane = next((n for n in free if way_is_free(spots, idea.grew_from, start, n)), free[-1])
        ends[lane:lane + 1] = [start + width]
        spots[idea.name] = start, lane
        placed.append((idea, lane))
    return placed


def way_is_free(spots: dict, origin: str, x: float, lane: int) -> bool:
    """Whether the line from an idea to (x, lane) keeps off the dots between."""
    if origin not in spots:
        return True
    x0, lane0 = spots[origin]
    return all(abs(lane0 + (lane - lane0) * (at - x0) / (x - x0) - other) > 0.35
               for at, other in spots.values() if x0 < at < x)
