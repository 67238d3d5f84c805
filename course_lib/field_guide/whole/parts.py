"""What a decoder has besides attention: norms, feed-forward layers, experts, as data and as modules."""
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.field_guide.softmax import times

ACTIVATIONS = {"silu": F.silu, "swish": F.silu, "gelu": F.gelu, "relu": F.relu, "sigmoid": torch.sigmoid,
               "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
               "gelu_new": partial(F.gelu, approximate="tanh"), "relu2": lambda x: F.relu(x).square()}


class Product(nn.Module):
    """x W^T + b. For 4, 16 or 32 rows in float32 MKL is no slower at W x^T, and up to a third faster; for other
    numbers of rows it takes as long as for many more."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() // x.shape[-1] not in (4, 16, 32) or x.dtype != torch.float32 or x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        y = (self.weight @ x.flatten(0, -2).T).T.unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


def with_products(module: nn.Module):
    """A product in place of each of the linear layers, which the chapter's layers are made of."""
    for parent in list(module.modules()):
        for name, part in parent.named_children():
            if type(part) is nn.Linear:
                setattr(parent, name, Product(part))


class Norm(nn.Module):
    """Over the last dimension, in float32: "rms", "layer" (without the mean), "bare" (RMS, nothing learned)."""

    def __init__(self, width: int, eps: float, kind: str = "rms", bias: bool = False):
        super().__init__()
        self.eps, self.kind = eps, kind
        self.weight = None if kind == "bare" else nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight = None if self.weight is None else self.weight.float()
        bias = None if self.bias is None else self.bias.float()
        if self.kind == "layer":
            return F.layer_norm(x.float(), x.shape[-1:], weight, bias, self.eps).to(x.dtype)
        y = F.rms_norm(x.float(), x.shape[-1:], weight, self.eps)
        return (y if bias is None else y + bias).to(x.dtype)


@dataclass(frozen=True)
class FeedForward:
    d_model: int
    width: int
    activation: str = "silu"
    gated: bool = True                  # down(act(gate x) * up x); without it, down(act(up x))
    bias: bool = False
    limit: float | None = None          # gate and up are clipped
    alpha: float | None = None          # gate * sigmoid(alpha * gate) * (up + 1)
    scales: tuple = (1.0, 1.0)          # of the gate and of the output

    def build(self) -> "FeedForwardLayer":
        return FeedForwardLayer(self)


class FeedForwardLayer(nn.Module):
    def __init__(self, recipe: FeedForward):
        super().__init__()
        r = self.recipe = recipe
        if r.gated:
            self.gate_proj = nn.Linear(r.d_model, r.width, r.bias)
        self.up_proj = nn.Linear(r.d_model, r.width, r.bias)
        self.down_proj = nn.Linear(r.width, r.d_model, r.bias)
        if r.activation not in (*ACTIVATIONS, "xielu"):
            raise ValueError(f"hidden_act {r.activation!r} is not one of {', '.join(ACTIVATIONS)}, xielu")
        self.activation = XIELU() if r.activation == "xielu" else ACTIVATIONS[r.activation]

    def forward(self, x: Tensor) -> Tensor:
        r, up = self.recipe, self.up_proj(x)
        if not r.gated:
            return self.down_proj(self.activation(up))
        gate = times(self.gate_proj(x), r.scales[0])
        if r.limit is not None:
            gate, up = gate.clamp(max=r.limit), up.clamp(-r.limit, r.limit)
        inner = (self.activation(gate) * up if r.alpha is None else gate * torch.sigmoid(r.alpha * gate)
                 * (up + 1))
        return times(self.down_proj(inner), r.scales[1])


class XIELU(nn.Module):
    """A parabola above zero, an exponential below it, both learned (arXiv:2411.13010)."""

    def __init__(self):
        super().__init__()
        self.alpha_p, self.alpha_n = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.beta, self.eps = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(-1e-6))

    def forward(self, x: Tensor) -> Tensor:
        above = F.softplus(self.alpha_p) * x.square() + self.beta * x
        below = ((torch.expm1(torch.minimum(x, self.eps)) - x) * (self.beta + F.softplus(self.alpha_n))
                 + self.beta * x)
        return torch.where(x > 0, above, below)


