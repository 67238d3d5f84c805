"""From logits to the next token: temperature, top-k, top-p, and the verification step of speculative decoding.

What is left to chance is drawn by a function draw(probabilities) -> index; `every_outcome` walks through all its answers.
"""
import math

import torch
from torch import Tensor


def next_token_probabilities(logits: Tensor, temperature: float = 1.0, top_k: int | None = None,
                             top_p: float | None = None, repetition_penalty: float = 1.0,
                             seen: Tensor | None = None) -> Tensor:
    """Probabilities (..., vocabulary) of the next token, from logits of the same shape.

    The logits of tokens in seen (..., m) are first divided by repetition_penalty, or multiplied by it where negative.
    Temperature 0 puts everything on the likeliest. top_k keeps the k likeliest; top_p then the fewest of those whose
    probabilities sum to at least top_p. What is kept is normalised.
    """
    check_sampling(temperature, top_k, top_p, repetition_penalty)
    if repetition_penalty != 1:
        if seen is None:
            raise ValueError("seen must be given with a repetition_penalty; got None")
        logit = logits.gather(-1, seen)
        penalised = torch.where(logit > 0, logit / repetition_penalty, logit * repetition_penalty)
        logits = logits.scatter(-1, seen, penalised)
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


def check_sampling(temperature=1.0, top_k=None, top_p=None, repetition_penalty=1.0) -> None:
    for name, value in (("temperature", temperature), ("top_k", top_k or 1), ("top_p", top_p or 1),
                        ("repetition_penalty", repetition_penalty)):
        if not isinstance(value, (int, float)):
            raise ValueError(f"{name} must be a number; got {value!r}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be at least 0 and finite; got {temperature!r}")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k must be an integer of at least 1; got {top_k!r}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1; got {top_p!r}")
    if not 0 < repetition_penalty < math.inf:
        raise ValueError(f"repetition_penalty must be above 0 and finite; got {repetition_penalty!r}")


def acceptance(target: Tensor, draft: Tensor) -> Tensor:
    """min(1, p / q) for every token: how probably a token drawn from draft is kept. 0 where q is 0: it is never drawn."""
    return torch.where(draft > 0, (target / draft).clamp(max=1), torch.zeros_like(target))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """max(p - q, 0), normalised: what a refused token is replaced from. The target itself where the two are equal."""
    left = (target - draft).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / total, target)


def verify_draft(target: Tensor, draft: Tensor, drafted: Tensor, generator=None, draw=None) -> Tensor:
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
    draw = drawing(generator) if draw is None else draw
    chances = acceptance(target[:n], draft).gather(-1, drafted[:, None])[:, 0]
    for accepted, chance in enumerate(chances):
        if not draw(torch.stack((1 - chance, chance))):
            instead = draw(residual(target[accepted], draft[accepted]))
            return torch.cat((drafted[:accepted], drafted.new_tensor([instead])))
    return torch.cat((drafted, drafted.new_tensor([draw(target[n])])))


def drawing(generator=None):
    """draw(probabilities) -> index, by chance."""
    return lambda probabilities: int(torch.multinomial(probabilities, 1, generator=generator))


def every_outcome(run):
    """(probability, result) of run(draw), once for each way in which its draws can fall.

    run is started again for each: it must depend on nothing but what draw tells it.
    """
    waiting = [[]]                          # answers that a start begins with; then it takes the first possible ones
    while waiting:
        begin, told, probability = waiting.pop(), [], 1.0

        def draw(probabilities):
            nonlocal probability
            if len(told) < len(begin):
                answer = begin[len(told)]
            else:
                answer, *others = probabilities.nonzero()[:, 0].tolist()
                waiting.extend([*told, other] for other in others)
            told.append(answer)
            probability *= float(probabilities[answer])
            return answer

        result = run(draw)
        yield probability, result
