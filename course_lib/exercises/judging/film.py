"""A refused kernel as a film: the player on the reader's own run, opened where it leaves the reference's.

A check only offers the call. The call runs the failing case again, recorded, as it does the reference: a
wrong element is followed back to where the two part (`parting.py`), an error of the sanitizer names its
accesses, and too much traffic has a line that causes it. Of the reference it shows what it did, lanes,
elements and values; its lines only once `reveal` has shown them. A handout holds no reference, and says so.
"""
from dataclasses import dataclass

from .. import marks
from ..declare import find
from ..display import display
from ..parts import Exercise
from ..running.kernel_runner import STEPS, compiled, launched
from ..running.limits import TimeIsUp, time_limit
from ..running.results import PlainError
from ..running.runner import run
from .beside import Beside, by_line, cost, cost_in_words, place, threads, total
from .first_value import first_value
from .judge import Oracle, draw, expected, fault, request
from .trace_back import WRONG_VALUES, _first_wrong
from .verdict import WRONG, Verdict

RAN = {WRONG_VALUES, "You returned", "The sanitizer says", "Traffic"}        # labels: the code did run
ROWS, LOOKED_AT = 12, 400                                                    # of the reference's accesses
NO_REFERENCE = "This edition holds no reference: only your own side is shown."
_refused: dict[str, str] = {}            # id -> the source that a check has refused


class NothingToShow(PlainError, ValueError):
    """There is no refused run to show."""


def offer(exercise: Exercise, source: str, verdict: Verdict) -> None:
    """Note in the verdict on code that ran that `film` shows where it goes wrong."""
    _refused.pop(exercise.id, None)
    ran = {label for label, _ in verdict.details} & RAN or "though its result is correct" in verdict.headline
    kernel = exercise.language == "cuda"
    shown = kernel or exercise.oracle is None and exercise.kind in ("write", "repair") and "torch" in exercise.given
    if verdict.status != WRONG or not ran or not shown:
        return
    _refused[exercise.id] = source
    beside = ", beside the reference's" if exercise.oracle is None else ""
    shows = (f"plays your run from where it goes wrong{beside}" if kernel else
             "names the line at which your values leave the reference's")
    verdict.notes.append(f'`film("{exercise.id}")` {shows}.')


def film(id: str) -> None:
    """Where your refused code goes wrong: of a kernel the player, opened there, and what the reference did at
    the same point; of Python the line at which its values leave the reference's."""
    if id not in _refused:
        raise NothingToShow(f'film: check("{id}", ...) has offered none. It does where your code runs to its end and what it '
                            "gives is wrong; code that raises an error has its line in the verdict.")
    exercise = find(id)
    make = kernel_film if exercise.language == "cuda" else value_film
    try:
        made = make(exercise, _refused[id])
    except PlainError:
        raise
    except Exception as error:
        raise NothingToShow("film: it failed itself, which is our mistake and not yours: "
                            f"{type(error).__name__}: {error}") from None
    if exercise.language == "cuda":
        from laptop_cuda.pictures.player import play
        play(made.replay)
        made = made.beside
    display(made)


def value_film(exercise: Exercise, source: str) -> Beside:
    asked, _, case, _, want = failing(exercise, source)
    return first_value(exercise, source, asked, case, want)


@dataclass
class Film:
    replay: object               # its error says where the player opens
    beside: Beside


def failing(exercise: Exercise, source: str, seed: int = 0):
    """(the request, number, case, outcome, expected value) of the first case that fails."""
    cases = draw(exercise, seed)
    asked = request(exercise, cases, seed)
    wanted = (exercise.oracle or Oracle(expected(exercise, cases, seed))).expected
    for i, (case, outcome, want) in enumerate(zip(cases, run(asked, source).outcomes, wanted)):
        if fault(exercise, case, outcome, want):
            return asked, i, case, outcome, want
    raise NothingToShow(f"film: all cases of exercise {exercise.id} agree.")


def kernel_film(exercise: Exercise, source: str) -> Film:
    asked, i, case, outcome, want = failing(exercise, source)
    wrong = None if outcome.failure else _first_wrong(exercise, case, outcome.value, want)
    made = _Case(exercise, asked.arrays[i], asked.launches[i]).film(source, wrong, want)
    made.beside.notes += [NO_REFERENCE] if exercise.oracle else []
    return made


