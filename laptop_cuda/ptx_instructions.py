"""The PTX instructions that the engine knows, each as C++ on the functions of `include/ptx.h`."""
from __future__ import annotations

import re

P = "laptop::ptx::"
TYPES = {"b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
         "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
         "f32": "float", "f64": "double", "f16": P + "f16", "bf16": P + "bf16", "f16x2": P + "f16x2",
         "bf16x2": P + "bf16x2", "pred": "bool"}
BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
         "b64": 8, "u64": 8, "s64": 8, "f64": 8}
IGNORED = {"rn", "ftz", "approx", "full", "sync", "aligned", "volatile", "relaxed", "acquire", "release", "acq_rel",
           "weak", "cta", "gpu", "sys", "cluster", "nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "uni"}
NOTHING = re.compile(r"prefetch.*|prefetchu.*|griddepcontrol.*|nanosleep.*|pragma|discard.*|applypriority.*|brkpt"
                     r"|createpolicy.*")
BINARY = {"add", "sub", "mul", "div", "rem", "min", "max"}
BITS = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}
FUNCTIONS = {"ex2": "exp2f({0})", "lg2": "log2f({0})", "sin": "sinf({0})", "cos": "cosf({0})", "sqrt": "sqrtf({0})",
             "rcp": P + "rcp({0})", "rsqrt": P + "rsqrt_({0})", "tanh": P + "tanh_({0})"}
ATOMICS = {"add": P + "add(old, {0})", "min": P + "min(old, {0})", "max": P + "max(old, {0})", "and": "old & {0}",
           "or": "old | {0}", "xor": "old ^ {0}", "exch": "{0}", "inc": "old >= {0} ? 0 : old + 1",
           "dec": "old == 0 || old > {0} ? {0} : old - 1", "cas": "old == {0} ? {1} : old"}
HALF, BRAIN, TF32 = "of_half<laptop::binary16>", "of_half<laptop::bfloat16>", "of_tf32"
FRAGMENTS = {"f16": HALF, "bf16": BRAIN, "tf32": TF32, "s8": "of_byte<int8_t>", "u8": "of_byte<uint8_t>"}
THREAD = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
SPECIAL = {"laneid": "laptop::lane_id()", "warpid": f"({THREAD}) / 32",
           "nwarpid": "(blockDim.x * blockDim.y * blockDim.z + 31) / 32", "smid": "0u", "nsmid": "1u", "gridid": "0u",
           "clock": "(uint32_t)laptop::clock()", "clock64": "(uint64_t)laptop::clock()", "warpsize": "32u",
           "globaltimer": "(uint64_t)laptop::clock()", "globaltimer_lo": "(uint32_t)laptop::clock()",
           "lanemask_eq": "1u << laptop::lane_id()", "lanemask_lt": "(1u << laptop::lane_id()) - 1u",
           "lanemask_le": "(2u << laptop::lane_id()) - 1u", "lanemask_gt": "~((2u << laptop::lane_id()) - 1u)",
           "lanemask_ge": "~((1u << laptop::lane_id()) - 1u)"}
VARIABLES = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}


class Unknown(Exception):
    """An instruction that this table does not have."""

    def __init__(self, instruction: str):
        super().__init__(instruction)
        self.instruction = instruction.replace("\\", "").replace('"', "'")


def special(name: str) -> str | None:
    """The value of %laneid, %tid.x, ... as a register."""
    if name in SPECIAL:
        return f"{P}put({SPECIAL[name]})"
    base, _, axis = name.partition(".")
    return f"{P}put({VARIABLES[base]}.{axis})" if base in VARIABLES and axis in ("x", "y", "z") else None


def get(type_: str, operand) -> str:
    """C++ that reads an operand as a type."""
    if isinstance(operand, tuple) and operand[0] == "number":
        return f"({TYPES[type_]})({operand[1]})"
    if not isinstance(operand, str):
        raise Unknown(str(operand))
    return f"{P}get<{TYPES[type_]}>({operand})"


def put(target, expression: str) -> str:
    if target == "laptop_unused":
        return f"(void)({expression});"
    if not isinstance(target, str):
        raise Unknown(str(target))
    return f"{target} = {P}put({expression});"


