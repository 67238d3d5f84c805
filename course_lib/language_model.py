"""Chapter 10, begun in chapter 1: a small language model whose attention can be taken out and replaced.

tokens are (batch, n) of int64; x is (batch, n, d_model); logits are (batch, n, vocab_size).
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib import datasets
from course_lib.attention import scaled_dot_product_attention
from course_lib.gqa import grouped_query_attention, rotate_and_cache
from course_lib.rope import apply_rope, rope_table
from course_lib.tokenizers import CharTokenizer
from course_lib.training import load_checkpoint, save_checkpoint


@dataclass
class Config:
    vocab_size: int
    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    d_hidden: int = 256
    context: int = 256          # the longest sequence, and the length of the table of positions
    attention: str = "softmax"
    rope_base: float = 10000.0

    def __post_init__(self):
        for name in ("vocab_size", "n_layers", "n_heads", "d_model", "d_hidden", "context"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer; got {getattr(self, name)!r}")
        if self.d_model % self.n_heads or self.head_dim % 2:
            raise ValueError(f"d_model must be n_heads times an even head_dim; got d_model={self.d_model}, "
                             f"n_heads={self.n_heads}")
        if self.attention != "softmax":
            raise ValueError(f'attention must be "softmax"; got {self.attention!r}')

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads


def softmax_attention(q, k, v):
    """Causal attention as torch computes it fastest: to rounding our own of chapter 1 (a test says so)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class RMSNorm(nn.Module):
    """x divided by the root of its mean square, then a learned factor for each feature."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): each hidden feature is let through by a gate of its own."""

    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.gate = nn.Linear(d_model, d_hidden, bias=False)
        self.up = nn.Linear(d_model, d_hidden, bias=False)
        self.down = nn.Linear(d_hidden, d_model, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SelfAttention(nn.Module):
    """Projections and rotary positions around `attend`, a function (q, k, v) -> output of the same shape.

    attend has to be causal. Any such function can be put in its place: see LanguageModel.set_attention.
    """

    def __init__(self, config):
        super().__init__()
        self.n_heads = config.n_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.out_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.attend = softmax_attention

    def forward(self, x, rope, cache=None):
        q, k, v = (rearrange(proj(x), "b n (h d) -> b h n d", h=self.n_heads)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        if cache is None:
            q, k = apply_rope(q, *rope), apply_rope(k, *rope)
            heads = self.attend(q, k, v)
        else:
            q, k, v, mask = rotate_and_cache(q, k, v, rope, cache=cache)
            heads = grouped_query_attention(q, k, v, mask, causal=True)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))


class Block(nn.Module):
    """Attention moves information between positions, the feed-forward works on each; both only add to x."""

    def __init__(self, config):
        super().__init__()
        self.attention_norm = RMSNorm(config.d_model)
        self.attention = SelfAttention(config)
        self.feed_forward_norm = RMSNorm(config.d_model)
        self.feed_forward = SwiGLU(config.d_model, config.d_hidden)

    def forward(self, x, rope, cache=None):
        x = x + self.attention(self.attention_norm(x), rope, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """tokens -> logits of the next token at every position. The embedding is also the read-out (tied)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = RMSNorm(config.d_model)
        cos, sin = rope_table(config.context, config.head_dim, config.rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._initialise)

    def _initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        # Each block adds twice to x: scaled so, x keeps its size however many blocks there are.
        if isinstance(module, Block):
            for last in (module.attention.out_proj, module.feed_forward.down):
                nn.init.normal_(last.weight, std=0.02 / (2 * self.config.n_layers) ** 0.5)

    def forward(self, tokens, caches=None):
        """caches: one of chapter 7's caches a block; tokens are then the new ones, and the caches hold those before."""
        n = tokens.shape[-1]
        if tokens.dim() != 2 or n > self.config.context:
            raise ValueError(f"tokens must be (batch, n) with n at most the context, {self.config.context}; "
                             f"got shape {tuple(tokens.shape)}")
        x = self.embedding(tokens)
        if caches is None:
            for block in self.blocks:
                x = block(x, (self.cos[:n], self.sin[:n]))
        else:
            self._check_caches(caches)
            for block, cache in zip(self.blocks, caches):
                x = block(x, (self.cos, self.sin), cache)
        return F.linear(self.final_norm(x), self.embedding.weight)

    def _check_caches(self, caches):
        if len(caches) != len(self.blocks):
            raise ValueError(f"caches must be one a block, {len(self.blocks)}; got {len(caches)}")
        if any(block.attention.attend is not softmax_attention for block in self.blocks):
            raise ValueError("caches must go with the model's own attention; got another one from set_attention")

    def loss(self, tokens, targets):
        """The mean cross-entropy in nats a token; targets are the tokens one place to the left."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def set_attention(self, attend=softmax_attention):
        """Let every block attend by this function (q, k, v) -> output; without one, by the model's own."""
        for block in self.blocks:
            block.attention.attend = attend

    @torch.no_grad()
    def attention_weights(self, tokens):
        """(n_layers, batch, n_heads, n, n): how much each position looks at each, in every layer and head."""
        seen, before = [], [block.attention.attend for block in self.blocks]

        def attend_and_keep(q, k, v):
            output, weights = scaled_dot_product_attention(q, k, v, causal=True, return_weights=True)
            seen.append(weights)
            return output

        self.set_attention(attend_and_keep)
        try:
            self(tokens)
        finally:
            for block, attend in zip(self.blocks, before):
                block.attention.attend = attend
        return torch.stack(seen)

    @torch.no_grad()
    def generate(self, tokens, n_new, temperature=0.0, generator=None):
        """tokens (batch, n) and n_new more. At temperature 0 the likeliest, else drawn."""
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(f"tokens must be (batch, n) with n at least 1; got shape {tuple(tokens.shape)}")
        if not temperature >= 0:
            raise ValueError(f"temperature must be at least 0; got {temperature!r}")
        for _ in range(n_new):
            logits = self(tokens[:, -self.config.context:])[:, -1]
            if temperature == 0:
                new = logits.argmax(-1, keepdim=True)
            else:
                new = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
            tokens = torch.cat((tokens, new), 1)
        return tokens


def save(path, model, tokenizer, dtype=None, **facts):
    """One file that holds weights (as dtype, if given), configuration and vocabulary, and facts about it."""
    state = {name: x.to(dtype or x.dtype) for name, x in model.state_dict().items()}
    save_checkpoint(path, state, {"config": vars(model.config), "vocabulary": tokenizer.vocabulary, **facts})


def load(path):
    """(model, tokenizer) from a file written by save; the weights become float32."""
    state, about = load_checkpoint(path)
    model = LanguageModel(Config(**about["config"]))
    model.load_state_dict({name: x.float() for name, x in state.items()})
    return model.eval(), CharTokenizer(about["vocabulary"])


def facts(name="tiny_lm"):
    """What is written in a file of data/ about its model: config, command, validation_loss."""
    return load_checkpoint(Path(datasets.DATA) / f"{name}.safetensors")[1]


def pretrained(name="tiny_lm"):
    """(model, tokenizer) of the trained model in data/. Notebooks call it, the course's modules do not."""
    return load(Path(datasets.DATA) / f"{name}.safetensors")
