"""Other ways to tell attention about positions: sinusoids, a bias on the scores, several axes."""
import math

import torch

from course_lib.checks.rope import check_alibi, check_axes, check_rope_table
from course_lib.rope.rotation import rope_frequencies


def sinusoidal_table(n, d_model, base=10000.0):
    """(n, d_model), added to the tokens (Vaswani et al., 2017): entry 2i of row p is
    sin(p * base^(-2i / d_model)), entry 2i + 1 the cosine of the same angle."""
    check_rope_table(n, d_model, base)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * rope_frequencies(d_model, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def alibi_bias(n_heads, n_q, n_k, device=None):
    """(n_heads, n_q, n_k), added to the scores: minus a slope times the distance (arXiv:2108.12409).

    The last query is at the position of the last key. n heads, n a power of two, have the slopes 2^(-8/n),
    2^(-16/n), ...; for another n, the rest are every second slope of twice as many heads, as published."""
    check_alibi(n_heads, n_q, n_k)
    power = 2 ** int(math.log2(n_heads))
    exponents = [-8 * (i + 1) / power for i in range(power)]
    exponents += [-8 * (i + 0.5) / power for i in range(n_heads - power)]
    slopes = 2.0 ** torch.tensor(exponents, device=device)
    queries = torch.arange(n_q, device=device) + n_k - n_q
    distance = (queries[:, None] - torch.arange(n_k, device=device)).abs()
    return -slopes[:, None, None] * distance


def axes_table(positions, axis_of_pair, base=10000.0, dtype=torch.float32):
    """(cos, sin), each (n, pairs), of tokens with several coordinates: pair i turns by axis_of_pair[i].

    positions (n, axes), for example time, row and column; axis_of_pair: one axis per pair, the fastest pair
    first. Row j of the table belongs to token j, so `apply_rope(x, *axes_table(...))` rotates all of them."""
    check_axes(positions, axis_of_pair)
    angles = (positions.double()[:, torch.as_tensor(axis_of_pair)]
              * rope_frequencies(2 * len(axis_of_pair), base, positions.device))
    return angles.cos().to(dtype), angles.sin().to(dtype)
