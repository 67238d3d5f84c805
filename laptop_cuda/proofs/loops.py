"""A loop for any number of turns: what a turn changes, by how much, and which barriers it may come after."""
import z3

from .terms import SIZE, STEP, THREAD, move, only, parts, symbols_of
from .values import Lost, Opaque, Pointer, State, Struct, Whole, difference, level_of

GUESSES = (lambda now, first: now >= 0, lambda now, first: now >= 1, lambda now, first: now <= first,
           lambda now, first: now >= first)

UNEVEN, BELOW = "what changes unevenly in", "what steps below 0, without sign, in"


class Loop:
    """What a loop changes is its value before plus turns times a constant, or anything that `GUESSES` leave."""

    def __init__(self, lift, at, line, test, body, step):
        self.lift, self.at, self.line, self.test, self.body, self.step = lift, at, line, test, body, step
        self.before, self.world, self.outer = lift.state, lift.world, tuple(lift.turns)
        self.block = tuple(part.of for part in lift.launch["blockIdx"].fields.values())
        self.mark = len(self.world.symbols)
        self.steps, self.free, self.levels, self.guesses, self.least = {}, {}, {}, {}, {}
        self.leaves = None            # the level of the conditions under which a turn leaves, if one does
        self.breaks = self.returns = False

    def run(self):
        lift, world, after = self.lift, self.world, self.before.after
        self.learn()
        turn = world.new("turn", STEP, lambda t: t >= 0)
        has_barrier = self.end is not None and bool(self.own(self.end.after))
        if has_barrier:
            earlier = world.new("turn", STEP, lambda t: t >= 0)
            self.attempt(earlier)
            after = self.linked(self.end.after, earlier, turn)
        left, test = self.go(turn, after)
        self.nearer(test, turn)
        level = max(world.level(test), self.leaves or 0)
        last = world.new("turns", max(level, STEP), lambda t: t >= 0, why=world.symbols[only(turn)].why,
                         function=(f"turns {self.at}", (*self.block, *self.outer)) if level <= STEP else None)
        after = self.linked(self.end.after, turn, last) if has_barrier and self.end else None
        lift.state = self.head(last, after)
        if self.breaks:
            lift.state.after += [a for state in left for a in state.after]
            for key in (*self.steps, *self.free):
                lift.state.env[key] = self.anything(self.before.env[key], THREAD)
        elif self.test is not None:
            self.quietly(lambda: self.leave(last))
        else:
            lift.state = None
        if self.returns and lift.state:
            lift.state.path.append(world.truth(max(self.leaves, STEP), self.why("an exit from")))

    def why(self, what) -> str:
        return f"{what} the loop of line {self.line}"

    def leave(self, last):
        """The turn `last` is not taken, the one before was."""
        lift = self.lift
        facts = self.so_far(last)
        lift.turns.append(last)
        facts.append(z3.Not(lift.condition(self.test)))
        lift.turns.pop()
        if self.leaves is None:       # a fact, no condition: whoever comes to the loop leaves it by its end
            self.world.symbols[only(last)].axioms.append(z3.Implies(z3.And(self.before.path), z3.And(facts)))
        else:
            lift.state.path += facts

    def so_far(self, turn) -> list:
        """What holds before a turn: the turn before was taken, and no variable has wrapped yet. `go` demands that."""
        lift, kept, turns = self.lift, self.lift.state, self.lift.turns
        fits = [[z3.And(now.of < now.end, *(now.of >= low for low in self.least.get(key, [now.least])))
                 for key in self.steps if isinstance(now := state.env[key], Whole)]
                for state in (self.head(turn - 1), self.head(turn))]
        lift.state, lift.turns = self.head(turn - 1), [*self.outer, turn - 1]
        lift.state.path += fits[0]
        held = lift.condition(self.test) if self.test is not None else z3.BoolVal(True)
        lift.state, lift.turns = kept, turns
        return [z3.Implies(turn >= 1, z3.And(*fits[0], held)), *fits[1]]

    def below(self, turn) -> list:
        """How far a number without sign steps below 0, which is no overflow: not at all, once, or over and over."""
        for key, by in self.steps.items():
            value = self.lift.state.env[key]
            if isinstance(value, Whole) and value.bits < 0:
                if self.stays(key, turn, 0) or self.stays(key, turn, by):
                    continue
                self.least[key] = []
                self.world.symbols[only(turn)].why = self.why(BELOW)
        return self.so_far(turn)

    def stays(self, key, turn, low) -> bool:
        """Whether a number that was at least `low` until now is so before `turn`; if so, that is kept."""
        self.least[key], now = [low], self.lift.state
        return self.lift.certain([*now.path, self.so_far(turn)[0]], now.env[key].of >= low)

    def own(self, after) -> list:
        """The barriers of this turn."""
        deep = len(self.outer)
        return [a for a in after if len(a[1]) > deep and a[1][deep] is self.turn]

    def linked(self, ends, earlier, now) -> list:
        """The barriers that may be the last one before turn `now`."""
        own = [id(a) for a in self.own(ends)]
        skips = any(id(a) not in own and not self.holds(self.end, z3.Not(z3.And(*a[2]))) for a in ends)
        first = [(*a[:2], (*a[2], *(() if skips else (now == 0,)))) for a in self.before.after]
        link = now > earlier if skips else now == earlier + 1
        return first + [(*a[:2], (*a[2], link)) for a in self.own(ends)]

    def quietly(self, what):
        kept, self.lift.quiet = self.lift.quiet, True
        what()
        self.lift.quiet = kept

    def attempt(self, turn):
        """A turn that leaves no trace."""
        returned = len(self.lift.jumps["return"])
        self.quietly(lambda: self.go(turn))
        del self.lift.jumps["return"][returned:]

    def nearer(self, test, turn):
        """Asks whether a turn brings the condition nearer to its end, where no data are in it."""
        lift, after = self.lift, []
        if lift.quiet or self.test is None or self.leaves is not None or self.end is None:
            return
        lift.state = self.end.copy()
        lift.turns.append(turn + 1)
        self.quietly(lambda: after.append(lift.condition(self.test)))
        lift.turns.pop()
        whys = {self.world.symbols[name].why for name in symbols_of(test) | symbols_of(after[0])}
        down = [by for key, by in self.steps.items()
                if self.least.get(key) == [by] and self.holds(self.end, by < 0)]
        if not down and whys <= {"", self.why(UNEVEN), self.why(BELOW)}:
            moves = [move(x, y) for x, y in zip(parts(test), parts(after[0]))]
            moves.append(self.world.truth(SIZE, f"whether the loop of line {self.line} ends"))
            lift.demand("barriers", z3.Or(moves), self.line)

    def head(self, turn, after=None) -> State:
        """The state before a turn."""
        state = self.before.copy(after=after)
        for key, by in self.steps.items():
            first = state.env[key]
            if isinstance(first, Pointer):
                state.env[key] = Pointer(first.array, first.at + turn * by, first.inner)
            else:
                state.env[key] = Whole(first.of + turn * by, first.bits)
        for key in self.free:
            level = max(self.levels.get(key, STEP), STEP, self.world.level(turn))
            state.env[key] = self.anything(state.env[key], level, f"{key} {self.at}", turn, self.guesses.get(key, ()))
        return state

    def anything(self, first, level, name="", turn=None, guesses=()):
        function = (name, (*self.block, *self.outer, turn)) if name and level <= STEP else None
        why, new = self.why(UNEVEN), self.world.new
        if isinstance(first, Whole):
            facts = [lambda n, guess=guess: z3.Implies(z3.And(self.before.path), guess(n, first.of))
                     for guess in guesses]
            facts.append(lambda n: Whole(n, first.bits).fits())
            return Whole(new("free", level, *facts, why=why, function=function), first.bits)
        if isinstance(first, z3.BoolRef):
            return self.world.truth(level, why, function)
        if isinstance(first, Struct):
            return Struct({field: self.anything(value, level, name and f"{field} {name}", turn)
                           for field, value in first.fields.items()}, max(level, first.rest))
        return Lost(f"a pointer, {why}") if isinstance(first, (Pointer, Lost)) else Opaque(level)

    def go(self, turn, after=None):
        """One turn: the states that leave the loop, and its condition. `self.end` is the state before the next."""
        lift = self.lift
        kept, lift.jumps = lift.jumps, lift.jumps | {"break": [], "continue": []}
        returned = len(lift.jumps["return"])
        lift.state, self.turn = self.head(turn, after), turn
        self.start = dict(lift.state.env)
        lift.turns.append(turn)
        if self.leaves is not None:
            shared = (f"goes on {self.at}", (*self.block, *lift.turns)) if self.leaves <= STEP else None
            lift.state.path.append(self.world.truth(max(self.leaves, STEP), self.why("an exit from"), shared))
        if not lift.dry:
            facts = []
            self.quietly(lambda: facts.extend(self.below(turn)))
            lift.state.path.append(facts[0])
            lift.demand("overflow", z3.And(facts[1:]), self.line)
            lift.state.path += facts[1:]
        common = len(lift.state.path)
        test = lift.condition(self.test) if self.test is not None else z3.BoolVal(True)
        lift.state.path.append(test)
        lift.run(self.body)
        lift.meet(common, [(None, state) for state in (lift.state, *lift.jumps["continue"])])
        if lift.jumps["continue"] and self.step is None:
            lift.strays = self.line
        if lift.state is not None and self.step is not None:
            lift.run(self.step)
        self.end, self.broke = lift.state, lift.jumps["break"]
        left = self.broke + [state for _, state in lift.jumps["return"][returned:]]
        self.returns = self.returns or len(left) > len(self.broke)
        lift.turns.pop()
        lift.jumps = kept
        if left:
            level = self.world.level(*(c for state in left for c in state.path[common:]))
            self.leaves, self.breaks = max(self.leaves or 0, level), self.breaks or bool(self.broke)
        return left, test

    def known(self):
        guesses = {key: len(held) for key, held in self.guesses.items()}
        return len(self.steps), len(self.free), dict(self.levels), self.leaves, guesses

    def learn(self):
        """By turns that leave no trace: what changes, by how much, and who shares it. The last turn confirms it."""
        lift, dry = self.lift, self.lift.dry
        for lift.dry in (True, dry):
            if not lift.dry:
                for key in (*self.steps, *self.free):
                    if isinstance(first := self.before.env[key], Whole):
                        lift.state = self.before
                        self.before.env[key] = Whole(lift.exact(first, self.line), first.bits)
                self.guesses = {key: [g for g in GUESSES if self.holds(self.before, g(first.of, first.of))]
                                for key in self.free if isinstance(first := self.before.env[key], Whole)}
            known = None
            while known != self.known():
                known = self.known()
                self.attempt(self.world.new("turn", STEP, lambda t: t >= 0))
                self.compare()

    def holds(self, state, condition) -> bool:
        self.lift.state = state
        return self.lift.sure(condition)

    def compare(self):
        """The end of a turn with its beginning."""
        lift = self.lift
        for state in (self.end, *self.broke):
            for key, first in self.start.items() if state else ():
                now = state.env.get(key, first)
                if now is first:
                    continue
                by = difference(first, now, self.mark) if state is self.end and key not in self.free else None
                known = self.steps.get(key)
                if by is None or known is not None and (by - known).constant != 0 and state is self.end:
                    if state is self.end or known is None:
                        self.steps.pop(key, None)
                        self.free[key] = self.before.env[key]
                elif known is None:
                    self.steps[key] = by
                level = level_of(self.world, self.before.env[key], now)
                self.levels[key] = max(self.levels.get(key, STEP), level)
                if state is self.end and key in self.guesses:
                    lift.state = state
                    # as it is once it wrapped
                    reached = lift.exact(now, self.line) if isinstance(now, Whole) else None
                    self.guesses[key] = [g for g in self.guesses[key] if reached is not None
                                         and self.holds(self.end, g(reached, self.before.env[key].of))]
