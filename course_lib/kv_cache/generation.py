"""What is built on the caches of chapter 7: cross-attention, beam search, speculative decoding."""
import torch
from einops import rearrange
from torch import Tensor

from course_lib.attention import MultiHeadAttention, scaled_dot_product_attention
from course_lib.checks import check_count
from course_lib.kv_cache.caches import CrossCache, GrowingCache, caches_for
from course_lib.kv_cache.sampling import drawing, next_token_probabilities, verify_draft


def cross_attention(layer: MultiHeadAttention, x: Tensor, cache: CrossCache, context: Tensor | None = None) -> Tensor:
    """What layer(x, context) returns. Keys and values of the context are made at the first call, and only then needed."""
    if cache.length == 0:
        if context is None:
            raise ValueError("context must be given while the cache is empty; got None")
        cache.append(*(rearrange(project(context), "b m (h d) -> b h m d", h=layer.n_heads)
                       for project in (layer.k_proj, layer.v_proj)))
    q = rearrange(layer.q_proj(x), "b n (h d) -> b h n d", h=layer.n_heads)
    return layer.out_proj(rearrange(scaled_dot_product_attention(q, *cache.view()), "b h n d -> b n (h d)"))


@torch.no_grad()
def beam_search(model, tokens: Tensor, max_new_tokens: int, n_beams: int, stop: int | None = None,
                make_cache=GrowingCache) -> tuple[Tensor, Tensor]:
    """tokens (1, n) -> the n_beams likeliest continuations found (n_beams, n + new), best first, and their log probabilities.

    A beam that has drawn `stop` is filled up with it at no cost; when all have, the search ends.
    """
    _check_one(tokens)
    check_count("max_new_tokens", max_new_tokens, 0)
    check_count("n_beams", n_beams, 1)
    caches = caches_for(model, make_cache)
    new, scores = tokens, torch.zeros(1, device=tokens.device)
    for _ in range(max_new_tokens):
        step = model(new, caches)[:, -1].log_softmax(-1)
        if stop is not None and tokens is not new:          # not for the prompt, which may well contain `stop`
            ended = tokens[:, -1] == stop
            step[ended] = -torch.inf
            step[ended, stop] = 0
        total = (scores[:, None] + step).flatten()
        scores, best = total.topk(min(n_beams, int(total.isfinite().sum())))
        parent, token = best // step.shape[-1], best % step.shape[-1]
        for cache in caches:
            cache.reorder(parent)
        new = token[:, None]
        tokens = torch.cat((tokens[parent], new), 1)
        if stop is not None and (token == stop).all():
            break
    return tokens, scores


@torch.no_grad()
def generate_speculative(model, draft_model, tokens: Tensor, max_new_tokens: int, n_draft: int = 4,
                         temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None, generator=None,
                         stop: int | None = None, make_cache=GrowingCache, draw=None, kept: list | None = None) -> Tensor:
    """What `generate` draws, tokens (1, n) and up to max_new_tokens more, in fewer passes of `model`.

    draft_model draws up to n_draft tokens, one pass each; one pass of `model` over all of them keeps some of them and adds
    one, so that the result is distributed as if `model` had drawn alone. Both caches then forget what was refused.
    kept, if given, is appended the number of drafted tokens that each pass kept.
    """
    _check_one(tokens)
    check_count("max_new_tokens", max_new_tokens, 0)
    check_count("n_draft", n_draft, 0)
    draw = drawing(generator) if draw is None else draw
    caches, draft_caches = (caches_for(one, make_cache) for one in (model, draft_model))

    def probabilities(one, its_caches, text):
        """(new, vocabulary): of the token after each one that the caches did not hold yet."""
        logits = one(text[:, its_caches[0].length:], its_caches)[0]
        return next_token_probabilities(logits, temperature, top_k, top_p)

    end = tokens.shape[1] + max_new_tokens
    while tokens.shape[1] < end:
        n, text, draft = tokens.shape[1], tokens, []
        for _ in range(min(n_draft, end - n - 1)):          # a pass yields at least one token more
            draft.append(probabilities(draft_model, draft_caches, text)[-1])
            text = torch.cat((text, text.new_tensor([[draw(draft[-1])]])), 1)
        target = probabilities(model, caches, text)[-1 - len(draft):]
        draft = torch.stack(draft) if draft else target[:0]
        new = verify_draft(target, draft, text[0, n:], draw=draw)
        if kept is not None:
            kept.append(len(new) - 1)
        ended = stop is not None and stop in new
        if ended:
            new = new[:int((new == stop).nonzero()[0]) + 1]
        tokens = torch.cat((tokens, new[None]), 1)
        if ended:
            break
        # The last token has been drawn and not read: no cache holds it.
        for cache in (*caches, *draft_caches):
            cache.truncate(min(cache.length, tokens.shape[1] - 1))
    return tokens


def _check_one(tokens):
    if tokens.dim() != 2 or tokens.shape[0] != 1 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be one sequence, (1, n) with n at least 1; got shape {tuple(tokens.shape)}")
