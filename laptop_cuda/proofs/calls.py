"""Calls: CUDA's own by name, functions with a body as if they were written in place."""
import re

import z3

from .flow import Flow
from .memory import operands
from .parse import NotLifted, constant, of_cuda, operator
from .terms import STEP, THREAD
from .values import Cell, Opaque, Whole, level_of, simple, width

NOTHING = ("__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system", "printf")


PLAIN = ("MEMBER_REF", "DECL_REF_EXPR", "UNEXPOSED_EXPR", "PAREN_EXPR", "INTEGER_LITERAL", "FLOATING_LITERAL", "TYPE_REF",
         "BINARY_OPERATOR", "COMPOUND_STMT", "CXX_BOOL_LITERAL_EXPR", "CXX_NULL_PTR_LITERAL_EXPR")


def body_of(function):
    return next((c for c in function.get_children() if c.kind.name == "COMPOUND_STMT"), None)


def implicit(function) -> bool:
    """A member that the compiler writes is where its class is, as those in a macro are."""
    made = function.semantic_parent
    return function.location.offset == made.location.offset and function not in list(made.get_children())


def known(function) -> bool:
    """One of CUDA's or of the compiler's, which only computes."""
    return function.spelling.startswith("__builtin_") or of_cuda(function)


def member(cursor):
    """The part of a call that names a member and its object."""
    return next((c for c in cursor.get_children() if c.kind.name == "MEMBER_REF_EXPR" and c.referenced and
                 c.referenced.kind.name in ("CXX_METHOD", "CONVERSION_FUNCTION")), None)


