"""The PTX instructions of asynchronous kernels, as C++ on the functions of include/laptop_asynchronous.h.

Each is found by how its name begins; one that is not here, or has a modifier that is not, stops where it is
reached, by name."""
import re

from ..ptx.operands import BYTES, P, Unknown, own, place, put, registers, whole

SPACES = {"shared", "shared_cta", "shared_cluster"}
SCOPES = {"cta", "cluster"}
ORDERS = {"acquire", "release", "relaxed"}
HINT, MULTICAST, COMPLETES = "L2_cache_hint", "multicast_cluster", "mbarrier_complete_tx_bytes"
# of reductions: operations and types, as include/laptop_asynchronous.h numbers them
OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
NUMBERED = {"b32": 2, "u32": 2, "s32": 3, "b64": 4, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
# of wgmma: how deep a product of such numbers is, what sums it has, and the widths of whole numbers
DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
SUMS = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16"),
        "s8": ("s32",), "u8": ("s32",)}
EIGHT_BITS_WIDE = (8, 16, 24, *range(32, 257, 16))
NO_SHAPE = (", which does not exist: m64nNk{} of {}, with N of 8 to 256 in steps of 8, and of s8 and u8 8, 16, 24 and from 32 "
            "on in steps of 16 (PTX, wgmma.mma_async, shapes).")
LETTERS = {"f16": "h", "e4m3": "4", "e5m2": "5"}


def _address(operand, shared: bool = True) -> str:
    kind, base, offset = operand
    if kind != "address":
        raise Unknown(str(operand))
    address = f"{base} + {offset}" if offset != "0" else base
    return f"{P}{'in_shared' if shared else 'generic'}({address})"


def _mbarrier(mods: list[str], given: list, opcode: str) -> str:
    how, *rest = [m for m in mods if m not in SPACES | SCOPES | ORDERS | {"b64"}]
    if how == "pending_count" and not rest:
        return put(given[0], f"(uint32_t)({whole(given[1], 'uint64_t')} >> 32)")
    at = next(v for v in given if isinstance(v, tuple) and v[0] == "address")
    barrier = _address(at, bool(SPACES & set(mods)))
    after = given[given.index(at) + 1:]
    number = whole(after[0], "uint64_t") if after else "1"
    if how in ("init", "expect_tx", "complete_tx", "inval") and not rest:
        call = {"init": "init", "inval": "inval"}.get(how, "expect")
        number = "" if how == "inval" else f", {'-(int64_t)' if how == 'complete_tx' else ''}({number})"
        return f"{P}barrier_{call}({barrier}{number});"
    if how in ("arrive", "arrive_drop") and rest in ([], ["expect_tx"], ["noComplete"]):
        count, size = ("1", number) if rest == ["expect_tx"] else (number, "0")
        of_block = str("cluster" not in mods).lower()
        call = f"{P}barrier_arrive({barrier}, {count}, {size}, {str(how == 'arrive_drop').lower()}, {of_block})"
        if "shared_cluster" in mods and given[0] not in (at, "laptop_unused"):
            raise Unknown(opcode)            # it gives no state
        return put(given[0] if given[0] != at else "laptop_unused", call)
    if how in ("test_wait", "try_wait") and rest in ([], ["parity"]):
        kind = ", ".join(str(b).lower() for b in (rest == ["parity"], how == "try_wait", "cluster" not in mods))
        return put(given[0], f"{P}barrier_wait({barrier}, {number}, {kind})")
    raise Unknown(opcode)


def _after_copies(mods: list[str], given: list, opcode: str) -> str:
    counted = mods[3:4] == ["noinc"]
    way = mods[3 + counted:-1]
    if mods[2] != "arrive" or mods[-1] != "b64" or way not in ([], ["shared"], ["shared_cta"]):
        raise Unknown(opcode)
    return f"{P}barrier_after_copies({_address(given[0], way != [])}, {str(counted).lower()});"


