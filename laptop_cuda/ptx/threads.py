"""The PTX instructions by which threads meet, as C++ on the functions of `include/ptx.h`."""
from .operands import P, Unknown, get, predicate, put, whole

SCOPES = {"cta", "cluster", "gpu", "sys"}
ORDERS = {"sc", "acq_rel", "acquire", "release"}


def _membar(mods: list[str], given: list, opcode: str) -> str:
    if mods not in (["cta"], ["gl"], ["sys"]):
        raise Unknown(opcode)
    return f"laptop::memory_fence({str(mods != ['cta']).lower()});"


def _fence(mods: list[str], given: list, opcode: str) -> str:
    if mods[0] not in ORDERS or mods[1:] and (len(mods) > 2 or mods[1] not in SCOPES):
        raise Unknown(opcode)
    return f"laptop::memory_fence({str('cta' not in mods).lower()});"


def _bar(mods: list[str], given: list, opcode: str) -> str:
    if mods == ["warp", "sync"]:
        return f"{P}sync_warp({whole(given[0])});"
    aligned = str("aligned" in mods or opcode.startswith("bar.")).lower()
    mods = [m for m in mods if m not in ("cta", "aligned")]
    if mods[:1] == ["red"]:
        return _barrier_reduction(mods, given, aligned)
    if mods not in (["sync"], ["arrive"]) or len(given) > 2:
        raise Unknown(opcode)
    call, more = ("barrier", f", {aligned}") if mods == ["sync"] else ("arrive", "")
    return f"{P}{call}({whole(given[0])}, {whole(given[1]) if len(given) > 1 else '0'}{more});"


def _barrier(mods: list[str], given: list, opcode: str) -> str:
    if mods[:1] != ["cluster"]:
        return _bar(mods, given, opcode)
    how, *rest = [m for m in mods[1:] if m != "aligned"]
    if how == "arrive" and rest in ([], ["release"], ["relaxed"]):
        return f"{P}cluster_arrives({str(rest == ['relaxed']).lower()});"
    if how != "wait" or rest not in ([], ["acquire"]):
        raise Unknown(opcode)
    return f"{P}cluster_waits();"


def _mapa(mods: list[str], given: list, opcode: str) -> str:
    shared = "shared_cluster" in mods or mods == ["u32"]
    if mods[-1:] not in (["u32"], ["u64"]):
        raise Unknown(opcode)
    made = f"{P}in_block_of_cluster({P}{'in_shared' if shared else 'generic'}({given[1]}), {whole(given[2])})"
    return put(given[0], f"laptop::shared_address({made})" if shared else f"(uint64_t)(uintptr_t){made}")


def _getctarank(mods: list[str], given: list, opcode: str) -> str:
    return put(given[0], f"laptop::owner_rank({P}{'in_shared' if 'shared_cluster' in mods else 'generic'}({given[1]}))")


def _barrier_reduction(mods: list[str], given: list, aligned: str) -> str:
    """bar.red.popc.u32 d, a, b, p and bar.red.and.pred q, a, b, p; without b, of all threads."""
    how = {("popc", "u32"): "popc", ("and", "pred"): "and", ("or", "pred"): "or"}[tuple(mods[1:])]
    target, number, *threads, p = given
    count = whole(threads[0]) if threads else "0"
    return put(target, f'{P}barrier_reduction("{how}", {whole(number)}, {count}, {predicate(p)}, {aligned})')


def _shfl(mods: list[str], given: list, opcode: str) -> str:
    sync, how, type_ = mods
    if sync != "sync" or how not in ("up", "down", "bfly", "idx") or type_ != "b32":
        raise Unknown(opcode)
    target, valid = given[0][1:] if isinstance(given[0], tuple) else (given[0], "laptop_unused")
    a, b, c = (get("b32", v) for v in given[1:4])
    call = f'{P}shuffle("{how}", {a}, {b}, {c}, {get("b32", given[4])}, &laptop_valid)'
    return f"{{ bool laptop_valid; {put(target, call)} {put(valid, 'laptop_valid')} }}"


def _vote(mods: list[str], given: list, opcode: str) -> str:
    sync, how, _ = mods
    call = {"ballot": "__ballot_sync", "any": "__any_sync", "all": "__all_sync", "uni": "__uni_sync"}[how]
    if sync != "sync":
        raise Unknown(opcode)
    return put(given[0], f"{call}({get('b32', given[2])}, {predicate(given[1])})")


def _activemask(mods: list[str], given: list, opcode: str) -> str:
    return put(given[0], "__activemask()")


def _redux(mods: list[str], given: list, opcode: str) -> str:
    sync, how, type_ = mods
    known = {"u32": ("add", "min", "max"), "s32": ("add", "min", "max"), "b32": ("and", "or", "xor")}
    if sync != "sync" or how not in known[type_]:
        raise Unknown(opcode)
    signed = str(type_ == "s32").lower()
    return put(given[0], f'{P}redux("{how}", {get("b32", given[1])}, {get("b32", given[2])}, {signed})')


def _match(mods: list[str], given: list, opcode: str) -> str:
    how, sync, type_ = mods
    if sync != "sync" or type_ not in ("b32", "b64"):
        raise Unknown(opcode)
    mask, value = get("b32", given[2]), get(type_, given[1])
    if how == "any":
        return put(given[0], f"__match_any_sync({mask}, {value})")
    target, same = given[0][1:] if isinstance(given[0], tuple) else (given[0], "laptop_unused")
    if how != "all":
        raise Unknown(opcode)
    call = put(target, f"__match_all_sync({mask}, {value}, &laptop_same)")
    return f"{{ int laptop_same; {call} {put(same, 'laptop_same != 0')} }}"


def _elect(mods: list[str], given: list, opcode: str) -> str:
    """One lane of those in the mask: the lowest, as CUDA leaves the choice open."""
    if mods != ["sync"] or not isinstance(given[0], tuple):
        raise Unknown(opcode)
    leader, chosen = given[0][1:]
    made = f"const uint32_t laptop_leader = {P}leader({get('b32', given[1])});"
    return f"{{ {made} {put(leader, 'laptop_leader')} {put(chosen, 'laptop_leader == laptop::lane_id()')} }}"
