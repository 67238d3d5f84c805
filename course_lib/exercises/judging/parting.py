"""A wrong value of a kernel: which access of it is shown, beside which of the reference's, in what words."""
from laptop_cuda.replay import replay_launch
from laptop_cuda.text.effects import at_line, effects
from laptop_cuda.why.apart import Apart, Side, Touch, apart, close

from .beside import Beside, number

EVENTS = 200_000         # of a film; a smallest case has fewer


class Parting:
    """Where the stores to one element come apart. `theirs` is None in a handout."""

    def __init__(self, mine: Side, theirs: Side | None, launches: list[tuple[int, int]], index: int, want):
        self.mine, self.theirs, self.array = mine, theirs, launches[0]
        self.want, (n, place) = want, launches[0]
        self.target = f"{mine.arrays(n)[place]['name']}[{index}]"
        if theirs is not None:
            self.found = apart(mine, theirs, launches[-1][0], self.array, index)
        else:
            stores = mine.writes(launches[-1][0], self.array, index)
            self.found = Apart("alone" if stores else "nothing", stores[-1] if stores else None, None)
        self.here, self.there = self._chosen()

    def _chosen(self) -> tuple[Touch | None, Touch | None]:
        """The access that is shown of each side."""
        found = self.found
        if found.what == "never" and found.right:
            return self._instead(), found.right
        if found.what == "extra":
            alike = [t for t in found.missing if t.array == found.extra.array]
            return found.mine, [*alike, *found.missing, found.right][0]
        if found.what == "missing" and (turn := self._same_turn()):
            return turn, found.missing[0]
        return found.mine or found.store, found.theirs or found.right

    def _instead(self) -> Touch | None:
        """What the thread that should have made the element last stored in its array."""
        touches = self.mine.thread(self.found.right, self.theirs)
        stores = [t for t in touches if t.array == self.array and self.mine.of(t, "kind") != "load"]
        return stores[-1] if stores else None

    def _same_turn(self) -> Touch | None:
        """What our thread does in the place of the load that is missing: where all before it was the same,
        the next access, else the access to the array in the same turn."""
        right = self.found.missing[0]
        mine, theirs = (side.thread(right, self.theirs) for side in (self.mine, self.theirs))
        turn = next(k for k, t in enumerate(theirs) if t.row is right.row and t.index == right.index)
        keys = [[(t.array, t.index) for t in touches] for touches in (mine, theirs)]
        if turn < len(mine) and keys[0][:turn] == keys[1][:turn] and keys[0][turn] != keys[1][turn]:
            return mine[turn]
        turn = sum(t.array == right.array for t in theirs[:turn])
        ours = [t for t in mine if t.array == right.array][turn:]
        if ours and ours[0].index != right.index:
            return ours[0]
        return None

    def message(self) -> str:
        found, mine = self.found, self.mine
        made = mine.name(found.store) if found.store else self.target
        if found.store is None:
            other = "" if found.right is None else (
                f" In the reference {self.theirs.who(found.right)} does; here is what yours did.")
            return f"{self.target} should be {number(self.want)}, and no thread of yours stores it.{other}"
        is_now = number(found.store.value)
        said = (f"{made} should be {number(self.want)}; yours is {is_now}." if made == self.target else
                f"{made}, from which {self.target} is made, is {is_now}, in the reference "
                f"{number(found.right.value)}.")
        lacks = ", ".join(map(self.theirs.name, found.missing[:3])) if found.missing else ""
        lacks += f" and {len(found.missing) - 3} more" if len(found.missing) > 3 else ""
        here = mine.name(self.here)
        if found.what == "extra":
            lack = f", and needs {lacks}, which yours never loads" if lacks else ""
            read = f", read here as {here}" if found.mine is not found.extra else ""
            wrong = f"{mine.name(found.extra)}{read}"
            return f"{said} It is made with {wrong}; the reference makes it without{lack}."
        if found.what == "missing":
            did = f" In that place your thread has the {mine.of(self.here, 'kind')} of {here}."
            instead = "" if self.here is found.store else did
            return f"{said} The reference makes it with {lacks}, which yours never loads for it.{instead}"
        if found.what == "value":
            return (f"{said} Here {here} is {number(self.here.value)}, in the reference "
                    f"{number(found.theirs.value)}.")
        same = " Both kernels load the same for it, and compute another value."
        return said + same * (found.what == "arithmetic")

    def beside(self, line_of) -> Beside:
        """`line_of` says of a side's access which line it is, or that it is not shown."""
        sides = [(self.mine, self.here), (self.theirs, self.there)]
        return self.table(self.message(), sides, line_of, self.found)

    @staticmethod
    def table(message: str, sides: list, line_of, found: Apart | None = None) -> Beside:
        def row(what, say, none=""):
            return what, *(none if t is None else say(side, t) for side, t in sides)
        def access(side, t):
            return f"{side.of(t, 'kind')} of {side.name(t)}, value {number(t.value)}"
        rows = [row("access", access, "none"), row("by", lambda s, t: s.who(t)), row("line", line_of)]
        if found and found.store and found.right and found.store is not sides[0][1]:
            rows.insert(0, ("for", *(f"{s.name(t)} = {number(t.value)}, by {s.who(t)}"
                                     for (s, _), t in zip(sides, (found.store, found.right)))))
        lanes = [{} if t is None else s.lanes(t) for s, t in sides]
        for lane in sorted({*lanes[0], *lanes[1]}):
            rows.append((f"lane {lane}", *("" if not of else ", ".join(
                f"{s.name(t)} = {number(t.value)}" for t in of.get(lane, ())) or "masked"
                for (s, _), of in zip(sides, lanes))))
        return Beside(message, rows)

    def replay(self, beside: Beside):
        shown = opened(self.mine, self.here, self.theirs, self.there, beside.message)
        if self.found.what == "missing" and self.here.row is self.found.store.row:
            self._before_store(shown)
        if self.found.what == "arithmetic":
            self._at_variable(shown, beside)
        return shown

    def _before_store(self, shown) -> None:
        """Where a load is missing and nothing replaces it, the line by which the thread came to its store."""
        store = shown.steps[shown.events[shown.error["events"][0]]["step"]] if shown.error["events"] else None
        lane = self.mine.of(self.here, "lane")
        came = [] if store is None else [
            k for k, s in enumerate(shown.steps[:shown.steps.index(store)])
            if s["warp"] == store["warp"] and s["lanes"] >> lane & 1 and s["line"] != store["line"]]
        if came:
            shown.error |= {"events": [], "at": [(came[-1], lane)]}

    def _at_variable(self, shown, beside: Beside) -> None:
        """Open at the first variable on which the store depends whose end is another than the reference's, where it parts
        from the reference's; else at the first value that no variable of the reference's has."""
        right = self.theirs.results[self.there.launch]
        other = replay_launch(right, [self.theirs.of(self.there, "block")], EVENTS)
        mine, own, theirs = _held(shown, self.mine, self.here)[0], {}, {}
        right, every = _held(other, self.theirs, self.there)
        for held, of in [*((h, own) for h in mine), *((h, theirs) for h in right)]:
            of.setdefault(held[1], []).append(held)
        ends = [of for name, of in own.items()
                if name in theirs and not close(of[-1][2], theirs[name][-1][2])]
        parted = [_parted(of, [h[2] for h in theirs[of[0][1]]]) for of in ends]
        at = (next((h for h in mine if h in parted), None)
              or next((h for h in mine if h in [of[-1] for of in ends]), None)
              or next((h for h in mine if every and not any(close(h[2], v) for v in every)), None))
        if at:
            step, name, value, line = at
            its = ", ".join(number(h[2]) for h in theirs.get(name, [])[:6]) or "no variable of it has this value"
            its += ", ..." * (len(theirs.get(name, ())) > 6)
            beside.rows.insert(0, (f"variable {name}", number(value), its))
            beside.message += f" In line {line} your `{name}` becomes {number(value)}."
            shown.error = {"kind": "wrong value", "message": beside.message, "events": [], "line": line,
                           "at": [(step, self.mine.of(self.here, "lane"))]}


