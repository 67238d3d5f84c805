"""Chapter 5: attention that looks at some of the keys. A mask says which, blocks make it cheap.

Masks are boolean (n, n), True where query i may see key j; a rule is a function (b, h, i, j) -> bool of index tensors that
says the same without ever building n x n. window counts the keys seen, the query's own included.
"""
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.attention import HALF, scaled_dot_product_attention, weighted_sum
from course_lib.checks import check_alike, check_count


# Rules: index tensors in, a boolean tensor out. They take b and h as torch's FlexAttention does.

def causal_rule(b, h, i, j):
    return i >= j


def window_rule(window: int, causal: bool = True):
    """The last `window` keys, the query's own included; or, not causal, the keys less than `window` away on either side."""
    check_count("window", window)
    if causal:
        return lambda b, h, i, j: (i >= j) & (i - j < window)
    return lambda b, h, i, j: (i - j).abs() < window


def sink_rule(window: int, n_sink: int):
    """The last `window` keys, and always the first `n_sink` (StreamingLLM, arXiv:2309.17453)."""
    check_count("window", window), check_count("n_sink", n_sink, least=0)
    return lambda b, h, i, j: (i >= j) & ((i - j < window) | (j < n_sink))


def dilated_rule(window: int, dilation: int, causal: bool = True):
    """The window of `window_rule`, its keys `dilation` apart."""
    check_count("window", window), check_count("dilation", dilation)
    inside = window_rule((window - 1) * dilation + 1, causal)
    return lambda b, h, i, j: inside(b, h, i, j) & ((i - j) % dilation == 0)


def longformer_rule(n: int, window: int, global_tokens, causal: bool = False):
    """A window; the global tokens see everything and everything sees them (arXiv:2004.05150)."""
    check_count("n", n, least=0)
    chosen = torch.as_tensor(global_tokens)
    if chosen.numel() and (chosen.dtype == torch.bool or chosen.is_floating_point()):
        raise ValueError(f"global_tokens must be positions, integers; got {chosen.dtype}")
    if chosen.numel() and (chosen.min() < 0 or chosen.max() >= n):
        raise ValueError(f"global_tokens must lie between 0 and n - 1 = {n - 1}; got {chosen.tolist()}")
    is_global, near = torch.zeros(n, dtype=torch.bool), window_rule(window, causal)
    is_global[chosen.long()] = True
    seen = lambda b, h, i, j: near(b, h, i, j) | is_global[i] | is_global[j]
    return (lambda b, h, i, j: seen(b, h, i, j) & (i >= j)) if causal else seen


