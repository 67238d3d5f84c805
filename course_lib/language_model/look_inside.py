"""Chapter 10: what the layers of a language model have learned to look at. Works for every attention that has weights."""
import torch

from course_lib.datasets import generator, repeated_tokens
from course_lib.checks import check_count


@torch.no_grad()
def induction_scores(model, n=24, batch=16, seed=0) -> torch.Tensor:
    """(n_layers, n_heads): the weight that a head puts on the token after the one it stands on, where that stood before.

    The text is n random tokens, twice. In the second half a head that looks n - 1 places back sees what came next the last time.
    A head that looks everywhere evenly scores about 1 / (1.5 n).
    """
    check_count("n", n, 2)
    tokens = repeated_tokens(batch, generator("test", seed), model.config.vocab_size, n)
    weights = model.attention_weights(tokens)
    at = torch.arange(n, 2 * n - 1)
    return weights[..., at, at - n + 1].mean((1, 3))


@torch.no_grad()
def copying_gain(model, n=24, batch=16, seed=0) -> float:
    """By how many nats a token the second half of n random tokens said twice is easier than the first."""
    check_count("n", n, 2)
    tokens = repeated_tokens(batch, generator("test", seed), model.config.vocab_size, n)
    logits = model(tokens[:, :-1]).log_softmax(-1)
    losses = -logits.gather(-1, tokens[:, 1:, None])[..., 0].mean(0)
    return (losses[:n - 1].mean() - losses[n:].mean()).item()


@torch.no_grad()
def weight_by_distance(model, tokens, edges=(0, 1, 2, 4, 8, 16, 32, 64, 128)) -> dict:
    """{(nearest, farthest): (n_layers,)}: of all that a layer's queries take, the share from keys that far back, in size.

    Weights of the delta rule may be negative; each counts with its absolute value.
    """
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
    """{distance: change}: how much the last position's logits move when one token that far back is another one.

    What a model sees at a distance, whatever its attention is and however many layers the message takes.
    """
    draws, before, moved = generator("test", seed), model(tokens)[:, -1], {}
    for distance in distances:
        changed = tokens.clone()
        other = torch.randint(1, model.config.vocab_size, (len(tokens),), generator=draws)
        changed[:, -1 - distance] = (changed[:, -1 - distance] + other) % model.config.vocab_size
        moved[distance] = (model(changed)[:, -1] - before).square().mean().sqrt().item()
    return moved