def whole(operand) -> str:
    """An integer operand, a register or a number."""
    return operand[1] if isinstance(operand, tuple) and operand[0] == "number" else f"(uint32_t){operand}"


def registers(name: str, values: list) -> str:
    return f"{P}reg {name}[{len(values)}] = {{{', '.join(v if isinstance(v, str) else v[1] for v in values)}}};"


def assigned(targets: list, name: str) -> str:
    return " ".join(f"{t} = {name}[{i}];" for i, t in enumerate(targets) if t != "laptop_unused")


def translate(opcode: str, given: list) -> str:
    """C++ statements for one instruction."""
    words = opcode.replace("::", "_").split(".")
    name, mods = words[0], words[1:]
    if NOTHING.fullmatch(opcode):
        return f"{given[0]} = 0;" if name == "createpolicy" else ";"
    handler = globals().get(f"_{name}")
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
    return put(given[0], made if wide else f"({TYPES[type_]})({made})" if type_ not in ("f16x2", "bf16x2") else made)


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
        return f"{target} = {' | '.join(f'({s} & {mask:#x}ull) << {part * i}' for i, s in enumerate(source))};"
    return put(target, get(type_, source))


def _cvt(mods: list[str], given: list, opcode: str) -> str:
    modes = {"rn": "nearest", "rni": "nearest", "rz": "zero", "rzi": "zero", "rm": "down", "rmi": "down", "rp": "up",
             "rpi": "up", "rna": "nearest"}
    mode = next((modes[m] for m in mods if m in modes), "nearest")
    to, from_ = [m for m in mods if m in TYPES or m == "tf32"]
    if to == "tf32":
        return put(given[0], f"{P}to_tf32({get('f32', given[1])})")
    if to in ("f16x2", "bf16x2"):
        relu = str("relu" in mods).lower()
        half = to.removesuffix("x2")
        return put(given[0], f"{P}convert_pair<{P}{half}>({get('f32', given[1])}, {get('f32', given[2])}, {relu})")
    mode = "zero" if BYTES.get(to, 0) and to[0] in "us" and from_[0] == "f" and "rn" not in "".join(mods) and not any(
        m in modes for m in mods) else mode
    made = f"{P}convert<{TYPES[to]}>({get(from_, given[1])}, laptop::rounding::{mode})"
    return put(given[0], f"{P}saturate({made})" if "sat" in mods and to in ("f32", "f64") else made)


def _cvta(mods: list[str], given: list, opcode: str) -> str:
    if "shared" in mods or "shared_cta" in mods:
        if "to" in mods:
            return f"{given[0]} = laptop::shared_address((const void*)(uintptr_t){given[1]});"
        return f"{given[0]} = (uintptr_t)laptop::shared_pointer((uint32_t){given[1]});"
    return f"{given[0]} = {given[1]};"


def _pointer(mods: list[str], operand, opcode: str) -> str:
    """C++ for the address of [a + offset] in the state space that the modifiers name."""
    kind, base, offset = operand
    if kind != "address" or {"param", "shared_cluster", "tex"} & set(mods):
        raise Unknown(opcode)
    address = f"{base} + {offset}" if offset != "0" else base
    return f"{P}{'in_shared' if {'shared', 'shared_cta'} & set(mods) else 'generic'}({address})"


def _width(mods: list[str]) -> tuple[str, int]:
    vectors = {"v2": 2, "v4": 4, "v8": 8}
    return mods[-1], next((vectors[m] for m in mods if m in vectors), 1)


def _ld(mods: list[str], given: list, opcode: str) -> str:
    type_, count = _width(mods)
    targets = given[0] if isinstance(given[0], list) else [given[0]]
    pointer = _pointer(mods, given[1], opcode)
    extend = " ".join(f"{t} = {P}put((int32_t){P}get<{TYPES[type_]}>({t}));" for t in targets) if type_ in (
        "s8", "s16") else ""
    return (f"{{ {P}reg d[{count}]; {P}load<{BYTES[type_]}>(d, {pointer}); {assigned(targets, 'd')} {extend} }}")


def _ldu(mods: list[str], given: list, opcode: str) -> str:
    return _ld(mods, given, opcode)


