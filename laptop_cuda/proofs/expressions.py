"""The value of an expression, and the accesses and side conditions that it brings."""
import z3

from .memory import Memory, operands, refers_to
from .numbers import COMPARE, usual
from .parse import NotLifted, constant, members, operator
from .terms import Poly
from .values import (Array, Cell, Member, Opaque, Pointer, Struct, Variable, Whole, level_of, plain, simple,
                     size_of, width)


class Expressions(Memory):
    """Part of Lift: `self.state`, `self.world`, `self.sure` (the solver), `self.note_access`, `self.demand`."""

    def value(self, cursor):
        method = getattr(self, "_" + cursor.kind.name.lower(), None)
        if method is None:
            raise NotLifted(f"{cursor.kind.name.lower().replace('_', ' ')}", cursor.location.line)
        return method(cursor)

    # one method per kind of cursor

    def _unexposed_expr(self, cursor):
        inside = operands(cursor)
        if len(inside) != 1 or cursor.kind.name == "UNEXPOSED_EXPR" and inside[0].extent != cursor.extent:
            known = constant(cursor)             # `offsetof`, `noexcept` and their like have an operand too
            if known is None:
                raise NotLifted("an expression that libclang does not show", cursor.location.line)
            return self.convert(Whole(Poly(known), 64), cursor.type, cursor.location.line)
        here, there = cursor.type.get_canonical(), inside[0].type.get_canonical()
        if there.kind.name in ("CONSTANTARRAY", "INCOMPLETEARRAY") and here.kind.name == "POINTER":
            return self.load_array(inside[0])
        self.same_object(here, there, cursor.location.line)
        return self.convert(self.value(inside[0]), cursor.type, cursor.location.line)

    _paren_expr = _unexposed_expr

    def _cast(self, cursor):
        line = cursor.location.line
        if cursor.type.get_canonical().kind.name == "VOID":
            self.value(operands(cursor)[-1])
            return Opaque()
        if refers_to(cursor):
            return self.load(self.place(cursor), cursor.type, line)
        self.same_object(cursor.type, operands(cursor)[-1].type, line)
        return self.convert(self.value(operands(cursor)[-1]), cursor.type, line)

    def same_object(self, here, there, line):
        """A pointer to an object as one to another type: that of a base may be another number."""
        types = [t.get_canonical().get_pointee().get_canonical() for t in (here, there)]
        made = [t.get_declaration() for t in types if t.kind.name == "RECORD"]
        if len(made) == 2 and made[0] != made[1] and any(
                c.kind.name == "CXX_BASE_SPECIFIER" for m in made for c in members(m)):
            raise NotLifted("a pointer to a base", line)

    _cstyle_cast_expr = _cxx_static_cast_expr = _cxx_reinterpret_cast_expr = _cxx_const_cast_expr = _cast
    _cxx_functional_cast_expr = _cast

    def _integer_literal(self, cursor):
        known = constant(cursor)
        if known is None:
            raise NotLifted("a number that libclang does not give", cursor.location.line)
        return Whole(Poly(known), width(cursor.type) or 32)

    _character_literal = _cxx_unary_expr = _integer_literal

    def _cxx_bool_literal_expr(self, cursor):
        return z3.BoolVal(bool(constant(cursor)))

    def _floating_literal(self, cursor):
        return Opaque()

    _cxx_null_ptr_literal_expr = _gnu_null_expr = _floating_literal

    def _string_literal(self, cursor):
        return Opaque()

    def _decl_ref_expr(self, cursor):
        for given in operands(cursor) if cursor.referenced is None else ():    # an argument of a template
            return self.convert(self.value(given), cursor.type, cursor.location.line)
        if cursor.referenced.kind.name == "ENUM_CONSTANT_DECL":
            return Whole(Poly(cursor.referenced.enum_value), width(cursor.type) or 64)
        return self.load(self.place(cursor), cursor.type, cursor.location.line)

    def _member_ref_expr(self, cursor):
        if cursor.referenced.kind.name == "VAR_DECL":
            return self._integer_literal(cursor)
        return self.load(self.place(cursor), cursor.type, cursor.location.line)

    def _array_subscript_expr(self, cursor):
        return self.load(self.place(cursor), cursor.type, cursor.location.line)

    def _cxx_this_expr(self, cursor):
        return self.this(cursor.location.line)

    def _init_list_expr(self, cursor):
        values, type = [self.value(c) for c in operands(cursor)], cursor.type.get_canonical()
        if type.kind.name == "RECORD":
            line, fields = cursor.location.line, list(type.get_fields())
            simple(type, line)
            if len(values) == 1 and plain(operands(cursor)[0].type) == plain(type):
                return values[0]
            for field, given in zip(fields, operands(cursor)):
                nested = {"RECORD", "CONSTANTARRAY"} & {field.type.get_canonical().kind.name}
                if nested and plain(field.type) != plain(given.type) or given.type.kind.name == "VOID":
                    raise NotLifted("braces that leave out braces, or that name fields", line)
            return Struct({f.spelling: self.convert(v, f.type, line) for f, v in zip(fields, values)})
        return values[0] if len(values) == 1 and type.kind.name != "CONSTANTARRAY" else Opaque(level_of(self.world, *values))

    def _conditional_operator(self, cursor):
        test, yes, no = operands(cursor)
        return self.branch(self.condition(test), lambda: self.value(yes), lambda: self.value(no))

    def condition(self, cursor):
        return self.condition_of(self.value(cursor), cursor.location.line)

    def _unary_operator(self, cursor):
        how, (of,), line = operator(cursor), operands(cursor), cursor.location.line
        if how in ("x++", "x--", "++", "--"):
            place = self.place(of)
            before = self.load(place, of.type, line)
            bits = width(of.type) or 64
            after = self.arithmetic(how[-1], before, Whole(Poly(1), bits), of.type, line)
            self.store(place, after, of.type, line)
            return before if how[0] == "x" else after
        if how == "&":
            place = self.place(of)
            if isinstance(place, Cell):
                return Pointer(place.pointer.array, place.pointer.at + place.offset, place.pointer.inner)
            size = Poly(size_of(of.type, line))
            align = of.type.get_align()
            return Pointer(Array("a variable", "local", size, owner=place, type=plain(of.type), align=align), Poly(0))
        if how == "*":
            return self.load(self.place(cursor), cursor.type, line)
        value = self.value(of)
        if how == "!":
            return z3.Not(self.condition_of(value, line))
        if how == "-" and isinstance(value, Whole):
            return self.arithmetic("-", Whole(Poly(0), value.bits), value, cursor.type, line)
        if how == "~" and isinstance(value, Whole):
            return Whole(-value.of - 1, value.bits)
        return value if how == "+" or isinstance(value, Opaque) else self.unknown(
            cursor.type, level_of(self.world, value), f"`{how}`", line)

    def _binary_operator(self, cursor):
        how, (left, right), line = operator(cursor), operands(cursor), cursor.location.line
        if how == "=":
            value = self.value(right)
            place = self.place(left)
            self.store(place, value, left.type, line)
            return value
        if how in ("&&", "||"):
            first, second = self.condition(left), []
            if z3.is_true(first) or z3.is_false(first):
                return first if z3.is_true(first) == (how == "||") else self.condition(right)
            goes_on = first if how == "&&" else z3.Not(first)
            self.branch(goes_on, lambda: second.append(self.condition(right)), lambda: None)
            return (z3.And if how == "&&" else z3.Or)(first, *second)
        if how in (",", "<<", ">>"):
            a, b = self.value(left), self.value(right)
        else:
            a, b = self.in_any_order((left, right), line)
        if how == ",":
            return b
        if how in COMPARE:
            return self.compare(how, a, b, line)
        return self.arithmetic(how, a, b, cursor.type, line)

    def in_any_order(self, parts, line, ways=()) -> list:
        """The values of operands, none of which may change a variable that another one names."""
        mark, values, changed, before = len(self.stored), [], [], self.state.env
        for part, way in zip(parts, ways or [self.value] * len(parts)):
            values.append(way(part))
            changed.append(set(self.stored[mark:]))
            mark = len(self.stored)
        for part in parts if any(changed) and len(parts) > 1 else ():
            named = {self.root(before, c) for c in part.walk_preorder()}
            if any(named & keys for other, keys in zip(parts, changed) if other is not part):
                raise NotLifted("operands whose order decides", line)
        return values

    def root(self, env, cursor):
        """The variable that a name stands for, or points to."""
        if cursor.kind.name not in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "CXX_THIS_EXPR"):
            return None
        inner = cursor.kind.name != "DECL_REF_EXPR"
        key = (self.frame, "this") if inner else cursor.referenced and self.key(cursor.referenced)
        found = env.get(key)
        if isinstance(found, Pointer):
            found = found.array.owner
        place = found[0] if isinstance(found, tuple) else found
        while isinstance(place, Member):
            place = place.of
        return place.key if isinstance(place, Variable) else key

    def _compound_assignment_operator(self, cursor):
        (left, right), line = operands(cursor), cursor.location.line
        by, place = self.value(right), self.place(left)
        old = self.load(place, left.type, line)
        bits = [width(t) for t in (left.type, right.type)]
        if not all(bits) or isinstance(old, Pointer):
            made = self.arithmetic(operator(cursor)[:-1], old, by, left.type, line)
        else:
            wide = usual(*bits) if "<<" not in operator(cursor) and ">>" not in operator(cursor) else usual(bits[0], 32)
            old, by = (self.to_bits(x, wide, line) if isinstance(x, Whole) else x for x in (old, by))
            made = self.arithmetic(operator(cursor)[:-1], old, by, None, line, wide)
            made = self.convert(made, left.type, line)
        self.store(place, made, left.type, line)
        return made
