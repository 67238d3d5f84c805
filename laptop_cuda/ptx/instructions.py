"""The PTX instructions that the engine knows, each as C++ on the functions of `include/ptx.h`.

A modifier has its effect, changes nothing by its nature (a hint, the only rounding that there is), or is not
known: then the instruction is an error where it is reached."""
import re

from .. import packs
from . import compare, convert, integers, memory, threads
from .operands import BYTES, FLOATS, TYPES, P, Unknown, get, put, whole

NOTHING = re.compile(r"prefetchu?\..*|griddepcontrol\..*|nanosleep\.u32|pragma|discard\..*|applypriority\..*|brkpt|"
                     r"createpolicy\..*")
EXACT = {"rn", "approx", "full", "ftz", "lo"}        # modifiers that need nothing here; ftz is for all alike
BINARY = {"add", "sub", "mul", "div", "rem", "min", "max"}
BITS = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}
FUNCTIONS = {"ex2": "exp2f({0})", "lg2": "log2f({0})", "sin": "sinf({0})", "cos": "cosf({0})",
             "sqrt": "sqrtf({0})", "rcp": P + "rcp({0})", "rsqrt": P + "rsqrt_({0})",
             "tanh": P + "tanh_({0})"}
OF_DOUBLE = {"sqrt": "__dsqrt_rn({0})", "rcp": "__drcp_rn({0})", "rsqrt": "1.0 / sqrt({0})"}
OPERANDS = {**dict.fromkeys([*BINARY, *BITS, "shl", "shr"], 3), "fma": 4, "mad": 4,
            **dict.fromkeys([*FUNCTIONS, "abs", "neg", "not", "cnot"], 2)}
THREAD = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
SPECIAL = {
    "laneid": "laptop::lane_id()", "warpid": f"({THREAD}) / warpSize",
    "nwarpid": "(blockDim.x * blockDim.y * blockDim.z + warpSize - 1) / warpSize", "smid": "0u",
    "nsmid": "1u", "gridid": "0u", "clock": "(uint32_t)laptop::clock()",
    "clock64": "(uint64_t)laptop::clock()", "warpsize": "32u", "globaltimer": "(uint64_t)laptop::clock()",
    "globaltimer_lo": "(uint32_t)laptop::clock()", "lanemask_eq": "1u << laptop::lane_id()",
    "lanemask_lt": "(1u << laptop::lane_id()) - 1u", "lanemask_le": "(2u << laptop::lane_id()) - 1u",
    "lanemask_gt": "~((2u << laptop::lane_id()) - 1u)", "lanemask_ge": "~((1u << laptop::lane_id()) - 1u)",
    "cluster_ctarank": "laptop::rank_in_cluster()", "cluster_nctarank": "laptop::cluster_size()",
    "is_explicit_cluster": "laptop::cluster_size() > 1"}
CLUSTERS = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")      # as engine.h numbers them
VARIABLES = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}


NOT_KNOWN = re.compile(r"pm\d+\w*|envreg\d+|\w+_smem_size|reserved_smem\w*|current_graph_exec")


def special(name: str) -> str | None:
    """The value of %laneid, %tid.x, ... as a register."""
    if NOT_KNOWN.match(name):
        raise Unknown(f"%{name}")
    if name in SPECIAL:
        return f"{P}put({SPECIAL[name]})"
    base, _, axis = name.partition(".")
    if axis not in ("x", "y", "z"):
        return None
    if base in CLUSTERS:
        return f"{P}put(laptop::in_cluster({CLUSTERS.index(base)}, {'xyz'.index(axis)}))"
    return f"{P}put({VARIABLES[base]}.{axis})" if base in VARIABLES else None


def translate(opcode: str, given: list) -> str:
    """C++ statements for one instruction."""
    words = opcode.replace("::", "_").split(".")
    name, mods = words[0], words[1:]
    if NOTHING.fullmatch(opcode):
        return f"{given[0]} = 0;" if name == "createpolicy" else ";"
    handler = _handler(name, opcode)
    try:
        if made := integers.with_carry(name, mods, given):
            return made
        return handler(mods, given, opcode) if handler else _arithmetic(name, mods, given, opcode)
    except (KeyError, IndexError, StopIteration, ValueError):
        raise Unknown(opcode) from None


