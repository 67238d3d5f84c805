"""A transformer block around W2 attention, with the interface of the public quick start."""
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.rope import rope_table
from .layer import W2Attention


class RotaryEmbedding(nn.Module):
    """The table of angles as a module: rotary(x, seq_len=n) -> (cos, sin), each (n, head_dim / 2)."""

    def __init__(self, head_dim: int, base: float = 10000.0):
        super().__init__()
        self.head_dim, self.base = head_dim, base

    def forward(self, x: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
        return rope_table(seq_len, self.head_dim, self.base, device=x.device, dtype=x.dtype)


@dataclass
class W2Config:
    hidden_size: int = 64
    num_attention_heads: int = 4
    intermediate_size: int = 256
    rms_norm_eps: float = 1e-6


class W2TransformerBlock(nn.Module):
    """W2 attention and a gated feed-forward, each after an RMSNorm, added to the stream. As W2Config says."""

    def __init__(self, config):
        super().__init__()
        size, hidden = config.hidden_size, config.intermediate_size
        self.attention_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.attention = W2Attention(size, config.num_attention_heads)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, hidden_states: Tensor, rotary_emb_outputs=None,
                attention_mask: Tensor | None = None) -> Tensor:
        """(batch, n, hidden_size) -> the same. Causal unless an attention_mask, as in chapter 1, is given."""
        x, causal = hidden_states, attention_mask is None
        x = x + self.attention(self.attention_norm(x), rotary_emb_outputs, attention_mask, causal)
        y = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))