def bigbird_rule(n: int, block: int, window: int, n_global: int, n_random: int, generator=None):
    """In blocks: `window` blocks around each (an odd number: an even one counts as one less), the first `n_global`, and
    `n_random` drawn for each (arXiv:2007.14062)."""
    for name, size, least in (("n", n, 0), ("block", block, 1), ("window", window, 1), ("n_global", n_global, 0),
                              ("n_random", n_random, 0)):
        check_count(name, size, least)
    count = math.ceil(n / block)
    i, j = torch.arange(count)[:, None], torch.arange(count)
    blocks = (i - j).abs() <= (window - 1) // 2
    blocks |= (i < n_global) | (j < n_global)
    for row in range(count):
        free = (~blocks[row]).nonzero().flatten()
        drawn = free[torch.randperm(len(free), generator=generator)[:n_random]]
        blocks[row, drawn] = True
    return lambda b, h, i, j: blocks[i // block, j // block]


def strided_rule(stride: int):
    """Causal: the last `stride` keys and every `stride`-th before them (Sparse Transformer, arXiv:1904.10509)."""
    check_count("stride", stride)
    return lambda b, h, i, j: (i >= j) & ((i - j < stride) | ((i - j) % stride == 0))


def fixed_rule(stride: int, summary: int = 1):
    """Causal: the query's own stretch of `stride` keys, and the last `summary` keys of each stretch before it."""
    check_count("stride", stride), check_count("summary", summary)
    return lambda b, h, i, j: (i >= j) & ((i // stride == j // stride) | (j % stride >= stride - summary))


def document_rule(document: Tensor, inner=causal_rule):
    """Packed sequences: token i belongs to document[i], and sees only its own document (and what `inner` lets it)."""
    return lambda b, h, i, j: (document[i] == document[j]) & inner(b, h, i, j)


def documents(lengths) -> Tensor:
    """Lengths of packed sequences -> the document each token belongs to: [2, 3] -> [0, 0, 1, 1, 1]."""
    lengths = torch.as_tensor(lengths)
    if lengths.dim() != 1 or lengths.is_floating_point() or bool((lengths < 0).any()):
        raise ValueError(f"lengths must be integers of at least 0, one a document; got {lengths.tolist()}")
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths)


def mask_of(rule, n_q: int, n_k: int | None = None) -> Tensor:
    """The whole mask of a rule, (n_q, n_k): for pictures and tests."""
    n_k = n_q if n_k is None else n_k
    return rule(0, 0, torch.arange(n_q)[:, None], torch.arange(n_k)[None]).expand(n_q, n_k)


# The same rules as masks, (n, n)

def sliding_window_mask(n: int, window: int, causal: bool = True) -> Tensor:
    return _square(window_rule(window, causal), n)


def sink_mask(n: int, window: int, n_sink: int) -> Tensor:
    return _square(sink_rule(window, n_sink), n)


def dilated_mask(n: int, window: int, dilation: int, causal: bool = True) -> Tensor:
    return _square(dilated_rule(window, dilation, causal), n)


def longformer_mask(n: int, window: int, global_tokens, causal: bool = False) -> Tensor:
    return _square(longformer_rule(n, window, global_tokens, causal), n)


def bigbird_mask(n: int, block: int, window: int, n_global: int, n_random: int, generator=None) -> Tensor:
    return _square(bigbird_rule(n, block, window, n_global, n_random, generator), n)


def strided_mask(n: int, stride: int) -> Tensor:
    return _square(strided_rule(stride), n)


def fixed_mask(n: int, stride: int, summary: int = 1) -> Tensor:
    return _square(fixed_rule(stride, summary), n)


def receptive_field(mask: Tensor, layers: int) -> Tensor:
    """(n, n): which tokens can have reached which after that many layers with this mask."""
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1]:
        raise ValueError(f"mask must be square, (n, n); got {tuple(mask.shape)}")
    reach = torch.eye(len(mask), dtype=torch.bool)
    for _ in range(layers):
        reach = (mask.float() @ reach.float()) > 0
    return reach


# Selection by content

def topk_attention(q: Tensor, k: Tensor, v: Tensor, top: int, mask: Tensor | None = None, causal: bool = False,
                   scale: float | None = None) -> Tensor:
    """Each query attends to its `top` keys of largest score among those it may see; equal scores keep the earlier key."""
    check_count("top", top)
    _, weights = scaled_dot_product_attention(q, k, v, mask, causal, scale, return_weights=True)
    order = weights.argsort(dim=-1, descending=True, stable=True)[..., :top]
    kept = torch.zeros_like(weights).scatter(-1, order, weights.gather(-1, order))
    total = kept.sum(-1, keepdim=True)
    return weighted_sum(kept / total.masked_fill(total == 0, 1), v, kept > 0)


def select_blocks(q: Tensor, k: Tensor, block: int, top: int, causal: bool = True) -> Tensor:
    """(b, h, query blocks, key blocks): for each block of queries the `top` blocks of keys whose mean key scores highest
    with the mean query; the query's own block is always among them. The idea of trained block-sparse models, untrained."""
    check_count("block", block), check_count("top", top)
    if causal and q.shape[-2] != k.shape[-2]:
        raise ValueError(f"k must have as many rows as q when causal, {q.shape[-2]}; got {k.shape[-2]}")
    mean_q, mean_k = (_block_means(x, block) for x in (q, k))
    scores = mean_q @ mean_k.transpose(-2, -1)
    i, j = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
    if causal:
        scores = scores.masked_fill(j > i, -math.inf)
    scores = scores.masked_fill(i == j, math.inf)
    best = scores.topk(min(top, scores.shape[-1]), -1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return chosen & (j <= i) if causal else chosen


# Blocks

@dataclass
class BlockMask:
    """A mask (n_q, n_k) cut into square blocks: which are empty, which full, and the mask inside the partial ones."""
    n_q: int
    n_k: int
    block: int
    empty: Tensor            # (query blocks, key blocks), boolean
    full: Tensor
    partial: Tensor
    rule: object             # (b, h, i, j) -> bool, asked inside partial blocks only

    @classmethod
    def from_mask(cls, mask: Tensor, block: int) -> "BlockMask":
        """From a boolean mask (n_q, n_k). The last block of a row or column may be smaller."""
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 2:
            got = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f"mask must be boolean, (n_q, n_k); got {got}")
        return cls.from_rule(lambda b, h, i, j: mask[i, j], *mask.shape, block)

    @classmethod
    def from_rule(cls, rule, n_q: int, n_k: int, block: int) -> "BlockMask":
        """From a rule, a row of blocks at a time: n_q x n_k is never built."""
        check_count("block", block)
        rows, columns = math.ceil(n_q / block), math.ceil(n_k / block)
        seen, size = torch.zeros(rows, columns, dtype=torch.long), torch.zeros(rows, columns, dtype=torch.long)
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
        """Allowed pairs as a share of all pairs in the blocks that are visited."""
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
        """For a kernel: (start, column, kind), int32. Row r visits column[start[r]:start[r + 1]]; kind 1 is partial, 0 full."""
        visited = self.visited()
        start = torch.cat([torch.zeros(1, dtype=torch.long), visited.sum(1).cumsum(0)])
        rows, columns = visited.nonzero(as_tuple=True)
        return start.int(), columns.int(), self.partial[rows, columns].int()


def block_sparse_attention(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask,
                           scale: float | None = None) -> Tensor:
    """Online softmax over the blocks of the mask that are not empty: (b, h, n, v_dim).

    q and k must have the lengths of the mask. A query with nothing to attend to gives 0.
    """
    _check_block_inputs(q, k, v, block_mask)
    dtype, scale = q.dtype, 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if dtype in HALF:
        q, k, v = q.float(), k.float(), v.float()
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
            shift = new_largest.masked_fill(new_largest == -math.inf, 0)   # a row may have seen nothing
            weights, shrink = torch.exp(scores - shift[..., None]), torch.exp(largest - shift)
            total = total * shrink + weights.sum(-1)
            out = out * shrink[..., None] + weighted_sum(weights, v[:, :, keys], inside)
            largest = new_largest
        rows.append(out / total.masked_fill(total == 0, 1)[..., None])
    return torch.cat(rows, -2).to(dtype) if rows else v.new_zeros(*q.shape[:3], v.shape[-1])


def _check_block_inputs(q, k, v, block_mask):
    check_alike(q=q, k=k, v=v)
    check_block_mask(block_mask)
    if q.shape[-2] != block_mask.n_q:
        raise ValueError(f"q must have {block_mask.n_q} rows for this mask; got {q.shape[-2]}")
    if k.shape[:2] != q.shape[:2] or k.shape[-2] != block_mask.n_k or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k must be {(*q.shape[:2], block_mask.n_k, q.shape[-1])} for this mask; got {tuple(k.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have the batch, heads and rows of k, {tuple(k.shape[:3])}; got {tuple(v.shape[:3])}")


def check_block_mask(block_mask) -> None:
    if not isinstance(block_mask, BlockMask):
        raise ValueError("block_mask must be a BlockMask, as from BlockMask.from_mask(mask, block); "
                         f"got {type(block_mask).__name__}")


def _block_means(x, block):
    n = x.shape[-2]
    parts = torch.nn.functional.pad(x, (0, 0, 0, -n % block)).unflatten(-2, (-1, block))
    sizes = torch.full((parts.shape[-3], 1), float(block), dtype=x.dtype)
    sizes[-1:] -= -n % block
    return parts.sum(-2) / sizes


def _square(rule, n):
    check_count("n", n, least=0)
    return mask_of(rule, n)