def _handler(name: str, opcode: str):
    """What makes C++ of an instruction: a pack's by how its name begins, else one of this folder."""
    for module in packs.named("instructions"):
        if found := next((made for start, made in module.INSTRUCTIONS.items()
                          if f"{opcode}.".startswith(f"{start}.")), None):
            return found
    places = (_OWN, *map(vars, (threads, memory, integers, compare)))
    return next((place[f"_{name}"] for place in places if f"_{name}" in place), None)


def _arithmetic(name: str, mods: list[str], given: list, opcode: str) -> str:
    types = [m for m in mods if m in TYPES]
    type_ = types[0] if types else ""
    shape = [m for m in mods if m not in types and m not in EXACT]
    if len(given) != OPERANDS[name] + (name in ("min", "max") and types == ["f32"] and len(given) == 4):
        raise Unknown(opcode)
    values = _values(types, given, name, opcode)
    if "ftz" in mods:
        values = [f"{P}flushed({v})" for v in values]
    if made := convert.directed(name, shape, type_, values):
        shape = [m for m in shape if m not in convert.SUFFIX]
    elif name in ("min", "max") and type_ in FLOATS - {"f32x2"}:
        made, shape = _extreme(name, shape, values)
    elif name in ("add", "sub") and (type_, shape) == ("s32", ["sat"]):
        made = f"{P}clamped<int32_t>({P}{name}((int64_t){values[0]}, (int64_t){values[1]}))"
        shape = []
    elif name in ("mul", "mad") and shape == ["wide"]:
        return put(given[0], _wide(type_, given, values))
    elif name in ("mul", "mad") and shape == ["hi"] and type_ not in FLOATS:
        made, shape = f"{P}mul_hi({values[0]}, {values[1]})", []
        made = f"{P}add({made}, {values[2]})" if name == "mad" else made
    elif name in BINARY:
        made = f"{P}{name}({values[0]}, {values[1]})"
    elif name in ("fma", "mad") and type_ in FLOATS:
        made = f"{P}fma({', '.join(values)})"
    elif name == "mad":
        made = f"{P}add({P}mul({values[0]}, {values[1]}), {values[2]})"
    else:
        made = _of_one(name, type_, given, values, opcode)
    return put(given[0], _bounded(made, shape, type_, "ftz" in mods, opcode))


def _values(types: list[str], given: list, name: str, opcode: str) -> list[str]:
    """The operands; of add.f32.bf16, all but the last are the small ones."""
    if len(types) == 1:
        return [get(types[0], v) for v in given[1:]]
    mixed = types[0] == "f32" and types[1] in ("f16", "bf16") and name in ("add", "sub", "fma")
    if len(types) != 2 or not mixed:
        raise Unknown(opcode)
    return [f"(float){get(types[1], v)}" for v in given[1:-1]] + [get("f32", given[-1])]


def _bounded(made: str, shape: list[str], type_: str, flush: bool, opcode: str) -> str:
    """What .ftz, .sat and .relu make of a result; other modifiers are not known."""
    allowed = {"sat", "relu"} if type_ in ("f16", "bf16", "f16x2", "bf16x2") else {"sat"}
    if set(shape) - (allowed if type_ in FLOATS else set()) or len(shape) > 1:
        raise Unknown(opcode)
    made = f"({TYPES[type_]})({made})" if not type_.endswith("x2") else made
    if flush:
        made = f"{P}flushed({made})"
    return f"{P}{'saturate' if shape == ['sat'] else 'relu'}({made})" if shape else made


