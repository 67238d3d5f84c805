"""Chapter 5: attention to some of the keys. Rules and masks that say which.

A mask is boolean, (n, n), True where query i may see key j. A rule is a function (b, h, i, j) -> bool of
index tensors that gives the same without building n x n; it takes b and h as torch's FlexAttention does.
window counts the keys seen, the query's own included."""
import math

import torch
from torch import Tensor

from course_lib.checks import check_count, check_integers, check_sizes
from course_lib.checks.sparse_attention import check_bigbird, check_longformer, check_square, check_window


def causal_rule(b, h, i, j):
    return i >= j


def window_rule(window: int, causal: bool = True):
    """The last `window` keys, the query's own included; if not causal, the keys less than `window` away."""
    check_count("window", window)
    if causal:
        return lambda b, h, i, j: (i >= j) & (i - j < window)
    return lambda b, h, i, j: (i - j).abs() < window


def sink_rule(window: int, n_sink: int):
    """The last `window` keys, and always the first `n_sink` (StreamingLLM, arXiv:2309.17453)."""
    check_window(window, n_sink)
    return lambda b, h, i, j: (i >= j) & ((i - j < window) | (j < n_sink))


def dilated_rule(window: int, dilation: int, causal: bool = True):
    """The window of `window_rule`, its keys `dilation` apart."""
    check_sizes(window=window, dilation=dilation)
    inside = window_rule((window - 1) * dilation + 1, causal)
    return lambda b, h, i, j: inside(b, h, i, j) & ((i - j) % dilation == 0)


def longformer_rule(n: int, window: int, global_tokens, causal: bool = False):
    """A window; the global tokens see everything and everything sees them (arXiv:2004.05150)."""
    chosen = check_longformer(n, global_tokens)
    is_global, near = torch.zeros(n, dtype=torch.bool), window_rule(window, causal)
    is_global[chosen.long()] = True

    def rule(b, h, i, j):
        seen = near(b, h, i, j) | is_global[i] | is_global[j]
        return seen & (i >= j) if causal else seen
    return rule


def bigbird_rule(n: int, block: int, window: int, n_global: int, n_random: int, generator=None):
    """In blocks (arXiv:2007.14062): a window of `window` blocks centred on the query's (an even number
    counts as one less), the first `n_global` blocks, and `n_random` random ones per block of queries."""
    check_bigbird(n, block, window, n_global, n_random)
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
    """Causal: the last `stride` keys, every `stride`-th before (Sparse Transformer, arXiv:1904.10509)."""
    check_count("stride", stride)
    return lambda b, h, i, j: (i >= j) & ((i - j < stride) | ((i - j) % stride == 0))


def fixed_rule(stride: int, summary: int = 1):
    """Causal: keys in segments of `stride`. The query's segment, and the last `summary` of earlier ones."""
    check_sizes(stride=stride, summary=summary)
    return lambda b, h, i, j: (i >= j) & ((i // stride == j // stride) | (j % stride >= stride - summary))


def document_rule(document: Tensor, inner=causal_rule):
    """Packed sequences: token i belongs to document[i] and sees what `inner` allows of this document."""
    return lambda b, h, i, j: (document[i] == document[j]) & inner(b, h, i, j)


def documents(lengths) -> Tensor:
    """Lengths of packed sequences -> the document each token belongs to: [2, 3] -> [0, 0, 1, 1, 1]."""
    lengths = check_integers("lengths", lengths, ("documents",))
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
    """(n, n): True where token j can influence token i after that many layers with this mask."""
    n = check_square(mask)
    reach = torch.eye(n, dtype=torch.bool)
    for _ in range(layers):
        reach = (mask.float() @ reach.float()) > 0
    return reach


def _square(rule, n):
    check_count("n", n, least=0)
    return mask_of(rule, n)
