"""What a language model is made of: its sizes, and the attention of each layer."""
from dataclasses import dataclass

ATTENTIONS = ("softmax", "gqa", "latent", "linear", "delta", "sliding", "flash", "w2")


@dataclass
class Config:
    vocab_size: int
    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    d_hidden: int = 256
    context: int = 256                  # the longest sequence, and the length of the table of positions
    attention: str | list = "softmax"   # one of ATTENTIONS, or a list of them, one a layer
    rope_base: float = 10000.0
    rope: bool | list = True            # rotary positions, or a list: False is a layer without positions
    n_kv_heads: int = 2                 # "gqa"
    latent_dim: int = 32                # "latent"
    rope_dim: int = 16                  # "latent": the part of a key that tells its position
    window: int = 32                    # "sliding": the keys a query sees, its own included

    def __post_init__(self):
        for name in ("vocab_size", "n_layers", "n_heads", "d_model", "d_hidden", "context", "n_kv_heads", "latent_dim",
                     "rope_dim", "window"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer; got {getattr(self, name)!r}")
        if self.d_model % self.n_heads or self.head_dim % 2:
            raise ValueError(f"d_model must be n_heads times an even head_dim; got d_model={self.d_model}, "
                             f"n_heads={self.n_heads}")
        if len(self.attentions) != self.n_layers or not all(name in ATTENTIONS for name in self.attentions):
            raise ValueError(f"attention must be one of {', '.join(ATTENTIONS)}, or a list of {self.n_layers} of them; "
                             f"got {self.attention!r}")
        if len(self.ropes) != self.n_layers or not all(isinstance(rope, bool) for rope in self.ropes):
            raise ValueError(f"rope must be True, False or a list of {self.n_layers} of them; got {self.rope!r}")
        if "gqa" in self.attentions and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads must divide n_heads, {self.n_heads}; got {self.n_kv_heads}")
        if "latent" in self.attentions and (self.rope_dim % 2 or self.rope_dim > self.head_dim):
            raise ValueError(f"rope_dim must be even and at most head_dim, {self.head_dim}; got {self.rope_dim}")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def attentions(self) -> list:
        """The attention of each layer."""
        return self._by_layer(self.attention)

    @property
    def ropes(self) -> list:
        return self._by_layer(self.rope)

    def _by_layer(self, value) -> list:
        return list(value) if isinstance(value, (list, tuple)) else [value] * self.n_layers