def _bulk(mods: list[str], given: list, opcode: str) -> str:
    mods, reduction = _reduction(mods[3:], opcode) if mods[0] == "reduce" else (mods[2:], "")
    if mods[:1] == ["commit_group"]:
        return "laptop::bulk_commit();"
    if mods[:1] == ["wait_group"] and mods[1:] in ([], ["read"]):
        return f"laptop::bulk_wait({whole(given[0])}, {str(mods[1:] == ['read']).lower()});"
    if mods[:1] == ["prefetch"]:
        return ";"
    from_shared = mods[:2] == ["shared_cluster", "shared_cta"]
    given, into, mask = _without_hint([*mods[:1], "global", *mods[2:]] if from_shared else mods, given, opcode)
    if reduction and (into and not from_shared or mask != "0"):
        raise Unknown(opcode)
    to, source, size = given[:3]
    end = _address(given[3]) if into else "nullptr"
    source = _address(source, from_shared or not into)
    return f"{P}copy_bulk({_address(to, into)}, {source}, {whole(size)}, {end}, {mask}{reduction});"


def _reduction(mods: list[str], opcode: str) -> tuple[list[str], str]:
    """The modifiers before a reduction's own, and it as an argument in C++."""
    *ways, how, type_ = [m for m in mods if m != "noftz"]
    small = how == "add" and type_ in ("f16", "bf16")
    if (how in ("and", "or", "xor")) != (type_ in ("b32", "b64")) or ("noftz" in mods) != small or (how, type_) == ("add", "s64"):
        raise Unknown(opcode)
    return ways, f", {{{OPERATIONS.index(how)}, {NUMBERED[type_]}}}"


def _store(mods: list[str], given: list, opcode: str) -> str:
    """st.async and red.async."""
    ways, reduction = _reduction(mods[1:], opcode) if opcode.startswith("red") else (mods[1:-1], "")
    to, values, end = given
    values = values if isinstance(values, list) else [values]
    known = {"relaxed", "cluster", "shared_cluster", COMPLETES} if reduction else {"weak", "shared_cluster", COMPLETES, f"v{len(values)}"}
    size = BYTES[mods[-1]]
    if set(ways) - known or COMPLETES not in ways or size < 4 or len(values) * size > 16 or (len(values) > 1) != (f"v{len(values)}" in ways):
        raise Unknown(opcode)
    to, end = (_address(at, "shared_cluster" in ways) for at in (to, end))
    return f"{{ const {registers('laptop_d', values)} {P}store_later<{size}>({to}, laptop_d, {end}{reduction}); }}"


def _tensor(mods: list[str], given: list, opcode: str) -> str:
    mods = mods[mods.index("tensor") + 1:]
    rank, how = int(mods[0].removesuffix("d")), next((m for m in mods if m in OPERATIONS), None)
    by_pixels = {"im2col", "im2col_no_offs"} & set(mods)
    given, into, mask = _without_hint([m for m in mods[1:] if m not in ("tile", how, *by_pixels)], given, opcode)
    if (how is not None) != ("reduce" in opcode) or how and into or by_pixels not in (set(), {"im2col" if into else "im2col_no_offs"}):
        raise Unknown(opcode)
    tile, (kind, place, at), *rest = given if into else reversed(given)
    end = _address(rest.pop(0)) if into else "nullptr"
    at = at if isinstance(at, list) else [at]
    offsets = ["0"] * (rank - 2) if by_pixels and not into else rest[0] if rest else []
    offsets = offsets if isinstance(offsets, list) else [offsets]
    if kind != "tensor" or len(at) != rank or len(rest) > 1 or len(offsets) != (rank - 2 if by_pixels else 0):
        raise Unknown(opcode)
    held = "".join(f"const int {name}[] = {{{', '.join('(int)' + whole(v) for v in values)}}}; "
                   for name, values in (("laptop_at", at), ("laptop_by", offsets)) if values)
    more = f", {OPERATIONS.index(how) if how else 8}{', laptop_by' if offsets else ''}"
    return f"{{ {held}{P}copy_tensor({_address(tile)}, {P}generic({place}), laptop_at, {end}, {mask}{more}); }}"


def _without_hint(mods: list[str], given: list, opcode: str) -> tuple[list, bool, str]:
    """A copy's operands, the cache's hint and the mask left out; whether it goes into shared memory; and the mask."""
    ways = [m for m in mods if m not in (HINT, MULTICAST)]
    into = ways in ([s, "global", COMPLETES] for s in ("shared_cluster", "shared_cta"))
    if not into and ways != ["global", "shared_cta", "bulk_group"] or MULTICAST in mods and ways[0] != "shared_cluster":
        raise Unknown(opcode)
    given = given[:len(given) - (HINT in mods)]
    return (given[:-1], into, f"{whole(given[-1])} & 0xffff") if MULTICAST in mods else (given, into, "0")