def _st(mods: list[str], given: list, opcode: str) -> str:
    type_, count = _width(mods)
    values = given[1] if isinstance(given[1], list) else [given[1]]
    values = [v if isinstance(v, str) else f"{P}put({get(type_, v)})" for v in values]
    pointer = _pointer(mods, given[0], opcode)
    return f"{{ const {registers('d', values)} {P}store<{BYTES[type_]}>({pointer}, d); }}"


def _atom(mods: list[str], given: list, opcode: str) -> str:
    type_ = mods[-1]
    operation = next(m for m in mods if m in ATOMICS)
    if {"v2", "v4"} & set(mods):
        raise Unknown(opcode)
    values = [get(type_, v) for v in given[2:]]
    change = ATOMICS[operation].format(*(f"laptop_v{i}" for i in range(len(values))))
    held = "".join(f"auto laptop_v{i} = {v}; " for i, v in enumerate(values))
    made = (f"{P}update<{TYPES[type_]}>({_pointer(mods, given[1], opcode)}, "
            f"[=]({TYPES[type_]} old) LAPTOP_QUIET -> {TYPES[type_]} {{ return {change}; }})")
    return f"{{ {held}{put(given[0], made)} }}"


def _red(mods: list[str], given: list, opcode: str) -> str:
    return _atom(mods, ["laptop_unused", *given], opcode)


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


def _cp(mods: list[str], given: list, opcode: str) -> str:
    if mods[:2] == ["async", "commit_group"]:
        return "laptop::async_commit();"
    if mods[:2] == ["async", "wait_group"]:
        return f"laptop::async_wait({whole(given[0])});"
    if mods[:2] == ["async", "wait_all"]:
        return "laptop::async_commit(); laptop::async_wait(0);"
    if mods[:1] != ["async"] or "bulk" in mods or "mbarrier" in mods or len(given) < 3:
        raise Unknown(opcode)
    hint = any("cache_hint" in m for m in mods)
    sizes = [whole(v) for v in given[2:len(given) - hint]]
    to = _pointer(["shared"], given[0], opcode)
    return f"{P}copy_async({to}, {_pointer([], given[1], opcode)}, {sizes[0]}, {sizes[-1]});"


def _ldmatrix(mods: list[str], given: list, opcode: str) -> str:
    if "m8n8" not in mods or "b16" not in mods:
        raise Unknown(opcode)
    targets = given[0] if isinstance(given[0], list) else [given[0]]
    kind, base, offset = given[1]
    call = f"{P}load_matrix<{len(targets)}, {str('trans' in mods).lower()}>(d, {base} + {offset})"
    return f"{{ {P}reg d[{len(targets)}]; {call}; {assigned(targets, 'd')} }}"


def _stmatrix(mods: list[str], given: list, opcode: str) -> str:
    if "m8n8" not in mods or "b16" not in mods:
        raise Unknown(opcode)
    values = given[1] if isinstance(given[1], list) else [given[1]]
    kind, base, offset = given[0]
    call = f"{P}store_matrix<{len(values)}, {str('trans' in mods).lower()}>({base} + {offset}, d)"
    return f"{{ const {registers('d', values)} {call}; }}"


def _mma(mods: list[str], given: list, opcode: str) -> str:
    shape = re.fullmatch(r"m16n8k(4|8|16|32)", next(m for m in mods if m.startswith("m16")))
    d, a, b, c = (m for m in mods if m in FRAGMENTS or m in ("f32", "s32"))
    k = int(shape[1])
    sizes = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "s8": (16, 32), "u8": (16, 32)}
    if k not in sizes[a] or c != d or (d == "s32") != (a in ("s8", "u8")):
        raise Unknown(opcode)
    targets, first, second, sums = (v if isinstance(v, list) else [v] for v in given)
    function = f"{P}mma_{d}<{P}{FRAGMENTS[a]}, {P}{FRAGMENTS[b]}, {k}>"
    return (f"{{ {P}reg d[{len(targets)}]; const {registers('a', first)} const {registers('b', second)} "
            f"const {registers('c', sums)} {function}(d, a, b, c); {assigned(targets, 'd')} }}")
