"""The PTX instructions that compare and choose, as C++ on the functions of `include/ptx.h`."""
from .operands import BYTES, FLOATS, TYPES, P, Unknown, get, predicate, put

ORDERED = {"eq", "ne", "lt", "le", "gt", "ge"}
OF_INTEGERS = ORDERED | {"lo", "ls", "hi", "hs"}
OF_FLOATS = ORDERED | {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
JOINED = {"and": "&&", "or": "||", "xor": "!="}


def _compared(how: str, type_: str, flush: bool, given: list, opcode: str) -> list[str]:
    """C++ of a comparison: one, or of packed numbers two, the low one first."""
    if how not in (OF_FLOATS if type_ in FLOATS else OF_INTEGERS) or type_ in ("s16x2", "u16x2", "f32x2"):
        raise Unknown(opcode)
    a, b = (f"{P}flushed({get(type_, v)})" if flush else get(type_, v) for v in given)
    halves = (".low", ".high") if type_.endswith("x2") else ("",)
    return [f'{P}compare("{how}", {a}{half}, {b}{half})' for half in halves]


def _joined(mods: list[str], made: list[str], given: list) -> list[str]:
    """Each with the predicate that .and, .or or .xor joins to it."""
    if not mods:
        return made
    return [f"({one} {JOINED[mods[0]]} bool({predicate(given[0])}))" for one in made]


def _setp(mods: list[str], given: list, opcode: str) -> str:
    how, *join, type_ = [m for m in mods if m != "ftz"]
    if len(join) > 1 or len(given) != 3 + len(join):
        raise Unknown(opcode)
    made = _compared(how, type_, "ftz" in mods, given[1:3], opcode)
    targets = given[0][1:] if isinstance(given[0], tuple) else [given[0]]
    if len(made) == 1 and len(targets) == 2:
        made.append(f"!{made[0]}")
    if len(made) != len(targets):
        raise Unknown(opcode)
    made = _joined(join, made, given[3:])
    held = " ".join(f"const bool laptop_p{i} = {one};" for i, one in enumerate(made))
    return f"{{ {held} {' '.join(put(t, f'laptop_p{i}') for i, t in enumerate(targets))} }}"


def _set(mods: list[str], given: list, opcode: str) -> str:
    """All ones or zeros, or 1.0 and 0.0; of packed numbers in each half."""
    how, *join, to, type_ = [m for m in mods if m != "ftz"]
    if len(join) > 1 or len(given) != 3 + len(join):
        raise Unknown(opcode)
    made = _joined(join, _compared(how, type_, "ftz" in mods, given[1:3], opcode), given[3:])
    if len(made) == 2:
        ones = {"u32": 0xFFFF, "s32": 0xFFFF, "f16x2": 0x3C00, "bf16x2": 0x3F80}[to]
        low, high = (f"({one} ? {ones:#x}u : 0u)" for one in made)
        return put(given[0], f"({low} | {high} << 16)")
    if to.endswith("x2") or to in ("pred", "b32") or BYTES[to] > 4:
        raise Unknown(opcode)
    value = f"{TYPES[to]}(1.f)" if to in FLOATS else f"({TYPES[to]})~0u"
    return put(given[0], f"({made[0]} ? {value} : {TYPES[to]}({'0.f' if to in FLOATS else '0'}))")


def _selp(mods: list[str], given: list, opcode: str) -> str:
    (type_,), (target, a, b, p) = mods, given
    return put(target, f"({predicate(p)}) ? {get(type_, a)} : {get(type_, b)}")