class _Case:
    """The failing case, run by both kernels."""

    def __init__(self, exercise: Exercise, arrays: list[dict], steps: list[dict]):
        self.exercise, self.arrays, self.steps = exercise, arrays, steps
        self.theirs = None if exercise.oracle else self.side(exercise.solution)[0]

    def side(self, source: str):
        """(its launches, the error that ended them or None)"""
        from course_lib import cuda
        from laptop_cuda.why.apart import Side
        failed = None
        try:
            with time_limit(self.exercise.limit), cuda.profile(sanitized=True, step_limit=STEPS) as report:
                launched(cuda, compiled(cuda, source), self.arrays, self.steps)
        except cuda.KernelError as error:
            failed = error
        except (TimeIsUp, cuda.ArgumentError) as error:
            raise NothingToShow(f"film: the run cannot be shown: {error}") from None
        return Side([made._result for made in report.launches]), failed

    def film(self, source: str, wrong, want: list) -> Film:
        from .parting import Parting
        self.mine, error = self.side(source)
        if error:
            return self.of_error(error)
        if wrong is None:
            return self.of_input() or self.of_cost()
        output, index = wrong
        number = [i for i, a in enumerate(self.arrays) if a["role"] in ("out", "inout")][output]
        flat = sum(i * stride for i, stride in zip(index, want[output].contiguous().stride()))
        made = Parting(self.mine, self.theirs, self.places(lambda arg: arg == number), flat,
                       want[output][index].item())
        beside = made.beside(self.line_of)
        return Film(made.replay(beside), beside)

    def places(self, chosen) -> list[tuple[int, int]]:
        """(launch, place among its arrays) of the arguments that are chosen by their number."""
        arrays = [[value for kind, value in step["args"] if kind == "array"] for step in self.steps]
        return [(n, k) for n, given in enumerate(arrays) for k, arg in enumerate(given) if chosen(arg)]

    def line_of(self, side, touch) -> str:
        mark = marks.read().get(self.exercise.id, {})
        if side is self.theirs and not mark.get("revealed") and mark.get("status") != marks.PASSED:
            return f'shown after reveal("{self.exercise.id}")'
        access = side.traced(touch.launch).access(touch.row)
        return f"{access.line}: {access.text}"

    def of_error(self, error) -> Film:
        from laptop_cuda.replay import replay_launch
        from laptop_cuda.replay.recording import number
        replay, n = error.replay(), len(self.mine.results)
        marked = [replay.events[k] for k in replay.error["events"]]
        block = number(error.block, replay.grid) if error.block else 0
        thread = number(error.thread, replay.block) if error.thread else 0
        warp, lane = divmod(thread, replay.machine["warp_size"])
        if not marked:
            own = [k for k, s in enumerate(replay.steps) if s["block"] == block and s["warp"] == warp]
            at = [k for k in own if replay.steps[k]["line"] == error.line] or own
            replay.error["at"] = [(at[-1], lane)] if at else []
        beside = Beside(error.message.split("\n")[0])
        if self.theirs is not None and marked:
            beside.rows.append(self.at_element(marked, n))
        elif self.theirs is not None:
            other = replay_launch(self.theirs.results[n], [block])
            beside.rows.append(("barriers", *(_barriers(each, block) for each in (replay, other))))
        return Film(replay, beside)

    def at_element(self, marked: list[dict], n: int) -> tuple[str, str, str]:
        """The accesses of an error and the reference's to that element; else the thread's to the array."""
        event, side, traced = marked[0], self.theirs, self.theirs.traced(n)
        mine = "\n".join(f"interval {e['interval']}: {e['kind']} of {e['array']}[{e['index']}] by thread "
                         f"{e['thread']}, line {e['line']}" for e in marked)
        memory = next((m for m, a in enumerate(side.arrays(n)) if a["name"] == event["array"]), None)
        if memory is None:
            return "access", mine, f"it has no array {event['array']}"
        table = traced.events
        table = table[(table["memory"] == memory) & (table["block"] == event["block"])]
        same, own = table[table["offset"] == event["offset"]], table[table["thread"] == event["thread"]]
        near, groups = {e["interval"] + k for e in marked for k in (-1, 0, 1, 2)}, {}
        for row in map(traced.row, (same if len(same) else own)[:LOOKED_AT]):
            interval = traced.of(row, "interval")
            if interval in near or not len(same):
                did = f"interval {interval}: {traced.of(row, 'kind')} of {side.name(side.touches(n, row)[0])}"
                groups.setdefault(did, []).append(traced.of(row, "thread"))
        said = [f"{did} by {threads(who)}" for did, who in list(groups.items())[:ROWS]]
        theirs = "\n".join(said) or f"its thread does not touch {event['array']}"
        return "same element" if len(same) else "same thread", mine, theirs

    def of_input(self) -> Film | None:
        """An input that the kernel changes."""
        from .parting import Parting, opened
        for n, k in self.places(lambda arg: self.arrays[arg]["role"] == "in"):
            traced = self.mine.traced(n)
            for event in traced.writes[traced.writes["memory"] == k]:
                here = self.mine.touches(n, traced.row(event))[0]
                message = f"{self.mine.name(here)} is an input, and your kernel stores to it."
                beside = Parting.table(message, [(self.mine, here), (None, None)], self.line_of)
                return Film(opened(self.mine, here, None, None, message), beside)
        return None

    def of_cost(self) -> Film:
        """The line that moves most of what the reference does not."""
        from laptop_cuda.replay import replay_launch
        from .parting import EVENTS
        sides = [[replay_launch(result, "all", EVENTS) for result in side.results]
                 for side in (self.mine, self.theirs) if side]
        n = max(range(len(self.steps)), key=lambda k: sum(map(cost, sides[0][k].steps)))
        tables, replay = [by_line(replays[n]) for replays in sides], sides[0][n]
        kinds = list(dict.fromkeys(key[1:] for table in tables for key in table))
        over = max(kinds, key=lambda kind: total(tables[0], kind) - sum(total(t, kind) for t in tables[1:]))
        line = max((key for key in tables[0] if key[1:] == over), key=lambda key: (tables[0][key][0], key[0]))
        spent, requests = tables[0][line]
        message = (f"Line {line[0]} costs most: {spent:,} sectors or passes in {requests:,} {line[2]}s of "
                   f"{line[1]}.")
        step = next(s for s in replay.steps if place(s) == line and cost(s))
        replay.error = {"kind": "cost", "message": message, "events": [step["first_event"]]}
        return Film(replay, Beside(message, [
            (f"{kind}s of {array}", *(cost_in_words(table, (array, kind)) for table in tables),
             *[""] * (2 - len(tables))) for array, kind in kinds]))


def _barriers(replay, block: int) -> str:
    met = [s for s in replay.steps if s["block"] == block and s["kind"] == "barrier"]
    by_warp: dict[int, list[int]] = {}
    for step in met:
        by_warp.setdefault(step["warp"], []).append(step["lanes"].bit_count())
    return "\n".join(f"warp {warp}: {len(lanes)}, of {min(lanes)} lanes or more"
                     for warp, lanes in list(by_warp.items())[:ROWS]) or "none is passed"
