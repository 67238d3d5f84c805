"""From a kernel's syntax tree to its accesses, barriers and side conditions, each with the conditions of reaching it."""
from dataclasses import dataclass

import z3

from .calls import Calls, body_of
from .memory import operands
from .parse import NotLifted, alignment, begins, constant, of_cuda
from .terms import BLOCK, SIZE, THREAD, Poly, World
from .values import (Array, Cell, Opaque, Pointer, State, Struct, Variable, Whole, plain, simple, size_of,
                     width)

LIMIT = {"x": 2**31 - 1, "y": 65535, "z": 65535}


@dataclass
class Access:
    kind: str                     # read, write, atomic
    array: Array
    at: Poly
    size: int
    align: int
    inner: tuple
    line: int
    path: list
    after: list
    turns: tuple                  # of the loops around


class Lift(Calls):
    """`sure(conditions, claim)` says whether a claim is certain."""

    def __init__(self, cursor, world: World, launch: dict, arguments: dict, within: dict, sure):
        self.world, self.certain, self.state = world, sure, State()
        self.accesses, self.demands, self.barriers, self.notes = [], [], [], set()
        self.turns, self.calls, self.stored, self.quiet, self.dry = [], [], [], False, False
        self.jumps, self.frame, self.frames, self.returns_place, self.strays = {"return": []}, 0, 0, False, None
        self.arrays, self.launch, self.arguments, self.within = {}, launch, arguments, within
        cursor = cursor.get_definition() or cursor
        if body_of(cursor) is None:
            raise NotLifted("a kernel whose body is not shown")
        for parameter in cursor.get_arguments():
            self.state.env[self.key(parameter)] = self.argument(parameter)
        self.run(body_of(cursor))

    def argument(self, parameter):
        """A size, an array, or a value of which nothing is known, the same for all threads."""
        name, type = parameter.spelling, parameter.type.get_canonical()
        given = self.arguments.get(name)
        if type.kind.name == "POINTER":
            whole = type.get_pointee()
            size = None if given is None else Poly.of(given) * size_of(whole, parameter.location.line)
            constant = whole.is_const_qualified() and not whole.is_volatile_qualified()
            return Pointer(Array(name, "global", size, constant, type=plain(whole)), Poly(0))
        if given is not None and width(type):
            made = Whole(Poly.of(given), width(type))
            self.demand("overflow", made.fits(), parameter.location.line)
            return made
        simple(type, parameter.location.line)
        return self.unknown(type, SIZE, f"the argument {name}", parameter.location.line)

    # what Expressions and Flow ask for

    def sure(self, claim) -> bool:
        return self.certain(self.state.path, claim)

    def demand(self, kind, claim, line) -> None:
        if not (self.quiet or z3.is_true(z3.simplify(claim))):
            self.demands.append((kind, list(self.state.path), claim, line))

    def note_access(self, kind, pointer, at, type, line) -> None:
        if kind != "read" and pointer.array.read_only:
            raise NotLifted(f"{pointer.array.name} is constant and written", line)
        if not self.quiet:
            size, align = size_of(type, line), type.get_canonical().get_align()
            self.accesses.append(Access(kind, pointer.array, at, size, align, pointer.inner, line,
                                        list(self.state.path), list(self.state.after), tuple(self.turns)))

    def key(self, declaration) -> tuple:
        return (self.frame, declaration.hash, declaration.location.offset, declaration.spelling)

    def this(self, line):
        found = self.state.env.get((self.frame, "this"))
        if found is None:
            raise NotLifted("a member without its object", line)
        return found

    def named(self, cursor):
        """The place of a name."""
        declaration, line = cursor.referenced, cursor.location.line
        key = self.key(declaration)
        if key in self.state.env:
            found = self.state.env[key]
            return found[0] if isinstance(found, tuple) else Variable(key)
        if isinstance(self.launch.get(declaration.spelling), Struct) and of_cuda(declaration):
            self.state.env[key] = self.launch[declaration.spelling]
            return Variable(key)
        known = constant(cursor)
        if known is not None and (width(cursor.type) or cursor.type.get_canonical().kind.name == "BOOL"):
            bits = width(cursor.type)
            self.state.env[key] = Whole(Poly(known), bits) if bits else z3.BoolVal(bool(known))
            return Variable(key)
        if declaration.kind.name != "VAR_DECL" or declaration.semantic_parent.kind.name not in ("TRANSLATION_UNIT", "NAMESPACE"):
            raise NotLifted(f"`{declaration.spelling}`, which is not followed", line)
        type = declaration.type.get_canonical()
        if type.is_const_qualified() and type.kind.name in ("FLOAT", "DOUBLE"):
            self.state.env[key] = Opaque()
            return Variable(key)
        return Cell(Pointer(self.array(declaration, "global", type), Poly(0)))

    def array(self, declaration, space, type) -> Array:
        at = declaration.canonical.hash, declaration.spelling
        if at not in self.arrays:
            size = size_of(type, declaration.location.line)
            align = alignment(declaration, type)
            marks = {c.spelling for c in declaration.get_children() if c.kind.name == "ANNOTATE_ATTR"}
            self.arrays[at] = Array(declaration.spelling, space, Poly(size), "constant" in marks, align=align)
        return self.arrays[at]

    def declare(self, cursor) -> None:
        type, line, key = cursor.type.get_canonical(), cursor.location.line, self.key(cursor)
        marks = [c.spelling for c in cursor.get_children() if c.kind.name == "ANNOTATE_ATTR"]
        first = operands(cursor)[-1:] if begins(cursor) else [None]
        if not first:
            raise NotLifted("a value that libclang does not show", line)
        first, = first
        simple(type, line)
        table = type.kind.name == "CONSTANTARRAY" and type.element_type.is_const_qualified()
        if cursor.storage_class.name in ("STATIC", "EXTERN") and "shared" not in marks and not table:
            raise NotLifted("a static variable, or one of another file", line)
        if any(c.kind.name == "UNEXPOSED_ATTR" for c in cursor.get_children()):
            raise NotLifted("a variable with an attribute", line)
        if "shared" in marks and cursor.storage_class.name == "EXTERN":       # whatever length it gives
            array = self.arrays.setdefault("dynamic", Array(cursor.spelling, "shared", self.launch["shared"]))
            self.state.env[key] = (Cell(Pointer(array, Poly(0))),)
        elif "shared" in marks:
            self.state.env[key] = (Cell(Pointer(self.array(cursor, "shared", type), Poly(0))),)
        elif type.kind.name in ("LVALUEREFERENCE", "RVALUEREFERENCE"):
            self.state.env[key] = (self.place(first),)
        elif type.kind.name == "CONSTANTARRAY":
            if first is not None:
                self.value(first)
            array = Array(cursor.spelling, "local", Poly(size_of(type, line)), align=alignment(cursor, type))
            self.state.env[key] = (Cell(Pointer(array, Poly(0))),)
        elif first is not None:
            self.state.env[key] = self.convert(self.value(first), type, line)
        else:
            self.state.env[key] = self.unknown(type, THREAD, "a variable without a value", line)


def launch_of(world: World, grid, block, shared) -> dict:
    """threadIdx and its like; the limits of a launch are axioms of the indices."""
    found = {"shared": Poly.of(shared)}
    for name, index, sizes, level in (("blockIdx", "gridDim", grid, BLOCK), ("threadIdx", "blockDim", block, THREAD)):
        parts = {}
        for axis, size in zip("xyz", sizes):
            one = size.constant == 1
            parts[axis] = Whole(Poly(0) if one else world.new(f"{name}.{axis}", level, lambda n: n >= 0,
                                                              lambda n: n < size), -32)
        found[name] = Struct(parts)
        found[index] = Struct({axis: Whole(size, -32) for axis, size in zip("xyz", sizes)})
    return found


