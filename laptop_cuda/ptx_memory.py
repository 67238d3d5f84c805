"""The PTX instructions on memory and matrices, as C++ on the functions of `include/ptx.h`."""
from __future__ import annotations

import re

from .ptx_operands import BYTES, TYPES, P, Unknown, assigned, get, put, registers, whole

ATOMICS = {
    "add": P + "add(old, {0})",
    "min": P + "min(old, {0})",
    "max": P + "max(old, {0})",
    "and": "old & {0}",
    "or": "old | {0}",
    "xor": "old ^ {0}",
    "exch": "{0}",
    "inc": "old >= {0} ? 0 : old + 1",
    "dec": "old == 0 || old > {0} ? {0} : old - 1",
    "cas": "old == {0} ? {1} : old",
}
HALF, BRAIN, TF32 = "of_half<laptop::binary16>", "of_half<laptop::bfloat16>", "of_tf32"
FRAGMENTS = {"f16": HALF, "bf16": BRAIN, "tf32": TF32, "s8": "of_byte<int8_t>", "u8": "of_byte<uint8_t>"}


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
    return (
        f"{{ {P}reg d[{count}]; {P}load<{BYTES[type_]}>(d, {pointer}); {assigned(targets, 'd')} {extend} }}"
    )


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
