"""The PTX instructions that the engine knows, each as C++ on the functions of `include/ptx.h`."""
# over the guide: a table of instructions
from __future__ import annotations

import re

from . import ptx_memory
from .ptx_operands import BYTES, TYPES, P, Unknown, get, put, whole

IGNORED = {
    "rn",
    "ftz",
    "approx",
    "full",
    "sync",
    "aligned",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "weak",
    "cta",
    "gpu",
    "sys",
    "cluster",
    "nc",
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "wb",
    "wt",
    "uni",
}
NOTHING = re.compile(
    r"prefetch.*|prefetchu.*|griddepcontrol.*|nanosleep.*|pragma|discard.*|applypriority.*|brkpt"
    r"|createpolicy.*"
)
BINARY = {"add", "sub", "mul", "div", "rem", "min", "max"}
BITS = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}
FUNCTIONS = {
    "ex2": "exp2f({0})",
    "lg2": "log2f({0})",
    "sin": "sinf({0})",
    "cos": "cosf({0})",
    "sqrt": "sqrtf({0})",
    "rcp": P + "rcp({0})",
    "rsqrt": P + "rsqrt_({0})",
    "tanh": P + "tanh_({0})",
}
THREAD = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
SPECIAL = {
    "laneid": "laptop::lane_id()",
    "warpid": f"({THREAD}) / warpSize",
    "nwarpid": "(blockDim.x * blockDim.y * blockDim.z + warpSize - 1) / warpSize",
    "smid": "0u",
    "nsmid": "1u",
    "gridid": "0u",
    "clock": "(uint32_t)laptop::clock()",
    "clock64": "(uint64_t)laptop::clock()",
    "warpsize": "32u",
    "globaltimer": "(uint64_t)laptop::clock()",
    "globaltimer_lo": "(uint32_t)laptop::clock()",
    "lanemask_eq": "1u << laptop::lane_id()",
    "lanemask_lt": "(1u << laptop::lane_id()) - 1u",
    "lanemask_le": "(2u << laptop::lane_id()) - 1u",
    "lanemask_gt": "~((2u << laptop::lane_id()) - 1u)",
    "lanemask_ge": "~((1u << laptop::lane_id()) - 1u)",
}
VARIABLES = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}


def special(name: str) -> str | None:
    """The value of %laneid, %tid.x, ... as a register."""
    if name in SPECIAL:
        return f"{P}put({SPECIAL[name]})"
    base, _, axis = name.partition(".")
    return f"{P}put({VARIABLES[base]}.{axis})" if base in VARIABLES and axis in ("x", "y", "z") else None


def translate(opcode: str, given: list) -> str:
    """C++ statements for one instruction."""
    words = opcode.replace("::", "_").split(".")
    name, mods = words[0], words[1:]
    if NOTHING.fullmatch(opcode):
        return f"{given[0]} = 0;" if name == "createpolicy" else ";"
    handler = globals().get(f"_{name}") or getattr(ptx_memory, f"_{name}", None)
    try:
        if handler is not None:
            return handler(mods, given, opcode)
        return _arithmetic(name, [m for m in mods if m not in IGNORED], given, opcode)
    except (KeyError, IndexError, ValueError):
        raise Unknown(opcode) from None


def _arithmetic(name: str, mods: list[str], given: list, opcode: str) -> str:
    type_ = mods[-1]
    if type_ not in TYPES:
        raise Unknown(opcode)
    values = [get(type_, v) for v in given[1:]]
    shape = [m for m in mods[:-1] if m not in ("lo", "xorsign", "abs", "NaN")]
    if name in BINARY and not set(shape) - {"sat", "hi", "wide"}:
        call = {"hi": "mul_hi", "wide": "mul_wide"}.get((shape or [""])[0], name)
        made = f"{P}{call}({values[0]}, {values[1]})"
    elif name in ("fma", "mad") and not set(shape) - {"sat", "hi", "wide"}:
        made = _fused(type_, shape, given, values)
    elif name in BITS:
        made = BITS[name].format(*(get(type_, v) for v in given[1:]))
    elif name in FUNCTIONS and type_ in ("f32", "f16", "f16x2", "bf16x2"):
        made = _function(FUNCTIONS[name], type_, values[0])
    elif name in ("abs", "neg"):
        made = f"{P}{name}({values[0]})"
    elif name in ("not", "cnot"):
        made = f"~{values[0]}" if name == "not" else f"{values[0]} == 0"
    elif name in ("shl", "shr"):
        made = f"{P}{name}({values[0]}, {get('u32', given[2])})"
    else:
        return _integers(name, type_, given, values, opcode)
    made = f"{P}saturate({made})" if "sat" in shape else made
    wide = type_ in ("s32", "u32", "s16", "u16") and "wide" in shape
    return put(
        given[0], made if wide else f"({TYPES[type_]})({made})" if type_ not in ("f16x2", "bf16x2") else made
    )


