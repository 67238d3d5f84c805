"""`python -m course_lib indexer-study`: an indexer for each layer of the small model, from its attention.

Writes data/indexer_study.json: how much of the dense attention falls on the chosen tokens (recall), and the
model's loss when every layer looks at those alone; beside a window of as many tokens, untrained indexers, and
the tokens that have the largest weights in the dense attention."""
import torch
from torch.nn import functional as F

from course_lib import language_model
from course_lib.language_model import random_batch
from course_lib.rope import apply_rope, rope_table
from course_lib.sparse_attention import Indexer, choose, chosen_mask, distillation_loss
from .study import plays, study

TOP_K = (4, 8, 16, 32, 64)
HEADS, WIDTH = 4, 16


@torch.no_grad()
def inside(model, tokens):
    """What each layer attends from, and how: its normalised inputs, attention weights, queries and keys."""
    parts, x, inputs = [], model.embed(tokens), []
    rope = model.cos[:tokens.shape[1]], model.sin[:tokens.shape[1]]

    def attend(q, k, v):
        parts.append((q, k))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    model.set_attention(attend)
    for block in model.blocks:
        inputs.append(block.attention_norm(x))
        x = block(x, rope)
    model.set_attention()
    return inputs, model.attention_weights(tokens), parts


def rotation(n):
    rope = rope_table(n, WIDTH)
    return lambda x: apply_rope(x, *rope)


def train(model, text, seed, steps):
    """One indexer per layer, all from the same batches; and as many that were not trained."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    sets = [[Indexer(model.config.d_model, HEADS, WIDTH) for _ in model.blocks] for _ in range(2)]
    turn = rotation(model.config.context)
    optimizer = torch.optim.AdamW([p for indexer in sets[0] for p in indexer.parameters()], 3e-3)
    for step in range(steps):
        tokens, _ = random_batch(text, 8, model.config.context, generator)
        inputs, weights, _ = inside(model, tokens)
        loss = sum(distillation_loss(indexer(x, turn), w) for indexer, x, w in zip(sets[0], inputs, weights))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
    return sets


def scores_by(trained, untrained, turn):
    """{way: function of layer, its input x, queries, keys -> scores of every token (b, n, n)}"""
    def window(layer, x, q, k):
        n = x.shape[1]
        place = torch.arange(n)
        return place.float().expand(len(x), n, n).masked_fill(place > place[:, None], -torch.inf)

    def best(layer, x, q, k):
        scores, n = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, x.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).mean(1)
        return weights.masked_fill(hidden, -torch.inf)

    return {"best possible": best, "trained indexer": lambda layer, x, q, k: trained[layer](x, turn),
            "untrained indexer": lambda layer, x, q, k: untrained[layer](x, turn), "window": window}


@torch.no_grad()
def recalls(model, ways, batches):
    """{way: {top_k: the share of attention on the chosen tokens, averaged over layers and queries}}"""
    found = {}
    for tokens in batches:
        inputs, weights, parts = inside(model, tokens)
        n = tokens.shape[1]
        for layer, (x, w, (q, k)) in enumerate(zip(inputs, weights, parts)):
            for way, scores in ways.items():
                for top_k in TOP_K:
                    mask = chosen_mask(choose(scores(layer, x, q, k), top_k), n)
                    share = (w.mean(1) * mask).sum(-1)[:, top_k:].mean()
                    found.setdefault(way, {}).setdefault(top_k, []).append(share)
    return {way: {top_k: round(float(torch.stack(x).mean()), 4) for top_k, x in row.items()}
            for way, row in found.items()}


@torch.no_grad()
def window_losses(model, scores, top_k, batches):
    """The loss of each window of text when every layer reads only the top_k tokens that `scores` chooses."""
    rope, total = (model.cos, model.sin), []
    for tokens, targets in batches:
        x, n = model.embed(tokens), tokens.shape[1]
        for layer, block in enumerate(model.blocks):
            def attend(q, k, v, layer=layer, seen=block.attention_norm(x)):
                chosen = choose(scores(layer, seen, q, k), top_k)
                return F.scaled_dot_product_attention(q, k, v, attn_mask=chosen_mask(chosen, n)[:, None])

            block.attention.attend = attend
            x = block(x, rope)
        logits = F.linear(model.final_norm(x), model.embedding.weight)
        total.append(F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1))
    model.set_attention()
    return torch.cat(total)


def losses(model, ways, batches):
    """{way: {top_k: loss}}, and by how much the trained indexer's is above a window's: mean, half of 95 %."""
    found = {way: {top_k: window_losses(model, scores, top_k, batches) for top_k in TOP_K}
             for way, scores in ways.items()}
    above = {}
    for top_k in TOP_K:
        difference = found["trained indexer"][top_k] - found["window"][top_k]
        half = 1.96 * difference.std() / len(difference) ** 0.5
        above[top_k] = [round(float(difference.mean()), 4), round(float(half), 4)]
    means = {way: {top_k: round(float(loss.mean()), 4) for top_k, loss in row.items()}
             for way, row in found.items()}
    return means, above


def measure(args):
    model, _ = language_model.pretrained()
    for weight in model.parameters():
        weight.requires_grad_(False)
    text, validation = plays()
    generator = torch.Generator().manual_seed(999)
    batches = [random_batch(validation, 8, model.config.context, generator) for _ in range(args.batches)]
    with torch.no_grad():
        dense = round(float(torch.stack([model.loss(*batch) for batch in batches]).mean()), 4)
    rows = []
    for seed in range(args.seeds):
        trained, untrained = train(model, text, seed, args.steps)
        ways = scores_by(trained, untrained, rotation(model.config.context))
        found = recalls(model, ways, [tokens for tokens, _ in batches])
        loss, above = losses(model, ways, batches)
        rows.append({"seed": seed, "recall": found, "loss": loss, "above_window": above})
        print(rows[-1], flush=True)
    return {"recall": "share of the dense attention, heads averaged, on the chosen tokens; mean over layers "
                      "and over queries that see more than top_k",
            "loss": "nats per character on validation plays, every layer reading only the chosen tokens",
            "above_window": "the trained indexer's loss above a window's of as many tokens: mean, and half "
                            "of the 95 % interval over the windows of text",
            "windows": sum(len(tokens) for tokens, _ in batches),
            "indexer": {"heads": HEADS, "head_dim": WIDTH}, "dense_loss": dense, "rows": rows}


def study_command(argv):
    """python -m course_lib indexer-study: recall and loss with a trained indexer in every layer."""
    return study(argv, "indexer-study", study_command.__doc__, measure, steps=200, seeds=3, batches=4)
