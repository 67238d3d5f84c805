"""Chapter 10, begun in chapter 1: a small language model whose attention is chosen by name, or put in its place.

tokens are (batch, n) of int64; x is (batch, n, d_model); logits are (batch, n, vocab_size).
"""
from pathlib import Path

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib import datasets, rope as rotary
from course_lib.checks import check_count
from course_lib.gqa import grouped_query_attention
from course_lib.kv_cache import GrowingCache, generate as generate_cached
from course_lib.language_model.config import ATTENTIONS, Config
from course_lib.rope import rope_table
from course_lib.sparse_attention import sliding_window_mask
from course_lib.language_model.tokenizers import tokenizer_of
from course_lib.language_model.training import fit_state, load_checkpoint, save_checkpoint


def softmax_attention(q, k, v, scale=None):
    """Causal attention as torch computes it fastest: to rounding our own of chapters 1 and 3 (a test says so)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=k.shape[1] != q.shape[1])


def apply_rope(x, cos, sin, positions=None):
    """Chapter 2's function; a whole text in float32 is turned by one product of complex numbers, which is faster."""
    if positions is not None or x.dtype not in (torch.float32, torch.float64):
        return rotary.apply_rope(x, cos, sin, positions)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2)


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
    """Project, attend, finish: "softmax". The other attentions are made of the same steps, in model_attentions.py.

    attend is a causal function (q, k, v) -> output. Any other can be put in its place: see LanguageModel.set_attention.
    """
    scale = None        # of the scores; 1 / sqrt(width of a key) unless said
    window = None       # the number of keys a query sees, its own included; None is all
    attend = staticmethod(softmax_attention)

    def __init__(self, config, n_kv_heads=None):
        super().__init__()
        self.n_heads, self.n_kv_heads = config.n_heads, n_kv_heads or config.n_heads
        self.key_width = self.value_width = config.head_dim
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, self.n_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.d_model, self.n_kv_heads * config.head_dim, bias=False)
        self.out_proj = nn.Linear(config.d_model, config.d_model, bias=False)

    def project(self, x):
        """x (b, n, d_model) -> q (b, n_heads, n, key_width), k and v (b, n_kv_heads, n, width), not rotated yet."""
        return (rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads),
                rearrange(self.k_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads),
                rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads))

    def rotate(self, x, rope, positions=None):
        """Queries or keys turned by their positions, 0, 1, 2, ... unless given; rope None leaves them as they are."""
        if rope is None:
            return x
        return apply_rope(x, *rope) if positions is None else apply_rope(x, *rope, positions)

    def values(self, k, v):
        return v

    def finish(self, heads):
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))

    def make_cache(self):
        return GrowingCache()

    def forward(self, x, rope, cache=None):
        """x (b, n, d_model) -> (b, n, d_model). With a cache, x is the new tokens; the cache has the others."""
        q, k, v = self.project(x)
        if cache is None:
            q, k = self.rotate(q, rope), self.rotate(k, rope)
            return self.finish(self.attend(q, k, self.values(k, v)))
        positions = cache.next_positions(x.shape[1])
        cache.append(self.rotate(k, rope, positions) if cache.rotated else k, v)
        k, v = cache.view()
        if not cache.rotated:
            k = self.rotate(k, rope, cache.key_positions())
        mask = cache.mask(x.shape[1])
        if self.window and mask is None:
            i = torch.arange(k.shape[2], device=x.device)
            mask = i > i[-x.shape[1]:, None] - self.window
        q, v = self.rotate(q, rope, positions), self.values(k, v)
        return self.finish(grouped_query_attention(q, k, v, mask, causal=True, scale=self.scale))

    def weights(self, x, rope):
        """(b, n_heads, n, n): how much each position looks at each."""
        q, k, v = self.project(x)
        q, k = self.rotate(q, rope), self.rotate(k, rope)
        mask = sliding_window_mask(x.shape[1], self.window) if self.window else None
        return grouped_query_attention(q, k, self.values(k, v), mask, True, self.scale, return_weights=True)[1]