def _fused(type_: str, shape: list[str], given: list, values: list[str]) -> str:
    if type_ in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        return f"{P}fma({', '.join(values)})"
    if "wide" in shape:
        wide = {"s32": "s64", "u32": "u64", "s16": "s32", "u16": "u32"}[type_]
        return f"{P}mul_wide({values[0]}, {values[1]}) + {get(wide, given[3])}"
    return f"{P}{'mul_hi' if 'hi' in shape else 'mul'}({values[0]}, {values[1]}) + {values[2]}"


def _function(form: str, type_: str, value: str) -> str:
    if type_ == "f32":
        return form.format(value)
    if type_ == "f16":
        return f"{P}f16({form.format(f'(float){value}')})"
    element = f"{P}{type_.removesuffix('x2')}"
    parts = ", ".join(f"{element}({form.format(f'(float){value}.{half}')})" for half in ("low", "high"))
    return f"{P}{type_}{{{parts}}}"


def _integers(name: str, type_: str, given: list, values: list[str], opcode: str) -> str:
    last = [get("u32", v) for v in given[2:]] if len(given) > 2 else []
    bits = "ll" if type_.endswith("64") else ""
    forms = {"popc": lambda: f"__popc{bits}({values[0]})", "clz": lambda: f"__clz{bits}({values[0]})",
             "brev": lambda: f"__brev{bits}({values[0]})",
             "bfe": lambda: f"{P}bfe({values[0]}, {last[0]}, {last[1]})",
             "bfi": lambda: f"{P}bfi({values[0]}, {values[1]}, {last[1]}, {last[2]})",
             "selp": lambda: f"({predicate(given[3])}) ? {values[0]} : {values[1]}"}
    if name not in forms:
        raise Unknown(opcode)
    return put(given[0], forms[name]())


def predicate(operand) -> str:
    return f"({operand}) & 1"


def _setp(mods: list[str], given: list, opcode: str) -> str:
    mods = [m for m in mods if m not in IGNORED]
    type_, how = mods[-1], mods[0]
    made = f'{P}compare("{how}", {get(type_, given[1])}, {get(type_, given[2])})'
    if len(mods) == 3:
        sign = {"and": "&&", "or": "||", "xor": "!="}[mods[1]]
        made = f"{made} {sign} bool({predicate(given[3])})"
    if isinstance(given[0], tuple):
        return f"{put(given[0][1], made)} {put(given[0][2], '!(' + made + ')')}"
    return put(given[0], made)


def _mov(mods: list[str], given: list, opcode: str) -> str:
    type_, (target, source) = mods[-1], given
    if isinstance(target, list):
        part = 8 * BYTES[type_] // len(target)
        mask = (1 << part) - 1
        return " ".join(f"{t} = {source} >> {part * i} & {mask:#x}ull;" for i, t in enumerate(target)
                        if t != "laptop_unused")
    if isinstance(source, list):
        part = 8 * BYTES[type_] // len(source)
        mask = (1 << part) - 1
        return (
            f"{target} = {' | '.join(f'({s} & {mask:#x}ull) << {part * i}' for i, s in enumerate(source))};"
        )
    return put(target, get(type_, source))


def _cvt(mods: list[str], given: list, opcode: str) -> str:
    modes = {
        "rn": "nearest",
        "rni": "nearest",
        "rz": "zero",
        "rzi": "zero",
        "rm": "down",
        "rmi": "down",
        "rp": "up",
        "rpi": "up",
        "rna": "nearest",
    }
    mode = next((modes[m] for m in mods if m in modes), "nearest")
    to, from_ = [m for m in mods if m in TYPES or m == "tf32"]
    if to == "tf32":
        return put(given[0], f"{P}to_tf32({get('f32', given[1])})")
    if to in ("f16x2", "bf16x2"):
        relu = str("relu" in mods).lower()
        half = to.removesuffix("x2")
        return put(
            given[0], f"{P}convert_pair<{P}{half}>({get('f32', given[1])}, {get('f32', given[2])}, {relu})"
        )
    mode = (
        "zero"
        if BYTES.get(to, 0)
        and to[0] in "us"
        and from_[0] == "f"
        and "rn" not in "".join(mods)
        and not any(m in modes for m in mods)
        else mode
    )
    made = f"{P}convert<{TYPES[to]}>({get(from_, given[1])}, laptop::rounding::{mode})"
    return put(given[0], f"{P}saturate({made})" if "sat" in mods and to in ("f32", "f64") else made)