def _extreme(name: str, shape: list[str], values: list[str]) -> tuple[str, list[str]]:
    """min and max of two or three floats: .NaN if one is, .xorsign.abs of sizes with a product's sign."""
    signed = shape[-2:] == ["xorsign", "abs"] and len(values) == 2
    sizes = [f"{P}abs({v})" for v in values] if signed else values
    shape = shape[:-2] if signed else shape
    made = sizes[0]
    for other in sizes[1:]:
        least = f"{P}{name}({made}, {other})"
        made = f"{P}with_nan({made}, {other}, {least})" if shape == ["NaN"] else least
    shape = [] if shape == ["NaN"] else shape
    return f"{P}xorsign({values[0]}, {values[1]}, {made})" if signed else made, shape


def _wide(type_: str, given: list, values: list[str]) -> str:
    """A product of twice the bits, and for mad its sum with an operand of as many."""
    product = f"{P}mul_wide({values[0]}, {values[1]})"
    wide = {"s32": "s64", "u32": "u64", "s16": "s32", "u16": "u32"}[type_]
    return f"{P}add({product}, {get(wide, given[3])})" if len(given) == 4 else product


def _of_one(name: str, type_: str, given: list, values: list[str], opcode: str) -> str:
    if name in BITS:
        return BITS[name].format(*values)
    if name in FUNCTIONS and type_ == "f64":
        return OF_DOUBLE[name].format(values[0])
    if name in FUNCTIONS and type_ in FLOATS:
        return _function(FUNCTIONS[name], type_, values[0])
    if name in ("abs", "neg"):
        return f"{P}{name}({values[0]})"
    if name in ("not", "cnot"):
        return f"~{values[0]}" if name == "not" and type_ != "pred" else f"{values[0]} == 0"
    if name in ("shl", "shr"):
        return f"{P}{name}({values[0]}, {get('u32', given[2])})"
    raise Unknown(opcode)


def _function(form: str, type_: str, value: str) -> str:
    if type_ == "f32":
        return form.format(value)
    element = f"{P}{type_.removesuffix('x2')}"
    if not type_.endswith("x2"):
        return f"{element}({form.format(f'(float){value}')})"
    parts = ", ".join(f"{element}({form.format(f'(float){value}.{half}')})" for half in ("low", "high"))
    return f"{P}{type_}{{{parts}}}"


def _mov(mods: list[str], given: list, opcode: str) -> str:
    (type_,), (target, source) = mods, given
    if not isinstance(target, list) and not isinstance(source, list):
        return put(target, get(type_, source))
    parts = target if isinstance(target, list) else source
    size = 8 * BYTES[type_] // len(parts)
    mask = f"{(1 << size) - 1:#x}ull"
    if isinstance(source, list):
        shifted = (f"({whole(s, 'uint64_t')} & {mask}) << {size * i}" for i, s in enumerate(source))
        return f"{target} = {' | '.join(shifted)};"
    taken = " ".join(f"{t} = d >> {size * i} & {mask};" for i, t in enumerate(target) if t != "laptop_unused")
    return f"{{ const {P}reg d = {whole(source, 'uint64_t')}; {taken} }}"


_cvt = convert.cvt


def _cvta(mods: list[str], given: list, opcode: str) -> str:
    if set(mods) - {"to", "shared", "shared_cta", "shared_cluster", "global", "local", "const", "u32", "u64"}:
        raise Unknown(opcode)
    if any(m.startswith("shared") for m in mods):
        if "to" in mods:
            return f"{given[0]} = laptop::shared_address((const void*)(uintptr_t){given[1]});"
        return f"{given[0]} = (uintptr_t)laptop::shared_pointer((uint32_t){given[1]});"
    return f"{given[0]} = {given[1]};"


def _isspacep(mods: list[str], given: list, opcode: str) -> str:
    name = {"const": "__isConstant", "global": "__isGlobal", "local": "__isLocal", "shared": "__isShared"}[mods[0].split("_")[0]]
    return put(given[0], f"{name}((const void*)(uintptr_t){given[1]}) != 0")


def _trap(mods: list[str], given: list, opcode: str) -> str:
    return "__trap();"


_OWN = dict(globals())