def _parted(own: list[tuple], theirs: list) -> tuple | None:
    """The first that is another, turn by turn where both have as many, else the first that the other never has."""
    pairs = zip(own, ([v] for v in theirs)) if len(own) == len(theirs) else ((held, theirs) for held in own)
    return next((held for held, values in pairs if not any(close(held[2], v) for v in values)), None)


def opened(mine: Side, here: Touch | None, theirs: Side | None, there: Touch | None, message: str):
    """The replay with a mark at an access, at which the player opens; where the thread made none, at a line
    that stores to the array, else at the step after which it last parts from its warp."""
    side, touch = (mine, here) if here else (theirs, there)
    block, thread = (side.of(touch, name) if touch else 0 for name in ("block", "thread"))
    shown = replay_launch(mine.results[touch.launch if touch else 0], [block], EVENTS)
    events = _events(shown, side, here) if here else []
    shown.error = {"kind": "wrong value", "message": message, "events": events[:1]}
    if not events:
        warp, lane = divmod(thread, shown.machine["warp_size"])
        own = [k for k, s in enumerate(shown.steps) if s["warp"] == warp]
        active = [k for k in own if shown.steps[k]["lanes"] >> lane & 1]
        parted = [k for k, then in zip(own, own[1:]) if k in active and then not in active]
        stores, name = _stores(mine, touch, theirs)
        first = next((k for k in own if name and shown.steps[k]["kind"] == "store"
                      and shown.steps[k]["array"] == name), len(shown.steps))
        near = [k for k in active if k < first and shown.steps[k]["line"] in stores]
        shown.error["at"] = [((near or parted or own)[-1], lane)] if own else []
    return shown