@dataclass(frozen=True)
class Experts:
    """A router scores every expert for a token, which takes the weighted sum of its top_k best."""
    count: int
    top_k: int
    expert: FeedForward
    scores: str = "softmax"             # or "sigmoid"; "chosen": a softmax over the chosen alone
    corrected: bool = False             # a learned bias takes part in the choice, not in the weights
    ranks_logits: bool = False          # the bias is added to logits, not to scores
    groups: int = 1                     # experts are chosen from the top_groups best groups,
    top_groups: int = 1
    group_best: int = 2                 # by the sum of a group's so many best
    normalised: bool = True             # the weights of the chosen sum to 1
    scale: float = 1.0
    cap: float = 0.0                    # logits are cap * tanh(logits / cap)
    router_bias: bool = False
    weighs_input: bool = False          # the expert's input is weighted, not its output
    shared: FeedForward | None = None   # for every token
    shared_gate: bool = False
    latent: int | None = None           # experts work on a narrower vector

    def build(self) -> "ExpertsLayer":
        return ExpertsLayer(self)


class ExpertsLayer(nn.Module):
    def __init__(self, recipe: Experts):
        super().__init__()
        r, d_model = recipe, recipe.shared.d_model if recipe.latent else recipe.expert.d_model
        self.recipe, self.router = r, nn.Linear(d_model, r.count, r.router_bias)
        self.correction = nn.Parameter(torch.zeros(r.count)) if r.corrected else None
        self.experts = nn.ModuleList(r.expert.build() for _ in range(r.count))
        self.shared = r.shared.build() if r.shared else None
        self.shared_gate = nn.Linear(d_model, 1, bias=False) if r.shared_gate else None
        self.narrow, self.widen = ((nn.Linear(d_model, r.latent, r.expert.bias),
                                    nn.Linear(r.latent, d_model, r.expert.bias)) if r.latent
                                   else (nn.Identity(), nn.Identity()))

    def forward(self, x: Tensor) -> Tensor:
        r, flat = self.recipe, x.flatten(0, -2)
        weights, chosen = self.route(flat)
        inner = self.narrow(flat)
        out = torch.zeros_like(inner)
        for number in chosen.unique().tolist():
            token, place = (chosen == number).nonzero(as_tuple=True)
            weight, given = weights[token, place, None].to(x.dtype), inner[token]
            got = (self.experts[number](given * weight) if r.weighs_input else self.experts[number](given)
                   * weight)
            out.index_add_(0, token, got)
        out = self.widen(out)
        if self.shared is not None:
            shared = self.shared(flat)
            out = (out
                   + (shared if self.shared_gate is None else torch.sigmoid(self.shared_gate(flat)) * shared))
        return out.view_as(x)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, (tokens, top_k) each."""
        r, bias = self.recipe, self.router.bias
        logits = F.linear(x.float(), self.router.weight.float(), None if bias is None else bias.float())
        if r.cap:
            logits = r.cap * torch.tanh(logits / r.cap)
        scores = {"softmax": lambda: logits.softmax(-1), "sigmoid": logits.sigmoid,
                  "chosen": lambda: logits}[r.scores]()
        rank = logits if r.ranks_logits else scores
        rank = rank if self.correction is None else rank + self.correction.float()
        if r.groups > 1:
            rank = self.in_best_groups(rank)
        chosen = rank.topk(r.top_k, -1).indices
        weights = scores.gather(-1, chosen)
        weights = weights.softmax(-1) if r.scores == "chosen" else weights
        if r.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * r.scale, chosen

    def in_best_groups(self, rank: Tensor) -> Tensor:
        r, groups = self.recipe, rank.unflatten(-1, (self.recipe.groups, -1))
        best = groups.topk(min(r.group_best, groups.shape[-1]),
                           -1).values.sum(-1).topk(r.top_groups, -1).indices
        outside = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
        return groups.masked_fill(outside[..., None], float("-inf")).flatten(-2)
