"""What is asked of a kernel's accesses: each claim holds for all sizes, fails at some, or is not decided."""
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import z3

from .banks import Banks
from .lift import Access, Lift
from .solve import Solver, Undecided
from .terms import BLOCK, STEP, renamed

CLAIMS = {"inside": "inside its arrays, aligned", "overflow": "no overflow of a whole number",
          "stores": "no two threads store one element", "races": "no race between barriers",
          "barriers": "all threads of a block reach each barrier", "banks": "conflict-free shared accesses"}


@dataclass
class Finding:
    """One claim: `verdict` is proved, fails, not proved or not decided."""
    claim: str
    verdict: str = "proved"
    why: str = ""
    line: int | None = None
    sizes: dict = field(default_factory=dict)
    smallest: bool = False
    where: str = ""
    seconds: float = 0            # of the processor, after which it was not decided

    def said(self) -> str:
        text = self.verdict
        if self.verdict == "fails":
            text += " at " * bool(self.sizes) + ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
            text += ", the smallest" if self.smallest and len(self.sizes) == 1 else ""
        text += f" in {self.seconds:g} s" if self.seconds else ""
        text += f": {self.why}" if self.why else ""
        text += f", line {self.line}" if self.line and f"line {self.line}" not in text else ""
        return text + (f": {self.where}" if self.where and self.verdict == "fails" else "")


class Claims:
    def __init__(self, lift: Lift, solver: Solver, launch: dict):
        self.lift, self.solver, self.launch = lift, solver, launch
        self.found, self.doubted = {claim: Finding(claim) for claim in CLAIMS}, set()

    def all(self) -> list[Finding]:
        for kind, path, claim, line in self.lift.demands:
            self.refute(kind, [*path, z3.Not(claim)], line)
        for access in self.lift.accesses:
            self.inside(access)
        for path, turns, line in self.lift.barriers:
            self.reached(path, turns, line)
        accesses = [a for a in self.lift.accesses if a.array.space != "local"]
        for a, b in combinations_with_replacement(accesses, 2):
            if a.array is b.array and {"write", "atomic"} & {a.kind, b.kind} and (
                    (a.kind, b.kind) != ("atomic", "atomic") or a.size != b.size):
                self.apart(a, b)
        if any(a.array.space == "shared" for a in accesses):
            Banks(self).all()
        else:
            del self.found["banks"]
        self.depend()
        for claim in self.doubted & self.found.keys():
            self.found[claim].smallest = False
        return list(self.found.values())

    def depend(self) -> None:
        """What holds only while nothing overflows, or while barriers are reached, is proved only with these."""
        for claim, others in (("overflow", CLAIMS), ("barriers", ("stores", "races", "banks"))):
            first = self.found[claim]
            for other in self.found.keys() & others if first.verdict != "proved" else ():
                if self.found[other].verdict == "proved":
                    self.doubt(other, f"only where {CLAIMS[claim]}", first.line)

    def refute(self, claim, formulas, line, level=None, doubts=(), said=None) -> None:
        """Keeps the worst that is known of a claim: a failure at the smallest sizes, else the first doubt.
        `doubts` are reasons why an example would be no failure; `said` tells of a model which threads it is about."""
        kept = self.found[claim]
        if kept.verdict == "fails" and not kept.smallest:
            return
        try:
            found = self.solver.example(formulas, level)
        except Undecided:
            found = None
            self.doubt(claim, "", line, "not decided", self.solver.seconds)
        if found is None:
            return
        sizes, model, smallest, whys = found
        whys = [*doubts, *whys]
        if claim in ("stores", "races"):
            whys = whys + [f"`{name}` is not followed" for name in sorted(self.lift.notes - {"printf"})]
        if whys:
            self.doubted.add(claim)
        made = Finding(claim, "not proved" if whys else "fails", "; ".join(whys[:2]), line, sizes, smallest,
                       (said or self.threads)(model, level))
        if kept.verdict != "fails" and (made.verdict == "fails" or kept.verdict == "proved") or (
                made.verdict == kept.verdict == "fails" and list(sizes.values()) < list(kept.sizes.values())):
            self.found[claim] = made

    def doubt(self, claim, why, line, verdict="not proved", seconds=0.0) -> None:
        self.doubted.add(claim)
        if self.found[claim].verdict == "proved":
            self.found[claim] = Finding(claim, verdict, why, line, seconds=seconds)

    def threads(self, model, level) -> str:
        """Which threads a model speaks of."""
        def one(mark):
            def at(name):
                parts = [x.of.renamed(mark) for x in self.launch[name].fields.values()]
                return tuple(model.eval(part.z3(), model_completion=True).as_long() for part in parts)
            return f"thread {at('threadIdx')} of block {at('blockIdx')}"
        return one(None) if level is None else f"{one(None)} and {one(level)}"

    def inside(self, a: Access) -> None:
        if a.array.size is None:
            self.doubt("inside", f"nothing says how long {a.array.name} is", a.line)
            return
        if a.align > a.array.align:
            self.doubt("inside", f"{a.array.name} may begin at any multiple of {a.array.align} bytes", a.line)
        claims = [a.at >= 0, a.at + a.size <= a.array.size]
        claims += [z3.And(i >= 0, i < extent) for i, extent in a.inner]
        if any(factor % a.align for factor in a.at.terms.values()):
            claims.append(a.at % a.align == 0)
        self.refute("inside", [*a.path, z3.Not(z3.And(claims))], a.line)

    def reached(self, path, turns, line) -> None:
        """By both of two threads of a block, or by none, at the same turns of the loops around."""
        uneven = [p for p in path if self.lift.world.level(p) > STEP]
        if uneven:
            self.refute("barriers", [z3.And(path), z3.Not(renamed(z3.And(uneven), STEP)),
                                     *(t == t.renamed(STEP) for t in turns)], line, STEP)

    def apart(self, a: Access, b: Access) -> None:
        claim = "stores" if a.kind == b.kind == "write" else "races"
        for level in (STEP, BLOCK)[:1 + (a.array.space == "global")]:
            meet = self.overlap(a, b, level)
            if z3.is_false(z3.simplify(meet)):
                continue
            others = [*a.path, *(renamed(p, level) for p in b.path), meet, self.two(level)]
            if level == BLOCK:
                self.refute(claim, others, a.line, level)
                continue
            for barrier, turns, when in a.after:
                for barrier_b, turns_b, when_b in b.after:
                    if barrier == barrier_b:
                        same = [t == u.renamed(level) for t, u in zip(turns, turns_b)]
                        same += [*when, *(renamed(w, level) for w in when_b)]
                        self.refute(claim, others + same, a.line, level)

    def two(self, level):
        """Two threads of a block, or two blocks."""
        parts = self.launch["threadIdx" if level == STEP else "blockIdx"].fields.values()
        return z3.Or([x.of != x.of.renamed(level) for x in parts])

    @staticmethod
    def overlap(a: Access, b: Access, level):
        at, other, size = a.at, b.at.renamed(level), a.size
        if a.size == b.size and not any(f % size for f in (*at.terms.values(), *other.terms.values())):
            return at == other
        return z3.And(at < other + b.size, other < at + a.size)


