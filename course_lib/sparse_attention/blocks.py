"""Chapter 5: masks in blocks, attention over the blocks that are not empty, keys chosen by their scores."""
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.attention import scaled_dot_product_attention, weighted_sum
from course_lib.checks import check_count, check_tensor
from course_lib.checks.sparse_attention import check_blocks, check_selection
from course_lib.launching import widened


@dataclass
class BlockMask:
    """A mask (n_q, n_k) cut into square blocks: empty, full, or partial with a mask of its own."""
    n_q: int
    n_k: int
    block: int
    empty: Tensor            # (query blocks, key blocks), boolean
    full: Tensor
    partial: Tensor
    rule: object             # (b, h, i, j) -> bool, called for partial blocks only

    @classmethod
    def from_mask(cls, mask: Tensor, block: int) -> "BlockMask":
        """From a boolean mask (n_q, n_k). The last block of a row or column may be smaller."""
        check_tensor("mask", mask, ("n_q", "n_k"), "boolean")
        return cls.from_rule(lambda b, h, i, j: mask[i, j], *mask.shape, block)

    @classmethod
    def from_rule(cls, rule, n_q: int, n_k: int, block: int) -> "BlockMask":
        """From a rule, one row of blocks at a time: n_q x n_k is never built."""
        check_count("block", block)
        rows, columns = math.ceil(n_q / block), math.ceil(n_k / block)
        seen, size = (torch.zeros(rows, columns, dtype=torch.long) for _ in range(2))
        j = torch.arange(n_k)
        column_of = j // block
        for row in range(rows):
            i = torch.arange(row * block, min(n_q, (row + 1) * block))[:, None]
            inside = rule(0, 0, i, j[None]).expand(len(i), n_k).sum(0)
            seen[row].index_add_(0, column_of, inside)
            size[row].index_add_(0, column_of, torch.full_like(j, len(i)))
        full = seen == size
        return cls(n_q, n_k, block, seen == 0, full, (seen > 0) & ~full, rule)

    def visited(self) -> Tensor:
        return ~self.empty

    @property
    def useful_fraction(self) -> float:
        """Allowed pairs as a share of all pairs in the visited blocks."""
        allowed, pairs = 0, 0
        for row, column in self.visited().nonzero().tolist():
            inside = self.inside(row, column)
            allowed, pairs = allowed + int(inside.sum()), pairs + inside.numel()
        return allowed / pairs if pairs else 1.0

    def inside(self, row: int, column: int) -> Tensor:
        """The mask inside one block."""
        i = torch.arange(row * self.block, min(self.n_q, (row + 1) * self.block))[:, None]
        j = torch.arange(column * self.block, min(self.n_k, (column + 1) * self.block))[None]
        return self.rule(0, 0, i, j).expand(len(i), j.shape[1])

    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        """(start, column, kind), int32, for a kernel: row r visits the blocks column[start[r]:start[r + 1]].

        kind is 1 for a partial block, 0 for a full one."""
        visited = self.visited()
        start = torch.cat([torch.zeros(1, dtype=torch.long), visited.sum(1).cumsum(0)])
        rows, columns = visited.nonzero(as_tuple=True)
        return start.int(), columns.int(), self.partial[rows, columns].int()


def block_sparse_attention(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask,
                           scale: float | None = None) -> Tensor:
    """Online softmax over the blocks of the mask that are not empty: (b, h, n, v_dim).

    q and k must have the lengths of the mask. A query with nothing to attend to gives 0.
    """
    check_blocks(q, k, v, block_mask)
    dtype, scale = q.dtype, 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = widened(q, k, v)
    block, visited, rows = block_mask.block, block_mask.visited(), []
    for row in range(len(visited)):
        queries = q[:, :, row * block:(row + 1) * block] * scale
        largest = queries.new_full(queries.shape[:-1], -math.inf)
        total, out = torch.zeros_like(largest), queries.new_zeros(*queries.shape[:-1], v.shape[-1])
        for column in visited[row].nonzero().flatten().tolist():
            keys = slice(column * block, (column + 1) * block)
            scores = queries @ k[:, :, keys].transpose(-2, -1)
            inside = block_mask.inside(row, column) if block_mask.partial[row, column] else None
            if inside is not None:
                scores = scores.masked_fill(~inside, -math.inf)
            new_largest = torch.maximum(largest, scores.amax(-1))
            shift = new_largest.masked_fill(new_largest == -math.inf, 0)   # no key so far
            weights, shrink = torch.exp(scores - shift[..., None]), torch.exp(largest - shift)
            total = total * shrink + weights.sum(-1)
            out = out * shrink[..., None] + weighted_sum(weights, v[:, :, keys], inside)
            largest = new_largest
        rows.append(out / total.masked_fill(total == 0, 1)[..., None])
    return torch.cat(rows, -2).to(dtype) if rows else v.new_zeros(*q.shape[:3], v.shape[-1])


def topk_attention(q: Tensor, k: Tensor, v: Tensor, top: int, mask: Tensor | None = None,
                   causal: bool = False, scale: float | None = None) -> Tensor:
    """Each query attends to the `top` keys of largest score that it may see; ties go to the earlier key."""
    check_count("top", top)
    _, weights = scaled_dot_product_attention(q, k, v, mask, causal, scale, return_weights=True)
    order = weights.argsort(dim=-1, descending=True, stable=True)[..., :top]
    kept = torch.zeros_like(weights).scatter(-1, order, weights.gather(-1, order))
    total = kept.sum(-1, keepdim=True)
    return weighted_sum(kept / total.masked_fill(total == 0, 1), v, kept > 0)


def select_blocks(q: Tensor, k: Tensor, block: int, top: int, causal: bool = True) -> Tensor:
    """(b, h, n_q, key blocks), True for the blocks of keys that a query attends to.

    These are the `top` blocks whose mean key has the highest scores with the query, its own block always
    among them. Causal: no later block and no later query changes the choice; inside its own block a query
    still needs the causal mask. Trained block-sparse models learn such a choice; here nothing is learned."""
    check_selection(q, k, block, top, causal)
    scores = q @ _block_means(k, block).transpose(-2, -1)
    row, column = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
    own = row[:, None] // block
    if causal:
        scores = scores.masked_fill(column > own, -math.inf)
    scores = scores.masked_fill(column == own, math.inf)     # not by its mean, which holds later keys
    best = scores.topk(min(top, scores.shape[-1]), -1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return chosen & (column <= own) if causal else chosen


def _block_means(x, block):
    n = x.shape[-2]
    parts = F.pad(x, (0, 0, 0, -n % block)).unflatten(-2, (-1, block))
    sizes = torch.full((parts.shape[-3], 1), float(block), dtype=x.dtype, device=x.device)
    sizes[-1:] -= -n % block
    return parts.sum(-2) / sizes
