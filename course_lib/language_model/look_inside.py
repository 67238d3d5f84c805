"""Which tokens the layers of a language model attend to. Works for every attention that has weights."""
import torch

from course_lib.datasets import generator, repeated_tokens
from course_lib.checks import check_count


@torch.no_grad()
def induction_scores(model, n=24, batch=16, seed=0) -> torch.Tensor:
    """(n_layers, n_heads): the attention from a repeated token to what followed it the first time.

    The text is n random tokens, twice: that token is n - 1 positions back; uniform weights are 1 / (1.5 n).
    """
    check_count("n", n, 2)
    tokens = repeated_tokens(batch, generator("test", seed), model.config.vocab_size, n)
    weights = model.attention_weights(tokens)
    at = torch.arange(n, 2 * n - 1)
    return weights[..., at, at - n + 1].mean((1, 3))


@torch.no_grad()
def copying_gain(model, n=24, batch=16, seed=0) -> float:
    """How many nats per token the model loses less in the second half of n random tokens, repeated."""
    check_count("n", n, 2)
    tokens = repeated_tokens(batch, generator("test", seed), model.config.vocab_size, n)
    logits = model(tokens[:, :-1]).log_softmax(-1)
    losses = -logits.gather(-1, tokens[:, 1:, None])[..., 0].mean(0)
    return (losses[:n - 1].mean() - losses[n:].mean()).item()


@torch.no_grad()
def weight_by_distance(model, tokens, edges=(0, 1, 2, 4, 8, 16, 32, 64, 128)) -> dict:
    """{(nearest, farthest): (n_layers,)}: the share of a layer's attention weights on keys at that distance.

    Absolute values, because weights of the delta rule may be negative."""
    weights = model.attention_weights(tokens).abs()
    n = weights.shape[-1]
    i = torch.arange(n)
    distance, total = i[:, None] - i, weights.sum((1, 2, 3, 4))
    shares = {}
    for near, next_edge in zip(edges, (*edges[1:], n)):
        if near < n:
            inside = (distance >= near) & (distance < next_edge)
            shares[near, min(next_edge, n) - 1] = (weights * inside).sum((1, 2, 3, 4)) / total
    return shares


@torch.no_grad()
def effect_of_distance(model, tokens, distances=(1, 4, 16, 32, 48), seed=0) -> dict:
    """{distance: change}: the root mean square change of the last logits when one token there is replaced.

    This shows whether a model sees that far, with any attention and through any number of layers."""
    draws, before, moved = generator("test", seed), model(tokens)[:, -1], {}
    for distance in distances:
        changed = tokens.clone()
        other = torch.randint(1, model.config.vocab_size, (len(tokens),), generator=draws)
        changed[:, -1 - distance] = (changed[:, -1 - distance] + other) % model.config.vocab_size
        moved[distance] = (model(changed)[:, -1] - before).square().mean().sqrt().item()
    return moved
