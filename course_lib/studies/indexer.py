"""`python -m course_lib indexer-study`: an indexer for each layer of the small model, from its attention.

Writes data/indexer_study.json: how much of the dense attention falls on the chosen tokens (recall), and the
model's loss when every layer looks at those alone; beside a window, untrained indexers, and the best that
any choice could do.
"""
from functools import partial

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
    """What each layer attends from, and how: its normalised inputs and its attention weights."""
    weights, x, inputs = model.attention_weights(tokens), model.embed(tokens), []
    rope = model.cos[:tokens.shape[1]], model.sin[:tokens.shape[1]]
    for block in model.blocks:
        inputs.append(block.attention_norm(x))
        x = block(x, rope)
    return inputs, weights


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
        inputs, weights = inside(model, tokens)
        loss = sum(distillation_loss(indexer(x, turn), w) for indexer, x, w in zip(sets[0], inputs, weights))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
    return sets


@torch.no_grad()
def recalls(model, trained, untrained, batches):
    """{way: {top_k: the share of attention on the chosen tokens, averaged over layers and queries}}"""
    turn, found = rotation(model.config.context), {}
    for tokens in batches:
        inputs, weights = inside(model, tokens)
        n = tokens.shape[1]
        place = torch.arange(n)
        hidden = place > place[:, None]
        for layer, (x, w) in enumerate(zip(inputs, weights)):
            target = w.mean(1)
            ways = {
                "best possible": target.masked_fill(hidden, -torch.inf),
                "trained indexer": trained[layer](x, turn), "untrained indexer": untrained[layer](x, turn),
                "window": place.float().expand(len(x), n, n).masked_fill(hidden, -torch.inf)}
            for way, scores in ways.items():
                for top_k in TOP_K:
                    on_chosen = (target * chosen_mask(choose(scores, top_k), n)).sum(-1)
                    found.setdefault(way, {}).setdefault(top_k, []).append(on_chosen[:, top_k:].mean())
    return {
        way: {top_k: round(float(torch.stack(x).mean()), 4) for top_k, x in row.items()}
        for way, row in found.items()
    }


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@torch.no_grad()
def losses(model, indexers, batches):
    """{top_k: loss} when every layer reads only what its indexer has chosen."""
    turn, result = rotation(model.config.context), {}
    rope = model.cos, model.sin
    for top_k in TOP_K:
        total = []
        for tokens, targets in batches:
            x, n = model.embed(tokens), tokens.shape[1]
            for block, indexer in zip(model.blocks, indexers):
                mask = chosen_mask(choose(indexer(block.attention_norm(x), turn), top_k), n)[:, None]
                block.attention.attend = partial(masked, mask=mask)
                x = block(x, rope)
            logits = F.linear(model.final_norm(x), model.embedding.weight)
            total.append(F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
        result[top_k] = round(float(torch.stack(total).mean()), 4)
    model.set_attention()
    return result


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
        found = recalls(model, trained, untrained, [tokens for tokens, _ in batches])
        rows.append({"seed": seed, "recall": found, "loss": losses(model, trained, batches),
                     "loss_untrained": losses(model, untrained, batches)})
        print(rows[-1], flush=True)
    return {"recall": "share of the dense attention, heads averaged, on the chosen tokens; mean over layers "
                      "and over queries that see more than top_k",
            "loss": "nats per character on validation plays",
            "indexer": {"heads": HEADS, "head_dim": WIDTH}, "dense_loss": dense, "rows": rows}


def study_command(argv):
    """python -m course_lib indexer-study: recall and loss with a trained indexer in every layer."""
    return study(argv, "indexer-study", study_command.__doc__, measure, steps=200, seeds=3, batches=4)
