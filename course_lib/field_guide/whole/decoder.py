"""A decoder built from a plan: embedding, layers of attention and feed-forward, a norm, logits."""
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.field_guide.softmax import times
from course_lib.field_guide.cache import Cache
from course_lib.field_guide.whole.parts import ACTIVATIONS, Norm, with_products

# Where a layer has norms: before or after its parts.
NORMS = {"before": ("attention_norm", "feed_forward_norm"),
         "after": ("attention_out_norm", "feed_forward_out_norm"),
         "both": ("attention_norm", "attention_out_norm", "feed_forward_norm", "feed_forward_out_norm"),
         "before and last": ("attention_norm", "feed_forward_norm", "feed_forward_out_norm"),
         "parallel": ("attention_norm",),          # both parts read the same normalised input
         "mixer": ("attention_norm",), "feed forward": ("feed_forward_norm",)}    # one part is all of a layer


@dataclass(frozen=True)
class LayerPlan:
    recipes: tuple                      # of what mixes tokens: one, several side by side, or none
    feed_forward: Any                   # FeedForward, Experts or None
    order: str = "before"
    # x and what attention adds are scaled, then x and the feed-forward's
    residual: tuple = (1.0, 1.0, 1.0, 1.0)
    residual_normed: bool = False       # what is kept is the normalised input
    in_scales: tuple = ()               # of what each recipe reads and gives, where several are side by side
    out_scales: tuple = ()
    per_layer: int | None = None        # Gemma 4: a narrow vector per token and layer is let in at the end
    scalar: bool = False                # and the whole output is scaled
    names: dict = field(default_factory=dict)    # names of the file, beside those of the model's plan


@dataclass(frozen=True)
class Plan:
    layers: tuple
    vocab: int
    d_model: int
    eps: float
    norm: str = "rms"
    norm_bias: bool = False
    activation: str = "silu"
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    logit_scale: float = 1.0
    logit_cap: float | None = None
    tied: bool | None = None            # None: as the file has it
    # how the file differs from what `loading` expects
    names: dict = field(default_factory=dict)
    plus_one: bool = False              # norms are stored as the factor minus one
    packed: str = "rows"  # experts in one tensor: "rows", "columns", or "columns in turn" (gate, up, ...)


class Block(nn.Module):
    def __init__(self, model: Plan, plan: LayerPlan):
        super().__init__()
        self.plan = plan
        self.mixers = nn.ModuleList(recipe.build() for recipe in plan.recipes)
        self.feed_forward = plan.feed_forward.build() if plan.feed_forward else None
        for name in NORMS["both"]:
            has = name in NORMS[plan.order]
            setattr(self, name, Norm(model.d_model, model.eps, model.norm, model.norm_bias) if has
                    else nn.Identity())
        self.scalar = nn.Parameter(torch.ones(1)) if plan.scalar else None
        if plan.per_layer:
            self.per_layer_gate = nn.Linear(model.d_model, plan.per_layer, bias=False)
            self.per_layer_proj = nn.Linear(plan.per_layer, model.d_model, bias=False)
            self.per_layer_norm = Norm(model.d_model, model.eps)
            self.activation = ACTIVATIONS[model.activation]

    @property
    def attention(self) -> nn.Module | None:
        """What mixes tokens in this layer, a module of the chapter; of several side by side, the first."""
        return self.mixers[0] if len(self.mixers) else None

    def forward(self, x: Tensor, positions: Tensor, present: Tensor | None, caches: list[Cache], shared: dict,
                per_layer: Tensor | None = None) -> Tensor:
        p, (keep, add, keep_too, add_too) = self.plan, self.plan.residual
        if self.mixers:
            y = self.attention_norm(x)
            mixed = self.attention_out_norm(self.mix(y, positions, present, caches, shared))
            if p.order == "parallel":
                return x + mixed + self.feed_forward(y)
            x = times(y if p.residual_normed else x, keep) + times(mixed, add)
        if self.feed_forward is not None:
            y = self.feed_forward_norm(x)
            added = self.feed_forward_out_norm(self.feed_forward(y))
            x = times(y if p.residual_normed else x, keep_too) + times(added, add_too)
        if per_layer is not None:
            let_in = self.activation(self.per_layer_gate(x)) * per_layer
            x = x + self.per_layer_norm(self.per_layer_proj(let_in))
        return x if self.scalar is None else x * self.scalar

    def mix(self, x, positions, present, caches, shared):
        p, out = self.plan, None
        for i, (mixer, cache) in enumerate(zip(self.mixers, caches)):
            given = x * p.in_scales[i] if p.in_scales else x
            got = mixer(given, positions, present, cache, shared)
            got = got * p.out_scales[i] if p.out_scales else got
            out = got if out is None else out + got
        return out


