"""Checks of chapter 2: tables of angles, positions, rules of scaling."""

import torch

from .attention import check_sequences
from .tensors import check_dtype, check_integers, check_like, check_tensor
from .values import check_choice, check_count, check_equal, check_number, check_sizes

LAYOUTS = ("interleaved", "half")


def check_rope(rope):
    """rope is None or a pair; apply_rope checks the two tables."""
    if rope is not None and not (isinstance(rope, (tuple, list)) and len(rope) == 2):
        raise ValueError("rope must be None or a pair (cos, sin), as from rope_table; got "
                         f"{type(rope).__name__}")


def check_rope_inputs(rope, **pairs):
    """query, key and value of a layer, each with the nn.Linear that takes it, and their tables."""
    check_sequences(**pairs)
    rows = {name: x.shape[1] for name, (x, _) in pairs.items()}
    check_equal("value", "have one row per key", rows["value"], rows["key"])
    check_rope(rope)


def check_rope_table(n, head_dim, base, dtype=torch.float32):
    check_count("n", n, 0)
    check_count("head_dim", head_dim, 2, even=True)
    check_number("base", base, above=0)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype; got {dtype!r}")


def check_alibi(n_heads, n_q, n_k):
    check_count("n_heads", n_heads)
    check_sizes(0, n_q=n_q, n_k=n_k)


def check_axes(positions, axis_of_pair):
    check_tensor("positions", positions, ("n", "axes"))
    check_integers("axis_of_pair", axis_of_pair, (len(axis_of_pair),), most=positions.shape[1] - 1)


def check_head_rows(weight, n_heads, n_kv_heads=1, even=False):
    """weight (n_heads * head_dim, d_model) of a projection, or its bias (n_heads * head_dim)."""
    check_sizes(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads must be a multiple of n_kv_heads; got {n_heads} and {n_kv_heads}")
    if weight.dim() not in (1, 2) or weight.shape[0] % (n_heads * (2 if even else 1)):
        raise ValueError(f"weight must have n_heads * head_dim rows, with {n_heads} heads and "
                         f"{'an even' if even else 'a whole'} head_dim; got shape {tuple(weight.shape)}")


def check_rotation(x, cos, sin, positions=None, layout="interleaved", rotary_dim=None):
    """The arguments of apply_rope. Returns positions as a tensor, or None for 0, 1, 2, ..."""
    check_tensor("x", x, ("batch", "heads", "n", "head_dim"), "floating-point")
    check_choice("layout", layout, LAYOUTS)
    if rotary_dim is None:
        rotary_dim = x.shape[-1]
    check_count("rotary_dim", rotary_dim, 2, x.shape[-1], even=True)
    check_tensor("cos", cos, ("length", rotary_dim // 2), "floating-point")
    check_tensor("sin", sin, (len(cos), rotary_dim // 2), "floating-point")
    for name, table in (("cos", cos), ("sin", sin)):
        check_equal(name, "be on the device of x", table.device, x.device)
    check_like("sin", sin, "cos", cos)
    return _positions(positions, x, len(cos))


def _positions(positions, x, length):
    n, limit = x.shape[-2], f"below {length}, the length of the table"
    if positions is None:
        if n > length:
            raise ValueError(f"positions must be {limit}; got x with {n} rows. rope_table({n}, ...) is long "
                             "enough")
        return None
    positions = torch.as_tensor(positions, device=x.device)
    shape = (n,) if positions.dim() == 1 else (x.shape[0], n)
    positions = check_integers("positions", positions, shape)
    if positions.numel() and positions.max() >= length:
        largest = positions.max().item()
        raise ValueError(f"positions must be {limit}; got {largest}. rope_table({largest + 1}, ...) is long "
                         "enough")
    return positions


def check_rope_kernel(x, cos, layout, rung, rungs, dtypes):
    """rungs: name of the kernel and pairs per thread, by rung. dtypes: those of x that this rung takes."""
    check_choice("rung", rung, rungs, f"for layout {layout}")
    name, pairs = rungs[rung]
    check_dtype("x", x, *dtypes, where=f"for {name}")
    check_dtype("cos and sin", cos, torch.float32, where="for the kernels")
    if x.shape[-1] // 2 % pairs:
        raise ValueError(f"x must have a head_dim that is a multiple of {2 * pairs} for {name}; "
                         f"got {x.shape[-1]}")


def check_scaling(scaling, rules, base) -> dict:
    """scaling has a kind among the rules, the options of that rule, and no others. Returns a copy."""
    if not isinstance(scaling, dict) or scaling.get("kind") not in rules:
        raise ValueError(f"scaling must be None or a dict with a kind of {', '.join(rules)}; got {scaling!r}")
    kind, allowed = scaling["kind"], rules[scaling["kind"]]
    unknown = set(scaling) - {"kind", *allowed}
    missing = {"factor", "original_length"} & set(allowed) - set(scaling)
    if unknown or missing:
        wrong = [f"{name!r} is missing" for name in sorted(missing)]
        wrong += [f"{name!r} is unknown" for name in sorted(unknown, key=str)]
        raise ValueError(f"scaling of kind {kind!r} must have {', '.join(allowed)}; got {scaling!r}: "
                         f"{', '.join(wrong)}")
    for name in set(allowed) & set(scaling):
        check_number(f"scaling option {name!r}", scaling[name], above=0)
    for few, many, defaults in (("slow", "fast", (1.0, 32.0)), ("low", "high", (1.0, 4.0))):
        if many in allowed and not scaling.get(few, defaults[0]) < scaling.get(many, defaults[1]):
            raise ValueError(f"scaling must have {few} below {many}; got {scaling!r}")
    if kind == "yarn" and not base > 1:
        raise ValueError(f"base must be above 1 for scaling of kind 'yarn'; got {base!r}")
    return dict(scaling)
