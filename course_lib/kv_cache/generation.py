"""What is built on the caches: generation, cross-attention, beam search, speculative decoding.

A model: model(tokens, caches) -> logits (b, n, vocabulary), with `blocks`, one cache per block."""
import torch
from einops import rearrange
from torch import Tensor

from laptop_cuda.toolchain.watching import counted
from course_lib.attention import MultiHeadAttention, scaled_dot_product_attention
from course_lib.checks.kv_cache import check_context, check_prompt
from .caches import CrossCache, GrowingCache
from .multi_token import HeadReader, MultiTokenHead
from .sampling import drawing, next_token_probabilities, verify_draft


def caches_for(model, make_cache):
    """A cache for each of model.blocks: by make_cache, or by model.make_caches() if that is None."""
    return model.make_caches() if make_cache is None else [make_cache() for _ in model.blocks]


@torch.no_grad()
def generate(model, tokens: Tensor, max_new_tokens: int, temperature: float = 0.0, top_k: int | None = None,
             top_p: float | None = None, generator=None, stop: int | None = None, make_cache=GrowingCache,
             chunk: int | None = None) -> Tensor:
    """tokens (b, n) and up to max_new_tokens more, each from one pass of the model over one new token.

    The prompt is read whole, or by `chunk` tokens. What has drawn `stop` is padded with it, until all have.
    """
    check_prompt(tokens, max_new_tokens, chunk=(chunk, 1), stop=(stop, 0))
    caches = caches_for(model, make_cache)
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    pieces = tokens.split(chunk or tokens.shape[1], 1)
    for _ in counted(max_new_tokens, "tokens"):
        for piece in pieces:
            logits = model(piece, caches)[:, -1]
        probabilities = next_token_probabilities(logits, temperature, top_k, top_p)
        if temperature == 0:
            new = probabilities.argmax(-1)
        else:
            new = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        if stop is not None:
            new = new.masked_fill(done, stop)
            done |= new == stop
        pieces = [new[:, None]]
        tokens = torch.cat((tokens, new[:, None]), 1)
        if done.all():
            break
    return tokens


def cross_attention(layer: MultiHeadAttention, x: Tensor, cache: CrossCache,
                    context: Tensor | None = None) -> Tensor:
    """layer(x, context). The first call computes the keys and values of the context; later calls do not."""
    if cache.length == 0:
        check_context(context)
        cache.append(*(rearrange(project(context), "b m (h d) -> b h m d", h=layer.n_heads)
                       for project in (layer.k_proj, layer.v_proj)))
    q = rearrange(layer.q_proj(x), "b n (h d) -> b h n d", h=layer.n_heads)
    return layer.out_proj(rearrange(scaled_dot_product_attention(q, *cache.view()), "b h n d -> b n (h d)"))


@torch.no_grad()
def beam_search(model, tokens: Tensor, max_new_tokens: int, n_beams: int, stop: int | None = None,
                make_cache=GrowingCache) -> tuple[Tensor, Tensor]:
    """tokens (1, n) -> the n_beams likeliest continuations found (n_beams, n + new), best first, and their
    log probabilities. A beam that has drawn `stop` is padded at no cost; the search ends with all."""
    check_prompt(tokens, max_new_tokens, batch=1, n_beams=(n_beams, 1))
    caches = caches_for(model, make_cache)
    new, scores = tokens, torch.zeros(1, device=tokens.device)
    for step in range(max_new_tokens):
        log_p = model(new, caches)[:, -1].log_softmax(-1)
        if stop is not None and step > 0:               # the prompt may contain `stop` without having ended
            ended = tokens[:, -1] == stop
            log_p[ended] = -torch.inf
            log_p[ended, stop] = 0
        total = (scores[:, None] + log_p).flatten()
        scores, best = total.topk(min(n_beams, int(total.isfinite().sum())))
        parent, token = best // log_p.shape[-1], best % log_p.shape[-1]
        for cache in caches:
            cache.reorder(parent)
        new = token[:, None]
        tokens = torch.cat((tokens[parent], new), 1)
        if stop is not None and (token == stop).all():
            break
    return tokens, scores


class _Reader:
    """A model and its caches, which hold the tokens that it has read of a growing text."""

    def __init__(self, model, make_cache, *sampling):
        self.model, self.caches, self.sampling = model, caches_for(model, make_cache), sampling

    @property
    def length(self):
        return self.caches[0].length

    def probabilities(self, text):
        """text (1, n) -> (new, vocabulary): of the next token, after each token that was not read before."""
        return next_token_probabilities(self.logits(text[:, self.length:])[0], *self.sampling)

    def logits(self, new):
        return self.model(new, self.caches)

    def keep(self, n):
        for cache in self.caches:
            cache.truncate(min(cache.length, n))


class _StateReader(_Reader):
    """Also keeps the model's state after each token, which a MultiTokenHead drafts from."""
    states = None

    def logits(self, new):
        states = self.model.states(new, self.caches)
        self.states = states if self.states is None else torch.cat([self.states, states], 1)
        return self.model.read_out(states)

    def keep(self, n):
        super().keep(n)
        self.states = self.states[:, :n]


def _readers(model, draft_model, make_cache, *sampling):
    """Those of the large model and of its draft."""
    if isinstance(draft_model, MultiTokenHead):
        large = _StateReader(model, make_cache, *sampling)
        return large, HeadReader(draft_model, large, make_cache(), *sampling)
    return tuple(_Reader(one, make_cache, *sampling) for one in (model, draft_model))


@torch.no_grad()
def generate_speculative(model, draft_model, tokens: Tensor, max_new_tokens: int, n_draft: int = 4,
                         temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None,
                         generator=None, stop: int | None = None, make_cache=GrowingCache, draw=None,
                         kept: list | None = None) -> Tensor:
    """What `generate` draws, tokens (1, n) and up to max_new_tokens more, in fewer passes of `model`.

    draft_model, a model or the MultiTokenHead of this one, draws up to n_draft tokens, one pass each. One
    pass of `model` over all of them accepts some and adds one more, so that the result is distributed as if
    `model` had drawn alone. Both caches then forget the rejected tokens. The number of drafted tokens that
    each pass accepted is appended to `kept`, if given."""
    check_prompt(tokens, max_new_tokens, batch=1, n_draft=(n_draft, 0))
    draw = drawing(generator) if draw is None else draw
    large, small = _readers(model, draft_model, make_cache, temperature, top_k, top_p)
    end = tokens.shape[1] + max_new_tokens
    while tokens.shape[1] < end:
        n, text, drafts = tokens.shape[1], tokens, []
        for _ in range(min(n_draft, end - n - 1)):      # `model` adds at least one token
            drafts.append(small.probabilities(text)[-1])
            text = torch.cat((text, text.new_tensor([[draw(drafts[-1])]])), 1)
        target = large.probabilities(text)[-1 - len(drafts):]
        new = verify_draft(target, torch.stack(drafts) if drafts else target[:0], text[0, n:], draw=draw)
        if kept is not None:
            kept.append(len(new) - 1)
        ended = stop is not None and stop in new
        if ended:
            new = new[:int((new == stop).nonzero()[0]) + 1]
        tokens = torch.cat((tokens, new[None]), 1)
        if ended:
            break
        for reader in (large, small):
            reader.keep(tokens.shape[1] - 1)                # no model has read the last token yet
    return tokens
