"""From logits to the next token: temperature, top-k, top-p, and the verification step of speculative decoding."""
import torch
from torch import Tensor


def next_token_probabilities(logits: Tensor, temperature: float = 1.0, top_k: int | None = None,
                             top_p: float | None = None) -> Tensor:
    """Probabilities (..., vocabulary) of the next token, from logits of the same shape.

    Temperature 0 puts everything on the likeliest. top_k keeps the k likeliest; top_p then the fewest of those whose
    probabilities sum to at least top_p. What is kept is normalised.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0; got {temperature!r}")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k must be an integer of at least 1; got {top_k!r}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1; got {top_p!r}")
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The largest first becomes 0: a tiny temperature would otherwise divide into infinity, and inf - inf is NaN.
    ordered, order = (logits - logits.amax(-1, keepdim=True)).sort(dim=-1, descending=True, stable=True)
    ordered = ordered / temperature
    if top_k is not None:
        ordered[..., top_k:] = -torch.inf
    probabilities = ordered.softmax(-1)
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities       # of everything likelier; 0 for the first, so it stays
        probabilities = probabilities.masked_fill(before >= top_p, 0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(-1, order, probabilities)


def acceptance(target: Tensor, draft: Tensor) -> Tensor:
    """min(1, p / q) for every token: how probably a token drawn from draft is kept. 0 where q is 0: it is never drawn."""
    return torch.where(draft > 0, (target / draft).clamp(max=1), torch.zeros_like(target))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """max(p - q, 0), normalised: what a refused token is replaced from. The target itself where the two are equal."""
    left = (target - draft).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / total, target)


def verify_draft(target: Tensor, draft: Tensor, drafted: Tensor, generator=None) -> Tensor:
    """The tokens that one pass of the large model yields, distributed as if it had drawn each by itself.

    drafted (n,): tokens that a small model drew, each from its row of draft (n, vocabulary). target (n + 1, vocabulary):
    the large model's probabilities before each of them, and after the last. Returns 1 to n + 1 tokens: the drafted ones
    up to the first refusal, then one drawn from the residual, or from the last row of target if none was refused.
    """
    n = len(drafted)
    if draft.dim() != 2 or len(draft) != n:
        raise ValueError(f"draft must be ({n}, vocabulary) for {n} drafted tokens; got {tuple(draft.shape)}")
    if target.shape != (n + 1, draft.shape[-1]):
        raise ValueError(f"target must be {(n + 1, draft.shape[-1])}; got {tuple(target.shape)}")
    chances = acceptance(target[:n], draft).gather(-1, drafted[:, None])[:, 0]
    draws = torch.rand(n, generator=generator, device=target.device, dtype=torch.float64)
    accepted = int((draws < chances).long().cumprod(0).sum())   # up to the first refusal
    last = target[n] if accepted == n else residual(target[accepted], draft[accepted])
    return torch.cat((drafted[:accepted], torch.multinomial(last, 1, generator=generator)))
