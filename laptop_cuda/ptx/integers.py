"""The PTX instructions on integers for which C++ has no operator, on the functions of `ptx_integers.h`."""
from functools import partial

from .operands import TYPES, P, Unknown, get, put, whole

CARRIED = {"add": "add_with", "addc": "add_with", "sub": "sub_with", "subc": "sub_with",
           "mad": "mad_with", "madc": "mad_with"}
INTEGERS, WORDS = ("u32", "s32", "u64", "s64"), ("b32", "b64")
MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


def with_carry(name: str, mods: list[str], given: list) -> str | None:
    """Arithmetic that sets or adds the carry, which outlives its statement; None for what does neither."""
    if name not in CARRIED or not (name.endswith("c") or "cc" in mods):
        return None
    type_, part = mods[-1], [m for m in mods[:-1] if m != "cc"]
    product = CARRIED[name] == "mad_with"
    if type_ not in INTEGERS or len(part) != product or len(given) != 3 + product:
        raise ValueError(name)
    values = ", ".join(get(type_, v) for v in given[1:])
    flags = f"{str(name.endswith('c')).lower()}, {str('cc' in mods).lower()}"
    how = {(): "", ("lo",): "false, ", ("hi",): "true, "}[tuple(part)]
    return put(given[0], f"{P}{CARRIED[name]}({values}, {how}{flags})")


def _of_types(mods: list[str], allowed: tuple[str, ...]) -> str:
    (type_,) = mods
    if type_ not in allowed:
        raise ValueError(type_)
    return type_


# its types, those of its operands (t: the instruction's own), and C++ of them
PLAIN = {"popc": (WORDS, "t", "__popc{ll}({0})"), "clz": (WORDS, "t", "__clz{ll}({0})"),
         "brev": (WORDS, "t", "__brev{ll}({0})"), "bfe": (INTEGERS, "t u32 u32", P + "bfe({0}, {1}, {2})"),
         "bfi": (WORDS, "t t u32 u32", P + "bfi({0}, {1}, {2}, {3})"),
         "fns": (("b32",), "u32 u32 s32", "__fns({0}, {1}, {2})"),
         "sad": ((*INTEGERS, "u16", "s16"), "t t t", "({own})(" + P + "sad({0}, {1}) + {2})")}


def _plain(name: str, mods: list[str], given: list, opcode: str) -> str:
    (types, kinds, made), (target, *operands) = PLAIN[name], given
    type_ = _of_types(mods, types)
    values = [get(type_ if kind == "t" else kind, v) for kind, v in zip(kinds.split(), operands, strict=True)]
    return put(target, made.format(*values, own=TYPES[type_], ll="ll" * (type_ == "b64")))


_popc, _clz, _brev, _bfe, _bfi, _fns, _sad = (partial(_plain, name) for name in PLAIN)


def _bfind(mods: list[str], given: list, opcode: str) -> str:
    type_, (target, a) = _of_types(mods[-1:], INTEGERS), given
    if mods[:-1] not in ([], ["shiftamt"]):
        raise Unknown(opcode)
    made = f"{P}bfind({get(type_, a)})"
    return put(target, f"{P}shift_amount({made}, {type_[1:]})" if len(mods) > 1 else made)


def _dp4a(mods: list[str], given: list, opcode: str) -> str:
    return _dot(mods, given, 8, 8, 0)


def _dp2a(mods: list[str], given: list, opcode: str) -> str:
    how, *types = mods
    return _dot(types, given, 16, 8, {"lo": 0, "hi": 16}[how])


def _dot(types: list[str], given: list, wide: int, narrow: int, start: int) -> str:
    """A sum of products of fields: of `wide` bits, and of `narrow` from bit `start` on."""
    a, b = (_of_types([t], ("u32", "s32"))[0] for t in types)
    kinds = f"{'u' * (a == 'u')}int{wide}_t, {'u' * (b == 'u')}int{narrow}_t"
    values = ", ".join(get("u32", v) for v in given[1:4])
    return put(given[0], f"{P}dot<{kinds}>({values}, {start})")


def _lop3(mods: list[str], given: list, opcode: str) -> str:
    _of_types(mods, ("b32",))
    a, b, c = (get("b32", v) for v in given[1:4])
    return put(given[0], f"{P}lop3({a}, {b}, {c}, {whole(given[4])})")


def _prmt(mods: list[str], given: list, opcode: str) -> str:
    type_, *mode = mods
    a, b, c = (get(_of_types([type_], ("b32",)), v) for v in given[1:4])
    if mode:
        c = f"{P}selector({MODES.index(*mode)}, {c})"
    return put(given[0], f"__byte_perm({a}, {b}, {c})")


def _shf(mods: list[str], given: list, opcode: str) -> str:
    (way, how, type_), suffix = mods, {"wrap": "", "clamp": "c"}
    a, b, c = (get(_of_types([type_], ("b32",)), v) for v in given[1:4])
    return put(given[0], f"__funnelshift_{way}{suffix[how]}({a}, {b}, {c})")


def _vabsdiff4(mods: list[str], given: list, opcode: str) -> str:
    if mods != ["u32", "u32", "u32", "add"]:
        raise Unknown(opcode)
    a, b, c = (get("u32", v) for v in given[1:4])
    return put(given[0], f"__vsadu4({a}, {b}) + {c}")
