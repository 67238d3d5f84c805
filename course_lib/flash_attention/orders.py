"""Which tiles a causal mask leaves, and how many bytes attention moves in each order of its loops."""
import torch

from course_lib.checks import check_choice, check_sizes


def keys_seen(i: int, n_q: int, n_k: int, causal: bool = True) -> int:
    """How many keys query i may look at: all, or under a causal mask those up to its own position."""
    return min(n_k, max(0, i + 1 + n_k - n_q)) if causal else n_k


def tile_kinds(n_q: int, n_k: int, tile_q: int, tile_k: int, causal: bool = True) -> torch.Tensor:
    """(query tiles, key tiles) of 0 = skipped, 1 = diagonal (needs the mask), 2 = full."""
    check_sizes(tile_q=tile_q, tile_k=tile_k)
    first_keys = torch.arange(0, n_k, tile_k)
    ends = (first_keys + tile_k).clamp(max=n_k)
    first_rows = range(0, n_q, tile_q)
    last_rows = [min(row + tile_q, n_q) - 1 for row in first_rows]
    seen_by_first, seen_by_last = (torch.tensor([keys_seen(i, n_q, n_k, causal) for i in rows])[:, None]
                                   for rows in (first_rows, last_rows))
    return (seen_by_last > first_keys).long() + (seen_by_first >= ends).long()


def traffic(n: int, d: int, tile_q: int, tile_k: int, order: str = "query-outer", *, n_k: int | None = None,
            v_dim: int | None = None, causal: bool = False, lse: bool = False, itemsize: int = 4) -> int:
    """Bytes that one head's forward pass moves between slow memory and the tiles.

    "standard"     three passes: read q, k, write S; read S, write P; read P, v, write out
    "query-outer"  a query tile stays, keys and values are read again for each (lse=True adds the saved lse)
    "key-outer"    a key tile stays; for each, queries are read again, out, max and sum read and written again
    Statistics (max, sum, lse) count as elements of `itemsize` bytes. Without `causal`, "standard" does not
    depend on the tiles; with it, only the other two skip tiles."""
    n_k, v_dim = n if n_k is None else n_k, d if v_dim is None else v_dim
    order = order.replace("_", "-")
    check_sizes(n=n, d=d, tile_q=tile_q, tile_k=tile_k, n_k=n_k, v_dim=v_dim, itemsize=itemsize)
    check_choice("order", order, ("query-outer", "key-outer", "standard"))
    if order == "standard":
        return itemsize * (n * d + n_k * d + 4 * n * n_k + n_k * v_dim + n * v_dim)
    visited = tile_kinds(n, n_k, tile_q, tile_k, causal) > 0
    query_rows = torch.tensor([min(tile_q, n - q0) for q0 in range(0, n, tile_q)])
    key_rows = torch.tensor([min(tile_k, n_k - k0) for k0 in range(0, n_k, tile_k)])
    if order == "query-outer":
        once = n * (d + v_dim + int(lse))
        again = int((visited * key_rows).sum()) * (d + v_dim)
    else:
        once = n_k * (d + v_dim)
        again = int((visited * query_rows[:, None]).sum()) * (d + 2 * v_dim + 4)
    return itemsize * (once + again)