class Calls(Flow):
    """Part of Lift: `self.calls` are the calls around."""

    def _call_expr(self, cursor):
        function, line = cursor.referenced, cursor.location.line
        given, name = list(cursor.get_arguments()), cursor.spelling
        if function is None or not re.search("FUNCTION|METHOD|CONSTRUCTOR", function.kind.name) or function.is_virtual_method():
            raise NotLifted("a call by a pointer", line)
        if function.kind.name == "CONSTRUCTOR":
            return self.constructed(cursor, function, given, line)
        defined = function if body_of(function) else function.get_definition()
        if defined and body_of(defined) and not (name == "operator=" and implicit(function)):
            return self.inlined(cursor, defined, given, line)
        if name.startswith("__syncthreads"):
            return self.barrier(cursor, given, line)
        if name in NOTHING:
            self.notes.add(name)
            self.in_any_order(given, line)
            return Opaque()
        if name.startswith("atomic") or name in ("__ldg", "__ldcs", "__stcs"):
            return self.at_pointer(cursor, name, given, line)
        if name in ("min", "max") and width(cursor.type):
            a, b = (self.convert(value, cursor.type, line) for value in self.in_any_order(given, line))
            first = self.compare("<" if name == "min" else ">", a, b, line)
            return Whole(self.world.one_of([([first], a.of), ([z3.Not(first)], b.of)]), a.bits)
        if name == "abs" and width(cursor.type):
            a = self.convert(self.value(given[0]), cursor.type, line)
            self.demand("overflow", (-a.of) < a.end, line)
            return Whole(self.world.one_of([([a.of >= 0], a.of), ([a.of < 0], -a.of)]), a.bits)
        if name == "operator=" and implicit(function):
            simple(given[0].type, line)
            value = self.value(given[1])
            self.store(self.place(given[0]), value, given[0].type, line)
            return value
        types = [c.type.get_canonical().kind.name for c in (*function.get_arguments(), *given)]
        if not known(function) or not name.startswith("__builtin_nan") and {"POINTER", "LVALUEREFERENCE"} & {*types}:
            raise NotLifted(f"`{name}` is not followed", line)
        values = self.in_any_order(given, line)
        if function.kind.name in ("CXX_METHOD", "CONVERSION_FUNCTION"):
            values += self.own_object(cursor, function, given, line)
        level = THREAD if not given or "shfl" in name or "sync" in name or "mask" in name else level_of(self.world, *values)
        return self.unknown(cursor.type, level, f"what `{name}` gives", line)

    def constructed(self, cursor, function, given, line):
        function = function.get_definition() or function
        values = self.in_any_order(given, line)
        simple(cursor.type, line)
        fields = cursor.type.get_canonical().get_fields()
        parts = [c for of in (function, *fields) if not implicit(of) for c in of.get_children()
                 if not c.kind.is_declaration()]
        parts = [c for part in parts for c in part.walk_preorder()]
        made = implicit(function) or function.is_default_method()
        if not (made or known(function) or body_of(function)) or any(
                c.kind.name not in PLAIN or c.kind.name == "BINARY_OPERATOR" and operator(c) == "=" or
                c.kind.name == "DECL_REF_EXPR" and constant(c) is None and c.referenced.kind.name != "PARM_DECL" for c in parts):
            raise NotLifted(f"the constructor of {cursor.spelling}", line)
        if made and len(values) == 1 and given[0].type.get_canonical().spelling.removeprefix("const ") == \
                cursor.type.get_canonical().spelling.removeprefix("const "):
            return values[0]
        return Opaque(THREAD)       # fields may be without a value

    def barrier(self, cursor, given, line):
        for c in given:
            self.value(c)
        at = (tuple(self.calls), cursor.hash)
        if not self.quiet:
            self.barriers.append((list(self.state.path), tuple(self.turns), line))
        self.state.after = [(str(at), tuple(self.turns), ())]
        return self.unknown(cursor.type, STEP, "what the threads' votes give", line)

    def at_pointer(self, cursor, name, given, line):
        pointer, *_ = self.in_any_order(given, line)
        place = self.pointee(pointer, line, given[0].type.get_canonical().get_pointee())
        if not isinstance(place, Cell) or place.pointer.array.owner:
            raise NotLifted(f"{name} on a variable", line)
        type = given[0].type.get_canonical().get_pointee()
        if name.endswith("_block") and place.pointer.array.space == "global":
            raise NotLifted(f"{name}, which is of one block", line)
        kind = {"__ldg": "read", "__ldcs": "read", "__stcs": "write"}.get(name, "atomic")
        self.note_access(kind, place.pointer, place.pointer.at + place.offset, type, line)
        return self.unknown(type, THREAD, f"data of {place.pointer.array.name}", line)

    def own_object(self, cursor, function, given, line) -> list:
        """What a member of CUDA's own reads, and writes if it may."""
        of = self.object_of(member(cursor), line) if member(cursor) else self.place(given[0])
        made = function.semantic_parent.type
        found = [self.load(of, made, line)]
        if not function.is_const_method():
            self.store(of, Opaque(THREAD), made, line)
        return found

    def object_of(self, method, line):
        """Of which object `method` is: `o.f`, `p->f`, or `f` within another method."""
        if not operands(method):
            return self.this(line)
        of = operands(method)[0]
        if of.type.get_canonical().kind.name == "POINTER":
            return self.pointee(self.value(of), line, of.type.get_canonical().get_pointee())
        return self.place(of)

    def inlined(self, cursor, function, given, line):
        """A call of a function with a body: its statements, with its parameters as variables."""
        if len(self.calls) > 16:
            raise NotLifted(f"`{function.spelling}` calls itself", line)
        parameters = list(function.get_arguments())
        places = [p.type.get_canonical().kind.name in ("LVALUEREFERENCE", "RVALUEREFERENCE") for p in parameters]
        ways = [(lambda c: (self.place(c),)) if place else self.value for place in places]
        values = self.in_any_order(given, line, ways)
        method = member(cursor)
        this = self.object_of(method, line) if method else None
        if function.kind.name == "CXX_METHOD" and method is None or len(values) < len(parameters):
            raise NotLifted(f"the call of `{function.spelling}`", line)
        kept = self.frame, self.jumps, self.returns_place
        self.frames += 1
        self.frame, self.jumps = self.frames, {"return": []}
        self.returns_place = function.result_type.get_canonical().kind.name in ("LVALUEREFERENCE", "RVALUEREFERENCE")
        if self.returns_place:
            raise NotLifted(f"`{function.spelling}` returns a reference", line)
        self.calls.append(cursor.hash)
        common = len(self.state.path)
        self.state.env |= {self.key(p): value for p, value in zip(parameters, values)} | {(self.frame, "this"): this}
        self.run(body_of(function))
        value = self.meet(common, [*self.jumps["return"], (None, self.state)])
        self.calls.pop()
        self.frame, self.jumps, self.returns_place = kept
        if self.state is None:
            raise NotLifted(f"`{function.spelling}` never returns", line)
        return Opaque() if value is None else value