class NotANumber(ArithmeticError):
    """The output of a layer is not a number."""


class Decoder(nn.Module):
    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan
        # Embedding(...) draws numbers, which without memory imports torch's compiler: a second and 70 MB
        self.embedding = nn.Embedding.from_pretrained(torch.empty(plan.vocab, plan.d_model))
        self.layers = nn.ModuleList(Block(plan, layer) for layer in plan.layers)
        self.norm = Norm(plan.d_model, plan.eps, plan.norm, plan.norm_bias)
        self.out = None if plan.tied else nn.Linear(plan.d_model, plan.vocab, bias=False)
        self.width = plan.layers[0].per_layer
        if self.width:
            wide = self.width * len(plan.layers)
            self.per_layer_embedding = nn.Embedding.from_pretrained(torch.empty(plan.vocab, wide))
            self.per_layer_proj = nn.Linear(plan.d_model, wide, bias=False)
            self.per_layer_norm = Norm(self.width, plan.eps)
        with_products(self)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def caches(self) -> list[list[Cache]]:
        """An empty cache for each mixer of each layer."""
        return [[Cache() for _ in layer.mixers] for layer in self.layers]

    def forward(self, ids: Tensor, positions: Tensor, present: Tensor | None = None,
                caches: list | None = None, last: list | None = None) -> Tensor:
        """ids (b, n), the tokens that `caches` lack -> logits in float32, of all or of those in `last`."""
        caches, shared = self.caches() if caches is None else caches, {}
        ids, positions, present = (x if x is None else x.to(self.device) for x in (ids, positions, present))
        x = self.embed(ids)
        per_layer = self.per_layer_inputs(ids, x) if self.width else [None] * len(self.layers)
        self.check(x, "the embedding")
        for number, (layer, cache, inner) in enumerate(zip(self.layers, caches, per_layer)):
            x = layer(x, positions, present, cache, shared, inner)
            self.check(x, f"layer {number}")
        return self.read_out(x if last is None else x[:, last])

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        x = x * torch.tensor(self.plan.embedding_scale, dtype=x.dtype)
        return nn.functional.rms_norm(x, x.shape[-1:], eps=self.plan.eps) if self.plan.embedding_norm else x

    def per_layer_inputs(self, ids, x):
        """Gemma 4: what each layer is told of a token, half from its own table, half from the embedding."""
        told = (self.per_layer_embedding(ids) * self.width ** 0.5).unflatten(-1, (-1, self.width))
        made = self.per_layer_norm((self.per_layer_proj(x)
                                    * x.shape[-1] ** -0.5).unflatten(-1, (-1, self.width)))
        return ((made + told) * 2 ** -0.5).unbind(-2)

    def read_out(self, x: Tensor) -> Tensor:
        p, x = self.plan, self.norm(x)
        logits = nn.functional.linear(x, self.embedding.weight) if self.out is None else self.out(x)
        logits = logits.float() * p.logit_scale
        logits = p.logit_cap * torch.tanh(logits / p.logit_cap) if p.logit_cap else logits
        self.check(logits, "the last norm and the output projection")
        return logits

    @staticmethod
    def check(x: Tensor, where: str):
        if math.isnan(x.max()):             # the largest of what holds a NaN is NaN
            raise NotANumber(f"the output of {where} is not a number: a weight there is NaN or infinite, or "
                             "overflows")
