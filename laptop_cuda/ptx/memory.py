"""The PTX instructions on memory and matrices, as C++ on the functions of `include/ptx.h`."""
import re

from .operands import BYTES, FLOATS, TYPES, P, Unknown, assigned, get, put, registers, whole

ATOMICS = {"add": P + "add(old, {0})", "min": P + "min(old, {0})", "max": P + "max(old, {0})",
           "and": "old & {0}", "or": "old | {0}", "xor": "old ^ {0}", "exch": "{0}",
           "inc": "old >= {0} ? 0 : old + 1", "dec": "old == 0 || old > {0} ? {0} : old - 1",
           "cas": "old == {0} ? {1} : old"}
HALF, BRAIN, TF32 = "of_half<laptop::binary16>", "of_half<laptop::bfloat16>", "of_tf32"
FRAGMENTS = {"f16": HALF, "bf16": BRAIN, "tf32": TF32, "s8": "of_byte<int8_t>", "u8": "of_byte<uint8_t>",
             "e4m3": "of_float8<__NV_E4M3>", "e5m2": "of_float8<__NV_E5M2>"}
# the depths of mma by the rows of A and the type of its numbers
DEPTHS = {(16, "f16"): (8, 16), (16, "bf16"): (8, 16), (16, "tf32"): (4, 8), (16, "s8"): (16, 32),
          (16, "u8"): (16, 32), (16, "e4m3"): (32,), (16, "e5m2"): (32,), (8, "s8"): (16,), (8, "u8"): (16,)}
