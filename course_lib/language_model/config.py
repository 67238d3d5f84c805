"""The configuration of a language model: its sizes, and the attention of each layer."""
from dataclasses import dataclass

from course_lib.checks.language_model import check_config

ATTENTIONS = ("softmax", "gqa", "latent", "linear", "delta", "sliding", "flash", "w2")


@dataclass
class Config:
    vocab_size: int
    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    d_hidden: int = 256
    context: int = 256                  # the longest sequence
    attention: str | list = "softmax"   # one of ATTENTIONS, or a list, one per layer
    rope_base: float = 10000.0
    rope: bool | list = True            # rotary positions: True, False, or a list, one per layer
    n_kv_heads: int = 2                 # "gqa"
    latent_dim: int = 32                # "latent"
    rope_dim: int = 16                  # "latent": the rotated part of a key
    window: int = 32                    # "sliding": how many keys a query sees, its own included

    def __post_init__(self):
        check_config(self, ATTENTIONS)

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
