"""The tree of ideas, filtered: what each changes, what it grew from, which models use it (chapter 11)."""
from functools import cache

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.field_guide import IDEAS, describe, published_models
from course_lib.field_guide.ideas import BRANCHES
from course_lib.field_guide.show import in_lanes, in_years

FIRST, LAST, LEFT, RIGHT, LANE, LETTER = 2019, 2027, 128, 628, 17, 5.7
ALL = "all questions"
NAMES = {idea.name: idea for idea in IDEAS}
QUESTIONS = {ALL: None} | {question: name for name, question in BRANCHES.items()}


@cache
def users() -> dict[str, list[str]]:
    """idea -> the published models that use it, by date."""
    entries = sorted(published_models().items(), key=lambda item: item[1]["date"])
    uses = {name: describe(entry["config"]).ideas for name, entry in entries}
    return {idea.name: [model for model, found in uses.items() if idea.name in found] for idea in IDEAS}


def across(date: str) -> float:
    return LEFT + (RIGHT - LEFT) * (in_years(date) - FIRST) / (LAST + 1 - FIRST)


class Ideas(Explorable):
    title = "The tree of ideas"
    caption = ("A dot is an idea at the date of its source; a line leads to what it grew from. Choose a "
               "question and a year to see fewer, and an idea to see what it changes and who uses it. The "
               "larger a dot, the more of the published models use the idea.")
    controls = (Choice("question", tuple(QUESTIONS), ALL), Slider("since", range(FIRST, LAST)),
                Choice("idea", tuple(NAMES), IDEAS[2].name))
    page = {"question": tuple(QUESTIONS), "since": (FIRST,), "idea": [IDEAS[n].name for n in (2, 8, 22)]}

    def draw(self, question, since, idea):
        branch, chosen = QUESTIONS[question], NAMES[idea]
        kept = [i for i in IDEAS if branch in (None, i.branch) and i.date >= str(since)]
        rows = [name for name in BRANCHES if any(i.branch == name for i in kept)]
        placed, top = {}, 30
        canvas = Canvas(700, 150 + sum(height(name, kept) for name in rows))
        for n, name in enumerate(rows):
            draw_row(canvas, top, name, height(name, kept), n % 2)
            for each, lane in in_lanes([i for i in kept if i.branch == name]):
                placed[each.name] = across(each.date), top + LANE * (lane + 0.9)
            top += height(name, kept)
        draw_ideas(canvas, kept, placed, chosen)
        for year in range(FIRST, LAST + 1):
            canvas.text(across(str(year) + "-01"), 18, year, size=11, anchor="middle", fill="faint")
        told = says(chosen, "" if chosen in kept else "; not among those drawn")
        for n, line in enumerate(told):
            canvas.text(20, top + 26 + 19 * n, line if len(line) <= 100 else line[:99] + "…", bold=n == 0)
        return canvas, (f"{len(kept)} of {len(IDEAS)} ideas, {question.lower().rstrip('?')}, since {since}: "
                        f"{', '.join(i.name for i in kept) or 'none'}. {'. '.join(told)}.")


def height(branch: str, kept: list) -> float:
    lanes = in_lanes([i for i in kept if i.branch == branch])
    return LANE * (1.8 + max(lane for _, lane in lanes))


def draw_row(canvas: Canvas, top: float, branch: str, high: float, odd: int) -> None:
    canvas.rect(14, top, 676, high, fill="soft" if odd else "empty", stroke=None, shade=0.5)
    words = BRANCHES[branch].split()
    for n, part in enumerate((" ".join(words[:2]), " ".join(words[2:]))):
        canvas.text(20, top + 16 + 14 * n, part, size=11, fill="faint")


def draw_ideas(canvas: Canvas, kept: list, placed: dict, chosen) -> None:
    for i in kept:
        if i.grew_from in placed:
            (x, y), end = placed[i.grew_from], placed[i.name]
            name_ends = x + 14 + LETTER * len(i.grew_from)      # the line starts where the name is read
            canvas.line(name_ends if name_ends < end[0] else x, y, *end, stroke="line")
    for i in kept:
        x, y = placed[i.name]
        many, fill = len(users()[i.name]), str(list(BRANCHES).index(i.branch))
        canvas.circle(x, y, 3 + 0.16 * many, fill="accent" if i is chosen else fill,
                      thick=2 if i is chosen else 1, set={"idea": i.name},
                      about=f"{i.name}, {i.date}: {many} models")
        canvas.text(x + 5 + 0.16 * many, y + 4, i.name, size=10, bold=i is chosen)


def says(idea, but: str = "") -> list[str]:
    """What the reader is told of an idea: name, date and source (and `but`); what it changes; who uses it."""
    models = users()[idea.name]
    origin = f", grew from {idea.grew_from}" if idea.grew_from else ""
    return [f"{idea.name} ({idea.date}, {idea.source}){origin}{but}", idea.says[0].upper() + idea.says[1:],
            f"Used by {len(models)} of {len(published_models())} models"
            + (f", first by {', '.join(models[:3])}" if models else "")]
