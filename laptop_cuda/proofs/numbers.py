"""Whole numbers as the machine computes them: types, conversions, overflow, division, bits."""
import z3

from .parse import NotLifted
from .terms import STEP, THREAD, Poly
from .values import Lost, Opaque, Pointer, Whole, level_of, size_of, truth_number, width

MOST_BITS = 5                     # of a mask
COMPARE = {"<": Poly.__lt__, "<=": Poly.__le__, ">": Poly.__gt__, ">=": Poly.__ge__, "==": Poly.__eq__, "!=": Poly.__ne__}


def usual(a: int, b: int) -> int:
    """The bits in which C computes with two types of whole numbers."""
    a, b = (bits if abs(bits) >= 32 else 32 for bits in (a, b))
    return min(a, b) if abs(a) == abs(b) else max(a, b, key=abs)


class Numbers:
    """Part of Lift: `self.world`, `self.sure` (the solver), `self.demand`."""

    def exact(self, x: Whole, line, bits=None) -> Poly:
        """The number that the machine has, in `bits` if a conversion gives others."""
        kind = Whole(x.of, bits or x.bits)
        if x.of.constant is not None and kind.least <= x.of.constant < kind.end:
            return x.of
        if bits is None and x.bits > 0 or self.dry or self.sure(kind.fits()):
            return x.of
        self.demand("overflow", kind.fits() if kind.bits > 0 and x.bits > 0 else x.of < kind.end, line)
        span = 2 ** abs(kind.bits)
        return x.of - (x.of - kind.least) // span * span

    def to_bits(self, x: Whole, bits: int, line) -> Whole:
        wider = abs(bits) > abs(x.bits)
        if bits < 0 or wider or bits == x.bits:
            return Whole(self.exact(x, line) if wider else x.of, bits)
        return Whole(self.exact(x, line, bits), bits)

    def convert(self, value, type, line):
        kind, bits = type.get_canonical().kind.name, width(type)
        if bits and isinstance(value, Whole):
            return self.to_bits(value, bits, line)
        if bits and isinstance(value, z3.BoolRef):
            return Whole(truth_number(self.world, value), bits)
        if bits:
            level = THREAD if isinstance(value, (Pointer, Lost)) else level_of(self.world, value)
            return self.unknown(type, level, "a number that is computed from others than whole ones", line)
        if kind == "BOOL":
            return self.condition_of(value, line)
        if isinstance(value, Whole) and kind not in ("POINTER", "FLOAT", "DOUBLE", "LONGDOUBLE", "HALF"):
            raise NotLifted(f"a number as {type.spelling}", line)
        return Opaque(level_of(self.world, value)) if kind in ("FLOAT", "DOUBLE", "LONGDOUBLE", "HALF") else value

    def condition_of(self, value, line):
        if isinstance(value, z3.BoolRef):
            return value
        if isinstance(value, Whole):
            return self.exact(value, line) != 0
        level = level_of(self.world, value) if not isinstance(value, Pointer) else 0
        return self.opaque_condition(level, line)

    def opaque_condition(self, level, line):
        return self.world.truth(max(level, STEP) if self.turns else level, f"a condition on data, line {line}")

    def arithmetic(self, how, a, b, type, line, bits=None):
        if isinstance(a, (Pointer, Lost)) or isinstance(b, (Pointer, Lost)):
            return self.pointer_arithmetic(how, a, b, type, line)
        bits = bits or width(type)
        if not bits or not isinstance(a, Whole) or not isinstance(b, Whole):
            if bits:
                return self.unknown(type, level_of(self.world, a, b), "a number that is not followed", line)
            return Opaque(level_of(self.world, a, b))
        if how in "+-*":
            made = Whole({"+": a.of + b.of, "-": a.of - b.of, "*": a.of * b.of}[how], bits)
            if bits > 0:
                self.demand("overflow", made.fits(), line)
            return made
        x, y = self.exact(a, line), self.exact(b, line)
        if how in ("<<", ">>"):
            self.demand("overflow", z3.And(y >= 0, y < abs(bits)), line)
        if how in "/%":
            return Whole(self.divided(how, x, y, bits, line), bits)
        shift = y.constant
        if how == "<<" and shift is not None and 0 <= shift < abs(bits):
            return self.arithmetic("*", a, Whole(Poly(2 ** shift), bits), type, line, bits)
        if how == "<<" and bits > 0:
            ways = [z3.Implies(y == k, Whole(x * 2 ** k, bits).fits()) for k in range(bits)]
            self.demand("overflow", z3.And(ways), line)
        if how == ">>" and shift is not None and 0 <= shift < abs(bits):
            return Whole(x // Poly(2 ** shift), bits)
        mask = y.constant if y.constant is not None else -1
        if how == "&" and mask >= 0 and mask & (mask + 1) == 0:
            return Whole(x % Poly(mask + 1), bits)
        if how in "&|^" and (x if y.constant is None else y).constant is not None:
            known, other = (x, y) if y.constant is None else (y, x)
            if known.constant >= 0 and bin(known.constant).count("1") <= MOST_BITS:
                return Whole(self.with_bits(how, other, known.constant), bits)
        return self.bitwise(how, x, y, bits, line)

    def with_bits(self, how, x: Poly, known: int) -> Poly:
        """With few bits that are known, each for itself."""
        made = Poly(0) if how == "&" else x
        for bit in (1 << b for b in range(known.bit_length()) if known >> b & 1):
            has = x // Poly(bit) % Poly(2)
            made = made + {"&": has, "|": 1 - has, "^": 1 - 2 * has}[how] * bit
        return made

    def bitwise(self, how, x, y, bits, line):
        """Bounds alone; the same operands give the same result, and of `^` one of them and the result the other."""
        both = z3.And(x >= 0, y >= 0)
        facts = {"&": lambda n: z3.And(z3.Implies(x >= 0, z3.And(n >= 0, n <= x)), z3.Implies(y >= 0, z3.And(n >= 0, n <= y))),
                 "|": lambda n: z3.Implies(both, z3.And(n >= x, n >= y, n <= x + y)),
                 "^": lambda n: z3.Implies(both, z3.And(n >= 0, n <= x + y, n >= x - y, n >= y - x, *(
                     z3.Implies(z3.And(x < 2 ** k, y < 2 ** k), n < 2 ** k) for k in range(1, 17)))),
                 "<<": lambda n: z3.And([z3.Implies(y == k, n == x * 2 ** k) for k in range(bits)]),
                 ">>": lambda n: z3.Implies(x >= 0, z3.And(n >= 0, n <= x))}
        level = self.world.level(x, y)
        return Whole(self.world.new("bits", level, facts.get(how, lambda n: z3.BoolVal(True)),
                                    lambda n: Whole(n, bits).fits(), why=f"`{how}`, line {line}",
                                    function=(f"{how} {bits}", (x, y))), bits)

    def divided(self, how, x, y, bits, line) -> Poly:
        """Rounded towards zero; a division by nothing is asked for like an overflow."""
        if y.constant is None or y.constant == 0:
            self.demand("overflow", y != 0, line)
        if bits > 0 and (y.constant is None or y.constant == -1):
            self.demand("overflow", z3.Or(y != -1, x > -2 ** (bits - 1)), line)
        if bits < 0 or self.dry or self.sure(z3.And(x >= 0, y > 0)):
            quotient, rest = self.world.divide(x, y)
        else:
            size = self.world.divide(-x, y)[0]
            quotient = self.world.divide(x, y)[0]
            quotient = self.world.one_of([([x >= 0, y > 0], quotient), ([x < 0, y > 0], -size)])
            rest = x - quotient * y
        return quotient if how == "/" else rest

    def pointer_arithmetic(self, how, a, b, type, line):
        if isinstance(a, Pointer) and isinstance(b, Pointer) and how == "-" and a.array is b.array:
            return self.unknown(type, level_of(self.world, a, b), "a difference of pointers", line)
        pointer, count = (a, b) if isinstance(a, Pointer) else (b, a)
        if not isinstance(pointer, Pointer) or not isinstance(count, Whole):
            raise NotLifted("arithmetic on pointers", line)
        by = count.of if abs(count.bits) == 64 else self.exact(count, line)
        by = by * size_of(type.get_canonical().get_pointee(), line)
        return Pointer(pointer.array, pointer.at - by if how == "-" else pointer.at + by)

    def compare(self, how, a, b, line):
        if isinstance(a, Whole) and isinstance(b, Whole):
            return COMPARE[how](self.exact(a, line), self.exact(b, line))
        if isinstance(a, Pointer) and isinstance(b, Pointer) and a.array is b.array:
            return COMPARE[how](a.at, b.at)
        if isinstance(a, z3.BoolRef) and isinstance(b, z3.BoolRef) and how in ("==", "!="):
            return a == b if how == "==" else a != b
        return self.opaque_condition(level_of(self.world, a, b), line)
