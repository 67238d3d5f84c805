"""Checks of chapter 4: forms, feature maps, states, decays, projections."""
import torch

from course_lib.launching import SHARED_BYTES

from .attention import check_alike, check_head_sizes, check_sequence
from .tensors import check_dtype, check_shared_memory, check_tensor, described
from .values import check_choice, check_count, listed


def check_linear(q, k, v, causal, form, forms, chunk_size):
    """q (batch, heads, n, head_dim), k (batch, heads, m, head_dim), v (batch, heads, m, v_dim)."""
    check_alike(q=q, k=k, v=v)
    check_choice("form", form, forms)
    check_count("chunk_size", chunk_size)
    check_tensor("k", k, (*q.shape[:2], "m", q.shape[-1]))
    check_tensor("v", v, (*k.shape[:3], "v_dim"))
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"q must have as many rows as k if causal, {k.shape[2]}; got {q.shape[2]}. "
                         "Pass what precedes them as a state")


def check_feature_map(name, maps, normalise):
    if not callable(name) and name not in maps:
        raise ValueError(f"feature_map must be a function or {listed(maps)}; got {name!r}")
    if normalise and name == "identity":
        raise ValueError('feature_map must give features of at least 0 if normalise=True; got "identity"')


def check_not_negative(q, k):
    """Features phi(q) and phi(k) whose weighted sum is divided by the sum of the weights."""
    if bool((q < 0).any() | (k < 0).any()):
        raise ValueError("feature_map must give features of at least 0 if normalise=True; got a negative "
                         "one. The sum of weights of both signs can be 0")


def check_state(state, shapes):
    """state is a pair of tensors of these shapes, as return_state gives."""
    several = isinstance(state, (tuple, list))
    if not several or len(state) != 2 or not all(isinstance(x, torch.Tensor) for x in state):
        got = [described(x) for x in state] if several else described(state)
        raise ValueError(f"state must be the pair of tensors (S, z) that return_state gives; got {got}")
    got = [tuple(x.shape) for x in state]
    if got != shapes:
        raise ValueError(f"state must be tensors of shapes {shapes[0]} and {shapes[1]}; got {got[0]} and "
                         f"{got[1]}")


def check_delta(q, k, v, beta, decay, state, form="recurrent", chunk_size=1):
    """q, k (b, h, n, d_k), v (.., d_v), beta (b, h, n), decay (b, h, n[, d_k]), state (b, h, d_k, d_v)."""
    check_alike(q=q, k=k, v=v)
    check_choice("form", form, ("recurrent", "chunked"))
    check_count("chunk_size", chunk_size)
    check_tensor("k", k, tuple(q.shape))
    check_tensor("v", v, (*k.shape[:3], "d_v"))
    per_token, whole = tuple(k.shape[:3]), (*k.shape[:2], k.shape[-1], v.shape[-1])
    per_channel = decay is not None and decay.dim() == 4
    decays = tuple(k.shape) if per_channel else per_token
    for name, x, shape in (("beta", beta, per_token), ("decay", decay, decays), ("state", state, whole)):
        if x is not None:
            check_tensor(name, x, shape)
    if decay is not None and bool(((decay <= 0) | (decay > 1)).any()):
        raise ValueError(f"decay must be above 0 and at most 1; got values from {decay.min().item():.4g} "
                         f"to {decay.max().item():.4g}")
    if beta is not None:
        _check_strength(beta, k)


def _check_strength(beta, k):
    if bool((beta < 0).any()):
        raise ValueError(f"beta must be at least 0; got {beta.min().item():.4g}")
    strength = beta * k.square().sum(-1)
    if bool((strength > 2 + 1e-3).any()):
        raise ValueError("beta must be at most 2 / |k|^2, or the state grows without bound; got beta |k|^2 "
                         f"= {strength.max().item():.4g}")


def check_performer(q, k, v, projection, scale):
    check_alike(q=q, k=k, v=v)
    d = q.shape[-1]
    if scale is not None and not scale >= 0:
        raise ValueError(f"scale must be at least 0, because its root multiplies q and k; got {scale}")
    check_tensor("projection", projection, ("n_features", d))
    check_tensor("k", k, (*k.shape[:3], d))


def check_linformer_layer(d_model, n_heads, seq_len, rank):
    check_head_sizes(d_model, n_heads, seq_len=seq_len)
    check_count("rank", rank, 1, seq_len)


def check_linformer_input(x, projection, seq_len, causal):
    if causal:
        raise ValueError("causal must be False, because each mixture of keys contains future ones; got True")
    check_sequence("x", x, projection)
    if x.shape[1] > seq_len:
        raise ValueError(f"x must have at most seq_len = {seq_len} rows; got {x.shape[1]}")


def check_linear_kernel(q, k, v, feature_map, maps, normalise, rung, chunk_size):
    check_alike(q=q, k=k, v=v)
    check_choice("feature_map", feature_map, maps, "for this kernel")
    check_feature_map(feature_map, maps, normalise)
    check_choice("rung", rung, (None, 1, 2, 3, 4))
    check_tensor("k", k, tuple(q.shape))
    check_tensor("v", v, (*q.shape[:3], "v_dim"))
    check_count("chunk_size", chunk_size)


def check_kernel_memory(q, v, need, advice=""):
    """float32, and need bytes of shared memory per block."""
    check_dtype("q", q, torch.float32)
    check_shared_memory("q", f"head_dim {q.shape[-1]} and v_dim {v.shape[-1]}", need, SHARED_BYTES, advice)