def _cvta(mods: list[str], given: list, opcode: str) -> str:
    if "shared" in mods or "shared_cta" in mods:
        if "to" in mods:
            return f"{given[0]} = laptop::shared_address((const void*)(uintptr_t){given[1]});"
        return f"{given[0]} = (uintptr_t)laptop::shared_pointer((uint32_t){given[1]});"
    return f"{given[0]} = {given[1]};"


def _membar(mods: list[str], given: list, opcode: str) -> str:
    return f"laptop::memory_fence({str('cta' not in mods).lower()});"


def _fence(mods: list[str], given: list, opcode: str) -> str:
    if "proxy" in mods or "mbarrier_init" in mods:
        raise Unknown(opcode)
    return _membar(mods, given, opcode)


def _bar(mods: list[str], given: list, opcode: str) -> str:
    if mods[:1] == ["warp"]:
        return f"{P}sync_warp({whole(given[0])});"
    if "sync" not in mods:
        raise Unknown(opcode)
    return f"{P}barrier({whole(given[0])}, {whole(given[1]) if len(given) > 1 else '0'});"


def _barrier(mods: list[str], given: list, opcode: str) -> str:
    if "cluster" in mods:
        raise Unknown(opcode)
    return _bar([m for m in mods if m != "cta"], given, opcode)


def _shfl(mods: list[str], given: list, opcode: str) -> str:
    how = next(m for m in mods if m in ("up", "down", "bfly", "idx"))
    target, valid = given[0][1:] if isinstance(given[0], tuple) else (given[0], "laptop_unused")
    a, b, c = (get("b32", v) for v in given[1:4])
    call = f'{P}shuffle("{how}", {a}, {b}, {c}, {get("b32", given[4])}, &laptop_valid)'
    return f"{{ bool laptop_valid; {put(target, call)} {put(valid, 'laptop_valid')} }}"


def _vote(mods: list[str], given: list, opcode: str) -> str:
    how = next(m for m in mods if m in ("ballot", "any", "all", "uni"))
    call = {"ballot": "__ballot_sync", "any": "__any_sync", "all": "__all_sync", "uni": "__uni_sync"}[how]
    return put(given[0], f"{call}({get('b32', given[2])}, {predicate(given[1])})")


def _activemask(mods: list[str], given: list, opcode: str) -> str:
    return put(given[0], "__activemask()")


def _redux(mods: list[str], given: list, opcode: str) -> str:
    how = next(m for m in mods if m in ("add", "min", "max", "and", "or", "xor"))
    signed = str(mods[-1] == "s32").lower()
    return put(given[0], f'{P}redux("{how}", {get("b32", given[1])}, {get("b32", given[2])}, {signed})')


def _match(mods: list[str], given: list, opcode: str) -> str:
    if "any" not in mods:
        raise Unknown(opcode)
    return put(given[0], f"__match_any_sync({get('b32', given[2])}, {get(mods[-1], given[1])})")


def _lop3(mods: list[str], given: list, opcode: str) -> str:
    a, b, c = (get("b32", v) for v in given[1:4])
    return put(given[0], f"{P}lop3({a}, {b}, {c}, {whole(given[4])})")


def _prmt(mods: list[str], given: list, opcode: str) -> str:
    if mods != ["b32"]:
        raise Unknown(opcode)
    return put(given[0], f"__byte_perm({', '.join(get('b32', v) for v in given[1:4])})")


def _dp4a(mods: list[str], given: list, opcode: str) -> str:
    if mods != ["s32", "s32"]:
        raise Unknown(opcode)
    return put(given[0], f"__dp4a({', '.join(get('s32', v) for v in given[1:4])})")


def _trap(mods: list[str], given: list, opcode: str) -> str:
    return "__trap();"