class Block(nn.Module):
    """Attention moves information between positions, the feed-forward works on each. Both add to x."""

    def __init__(self, config, attention="softmax", rope=True):
        super().__init__()
        self.rope = rope
        self.attention_norm = RMSNorm(config.d_model)
        if attention == "softmax":
            self.attention = SelfAttention(config)
        else:
            from course_lib.language_model.attentions import LAYERS      # they build on SelfAttention
            self.attention = LAYERS[attention](config)
        self.feed_forward_norm = RMSNorm(config.d_model)
        self.feed_forward = SwiGLU(config.d_model, config.d_hidden)

    def forward(self, x, rope, cache=None):
        x = x + self.attention(self.attention_norm(x), rope if self.rope else None, cache=cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """tokens -> logits of the next token at every position. The embedding is also the read-out (tied)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config, *layer) for layer in zip(config.attentions, config.ropes))
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
        """caches: one a block, as from make_caches; tokens are then the new ones, and the caches hold those before."""
        x, n = self.embed(tokens), tokens.shape[1]
        if caches is None:
            for block in self.blocks:
                x = block(x, (self.cos[:n], self.sin[:n]))
        else:
            self._check_caches(caches)
            for block, cache in zip(self.blocks, caches):
                x = block(x, (self.cos, self.sin), cache)
        return F.linear(self.final_norm(x), self.embedding.weight)

    def embed(self, tokens):
        """(batch, n) -> (batch, n, d_model)."""
        whole = isinstance(tokens, torch.Tensor) and tokens.dtype in (torch.int64, torch.int32)
        if not whole or tokens.dim() != 2 or tokens.shape[1] > self.config.context:
            got = f"{tokens.dtype} of shape {tuple(tokens.shape)}" if isinstance(tokens, torch.Tensor) else repr(tokens)
            raise ValueError(f"tokens must be (batch, n) of int64 with n at most the context, {self.config.context}; got {got}")
        try:
            return self.embedding(tokens)
        except IndexError:
            raise ValueError(f"tokens must lie in 0 to {self.config.vocab_size - 1}; got {tokens.min().item()} to "
                             f"{tokens.max().item()}") from None

    def _check_caches(self, caches):
        if len(caches) != len(self.blocks):
            raise ValueError(f"caches must be one a block, {len(self.blocks)}; got {len(caches)}")
        if any("attend" in vars(block.attention) for block in self.blocks):
            raise ValueError("caches must go with the model's own attention; got another one from set_attention")

    def make_caches(self):
        """An empty cache for each block, of the kind that its attention keeps."""
        return [block.attention.make_cache() for block in self.blocks]

    def loss(self, tokens, targets):
        """The mean cross-entropy in nats a token; targets are the tokens one place to the left."""
        logits = self(tokens)
        if targets.shape != tokens.shape or targets.dtype != torch.int64:
            raise ValueError(f"targets must be int64 of the shape of tokens, {tuple(tokens.shape)}; "
                             f"got {targets.dtype} of shape {tuple(targets.shape)}")
        try:
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        except IndexError:
            raise ValueError(f"targets must lie in 0 to {self.config.vocab_size - 1}, or be {datasets.NO_TARGET}; "
                             f"got {targets.min().item()} to {targets.max().item()}") from None

    def set_attention(self, attend=None):
        """Let every block attend by this function (q, k, v) -> output; without one, by the model's own."""
        if attend is not None and not callable(attend):
            raise ValueError(f"attend must be a function (q, k, v) -> output, or None; got {attend!r}")
        for block in self.blocks:
            vars(block.attention).pop("attend", None)
            if attend is not None:
                block.attention.attend = attend

    @torch.no_grad()
    def attention_weights(self, tokens):
        """(n_layers, batch, n_heads, n, n): how much each position looks at each, in every layer and head."""
        x, seen = self.embed(tokens), []
        rope = self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]]
        replaced = [vars(block.attention).pop("attend", None) for block in self.blocks]
        for block, attend in zip(self.blocks, replaced):
            seen.append(block.attention.weights(block.attention_norm(x), rope if block.rope else None))
            x = block(x, rope)
            if attend is not None:
                block.attention.attend = attend
        return torch.stack(seen)

    @torch.no_grad()
    def generate(self, tokens, n_new, temperature=0.0, generator=None, use_cache=False):
        """tokens (batch, n) and n_new more. At temperature 0 the likeliest, else drawn.

        Without a cache every new token costs a pass over the whole text; beyond the context, over its last part. With one
        the text must end within the context.
        """
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(f"tokens must be (batch, n) with n at least 1; got shape {tuple(tokens.shape)}")
        if not temperature >= 0:
            raise ValueError(f"temperature must be at least 0; got {temperature!r}")
        check_count("n_new", n_new, 0)
        if use_cache:
            if tokens.shape[1] + n_new > self.config.context + 1:       # the last token is drawn and not read
                raise ValueError(f"n_new must leave the text within the context of {self.config.context} tokens, with a "
                                 f"cache; got {n_new} after {tokens.shape[1]}")
            return generate_cached(self, tokens, n_new, temperature, generator=generator, make_cache=None)
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
    if not {"config", "vocabulary"} <= about.keys():
        raise ValueError(f"path must hold a language model and its vocabulary, as written by save; {path} holds something else")
    model = LanguageModel(Config(**about["config"]))
    fit_state(model, {name: x.float() for name, x in state.items()}, path)
    return model.eval(), tokenizer_of(about["vocabulary"])


def facts(name="tiny_lm"):
    """What is written in a file of data/ about its model: config, command, validation_loss."""
    return load_checkpoint(Path(datasets.DATA) / f"{name}.safetensors")[1]


def pretrained(name="tiny_lm"):
    """(model, tokenizer) of the trained model in data/. Notebooks call it, the course's modules do not."""
    return load(Path(datasets.DATA) / f"{name}.safetensors")