SPACES = {"global", "shared", "shared_cta", "shared_cluster", "local"}
STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"}
SCOPES = {"cta", "cluster", "gpu", "sys"}
CACHES = {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"}
BITWISE = {"and", "or", "xor", "exch", "cas"}
OF_BLOCK, COMPARES = 1, 2                        # of engine.h
HINT = re.compile(r"L[12](_\w+)?")


def _known(mods: list[str], more: set[str], opcode: str) -> None:
    """Refuses a modifier that is neither a hint to the caches, nor a space or a scope, nor one of `more`."""
    if any(m not in SPACES | SCOPES | more and not HINT.fullmatch(m) for m in mods):
        raise Unknown(opcode)


def _pointer(mods: list[str], operand, opcode: str) -> str:
    """C++ for the address of [a + offset] in the state space that the modifiers name."""
    kind, base, offset = operand
    if kind != "address":
        raise Unknown(opcode)
    address = f"{base} + {offset}" if offset != "0" else base
    return f"{P}{'in_shared' if any(m.startswith('shared') for m in mods) else 'generic'}({address})"


def _width(mods: list[str], orders: set[str], opcode: str) -> tuple[str, int, str]:
    """The type, how many of it, and whether the access is strong."""
    vectors = {"v2": 2, "v4": 4, "v8": 8}
    type_, count = mods[-1], next((vectors[m] for m in mods if m in vectors), 1)
    _known(mods[:-1], CACHES | orders | {"weak", "relaxed", "volatile", "mmio"} | vectors.keys(), opcode)
    return type_, count, str(bool(set(mods) & STRONG)).lower()


def _fences(mods: list[str]) -> tuple[str, str]:
    """The fences before and after an access that releases or acquires."""
    fence = f"laptop::memory_fence({str('cta' not in mods).lower()});"
    before = fence if {"release", "acq_rel"} & set(mods) else ""
    return before, fence if {"acquire", "acq_rel"} & set(mods) else ""


def _ld(mods: list[str], given: list, opcode: str) -> str:
    type_, count, strong = _width(mods, {"acquire"}, opcode)
    targets = given[0] if isinstance(given[0], list) else [given[0]]
    if len(targets) != count:
        raise Unknown(opcode)
    pointer = _pointer(mods, given[1], opcode)
    extend = " ".join(f"{t} = {P}put((int64_t){P}get<{TYPES[type_]}>({t}));" for t in targets
                      if t != "laptop_unused") if type_ in ("s8", "s16", "s32") else ""
    constant = str("nc" in mods).lower()
    load = f"{P}load<{BYTES[type_]}, {strong}, {count}, {constant}>(d, {pointer}); {_fences(mods)[1]}"
    return f"{{ {P}reg d[{count}]; {load} {assigned(targets, 'd')} {extend} }}"


def _ldu(mods: list[str], given: list, opcode: str) -> str:
    return _ld(mods, given, opcode)


def _st(mods: list[str], given: list, opcode: str) -> str:
    type_, count, strong = _width(mods, {"release"}, opcode)
    values = given[1] if isinstance(given[1], list) else [given[1]]
    values = [v if isinstance(v, str) else f"{P}put({get(type_, v)})" for v in values]
    if len(values) != count:
        raise Unknown(opcode)
    pointer = _pointer(mods, given[0], opcode)
    store = f"{_fences(mods)[0]} {P}store<{BYTES[type_]}, {strong}>({pointer}, d);"
    return f"{{ const {registers('d', values)} {store} }}"


def _atom(mods: list[str], given: list, opcode: str) -> str:
    type_ = mods[-1]
    operation = next(m for m in mods if m in ATOMICS)
    _known([m for m in mods[:-1] if m != operation], STRONG - {"volatile", "mmio"} | {"noftz"}, opcode)
    if operation in ("inc", "dec") and type_ != "u32" or type_ in FLOATS and operation in BITWISE:
        raise Unknown(opcode)
    values = [get(type_, v) for v in given[2:]]
    change = ATOMICS[operation].format(*(f"laptop_v{i}" for i in range(len(values))))
    held = "".join(f"auto laptop_v{i} = {v}; (void)laptop_v{i}; " for i, v in enumerate(values))
    how = ("cta" in mods) * OF_BLOCK | (operation == "cas") * COMPARES
    made = (f"{P}update<{TYPES[type_]}>({_pointer(mods, given[1], opcode)}, {how}, [=]({TYPES[type_]} old) "
            f"LAPTOP_QUIET -> {TYPES[type_]} {{ return {change}; }})")
    before, after = _fences(mods)
    return f"{{ {held}{before} {put(given[0], made)} {after} }}"


def _red(mods: list[str], given: list, opcode: str) -> str:
    return _atom(mods, ["laptop_unused", *given], opcode)


def _cp(mods: list[str], given: list, opcode: str) -> str:
    if mods[:2] == ["async", "commit_group"]:
        return "laptop::async_commit();"
    if mods[:2] == ["async", "wait_group"]:
        return f"laptop::async_wait({whole(given[0])});"
    if mods[:2] == ["async", "wait_all"]:
        return "laptop::async_commit(); laptop::async_wait(0);"
    hint = any("cache_hint" in m for m in mods)
    sizes = [whole(v) for v in given[2:len(given) - hint]]
    _known(mods[1:], {"ca", "cg"}, opcode)
    if mods[:1] != ["async"] or len(sizes) not in (1, 2) or sizes[-1].startswith("(uint32_t)laptop_reg_"):
        raise Unknown(opcode)                # a register that the text declares: the predicate ignore-src
    to = _pointer(["shared"], given[0], opcode)
    return f"{P}copy_async({to}, {_pointer([], given[1], opcode)}, {sizes[0]}, {sizes[-1]});"


def _pieces(mods: list[str], registers_: list, opcode: str) -> str:
    """The template arguments of a matrix load or store: how many pieces of 8 x 8, and whether transposed."""
    known = {"sync", "aligned", "m8n8", "trans", "shared", "shared_cta", "b16", f"x{len(registers_)}"}
    if set(mods) - known or not {"sync", "aligned", "m8n8", "b16"} <= set(mods):
        raise Unknown(opcode)
    return f"{len(registers_)}, {str('trans' in mods).lower()}"


def _ldmatrix(mods: list[str], given: list, opcode: str) -> str:
    targets = given[0] if isinstance(given[0], list) else [given[0]]
    kind, base, offset = given[1]
    call = f"{P}load_matrix<{_pieces(mods, targets, opcode)}>(d, {base} + {offset})"
    return f"{{ {P}reg d[{len(targets)}]; {call}; {assigned(targets, 'd')} }}"


def _stmatrix(mods: list[str], given: list, opcode: str) -> str:
    values = given[1] if isinstance(given[1], list) else [given[1]]
    kind, base, offset = given[0]
    call = f"{P}store_matrix<{_pieces(mods, values, opcode)}>({base} + {offset}, d)"
    return f"{{ const {registers('d', values)} {call}; }}"


def _movmatrix(mods: list[str], given: list, opcode: str) -> str:
    if sorted(mods) != ["aligned", "b16", "m8n8", "sync", "trans"]:
        raise Unknown(opcode)
    return put(given[0], f"{P}transposed({get('b32', given[1])})")


def _mma(mods: list[str], given: list, opcode: str) -> str:
    d, a, b, c = types = [m for m in mods if m in FRAGMENTS or m in ("f32", "s32")]
    whole_numbers = d == "s32"
    shape = re.fullmatch(r"m(8|16)n8k(4|8|16|32)", mods[2])
    if not shape:
        raise Unknown(opcode)
    more = {"sync", "aligned", "row", "col", mods[2], *types, *({"satfinite"} if whole_numbers else ())}
    rows, k = (int(n) for n in shape.groups())
    sizes = DEPTHS[rows, a]
    if (set(mods) - more or mods.index("row") > mods.index("col") or k not in sizes or c != d
            or sizes != DEPTHS[rows, b] or whole_numbers != (a in ("s8", "u8"))
            or d == "f16" and a in ("bf16", "tf32")):
        raise Unknown(opcode)
    targets, first, second, sums = (v if isinstance(v, list) else [v] for v in given)
    function = f"{P}mma_{d}<{P}{FRAGMENTS[a]}, {P}{FRAGMENTS[b]}, {k}>"
    flag = f", {str('satfinite' in mods).lower()}" if whole_numbers else ""
    return (f"{{ {P}reg d[{len(targets)}]; const {registers('a', first)} const {registers('b', second)} "
            f"const {registers('c', sums)} {function}(d, a, b, c{flag}); {assigned(targets, 'd')} }}")
