"""The tasks of chapter 9's audit. `run(settings)` trains one model and returns what was measured.

Training is the same everywhere: AdamW with torch's defaults, a constant learning rate, fresh batches (of 32
unless the settings say). The seed draws the weights and the batches: models of one seed see the same batches.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.datasets import associative_recall, noisy_recall, repeated_tokens, tree
from course_lib.w2_attention import gaussian_overlap, w2_distance
from course_lib.studies.study import parameters
from course_lib.studies.w2_audit_models import AuditModel, raw_scores
from course_lib.studies.w2_audit_public import PublicModel

BATCH, HELD_OUT_SEED = 32, 10_000
START_STD = 1.0     # of the scores of a row, in every layer and head, where a comparison is to be fair
FLOOR = 63 / 127 * math.log(1024)       # of the public benchmark: 63 of its 127 targets are noise


def run(settings):
    """One training run: {"loss": ..., "parameters": ..., "score_std": ...}, and what its task measures."""
    torch.manual_seed(settings["seed"])
    tasks = {"public": public, "published": published, "fair": fair, "mqar": mqar, "noisy": noisy,
             "hierarchy": hierarchy}
    return tasks[settings["task"]](settings)


def train(model, rate, losses_of, steps, seed):
    """losses_of(model, generator) -> losses, the first to be minimised. Returns all: (steps, count)."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    seen = []
    for _ in range(steps):
        losses = losses_of(model, generator)
        losses[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(losses.detach())
    return torch.stack(seen)


def curve(losses, points=10):
    """Means over as many equal stretches of the training."""
    return [round(part.mean().item(), 4) for part in losses.chunk(points)]


def next_token_losses(model, generator):
    """Of the public benchmark: the mean over all targets, over the first half (noise) and the copies."""
    tokens = repeated_tokens(BATCH, generator)
    logits = model(tokens[:, :-1])
    each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(BATCH, -1)
    return torch.stack([each.mean(), each[:, :63].mean(), each[:, 63:].mean()])


def public(s):
    """The public benchmark as its repository ran it; score, number of heads and all else are its own."""
    return benchmark(s, PublicModel(1024, s["width"], s["hidden"], s["heads"], s["mechanism"]))


def published(s):
    """The same benchmark, harmonised: every arm in the course's model, four heads, a learned scale each."""
    model = AuditModel(1024, 1024, s["width"], s["hidden"], s["heads"], s["mechanism"])
    spread = model.start_scores(repeated_tokens(8, torch.Generator().manual_seed(HELD_OUT_SEED))[:, :-1])
    return benchmark(s, model) | {"score_std": spread}


def benchmark(s, model):
    """Loss on every target, averaged over the last 100 steps; of it, the noisy and the copied half."""
    losses = train(model, s["rate"], next_token_losses, s["steps"], s["seed"])
    last = losses[-100:].mean(0)
    return {"loss": last[0].item(), "noise_loss": last[1].item(), "copy_loss": last[2].item(),
            "curve": curve(losses[:, 0]), "copy_curve": curve(losses[:, 2]), "parameters": parameters(model)}


def copied(generator, batch=BATCH):
    tokens = repeated_tokens(batch, generator)
    return tokens[:, :-1], torch.arange(63, 127).expand(batch, -1), tokens[:, 64:]


def recall_run(s, model, draw):
    """Train on answers only, draw(generator, batch) -> inputs, places, answers; measure on fresh ones."""
    def losses_of(model, generator):
        inputs, at, answers = draw(generator)
        return F.cross_entropy(model(inputs, at).flatten(0, 1), answers.flatten())[None]

    unseen = torch.Generator().manual_seed(HELD_OUT_SEED)
    spread = model.start_scores(draw(unseen)[0], START_STD)
    losses = train(model, s["rate"], losses_of, s["steps"], s["seed"])
    with torch.no_grad():
        inputs, at, answers = draw(unseen, s.get("test", 512))
        logits = torch.cat([model(x, where) for x, where in zip(inputs.split(BATCH), at.split(BATCH))])
    return {"loss": F.cross_entropy(logits.flatten(0, 1), answers.flatten()).item(),
            "accuracy": (logits.argmax(-1) == answers).float().mean().item(), "curve": curve(losses[:, 0]),
            "parameters": parameters(model), "score_std": spread}


def fair(s):
    """The same sequences, trained and measured on the predictable half, from equal score variance."""
    return recall_run(s, AuditModel(1024, 1024, s["width"], s["hidden"], s["heads"], s["mechanism"]), copied)


def mqar(s):
    """Multi-query associative recall, reduced: vocabulary 512, 64 tokens, 8 pairs; a value knows its key.

    Without that the first layer has to find the token before: softmax guessed after 1,500 steps."""
    model = AuditModel(512, 512, s["width"], s["hidden"], s["heads"], s["mechanism"], shift=True)
    return recall_run(s, model, lambda generator, batch=BATCH: associative_recall(batch, generator))


def noisy(s):
    """Recall by a noisy key: rows are features, without positions."""
    def draw(generator, batch=s["batch"]):
        features, labels = noisy_recall(batch, generator)
        return features, torch.full((batch, 1), features.shape[1] - 1), labels[:, None]

    n_in = draw(torch.Generator().manual_seed(0), 1)[0].shape[-1]
    model = AuditModel(n_in, 16, s["width"], s["hidden"], s["heads"], s["mechanism"], features=True)
    return recall_run(s, model, draw)


def noisy_rules(batch=20_000, dims=4):
    """On noisy_recall, four rules that know the noise and need no training: accuracy, and loss in nats.

    A rule's label has as probability the softmax weights of the keys that carry it; for "Bayes" that is the
    posterior, and no model can expect a lower loss."""
    features, answers = noisy_recall(batch, torch.Generator().manual_seed(HELD_OUT_SEED))
    x, sigma, label = features[..., :dims], features[..., dims:2 * dims], features[:, :-1, 2 * dims:-1]
    mu_q, sigma_q, mu_k, sigma_k = x[:, -1:], sigma[:, -1:], x[:, :-1], sigma[:, :-1]
    # The best that can be known after one measurement: a posterior, and from it the second measurement.
    shrink = 1 / (1 + sigma_k**2)
    scores = {"Euclid": -(mu_q - mu_k).square().sum(-1),
              "W2": -w2_distance(mu_q, sigma_q, mu_k, sigma_k).square(),
              "overlap": gaussian_overlap(mu_q, sigma_q**2, mu_k, sigma_k**2),
              "Bayes": gaussian_overlap(mu_q, sigma_q**2, mu_k * shrink, sigma_k**2 * shrink)}
    found = {}
    for name, score in scores.items():
        chances = (score.softmax(-1)[:, None] @ label)[:, 0]
        loss = -chances.gather(1, answers[:, None]).clamp_min(1e-30).log().mean()
        found[name] = {"accuracy": (chances.argmax(-1) == answers).float().mean().item(), "loss": loss.item()}
    return found


class PairScore(nn.Module):
    """One score for every ordered pair of nodes: an embedding, two projections (or one), a scale, a bias."""

    def __init__(self, nodes, mechanism, tied, width=16):
        super().__init__()
        self.mechanism = mechanism
        self.embedding = nn.Embedding(nodes, width)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = self.q_proj if tied else nn.Linear(width, width, bias=False)
        self.log_scale, self.bias = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        nn.init.orthogonal_(self.q_proj.weight)
        if not tied:
            nn.init.orthogonal_(self.k_proj.weight)
        with torch.no_grad():
            self.log_scale.copy_((START_STD / self().std()).log())

    def forward(self):
        """(nodes, nodes): the logit that the second is above the first."""
        q, k = self.q_proj(self.embedding.weight), self.k_proj(self.embedding.weight)
        if self.mechanism != "softmax":
            q, k = (torch.cat([mu, F.softplus(raw)], -1) for mu, raw in (x.chunk(2, -1) for x in (q, k)))
        scores = raw_scores(q[None, None], k[None, None], self.mechanism)[0, 0]
        return scores * self.log_scale.exp() + self.bias


def split_pairs(above, seed, share=0.2):
    """(train, held): boolean (nodes, nodes). Held out: a share of the ancestors further than the parent,
    each with its reverse, and of the pairs that are not related."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(above.shape, generator=generator) < share
    parent = above & ~(above.float() @ above.float() > 0)       # above, and nothing in between
    down = above & ~parent & chosen
    unrelated = ~above & ~above.T & ~torch.eye(len(above), dtype=torch.bool)
    held = down | down.T | (unrelated & chosen)
    return (above | above.T | unrelated) & ~held, held


def hierarchy(s):
    """Entailment in a tree: is j above i? Measured on unseen pairs that follow by transitivity."""
    above = tree()
    seen, held = split_pairs(above, s["seed"])
    model = PairScore(len(above), s["mechanism"], s["tied"])
    start = model().std().item()

    def loss(logits, among):
        """Pairs that hold and pairs that do not weigh the same."""
        return (F.softplus(-logits[among & above]).mean() + F.softplus(logits[among & ~above]).mean()) / 2

    losses = train(model, s["rate"], lambda model, _: loss(model(), seen)[None], s["steps"], s["seed"])
    with torch.no_grad():
        logits = model()
    yes, unrelated, reverse = logits[held & above], logits[held & ~above & ~above.T], logits.T[held & above]
    return {"loss": loss(logits, held).item(), "auc": wins(yes[:, None], unrelated),
            "direction": wins(yes, reverse), "curve": curve(losses[:, 0]),
            "parameters": parameters(model), "score_std": [round(start, 4)]}


def wins(a, b):
    """How often a is greater than b; a tie, up to rounding, counts half."""
    tie = (a - b).abs() <= 1e-5 * (1 + a.abs())
    return torch.where(tie, 0.5, (a > b).float()).mean().item()
