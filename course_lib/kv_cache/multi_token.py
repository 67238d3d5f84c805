"""Multi-token prediction: one more block that predicts the token after the next, from what the model has
already computed; and its use as the draft of speculative decoding.

Entry i of the head is made of the model's state at token i, before its last norm, and of token i + 1. It
predicts token i + 2. Its own state at entry i takes the place of the model's state at i + 1 where the model
has not read that token yet: so one head drafts as many tokens as wanted."""
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks.kv_cache import check_head_prompt
from .sampling import next_token_probabilities


class MultiTokenHead(nn.Module):
    """A block beside a model, whose embedding it shares, also as the read-out. block: like the model's."""

    def __init__(self, block: nn.Module, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.state_norm, self.token_norm = nn.RMSNorm(d_model, eps), nn.RMSNorm(d_model, eps)
        self.join = nn.Linear(2 * d_model, d_model, bias=False)
        self.block, self.final_norm = block, nn.RMSNorm(d_model, eps)

    def forward(self, model, states: Tensor, tokens: Tensor, cache=None) -> Tensor:
        """states (b, n, d_model) and the token after each, (b, n) -> the head's states, (b, n, d_model)."""
        joined = torch.cat([self.state_norm(states), self.token_norm(model.embedding(tokens))], -1)
        n = model.config.context if cache is not None else tokens.shape[1]
        return self.block(self.join(joined), (model.cos[:n], model.sin[:n]), cache)

    def read_out(self, model, states: Tensor) -> Tensor:
        return F.linear(self.final_norm(states), model.embedding.weight)

    def loss(self, model, tokens: Tensor, depth: int = 1) -> Tensor:
        """Nats per token over `depth` predictions, each from the states before. The model does not learn."""
        with torch.no_grad():
            states = model.states(tokens[:, :-2])
        losses = []
        for ahead in range(1, depth + 1):
            states = self(model, states, tokens[:, ahead:-1])
            logits = self.read_out(model, states)
            losses.append(F.cross_entropy(logits.flatten(0, 1), tokens[:, ahead + 1:].flatten()))
            states = states[:, :-1]
        return torch.stack(losses).mean()


class HeadReader:
    """The draft's side of speculative decoding: the head beside `large`, which keeps the model's states."""

    def __init__(self, head: MultiTokenHead, large, cache, *sampling):
        self.head, self.large, self.cache, self.sampling = head, large, cache, sampling
        self.last, self.from_model = None, 0

    def probabilities(self, text: Tensor) -> Tensor:
        """text (1, n) -> (new, vocabulary): of the next token, after each token that was not read before."""
        check_head_prompt(text)
        if not self.large.length:
            self.large.probabilities(text[:, :-1])
        begin, end, model = self.cache.length, text.shape[1] - 1, self.large.model
        states = self.large.states[:, begin:end]
        self.from_model = min(end, self.large.length)
        if states.shape[1] < end - begin:       # a drafted token, which the model has not read
            states = torch.cat([states, self.last], 1)
        out = self.head(model, states, text[:, begin + 1:], self.cache)
        self.last = out[:, -1:]
        return next_token_probabilities(self.head.read_out(model, out)[0], *self.sampling)

    def keep(self, n: int) -> None:
        """Entries made from the head's own states are made again from the model's."""
        self.cache.truncate(min(self.cache.length, n, self.from_model))