def _product(mods: list[str], given: list, opcode: str) -> str:
    if mods[0] in ("fence", "commit_group") and mods[1:] == ["sync", "aligned"]:
        return f"laptop::product_{mods[0].removesuffix('_group')}();"
    if mods == ["wait_group", "sync", "aligned"]:
        return f"{P}wait_for_products({whole(given[0])});"
    how, sync, aligned, shape, d, a, b, *more = mods
    depth, wide = DEPTHS.get(a), int((re.fullmatch(r"m64n(\d+)k\d+", shape) or "00")[1])
    if ([how, sync, aligned] != ["mma_async", "sync", "aligned"] or a not in SUMS or d not in SUMS[a] or DEPTHS.get(b) != depth
            or (a != b and depth != 32) or more not in ([], ["satfinite"] * (d == "s32"))):
        raise Unknown(opcode)
    if shape != f"m64n{wide}k{depth}" or wide not in (range(8, 257, 8) if d != "s32" else EIGHT_BITS_WIDE):
        return f'{P}no_shape("gives wgmma.mma_async the shape {shape}{NO_SHAPE.format(depth, a)}");'
    sums, first, second, adds, *rest = given
    if len(sums) != wide // (4 if d == "f16" else 2) or not all(re.fullmatch(r"laptop_\d+", s) for s in sums):
        raise Unknown(opcode)
    in_registers = isinstance(first, list)
    negated = [f"{whole(v, 'int')} < 0" for v in rest[:2]] if d != "s32" else ["false", "false"]
    turned = [f"{whole(v, 'int')} != 0" for v in rest[2:]]
    by_columns = ["false"] * (in_registers or not turned) + turned + ["false"] * (not turned)
    held, start, places = "", f"{whole(first, 'uint64_t')}, nullptr" if not in_registers else "0, laptop_a", ""
    if in_registers:
        held = (f"const uint32_t laptop_a[] = {{{', '.join(map(whole, first))}}}; "
                f"const void* const laptop_at[] = {{{', '.join(map(place, first))}}}; ")
        places = ", laptop_at, __builtin_frame_address(0)"
    named = {t: LETTERS.get(t, t[0]) for t in (d, a, b)}
    added = adds[1] if isinstance(adds, tuple) else f"({adds}) & 1"
    return (f"{{ {held}static constexpr laptop::Form laptop_form = {{{wide}, '{named[d]}', '{named[a]}', '{named[b]}', "
            f"{str(bool(more)).lower()}}}; uint32_t* const laptop_sums[] = {{{', '.join(map(own, sums))}}}; "
            f"{P}multiply(laptop_form, laptop_sums, {{{start}, {negated[0]}, {by_columns[0]}{places}}}, "
            f"{{{whole(second, 'uint64_t')}, nullptr, {negated[1]}, {by_columns[1]}}}, ({added}) != 0); }}")


def _registers(mods: list[str], given: list, opcode: str) -> str:
    if mods[0] not in ("inc", "dec") or mods[1:] != ["sync", "aligned", "u32"]:
        raise Unknown(opcode)
    return f"{P}registers({whole(given[0])}, {int(mods[0] == 'inc')});"


def _proxy(mods: list[str], given: list, opcode: str) -> str:
    if mods[:2] != ["proxy", "async"] or set(mods[2:]) - {"shared_cta", "shared_cluster", "global"}:
        raise Unknown(opcode)
    where = "".join(mods[2:])
    return f"laptop::proxy_fence({int(where in ('', 'global'))}, {int(where != 'global')});"


INSTRUCTIONS = {"mbarrier": _mbarrier, "cp.async.mbarrier": _after_copies, "cp.async.bulk.tensor": _tensor, "cp.async.bulk": _bulk,
                "fence.proxy": _proxy,
                "cp.reduce.async.bulk.tensor": _tensor, "cp.reduce.async.bulk": _bulk, "st.async": _store, "red.async": _store,
                "setmaxnreg": _registers, "wgmma": _product,
                # tells other blocks of a cluster: in its own block a barrier orders it
                "fence.mbarrier_init": lambda mods, given, opcode: "laptop::mbarrier_announce();"}
