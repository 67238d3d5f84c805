"""What a kernel's variables hold: whole numbers, conditions, pointers, structs, and what nothing is known of."""
import re
from dataclasses import dataclass, field

import z3

from .parse import WIDTHS, NotLifted, constant, members
from .terms import SIZE, THREAD, Poly


@dataclass
class Whole:
    """`of`, or what has the same remainder where the type has no sign: reduced when it matters (`Lift.exact`)."""
    of: Poly
    bits: int                     # negative where there is no sign

    @property
    def least(self) -> int:
        return -2 ** (self.bits - 1) if self.bits > 0 else 0

    @property
    def end(self) -> int:
        return 2 ** (self.bits - 1) if self.bits > 0 else 2 ** -self.bits

    def fits(self):
        return z3.And(self.of >= self.least, self.of < self.end)


@dataclass(eq=False)
class Array:
    name: str
    space: str                    # global, shared, local
    size: Poly | None             # bytes; None: not said
    read_only: bool = False
    owner: object = None          # the place of a variable whose address was taken
    type: str = ""                # of an element, or of that variable
    align: int = 256


@dataclass
class Pointer:
    array: Array
    at: Poly                      # bytes
    inner: tuple = ()             # (index, extent) of subscripts of arrays of arrays


@dataclass
class Opaque:
    """A float, or a struct of which nothing is known."""
    level: int = SIZE


@dataclass
class Struct:
    fields: dict
    rest: int = SIZE              # who shares the fields that are not known


@dataclass
class Lost:
    """What cannot be followed, once it is used."""
    why: str


@dataclass(frozen=True)
class Variable:
    key: tuple


@dataclass
class Member:
    of: object
    name: str


@dataclass
class Cell:
    pointer: Pointer
    offset: int = 0


@dataclass
class State:
    """Where a thread has come to: what variables hold, under which conditions, after which barrier."""
    env: dict = field(default_factory=dict)
    path: list = field(default_factory=list)
    after: list = field(default_factory=lambda: [("start", (), ())])   # (barrier, turns of its loops, conditions)

    def copy(self, *conditions, after=None) -> "State":
        return State(dict(self.env), [*self.path, *conditions], list(self.after if after is None else after))


def width(type) -> int | None:
    type = type.get_canonical()
    if type.kind.name == "ENUM":
        type = type.get_declaration().enum_type.get_canonical()
    return WIDTHS.get(type.kind.name)


def plain(type) -> str:
    """Its name without const and volatile."""
    return re.sub(r"\b(const|volatile|__restrict) ?", "", type.get_canonical().spelling).strip()


CONSTANTS = ("INTEGER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CHARACTER_LITERAL", "UNEXPOSED_EXPR", "PAREN_EXPR",
             "BINARY_OPERATOR", "UNARY_OPERATOR", "INIT_LIST_EXPR", "CXX_UNARY_EXPR", "CXX_NULL_PTR_LITERAL_EXPR")


def computed(field) -> bool:
    """Whether a field begins with more than a constant."""
    def fixed(c):
        named = c.kind.name == "DECL_REF_EXPR" and c.referenced
        return c.kind.name in CONSTANTS or named and (named.kind.name.startswith("TEMPLATE") or constant(c) is not None)
    return any(c.kind.is_expression() and not fixed(c) for c in field.walk_preorder())


def works(c) -> bool:
    """Whether a member does something where an object that has this one in it begins or is copied."""
    made = c.is_default_constructor() or c.is_copy_constructor() or c.is_move_constructor()
    return (made or c.spelling == "operator=") and not c.is_default_method()


def simple(type, line, within=False) -> None:
    """An object whose fields are places of their own, and that does nothing when it ends, nor when one around it begins."""
    while type.get_canonical().kind.name == "CONSTANTARRAY":
        type = type.get_canonical().element_type
    if type.get_canonical().kind.name == "RECORD":
        made = type.get_canonical().get_declaration()
        inside = members(made)
        kinds = {made.kind.name, *(c.kind.name for c in inside)}
        fields = list(type.get_canonical().get_fields())
        if kinds & {"UNION_DECL", "CXX_BASE_SPECIFIER", "DESTRUCTOR"} or any(
                f.is_bitfield() or "REFERENCE" in f.type.kind.name for f in fields):
            raise NotLifted(f"an object of {made.spelling}: unions, bits, references, bases, destructors", line)
        if any(c.kind.name == "FIELD_DECL" and computed(c) or within and works(c) for c in inside):
            raise NotLifted(f"an object of {made.spelling}, which computes where it begins", line)
        for each in fields:
            simple(each.type, line, True)


def size_of(type, line) -> int:
    size = type.get_canonical().get_size()
    if size < 1:
        raise NotLifted(f"the size of {type.spelling} is not known", line)
    return size


def level_of(world, *values) -> int:
    """Who shares them."""
    level = SIZE
    for value in values:
        if isinstance(value, Whole):
            level = max(level, world.level(value.of))
        elif isinstance(value, z3.BoolRef):
            level = max(level, world.level(value))
        elif isinstance(value, Pointer):
            level = max(level, world.level(value.at))
        elif isinstance(value, Opaque):
            level = max(level, value.level)
        elif isinstance(value, Struct):
            level = max(level, value.rest, level_of(world, *value.fields.values()))
        elif isinstance(value, Lost):
            level = THREAD
    return level


def joined(world, whens: list, values: list):
    """One of the values, whose conditions are given."""
    first = values[0]
    if all(value is first for value in values):
        return first
    level = max(level_of(world, *values), world.level(*(c for when in whens for c in when)))
    if all(isinstance(v, Whole) and v.bits == first.bits for v in values):
        return Whole(world.one_of([(when, v.of) for when, v in zip(whens, values)]), first.bits)
    if all(isinstance(v, z3.BoolRef) for v in values):
        either = world.one_of([(when, truth_number(world, v)) for when, v in zip(whens, values)])
        return either >= 1
    if all(isinstance(v, Pointer) and v.array is first.array and v.inner is first.inner for v in values):
        at = world.one_of([(when, v.at) for when, v in zip(whens, values)])
        return Pointer(first.array, at, first.inner)
    if all(isinstance(v, Struct) and v.fields.keys() == first.fields.keys() for v in values):
        fields = {name: joined(world, whens, [v.fields[name] for v in values]) for name in first.fields}
        return Struct(fields, level)
    if any(isinstance(v, (Pointer, Lost)) for v in values):
        return Lost("a pointer that may be of two arrays, or of two rows of one")
    return Opaque(level)


def truth_number(world, condition) -> Poly:
    if z3.is_true(condition) or z3.is_false(condition):
        return Poly(int(z3.is_true(condition)))
    return world.new("truth", world.level(condition), lambda n: z3.If(condition, n == 1, n == 0))


def difference(first, now, mark: int) -> Poly | None:
    """What a turn adds, if that is the same in each: no symbol from number `mark` on is in it."""
    if isinstance(first, Whole) and isinstance(now, Whole) and first.bits == now.bits:
        by = now.of - first.of
    elif isinstance(first, Pointer) and isinstance(now, Pointer) and first.array is now.array:
        by = now.at - first.at
    else:
        return None
    return None if any(int(name.rsplit(".", 1)[1]) >= mark for names in by.terms for name in names) else by
