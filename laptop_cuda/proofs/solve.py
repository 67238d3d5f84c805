"""What z3 is asked: with every axiom of the symbols that occur, and lemmas for products and functions."""
import threading
import time
from itertools import combinations

import z3

from .terms import Poly, Symbol, World, renamed, variables

CORNERS = 0, 1, 2**16, 2**31


class Undecided(Exception):
    """The solver did not answer in its time."""


def watch(solver, seconds: float, ended: threading.Event) -> None:
    """Ends a question when this process has computed so long: z3's own clock runs on while others compute."""
    began = time.process_time()
    while not ended.wait(0.02):
        if time.process_time() - began > seconds:
            solver.interrupt()


class Solver:
    """`seconds` of the processor for one question; `domain` are conditions on sizes alone."""

    def __init__(self, world: World, domain: list, sizes: dict[str, Poly], seconds: float):
        self.world, self.domain, self.sizes, self.seconds, self.answers = world, domain, sizes, seconds, {}

    def certain(self, path: list, claim) -> bool:
        """Soon: a claim that is not decided at once is not certain."""
        key = (*(p.get_id() for p in path), claim.get_id())
        if key not in self.answers:
            asked = [*path, z3.Not(claim)]
            self.answers[key] = asked, self.ask(self.with_facts(asked, None)[0], 0.5) == z3.unsat
        return self.answers[key][1]

    def ask(self, formulas: list, seconds: float, *more):
        self.solver = z3.Solver()
        self.solver.add(*formulas, *more)
        ended = threading.Event()
        other = threading.Thread(target=watch, args=(self.solver, seconds, ended), daemon=True)
        other.start()
        try:
            return self.solver.check()
        finally:
            ended.set()
            other.join()

    def with_facts(self, formulas: list, level: int | None) -> tuple[list, dict[str, Symbol]]:
        """The formulas, what holds of their symbols, and these; marks say that a symbol is another thread's."""
        found, seen, symbols, queue = [], set(), {}, [*formulas, *self.domain]
        while queue:
            formula = queue.pop()
            found.append(formula)
            new = variables(formula) - seen
            seen |= new
            for name in {name for variable in new for name in variable.split("*")} - symbols.keys():
                symbols[name] = symbol = self.world.symbols[name.rstrip("'")]
                queue += [renamed(axiom, level, name.count("'")) for axiom in symbol.axioms]
            if not queue:
                groups = self.products(seen, symbols.keys(), level)
                parts = [part for b, members in groups for member in members for part in (b, *member)]
                queue = [part.z3() == part.z3() for part in parts if not part.names() <= seen]
        return found + self.lemmas(groups) + self.functions(symbols, level), symbols

    def products(self, seen: set[str], symbols, level: int | None) -> list:
        """The products of these symbols that have a part in what was seen: [(b, [(a, a * b)])]."""
        groups, most = {}, max((name.count("'") for name in symbols), default=0)
        for b, others in self.world.products.values():
            for marks in range(1 + most):
                one = b.renamed(level, marks)
                for a in others.values():
                    a = a.renamed(level, marks)
                    product = a.times(one)
                    names = product.names()
                    if any("*" in name for name in names & seen) and {s for n in names for s in n.split("*")} <= symbols:
                        groups.setdefault(one.key(), (one, {}))[1][a.key()] = a, product
        return [(b, list(members.values())) for b, members in groups.values()]

    def lemmas(self, groups: list) -> list:
        """Of a * b and c * b: whichever of a and c is larger gives the larger product, if b is not negative."""
        lemmas = []
        for b, members in groups:
            corners = [(Poly(c), b.times(Poly(c))) for c in CORNERS]
            for (a, ab), (c, cb) in combinations(corners + members[:16], 2):
                if a.constant is None or c.constant is None:
                    lemmas.append(z3.Implies(b >= 0, z3.And(
                        z3.Implies(a > c, ab >= cb + b), z3.Implies(a < c, ab + b <= cb),
                        z3.Implies(a == c, ab == cb))))
        return lemmas

    def functions(self, symbols: dict[str, Symbol], level: int | None) -> list:
        """Equal arguments give equal values; of `^`, a value and one argument give the other."""
        calls, lemmas = {}, []
        for name, symbol in symbols.items():
            if symbol.function:
                given = [a.renamed(level, name.count("'")) for a in symbol.function[1]]
                calls.setdefault(symbol.function[0], []).append((Poly({(name,): 1}), given))
        for what, made in calls.items():
            for (x, a), (y, b) in combinations(made[:12], 2):
                if len(a) != len(b):               # the first turn of a `do` is outside its turns
                    continue
                lemmas.append(z3.Implies(z3.And(*(p == q for p, q in zip(a, b))), x == y))
                if what[0] == "^":
                    lemmas += [z3.Implies(z3.And(x == y, a[i] == b[i]), a[1 - i] == b[1 - i]) for i in (0, 1)]
        return lemmas

    def example(self, formulas: list, level: int | None = None):
        """None if nothing satisfies them, else (sizes, model, the symbols that nothing is known of, smallest)."""
        began = time.process_time()
        facts, symbols = self.with_facts(formulas, level)

        def left() -> float:
            return self.seconds - (time.process_time() - began)
        found = self.ask(facts, self.seconds)
        if found == z3.unsat:
            return None
        exact = [z3.Int(v) == z3.Product(*map(z3.Int, v.split("*"))) for v in set().union(*map(variables, facts)) if "*" in v]
        for most in (4, 64, 1024, 2**20, None):
            box = [] if most is None else [size <= most for size in self.sizes.values()]
            found = self.ask(facts + exact + box, max(left() / 2, 0.5))
            if found == z3.sat:
                whys = sorted({symbol.why for symbol in symbols.values() if symbol.why})
                return *self.smallest(facts + exact + box, left), whys
            if found == z3.unsat and most is None:      # in a box it says nothing of the sizes outside
                return None
            if left() <= 0:
                break
        raise Undecided

    def smallest(self, formulas: list, left):
        """The least sizes, the first before the others, and a model of them; whether they are surely the least."""
        model, sure, fixed = self.solver.model(), True, []

        def value(size) -> int:
            return model.eval(size.z3(), model_completion=True).as_long()
        for size in self.sizes.values():
            low, high = 0, value(size)
            while low < high:
                middle = (low + high) // 2
                found = self.ask(formulas, max(left(), 0.2), *fixed, size >= low, size <= middle)
                sure = sure and found != z3.unknown
                if found == z3.sat:
                    model = self.solver.model()
                    high = value(size)
                else:
                    low = middle + 1
            fixed.append(size == high)
        return {name: value(size) for name, size in self.sizes.items()}, model, sure
