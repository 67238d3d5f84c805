"""Conflict-free shared accesses: no two lanes of a request want two words of one bank, as the engine counts them.

The lanes of a request are those threads of a warp that make the same access in the same turn of the loops around.
There are 32 banks of 4 bytes; a request of 8 bytes is served in two parts, of 16 bytes in four, and two parts of a
load go together where lanes share addresses in pairs (`count_wavefronts` in runtime_trace.cpp has the rule)."""
from math import gcd

import z3

from .terms import SIZE, STEP, Poly, renamed

CYCLE = 128                       # bytes after which the banks begin again
LANES = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}      # that are served together, by the bytes of each


class Banks:
    def __init__(self, claims):
        self.claims, self.world = claims, claims.lift.world
        index, dim = ([part.of for part in claims.launch[name].fields.values()]
                      for name in ("threadIdx", "blockDim"))
        self.thread = index[0] + dim[0] * (index[1] + dim[1] * index[2])
        self.threads = dim[0] * dim[1] * dim[2]
        self.bases = {}

    def all(self) -> None:
        for a in self.claims.lift.accesses:
            if a.array.space == "shared" and a.kind != "atomic":
                self.one(a)

    def one(self, a) -> None:
        if a.size not in LANES or self.claims.lift.strays:
            why = f"a request of {a.size} bytes" if a.size not in LANES else \
                f"lanes may be in different turns of the loop of line {self.claims.lift.strays}"
            self.claims.doubt("banks", why, a.line)
            return
        if a.array.align % 4:
            self.two(a, self.meet(a, a.at, CYCLE))           # wherever in a word the array begins
        unit = max(a.size, 4)
        at = a.at if a.array.align % 4 == 0 else a.at + self.base(a.array)
        if not any(factor % unit for factor in at.terms.values()):
            self.two(a, self.meet(a, at, CYCLE))
        else:
            self.two(a, self.meet(a, at // Poly(unit), CYCLE // unit))

    def two(self, a, meet) -> None:
        """Asks for two lanes that meet so."""
        if z3.is_false(z3.simplify(meet)):
            return
        lanes = LANES[a.size]
        both = [*self.reaches(a), *self.reaches(a, 1), *self.same_turn(a, 1), meet,
                self.thread != self.thread.renamed(STEP)]
        parts = [self.world.divide(self.thread, Poly(n))[0] for n in (lanes, min(32, 2 * lanes))]
        same, together = (part == part.renamed(STEP) for part in parts)
        self.claims.refute("banks", [*both, same], a.line, STEP, said=lambda model, _: self.said(a, model))
        if a.kind == "read" and lanes < 32 and self.claims.found["banks"].verdict != "proved":
            self.claims.doubted.add("banks")
        elif a.kind == "read" and lanes < 32:
            for bit in (1, 2):
                pairs = [self.paired(a, bit, mark) for mark in (0, 1)]
                self.claims.refute("banks", [*both, z3.Not(same), together, *pairs], a.line, STEP, said=lambda *_: "",
                                   doubts=["parts of a warp that may be served together, where lanes share addresses"])

    @staticmethod
    def reaches(a, marks=0) -> list:
        return [renamed(p, STEP, marks) for p in a.path]

    @staticmethod
    def same_turn(a, marks) -> list:
        return [turn == turn.renamed(STEP, marks) for turn in a.turns]

    def base(self, array) -> Poly:
        """Where in a word an array begins, which only its type says."""
        if id(array) not in self.bases:
            self.bases[id(array)] = self.world.new("base", SIZE, lambda n: n >= 0, lambda n: n < 4,
                                                   why=f"where in a word {array.name} begins")
        return self.bases[id(array)]

    def meet(self, a, place: Poly, cycle: int):
        """Two lanes want different words of one bank: these are `cycle` apart, or a multiple. Or have no aligned address."""
        apart = place - place.renamed(STEP)
        rounds = self.world.new("rounds", SIZE)
        meet = z3.And(apart == rounds * cycle, rounds != 0, *self.remainders(apart, cycle))
        return meet if cycle == CYCLE or a.size < 8 else z3.Or(meet, a.at % Poly(a.size) != 0)

    def remainders(self, x: Poly, cycle: int) -> list:
        """Of products of unknown numbers, what their remainder is for each remainder of one of the two."""
        groups, queue = {}, [(names, cycle // gcd(cycle, factor)) for names, factor in x.terms.items()]
        for names, divisor in queue:          # which grows
            if len(names) > 1 and divisor > 1:
                first = min(names, key=lambda name: (self.world.symbols[name.rstrip("'")].level, name))
                rest = list(names)
                rest.remove(first)
                groups.setdefault(first, []).append((Poly({names: 1}), Poly({tuple(rest): 1}), divisor))
                queue.append((tuple(rest), divisor))
        found = []
        for first, products in groups.items():
            divisor = max(divisor for *_, divisor in products)
            wholes = [self.world.new("whole", SIZE) * divisor for _ in range(len(products) + 1)]
            found.append(z3.Or([z3.And(Poly({(first,): 1}) == wholes[-1] + n, *(
                product == whole + other * n for (product, other, _), whole in zip(products, wholes)))
                for n in range(divisor)]))
        return found

    def paired(self, a, bit: int, marks: int):
        """The lane whose number differs in `bit` is not there, does not make this access, or has the same address."""
        def other(x):
            return x.renamed(STEP, marks + 2)
        mine = self.thread.renamed(STEP, marks)
        half = self.world.divide(self.thread, Poly(bit))[0]
        odd = (half - self.world.divide(half, Poly(2))[0] * 2).renamed(STEP, marks)
        wanted = mine + bit - odd * (2 * bit)
        same_turn = [turn.renamed(STEP, marks) == other(turn) for turn in a.turns]
        shares = z3.Or(z3.Not(z3.And(self.reaches(a, marks + 2))), a.at.renamed(STEP, marks) == other(a.at))
        return z3.Or(wanted >= self.threads, z3.And(other(self.thread) == wanted, *same_turn, shares))

    def said(self, a, model) -> str:
        def of(x, marks):
            return model.eval(x.renamed(STEP, marks).z3(), model_completion=True).as_long()
        (one, at), (two, to) = sorted((of(self.thread, marks), of(a.at, marks)) for marks in (0, 1))
        return f"lanes {one % 32} and {two % 32} of warp {one // 32}, bytes {at} and {to} of {a.array.name}, " \
            f"{'a load' if a.kind == 'read' else 'a store'}"
