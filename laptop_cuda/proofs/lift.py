"""From a kernel's syntax tree to its accesses, barriers and side conditions, each with the conditions of reaching it."""
from dataclasses import dataclass

import z3

from .flow import Flow
from .memory import operands
from .parse import NotLifted, constant
from .terms import BLOCK, SIZE, STEP, THREAD, Poly, World
from .values import Array, Cell, Opaque, Pointer, State, Struct, Variable, Whole, level_of, size_of, width

NOTHING = ("__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system", "printf")
LIMIT = {"x": 2**31 - 1, "y": 65535, "z": 65535}


@dataclass
class Access:
    kind: str                     # read, write, atomic
    array: Array
    at: Poly
    size: int
    inner: tuple
    line: int
    path: list
    after: list


class Lift(Flow):
    """`sure(conditions, claim)` says whether a claim is certain."""

    def __init__(self, cursor, world: World, launch: dict, arguments: dict, within: dict, sure):
        self.world, self.certain, self.state = world, sure, State()
        self.accesses, self.demands, self.barriers, self.notes = [], [], [], set()
        self.turns, self.calls, self.quiet, self.dry = [], [], False, False
        self.jumps, self.frame, self.frames, self.returns_place = {"return": []}, 0, 0, False
        self.arrays, self.launch, self.arguments, self.within = {}, launch, arguments, within
        for parameter in cursor.get_arguments():
            self.state.env[self.key(parameter)] = self.argument(parameter)
        self.run(self.body_of(cursor))

    def argument(self, parameter):
        """A size, an array, or a value of which nothing is known, the same for all threads."""
        name, type, given = parameter.spelling, parameter.type.get_canonical(), self.arguments.get(parameter.spelling)
        if type.kind.name == "POINTER":
            whole = type.get_pointee()
            size = None if given is None else Poly.of(given) * size_of(whole, parameter.location.line)
            return Pointer(Array(name, "global", size, whole.is_const_qualified()), Poly(0))
        if given is not None and width(type):
            made = Whole(Poly.of(given), width(type))
            self.demand("overflow", made.fits(), parameter.location.line)
            return made
        return self.unknown(type, SIZE, f"the argument {name}", parameter.location.line)

    # what Expressions and Flow ask for

    def sure(self, claim) -> bool:
        return self.certain(self.state.path, claim)

    def demand(self, kind, claim, line) -> None:
        if not (self.quiet or z3.is_true(z3.simplify(claim))):
            self.demands.append((kind, list(self.state.path), claim, line))

    def note_access(self, kind, pointer, at, size, line) -> None:
        if not self.quiet:
            self.accesses.append(Access(kind, pointer.array, at, size, pointer.inner, line, list(self.state.path),
                                        list(self.state.after)))

    @staticmethod
    def body_of(function):
        return next((c for c in function.get_children() if c.kind.name == "COMPOUND_STMT"), None)

    @staticmethod
    def implicit(function) -> bool:
        """A member that the compiler writes is where its class is."""
        return function.location.offset == function.semantic_parent.location.offset

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
        if declaration.spelling in self.launch:
            self.state.env[key] = self.launch[declaration.spelling]
            return Variable(key)
        known = constant(cursor)
        if known is not None and (width(cursor.type) or cursor.type.get_canonical().kind.name == "BOOL"):
            self.state.env[key] = Whole(Poly(known), width(cursor.type)) if width(cursor.type) else z3.BoolVal(bool(known))
            return Variable(key)
        if declaration.kind.name != "VAR_DECL" or declaration.semantic_parent.kind.name not in ("TRANSLATION_UNIT", "NAMESPACE"):
            raise NotLifted(f"`{declaration.spelling}`, which is not followed", line)
        type = declaration.type.get_canonical()
        if type.is_const_qualified() and type.kind.name in ("FLOAT", "DOUBLE"):
            self.state.env[key] = Opaque()
            return Variable(key)
        return Cell(Pointer(self.array(declaration, "global", type), Poly(0)))

    def array(self, declaration, space, type) -> Array:
        at = (declaration.hash, declaration.location.offset, declaration.spelling)
        if at not in self.arrays:
            self.arrays[at] = Array(declaration.spelling, space, Poly(size_of(type, declaration.location.line)))
        return self.arrays[at]

    def declare(self, cursor) -> None:
        type, line, key = cursor.type.get_canonical(), cursor.location.line, self.key(cursor)
        marks = [c.spelling for c in cursor.get_children() if c.kind.name == "ANNOTATE_ATTR"]
        first = operands(cursor)[-1] if operands(cursor) else None
        if "shared" in marks and type.kind.name == "INCOMPLETEARRAY":
            array = self.arrays.setdefault("dynamic", Array(cursor.spelling, "shared", self.launch["shared"]))
            self.state.env[key] = (Cell(Pointer(array, Poly(0))),)
        elif "shared" in marks:
            self.state.env[key] = (Cell(Pointer(self.array(cursor, "shared", type), Poly(0))),)
        elif type.kind.name in ("LVALUEREFERENCE", "RVALUEREFERENCE"):
            self.state.env[key] = (self.place(first),)
        elif type.kind.name == "CONSTANTARRAY":
            for part in first.walk_preorder() if first is not None and first.kind.name == "INIT_LIST_EXPR" else ():
                if part.kind.name == "CALL_EXPR" or part.kind.name == "ARRAY_SUBSCRIPT_EXPR":
                    raise NotLifted("an array that begins with computed values", line)
            self.state.env[key] = (Cell(Pointer(Array(cursor.spelling, "local", Poly(size_of(type, line))), Poly(0))),)
        elif cursor.storage_class.name == "STATIC":
            raise NotLifted("a static variable", line)
        elif first is not None:
            self.state.env[key] = self.held(self.value(first), type, line)
        else:
            self.state.env[key] = self.unknown(type, THREAD, "a variable without a value", line)

    def held(self, value, type, line):
        return value

    # calls

    def _call_expr(self, cursor):
        function, line = cursor.referenced, cursor.location.line
        given, name = list(cursor.get_arguments()), cursor.spelling
        if function is None:
            raise NotLifted("a call by a pointer", line)
        if function.kind.name == "CONSTRUCTOR":
            return self.constructed(cursor, function, given, line)
        if name.startswith("__syncthreads"):
            return self.barrier(cursor, given, line)
        if name in NOTHING:
            self.notes.add(name)
            return [self.value(c) for c in given] and Opaque()
        if name.startswith("atomic") or name in ("__ldg", "__ldcs", "__stcs"):
            return self.at_pointer(cursor, name, given, line)
        if name in ("min", "max") and width(cursor.type):
            a, b = (self.convert(self.value(c), cursor.type, line) for c in given)
            first = self.compare("<" if name == "min" else ">", a, b, line)
            return Whole(self.world.one_of([([first], a.of), ([z3.Not(first)], b.of)]), a.bits)
        if name == "abs" and width(cursor.type):
            a = self.convert(self.value(given[0]), cursor.type, line)
            return Whole(self.world.one_of([([a.of >= 0], a.of), ([a.of < 0], -a.of)]), a.bits)
        if name == "operator=" and self.implicit(function):
            value = self.value(given[1])
            self.store(self.place(given[0]), value, given[0].type, line)
            return value
        body = self.body_of(function) or (function.get_definition() and self.body_of(function.get_definition()))
        if body is not None:
            return self.inlined(cursor, function if self.body_of(function) else function.get_definition(), body, given, line)
        for child, argument in zip(function.get_arguments(), given):
            if child.type.get_canonical().kind.name in ("POINTER", "LVALUEREFERENCE"):
                raise NotLifted(f"`{name}` is not followed", line)
        values = [self.value(c) for c in given]
        if function.kind.name == "CXX_METHOD" and not function.is_const_method():
            method = next((c for c in cursor.get_children() if c.kind.name == "MEMBER_REF_EXPR"), None)
            self.store(self.place(operands(method)[0] if method else given[0]), Opaque(THREAD), cursor.type, line)
        level = THREAD if "shfl" in name or "sync" in name or "mask" in name else level_of(self.world, *values)
        return self.unknown(cursor.type, level, f"what `{name}` gives", line)

    def constructed(self, cursor, function, given, line):
        values = [self.value(c) for c in given]
        body = self.body_of(function)
        if body is not None and not self.implicit(function) and any(True for _ in body.get_children()):
            raise NotLifted(f"the constructor of {cursor.spelling}", line)
        if len(values) == 1 and given[0].type.get_canonical().spelling.removeprefix("const ") == \
                cursor.type.get_canonical().spelling.removeprefix("const "):
            return values[0]
        return Opaque(level_of(self.world, *values))

    def barrier(self, cursor, given, line):
        for c in given:
            self.value(c)
        at = (tuple(self.calls), cursor.hash)
        if not self.quiet:
            self.barriers.append((list(self.state.path), tuple(self.turns), line))
        self.state.after = [(str(at), tuple(self.turns), ())]
        return self.unknown(cursor.type, STEP, "what the threads' votes give", line)

    def at_pointer(self, cursor, name, given, line):
        place = self.pointee(self.value(given[0]), line, given[0].type.get_canonical().get_pointee())
        if not isinstance(place, Cell):
            raise NotLifted(f"{name} on a variable", line)
        for c in given[1:]:
            self.value(c)
        type = given[0].type.get_canonical().get_pointee()
        kind = {"__ldg": "read", "__ldcs": "read", "__stcs": "write"}.get(name, "atomic")
        self.note_access(kind, place.pointer, place.pointer.at + place.offset, size_of(type, line), line)
        return self.unknown(type, THREAD, f"data of {place.pointer.array.name}", line)

    def inlined(self, cursor, function, body, given, line):
        """A call of a function with a body: its statements, with its parameters as variables."""
        if len(self.calls) > 16:
            raise NotLifted(f"`{function.spelling}` calls itself", line)
        parameters = list(function.get_arguments())
        places = [p.type.get_canonical().kind.name == "LVALUEREFERENCE" for p in parameters]
        values = [(self.place(c),) if place else self.value(c) for c, place in zip(given, places)]
        method = next((c for c in cursor.get_children() if c.kind.name == "MEMBER_REF_EXPR"), None)
        this = (self.place(operands(method)[0]) if operands(method) else self.this(line)) if method else None
        if function.kind.name == "CXX_METHOD" and method is None or len(values) < len(parameters):
            raise NotLifted(f"the call of `{function.spelling}`", line)
        kept = self.frame, self.jumps, self.returns_place
        self.frames += 1
        self.frame, self.jumps = self.frames, {"return": []}
        self.returns_place = function.result_type.get_canonical().kind.name == "LVALUEREFERENCE"
        if self.returns_place:
            raise NotLifted(f"`{function.spelling}` returns a reference", line)
        self.calls.append(cursor.hash)
        common = len(self.state.path)
        self.state.env |= {self.key(p): value for p, value in zip(parameters, values)} | {(self.frame, "this"): this}
        self.run(body)
        value = self.meet(common, [*self.jumps["return"], (None, self.state)])
        self.calls.pop()
        self.frame, self.jumps, self.returns_place = kept
        if self.state is None:
            raise NotLifted(f"`{function.spelling}` never returns", line)
        return Opaque() if value is None else value


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


