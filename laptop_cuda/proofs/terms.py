"""Whole numbers of a kernel as polynomials over symbols, and what is known of each symbol.

Conditions are z3's, over one variable per monomial: "k*row" is a variable, and what holds of products is added
as lemmas (`solve`). Every axiom is true of every run of the kernel, whatever it says elsewhere."""
from dataclasses import dataclass, field

import z3

SIZE, BLOCK, STEP, THREAD = range(4)   # shared by all, by a block, by its threads at one turn, by nobody


class Poly:
    """{(names of a monomial, sorted): factor}; compares into z3 conditions."""

    def __init__(self, terms=0):
        terms = {(): terms} if isinstance(terms, int) else terms
        self.terms = {names: factor for names, factor in terms.items() if factor}

    @staticmethod
    def of(x) -> "Poly":
        return x if isinstance(x, Poly) else Poly(x)

    @property
    def constant(self) -> int | None:
        return None if any(self.terms) else self.terms.get((), 0)

    def key(self):
        return frozenset(self.terms.items())

    def __add__(self, other):
        terms = dict(self.terms)
        for names, factor in Poly.of(other).terms.items():
            terms[names] = terms.get(names, 0) + factor
        return Poly(terms)

    def __mul__(self, other):
        other = Poly.of(other)
        if self.constant is None and other.constant is None:
            World.now.products.setdefault(self.key(), (self, {}))[1][other.key()] = other
            World.now.products.setdefault(other.key(), (other, {}))[1][self.key()] = self
        return self.times(other)

    def times(self, other: "Poly") -> "Poly":
        terms = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                names = tuple(sorted(a + b))
                terms[names] = terms.get(names, 0) + x * y
        return Poly(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return Poly({names: -factor for names, factor in self.terms.items()})

    def __sub__(self, other):
        return self + -Poly.of(other)

    def __rsub__(self, other):
        return -self + other

    def __floordiv__(self, other):
        return World.now.divide(self, Poly.of(other))[0]

    def __mod__(self, other):
        return World.now.divide(self, Poly.of(other))[1]

    def z3(self):
        return z3.Sum([factor * z3.Int("*".join(names)) if names else z3.IntVal(factor)
                       for names, factor in self.terms.items()] or [z3.IntVal(0)])

    def _compared(self, other, how):
        difference = self - other
        if difference.constant is not None:
            return z3.BoolVal(how(difference.constant, 0))
        return how(difference.z3(), 0)

    def __lt__(self, other):
        return self._compared(other, lambda a, b: a < b)

    def __le__(self, other):
        return self._compared(other, lambda a, b: a <= b)

    def __gt__(self, other):
        return self._compared(other, lambda a, b: a > b)

    def __ge__(self, other):
        return self._compared(other, lambda a, b: a >= b)

    def __eq__(self, other):
        return self._compared(other, lambda a, b: a == b)

    def __ne__(self, other):
        return self._compared(other, lambda a, b: a != b)

    __hash__ = None

    def names(self) -> set[str]:
        """Those of its variables."""
        return {"*".join(names) for names in self.terms if names}

    def renamed(self, level, marks: int = 1):
        """As another thread has it, the second by one mark, a third by two; the same without a level."""
        if level is None or not marks:
            return self
        return Poly({renamed_names(names, level, marks): factor for names, factor in self.terms.items()})


@dataclass
class Symbol:
    level: int
    why: str = ""                  # what a value that nothing is known of comes from
    axioms: list = field(default_factory=list)
    function: tuple | None = None  # (name, arguments): equal arguments give equal values


class World:
    """The symbols of one proof."""
    now: "World"

    def __init__(self):
        World.now, self.symbols, self.products, self.divided = self, {}, {}, {}

    def new(self, hint: str, level: int, *axioms, why: str = "", function: tuple | None = None) -> Poly:
        """`axioms` are functions of the symbol."""
        name = f"{hint}.{len(self.symbols)}"
        self.symbols[name] = Symbol(level, why, function=function)
        made = Poly({(name,): 1})
        self.symbols[name].axioms += [axiom(made) for axiom in axioms]
        return made

    def truth(self, level: int, why: str, function: tuple | None = None):
        return self.new("when", level, why=why, function=function) >= 1

    def level(self, *formulas) -> int:
        return max((self.symbols[name].level for f in formulas for name in symbols_of(f)), default=SIZE)

    def divide(self, a: Poly, b: Poly) -> tuple[Poly, Poly]:
        """Quotient and remainder, rounded down; nothing is known where b is not positive."""
        if a.constant is not None and b.constant:
            return Poly(a.constant // b.constant), Poly(a.constant % b.constant)
        key = a.key(), b.key()
        if key not in self.divided:
            level = self.level(a, b)
            quotient = self.new("div", level)
            rest = a - quotient * b
            self.symbols[only(quotient)].axioms.append(z3.Implies(b > 0, z3.And(rest >= 0, rest < b)))
            self.divided[key] = quotient, rest
        return self.divided[key]

    def one_of(self, cases: list[tuple[list, Poly]], hint: str = "merged") -> Poly:
        """The value of whichever case holds; nothing is known where none does."""
        if all((value - cases[0][1]).constant == 0 for _, value in cases):
            return cases[0][1]
        level = self.level(*(f for when, value in cases for f in (*when, value)))
        whens = [z3.And(when) if when else z3.BoolVal(True) for when, _ in cases]
        return self.new(hint, level, lambda made: z3.Or(
            *(z3.And(when, made == value) for when, (_, value) in zip(whens, cases)), z3.Not(z3.Or(whens))))


def only(symbol: Poly) -> str:
    return next(iter(symbol.terms))[0]


def symbols_of(x) -> set[str]:
    """The symbols of a polynomial or a condition, without the marks of a second thread."""
    names = x.terms if isinstance(x, Poly) else (name.split("*") for name in variables(x))
    return {name.rstrip("'") for monomial in names for name in monomial}


_kept = {}


def variables(formula) -> frozenset[str]:
    """The variables of a z3 formula: monomials."""
    key = formula.get_id()
    if key not in _kept:
        found = frozenset().union(*map(variables, formula.children()))
        if formula.num_args() == 0 and formula.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found = frozenset([formula.decl().name()])
        _kept[key] = formula, found        # kept alive: an id is used again
    return _kept[key][1]


def renamed_names(names: tuple[str, ...], level: int, marks: int = 1) -> tuple[str, ...]:
    """As another thread has them: its own symbols are those of `level` and above."""
    return tuple(sorted(name + "'" * marks if World.now.symbols[name].level >= level else name for name in names))


def renamed(formula, level: int, marks: int = 1):
    pairs = []
    for name in variables(formula) if marks else ():
        new = "*".join(renamed_names(tuple(name.split("*")), level, marks))
        if new != name:
            pairs.append((z3.Int(name), z3.Int(new)))
    return z3.substitute(formula, *pairs) if pairs else formula


def parts(condition) -> list:
    return [p for c in condition.children() for p in parts(c)] if z3.is_and(condition) else [condition]


def move(now, later):
    """That a comparison with 0 comes nearer to being false."""
    if now.num_args() != 2 or not z3.is_int(now.arg(0)) or not now.decl().eq(later.decl()):
        return z3.BoolVal(False)
    x, y = now.arg(0), later.arg(0)
    if z3.is_distinct(now):
        return z3.Or(z3.And(x > 0, y < x, y >= 0), z3.And(x < 0, y > x, y <= 0))
    if z3.is_lt(now) or z3.is_le(now):
        return y > x
    return y < x if z3.is_gt(now) or z3.is_ge(now) else z3.BoolVal(False)
