"""From logits to the next token: temperature, top-k, top-p, and speculative decoding's verification.

Random choices are made by a function draw(probabilities) -> index; `every_outcome` tries all its answers."""
import torch
from torch import Tensor

from course_lib.checks.kv_cache import check_draft, check_sampling


def next_token_probabilities(logits: Tensor, temperature: float = 1.0, top_k: int | None = None,
                             top_p: float | None = None, repetition_penalty: float = 1.0,
                             seen: Tensor | None = None) -> Tensor:
    """Probabilities (..., vocabulary) of the next token, from logits of the same shape.

    The logits of tokens in seen (..., m) are first divided by repetition_penalty, or multiplied by it where
    negative. Temperature 0 gives the likeliest token probability 1. top_k keeps the k likeliest; of those,
    top_p keeps the fewest whose probabilities sum to at least top_p. The probabilities kept are normalized.
    """
    check_sampling(temperature, top_k, top_p, repetition_penalty, seen)
    if repetition_penalty != 1:
        logit = logits.gather(-1, seen)
        penalized = torch.where(logit > 0, logit / repetition_penalty, logit * repetition_penalty)
        logits = logits.scatter(-1, seen, penalized)
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    # Shift the largest logit to 0: dividing by a tiny temperature would overflow, and inf - inf is NaN.
    ordered, order = (logits - logits.amax(-1, keepdim=True)).sort(dim=-1, descending=True, stable=True)
    ordered = ordered / temperature
    if top_k is not None:
        ordered[..., top_k:] = -torch.inf
    probabilities = ordered.softmax(-1)
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities       # of all likelier tokens; 0 for the first
        probabilities = probabilities.masked_fill(before >= top_p, 0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(-1, order, probabilities)


def acceptance(target: Tensor, draft: Tensor) -> Tensor:
    """min(1, p / q) per token: the probability to accept a token drawn from draft; 0 where q is 0."""
    return torch.where(draft > 0, (target / draft).clamp(max=1), torch.zeros_like(target))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """max(p - q, 0), normalized: the distribution that replaces a rejected token; the target if p = q."""
    left = (target - draft).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / total, target)


def verify_draft(target: Tensor, draft: Tensor, drafted: Tensor, generator=None, draw=None) -> Tensor:
    """The tokens that one pass of the large model yields, distributed as if it had drawn each itself.

    drafted (n,): tokens that a small model drew, each from its row of draft (n, vocabulary). target (n + 1,
    vocabulary): the large model's probabilities before each of them, and after the last. Returns 1 to n + 1
    tokens: the accepted ones, then one drawn from the residual, or from target's last row."""
    check_draft(target, draft, drafted)
    n = len(drafted)
    draw = drawing(generator) if draw is None else draw
    chances = acceptance(target[:n], draft).gather(-1, drafted[:, None])[:, 0]
    for accepted, chance in enumerate(chances):
        if not draw(torch.stack((1 - chance, chance))):
            instead = draw(residual(target[accepted], draft[accepted]))
            return torch.cat((drafted[:accepted], drafted.new_tensor([instead])))
    return torch.cat((drafted, drafted.new_tensor([draw(target[n])])))


def drawing(generator=None):
    """draw(probabilities) -> index, at random."""
    return lambda probabilities: int(torch.multinomial(probabilities, 1, generator=generator))


def every_outcome(run):
    """(probability, result) of run(draw), once per sequence of answers that its draws can give.

    run is called again for each, so it must depend only on the answers of draw."""
    waiting = [[]]      # first answers still to try; a run continues them with the first possible answer
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