def _stores(mine: Side, touch: Touch | None, theirs: Side | None) -> tuple[set[int], str]:
    """(the lines at which any of our threads stores to the array of an access, its name)"""
    if touch is None:
        return set(), ""
    traced, memory = mine.traced(touch.launch), theirs.of(touch, "array")
    if memory >= mine.results[touch.launch].inputs.launch.n_arrays:
        return set(), ""
    writes = traced.writes[traced.writes["memory"] == memory]
    places = mine.results[touch.launch].places({int(pc) for pc in writes["pc"]})
    return {place.line for place in places.values()}, mine.arrays(touch.launch)[memory]["name"]


def _events(replay, side: Side, touch: Touch) -> list[int]:
    return [k for k, e in enumerate(replay.events) if all(
        e[name] == side.of(touch, name) for name in ("thread", "kind", "line", "offset", "occurrence"))]


def _held(replay, side: Side, store: Touch) -> tuple[list[tuple[int, str, float, int]], list]:
    """(step, name, value, line) of each assignment in the store's lane on which it depends, in order; all its values."""
    found, every, made, names = [], [], replay.registers, replay.registers["names"]
    warp, lane, line = (side.of(store, name) for name in ("warp", "lane", "line"))
    own = [k for k, s in enumerate(replay.steps) if s["warp"] == warp]
    end = min((replay.events[k]["step"] for k in _events(replay, side, store)), default=len(replay.steps))
    statements = effects(next(iter(replay.source["files"].values())))
    wanted = set().union(*(e.uses for e in at_line(statements, line)))
    for (first, _, of, name, lanes, values), line in zip(made["rows"][::-1], made["lines"][::-1]):
        name, _, function = names[name].partition(" of ")
        if of != warp or not lanes >> lane & 1 or first > end or not line:
            continue
        every.append(values[(lanes & (1 << lane) - 1).bit_count()])
        if (function or name) not in wanted:
            continue
        makers = [e for e in at_line(statements, line) if name in e.assigns]
        if not function and not any(name in e.uses for e in makers):
            wanted.discard(name)                     # what it was before is lost
        wanted |= set().union(*(e.uses for e in makers))
        step = max((k for k in own if k < first), default=first)             # it holds from the next one on
        found.append((step, f"{name} of {function}" if function else name, every[-1], line))
    return found[::-1], every
