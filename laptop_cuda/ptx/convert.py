"""PTX's conversions, and its arithmetic that rounds down, up or towards zero, as C++."""
from .operands import BYTES, FLOATS, TYPES, P, Unknown, get, put

MODES = {"rn": "nearest", "rni": "nearest", "rna": "nearest", "rz": "zero", "rzi": "zero", "rm": "down",
         "rmi": "down", "rp": "up", "rpi": "up"}
SUFFIX = {"rz": "rz", "rm": "rd", "rp": "ru"}                # of CUDA's own functions: __fadd_rd
INTEGERS = {"s32": "int", "u32": "uint", "s64": "ll", "u64": "ull"}
DIRECTED = ("add", "sub", "mul", "div", "fma", "mad", "rcp", "sqrt")
NAMES = {"f32": "float", "f64": "double"}
FLOATS8 = {"e4m3x2": "__NV_E4M3", "e5m2x2": "__NV_E5M2"}


def directed(name: str, mods: list[str], type_: str, values: list[str]) -> str | None:
    """A call of the function of CUDA that rounds as `mods` say; None where they say nothing of it."""
    how = next((SUFFIX[m] for m in mods if m in SUFFIX), None)
    if how is None or type_ not in NAMES or name not in DIRECTED:
        return None
    single = type_ == "f32"
    if name in ("fma", "mad"):
        name = "fmaf" if single else "fma"
    else:
        name = ("f" if single else "d") + name
    return f"__{name}_{how}({', '.join(values)})"


def cvt(mods: list[str], given: list, opcode: str) -> str:
    if mods[0] == "pack":
        return _packed(mods[1:], given, opcode)
    types = [m for m in mods if m in TYPES or m in FLOATS8 or m == "tf32"]
    how = [m for m in mods if m in MODES]
    more = set(mods) - set(types) - set(how) - {"ftz"}
    if len(types) != 2 or len(how) > 1 or more - {"sat", "relu", "satfinite"}:
        raise Unknown(opcode)
    to, from_ = types
    how, relu = how[0] if how else "", str("relu" in more).lower()
    if to in FLOATS8 or from_ in FLOATS8:
        return _eight_bits(to, from_, how, more, given, opcode)
    if to == "tf32":
        if from_ != "f32" or how not in ("rna", "rn", "rz") or more - {"relu"}:
            raise Unknown(opcode)
        return put(given[0], f"{P}to_tf32({get('f32', given[1])}, '{how[-1]}', {relu})")
    if more - ({"relu"} if to in ("f16", "bf16", "f16x2", "bf16x2") else {"sat"}) or how == "rna":
        raise Unknown(opcode)
    if to in ("f16x2", "bf16x2"):
        a, b = get("f32", given[1]), get("f32", given[2])
        mode = f"laptop::rounding::{MODES[how or 'rn']}"
        if from_ != "f32" or how not in ("rn", "rz"):
            raise Unknown(opcode)
        half = P + to.removesuffix("x2")
        return put(given[0], f"{P}convert_pair<{half}>({a}, {b}, {relu}, {mode})")
    if to.endswith("x2") or from_.endswith("x2") or len(given) != 2:
        raise Unknown(opcode)
    value = get(from_, given[1])
    made = _one(to, from_, how, "sat" in more, f"{P}flushed({value})" if "ftz" in mods else value)
    made = f"{P}relu({made})" if "relu" in more else made
    return put(given[0], f"{P}flushed({made})" if "ftz" in mods and to in FLOATS else made)


def _packed(mods: list[str], given: list, opcode: str) -> str:
    """cvt.pack.sat.s8.s32.b32 d, a, b, c: b and a, clamped, from the lowest bit on, and above them c."""
    sat, to, from_, *third = mods
    if sat != "sat" or to not in ("s8", "u8", "s16", "u16") or from_ != "s32" or (
            third != (["b32"] if BYTES[to] == 1 else [])):
        raise Unknown(opcode)
    size = 8 * BYTES[to]
    mask = f"{(1 << size) - 1:#x}"
    a, b = (f"((uint32_t){P}clamped<{TYPES[to]}>({get('s32', v)}) & {mask})" for v in given[1:3])
    above = f" | {get('u32', given[3])} << {2 * size}" if third else ""
    return put(given[0], f"({b} | {a} << {size}{above})")


def _eight_bits(to: str, from_: str, how: str, more: set[str], given: list, opcode: str) -> str:
    """Pairs of 8-bit floats, from two floats or a pair of halves, and back to a pair of halves."""
    relu, kind = str("relu" in more).lower(), FLOATS8.get(to) or FLOATS8[from_]
    if how != "rn" or more - {"relu", "satfinite"} or (to in FLOATS8) != ("satfinite" in more):
        raise Unknown(opcode)
    if to == "f16x2":
        return put(given[0], f"{P}of_pair8({get('b16', given[1])}, {kind}, {relu})")
    if from_ == "f16x2":
        pair = get("f16x2", given[1])
        return put(given[0], f"{P}to_pair8((float){pair}.high, (float){pair}.low, {kind}, {relu})")
    if from_ != "f32" or len(given) != 3:
        raise Unknown(opcode)
    return put(given[0], f"{P}to_pair8({get('f32', given[1])}, {get('f32', given[2])}, {kind}, {relu})")


def _one(to: str, from_: str, how: str, saturating: bool, value: str) -> str:
    """A number of one type as another."""
    whole, real = not from_.startswith(("f", "bf")), to.startswith(("f", "bf"))
    if not whole and real and how.endswith("i"):             # to a whole number of the same kind
        made = f"{P}convert<{TYPES[to]}>({P}whole((double){value}, laptop::rounding::{MODES[how]}))"
    elif whole and to in NAMES and how in SUFFIX and BYTES[from_] * 2 > BYTES[to]:
        made = f"__{INTEGERS[from_]}2{NAMES[to]}_{SUFFIX[how]}({value})"
    elif from_ == "f64" and to == "f32" and how in SUFFIX:
        made = f"__double2float_{SUFFIX[how]}({value})"
    elif whole and not real:
        made = f"{P}clamped<{TYPES[to]}>({value})" if saturating else f"({TYPES[to]})({value})"
        return f"(int64_t)({made})" if to[0] == "s" else made            # extended to the register
    else:
        made = f"{P}convert<{TYPES[to]}>({value}, laptop::rounding::{MODES[how or ('rn' if real else 'rz')]})"
        made = f"(int64_t)({made})" if to[0] == "s" else made
    return f"{P}saturate({made})" if saturating and real else made
