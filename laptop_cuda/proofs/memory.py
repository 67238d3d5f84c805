"""What an expression names, and what is read and written there."""
from .numbers import Numbers
from .parse import NotLifted, operator
from .terms import STEP, THREAD, Poly
from .values import (Array, Cell, Lost, Member, Opaque, Pointer, Struct, Variable, Whole, level_of, plain,
                     size_of, width)

CASTS = ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR", "CXX_CONST_CAST_EXPR",
         "CXX_FUNCTIONAL_CAST_EXPR")


def operands(cursor) -> list:
    return [c for c in cursor.get_children() if c.kind.is_expression()]


def refers_to(cursor) -> bool:
    """A cast to a reference: of a place, where a cast of a value would first be a load."""
    if cursor.kind.name not in CASTS:
        return False
    of = operands(cursor)[-1]
    while of.kind.name == "PAREN_EXPR" and len(operands(of)) == 1:
        of = operands(of)[0]
    return of.kind.name in ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR") or refers_to(of) or \
        of.kind.name == "UNARY_OPERATOR" and operator(of) == "*" or \
        of.kind.name == "DECL_REF_EXPR" and of.referenced and of.referenced.kind.name in ("VAR_DECL", "PARM_DECL")


class Memory(Numbers):
    """Part of Lift: `self.state`, `self.world`, `self.note_access`, `self.within`."""

    def place(self, cursor):
        """What an expression names: a variable, a field, a cell of an array."""
        kind, line = cursor.kind.name, cursor.location.line
        if kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", *CASTS) and operands(cursor):
            if found := self.within_casts(cursor, operands(cursor)[-1], line):
                return found
        if kind == "DECL_REF_EXPR":
            return self.named(cursor)
        if kind == "MEMBER_REF_EXPR":
            of, name = operands(cursor), cursor.spelling
            arrow = of and of[0].type.get_canonical().kind.name == "POINTER"
            owner = cursor.referenced.semantic_parent.type
            if arrow:
                base = self.pointee(self.value(of[0]), line, owner)
            else:
                base = self.place(of[0]) if of else self.this(line)
            if cursor.referenced.is_bitfield() or "REFERENCE" in cursor.referenced.type.kind.name:
                raise NotLifted("a field of bits, or a reference in an object", line)
            if isinstance(base, Cell):
                if (offset := owner.get_offset(name)) < 0 or owner.get_declaration().is_anonymous():
                    raise NotLifted(f"`{name}`, whose place is not known", line)
                return Cell(base.pointer, base.offset + offset // 8)
            return Member(base, name)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            return self.element(cursor)
        if kind == "UNARY_OPERATOR" and operator(cursor) == "*":
            return self.pointee(self.value(operands(cursor)[0]), line, cursor.type)
        how = operator(cursor) if kind in ("UNARY_OPERATOR", "BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR") else None
        if kind == "COMPOUND_ASSIGNMENT_OPERATOR" or how in ("=", "++", "--", ",", ""):
            if operands(cursor)[0].kind.name != "DECL_REF_EXPR" or how in (",", ""):
                raise NotLifted("one of two variables, or what is assigned to one", line)
            self.value(cursor)
            return self.place(operands(cursor)[0])
        refers = kind == "CALL_EXPR" and cursor.referenced and "REFERENCE" in cursor.referenced.result_type.kind.name
        if kind == "CONDITIONAL_OPERATOR" or refers:
            raise NotLifted("one of two variables" if not refers else "a reference that is returned", line)
        key = ("temporary", cursor.hash, cursor.location.offset, len(self.calls))
        self.state.env[key] = self.value(cursor)
        return Variable(key)

    def within_casts(self, cursor, inside, line):
        """The place that a cast or a conversion leaves as it is; None if it makes a new value."""
        refers, same = refers_to(cursor), plain(cursor.type) == plain(inside.type)
        if same and (refers or cursor.kind.name not in CASTS):
            return self.place(inside)
        if refers and isinstance(found := self.place(inside), Cell):
            return found
        if refers or not same and cursor.type.get_canonical().kind == inside.type.get_canonical().kind and (
                cursor.type.get_canonical().kind.name == "RECORD"):
            raise NotLifted("an object of one type as another", line)

    def pointee(self, pointer, line, type):
        if not isinstance(pointer, Pointer):
            raise NotLifted(pointer.why if isinstance(pointer, Lost) else "a pointer that is not followed", line)
        array = pointer.array
        if array.owner and pointer.at.constant == 0 and plain(type) == array.type:
            return array.owner
        return Cell(pointer)

    def element(self, cursor) -> Cell:
        base, index = operands(cursor)
        if base.type.get_canonical().kind.name not in ("POINTER", "CONSTANTARRAY", "INCOMPLETEARRAY"):
            base, index = index, base
        pointer, line, at = self.value(base), cursor.location.line, self.value(index)
        if not isinstance(at, Whole):
            raise NotLifted("an index that is not followed", line)
        at = at.of if abs(at.bits) == 64 else self.exact(at, line)
        while base.kind.name in ("UNEXPOSED_EXPR", "PAREN_EXPR") and len(operands(base)) == 1:
            base = operands(base)[0]
        cell = self.pointee(pointer, line, cursor.type)
        if cell is pointer.array.owner and at.constant == 0:
            return cell
        type = base.type.get_canonical()
        inner = ((at, type.get_array_size()),) if type.kind.name == "CONSTANTARRAY" else ()
        place = pointer.at + at * size_of(cursor.type, line)
        return Cell(Pointer(pointer.array, place, pointer.inner + inner))

    def load(self, place, type, line):
        if isinstance(place, Variable):
            if place.key not in self.state.env:
                self.state.env[place.key] = self.unknown(type, THREAD, "a variable without a value", line)
            return self.state.env[place.key]
        if isinstance(place, Member):
            of = self.load(place.of, None, line)
            known = of.fields.get(place.name) if isinstance(of, Struct) else None
            return known if known is not None else self.unknown(type, level_of(self.world, of), "a value", line)
        if type.get_canonical().kind.name in ("CONSTANTARRAY", "INCOMPLETEARRAY"):
            return Pointer(place.pointer.array, place.pointer.at + place.offset, place.pointer.inner)
        pointer, at = place.pointer, place.pointer.at + place.offset
        self.note_access("read", pointer, at, type, line)
        if pointer.array.read_only:
            known = self.within.get(pointer.array.name) if plain(type) == pointer.array.type else None
            named = f"read {pointer.array.name} {type.get_canonical().spelling}"
            return self.unknown(type, self.world.level(at), f"data of {pointer.array.name}", line, (named, (at,)), known)
        return self.unknown(type, THREAD, f"data of {pointer.array.name}", line)

    def store(self, place, value, type, line) -> None:
        if isinstance(place, Variable):
            self.state.env[place.key] = value
            self.stored.append(place.key)
        elif isinstance(place, Member):
            of = self.load(place.of, None, line)
            fields = of.fields if isinstance(of, Struct) else {}
            rest = of.rest if isinstance(of, Struct) else level_of(self.world, of)
            self.store(place.of, Struct(fields | {place.name: value}, rest), None, line)
        else:
            self.note_access("write", place.pointer, place.pointer.at + place.offset, type, line)
            if place.pointer.array.owner:
                self.store(place.pointer.array.owner, Lost("a variable that is written by its address"), None, line)

    def unknown(self, type, level, why, line, function=None, bounds=None):
        """A value of this type of which nothing more is known than bounds, if that."""
        kind, bits = type.get_canonical().kind.name if type else "RECORD", type and width(type)
        if self.turns:
            level = max(level, STEP)
        why = f"{why}, line {line}"
        if bits:
            least, most = bounds or (0, 0)
            made = self.world.new("any", level, lambda n: Whole(n, bits).fits(), *(
                [lambda n: n >= least, lambda n: n <= most] if bounds else ()), why=why, function=function)
            return Whole(made, bits)
        if kind == "BOOL":
            return self.world.truth(level, why, function)
        return Lost(f"a pointer from memory: {why}") if kind == "POINTER" else Opaque(level)

    def load_array(self, cursor):
        place = self.place(cursor)
        found = self.load(place, cursor.type, cursor.location.line)
        if isinstance(found, Pointer):
            return found
        return Pointer(Array(cursor.spelling, "local", Poly(size_of(cursor.type, cursor.location.line)), owner=place,
                             type=plain(cursor.type), align=cursor.type.get_align()), Poly(0))
