"""A small language model whose attention is chosen by name, or replaced by a function.

tokens are (batch, n) of int64; x is (batch, n, d_model); logits are (batch, n, vocab_size)."""
import torch
from torch import nn
from torch.nn import functional as F

from laptop_cuda.toolchain.watching import counted
from course_lib import datasets
from course_lib.checks.language_model import (check_attend, check_caches, check_generation,
                                              check_model_tokens, check_targets, out_of_vocabulary)
from course_lib.kv_cache import generate
from course_lib.rope import rope_table
from .attentions import LAYERS
from .layers import RMSNorm, SwiGLU


class Block(nn.Module):
    """Attention moves information between positions, the feed-forward works on each position.
    Both add to x."""

    def __init__(self, config, attention="softmax", rope=True):
        super().__init__()
        self.rope = rope
        self.attention_norm = RMSNorm(config.d_model)
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
        self.apply(self._initialize)

    def _initialize(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        # Each block adds twice to x; this scale keeps the size of x independent of the number of blocks.
        if isinstance(module, Block):
            for last in (module.attention.out_proj, module.feed_forward.down):
                nn.init.normal_(last.weight, std=0.02 / (2 * self.config.n_layers) ** 0.5)

    def forward(self, tokens, caches=None):
        """With caches, one per block as from make_caches, tokens are the new ones only."""
        return self.read_out(self.states(tokens, caches))

    def states(self, tokens, caches=None):
        """(batch, n, d_model): what the last block gives, before the last norm."""
        x, n = self.embed(tokens), tokens.shape[1]
        if caches is None:
            for block in self.blocks:
                x = block(x, (self.cos[:n], self.sin[:n]))
        else:
            check_caches(caches, self.blocks)
            for block, cache in zip(self.blocks, caches):
                x = block(x, (self.cos, self.sin), cache)
        return x

    def read_out(self, states):
        return F.linear(self.final_norm(states), self.embedding.weight)

    def embed(self, tokens):
        """(batch, n) -> (batch, n, d_model)."""
        check_model_tokens(tokens, self.config.context)
        try:
            return self.embedding(tokens)
        except IndexError:
            raise out_of_vocabulary("tokens", tokens, self.config.vocab_size) from None

    def make_caches(self):
        """An empty cache per block, of the kind that its attention needs."""
        return [block.attention.make_cache() for block in self.blocks]

    def loss(self, tokens, targets):
        """The mean cross-entropy in nats per token; target i is the token that follows token i."""
        logits = self(tokens)
        check_targets(targets, tokens)
        try:
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        except IndexError:
            also = f", or {datasets.NO_TARGET}"
            raise out_of_vocabulary("targets", targets, self.config.vocab_size, also) from None

    def set_attention(self, attend=None):
        """Let every block attend by this function (q, k, v) -> output; None restores the model's own."""
        check_attend(attend)
        for block in self.blocks:
            vars(block.attention).pop("attend", None)
            if attend is not None:
                block.attention.attend = attend

    @torch.no_grad()
    def attention_weights(self, tokens):
        """(n_layers, batch, n_heads, n, n): the weight that each position gives to each."""
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
        """tokens (batch, n) and n_new more: the likeliest at temperature 0, else drawn.

        Without a cache every new token costs a pass over the whole text, or over its last part if it is
        longer than the context. With a cache the text must fit into the context."""
        check_generation(tokens, n_new, temperature, self.config.context, use_cache)
        if use_cache:
            return generate(self, tokens, n_new, temperature, generator=generator, make_cache=None)
        for _ in counted(n_new, "tokens"):
            logits = self(tokens[:, -self.config.context:])[:, -1]
            if temperature == 0:
                new = logits.argmax(-1, keepdim=True)
            else:
                new = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
            tokens = torch.cat((tokens, new), 1)
        return tokens
