"""Chapter 3: bytes of a cache, and FLOPs of latent attention, from the sizes of a model."""
from course_lib.checks import check_sizes


def kv_bytes_per_token(layers: int, n_kv_heads: int, head_dim: int, bytes: int = 2) -> int:
    """Bytes that one token adds to the cache: a key and a value per head and layer, without windows."""
    check_sizes(layers=layers, n_kv_heads=n_kv_heads, head_dim=head_dim, bytes=bytes)
    return 2 * layers * n_kv_heads * head_dim * bytes


def cache_bytes(model: dict, tokens: int, bytes: int = 2) -> int:
    """Bytes of one sequence's cache for a model of data/models.json, each layer counted by its own kind."""
    per_token = kv_bytes_per_token(1, model["n_kv_heads"], model["head_dim"], bytes)
    total = 0
    for group in model["layers"]:
        if group["kind"] == "full":
            one = tokens * per_token
        elif group["kind"] == "window":      # keys that have left the window are dropped
            one = min(tokens, group["window"]) * per_token
        elif group["kind"] == "latent":
            one = tokens * (group["latent_dim"] + group["rope_dim"]) * bytes
        elif group["kind"] == "linear":      # a state of fixed size, kept in float32
            one = group["n_heads"] * group["key_dim"] * group["value_dim"] * 4
        else:
            raise ValueError(f"model {model['name']}: unknown kind of layer {group['kind']!r}")
        total += group["count"] * one
    return total


def latent_bytes_per_token(layers: int, latent_dim: int, rope_dim: int, bytes: int = 2) -> int:
    """Bytes that one token adds to the cache of a model with latent attention."""
    return layers * (latent_dim + rope_dim) * bytes


def flops_per_key(head_dim: int, latent_dim: int, rope_dim: int, absorbed: bool) -> int:
    """FLOPs of one head per cached key, for its score and its share of the output.

    If not absorbed, without those that unfold keys and values from the latents."""
    score, value = (latent_dim + rope_dim, latent_dim) if absorbed else (head_dim + rope_dim, head_dim)
    return 2 * (score + value)
