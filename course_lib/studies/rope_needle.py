"""A needle far away: does a head still find it beyond the trained length?

The small language model of the course gains nothing from far text, so its loss cannot show whether a longer
context is used. Here one head with rotary positions is trained to find: the last token of a random text is a
noisy copy of one earlier token, at any distance, and the head has to give that one its largest score. It is
trained at 256 tokens and tested at 1,024, under each rule."""
import torch
from torch import nn
from torch.nn import functional as F

from course_lib.rope import apply_rope, rope_table

WIDTH, HEAD_DIM, NOISE = 64, 32, 0.5
STEPS, BATCH, RATE = 600, 32, 1e-2
DISTANCES = (16, 64, 128, 192, 240, 272, 320, 384, 512, 640, 768, 896, 1000)


class FindingHead(nn.Module):
    """The scores of the last token's query with the keys of all tokens before it."""

    def __init__(self, generator):
        super().__init__()
        self.q, self.k = (nn.Parameter(torch.randn(WIDTH, HEAD_DIM, generator=generator) / WIDTH**0.5)
                          for _ in "qk")

    def forward(self, x, cos, sin):
        last = torch.tensor([x.shape[1] - 1])
        q = apply_rope(x[:, None, -1:] @ self.q, cos, sin, positions=last)
        k = apply_rope(x[:, None, :-1] @ self.k, cos, sin)
        return (q @ k.transpose(-2, -1))[:, 0, 0] / HEAD_DIM**0.5

    def use_of_pairs(self):
        """How large the two projections make each pair: (HEAD_DIM / 2,), adding up to 1."""
        size = (self.q.norm(dim=0) * self.k.norm(dim=0)).view(-1, 2).sum(1)
        return size / size.sum()


def needle(batch, n, generator, distance=None):
    """x (batch, n, WIDTH), and the place of the token that the last one copies: any, or at distance."""
    x = torch.randn(batch, n, WIDTH, generator=generator)
    place = (torch.randint(n - 1, (batch,), generator=generator) if distance is None
             else torch.full((batch,), n - 1 - distance))
    noise = NOISE * torch.randn(batch, WIDTH, generator=generator)
    x[:, -1] = (x[torch.arange(batch), place] + noise) / (1 + NOISE**2) ** 0.5
    return x, place


def trained_head(seed, n):
    generator = torch.Generator().manual_seed(seed)
    head, table = FindingHead(generator), rope_table(n, HEAD_DIM)
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        x, place = needle(BATCH, n, generator)
        optimizer.zero_grad()
        F.cross_entropy(head(x, *table), place).backward()
        optimizer.step()
    return head


@torch.no_grad()
def found(head, table, n, distance, window=None, draws=256):
    """The share of texts of n tokens whose needle has the largest score (of the last `window` tokens)."""
    x, place = needle(draws, n, torch.Generator().manual_seed(1000), distance)
    scores = head(x, *table)
    if window is not None:
        scores[:, :-(window - 1)] = -torch.inf       # the last token itself is one of the window
    return round((scores.argmax(-1) == place).double().mean().item(), 3)


def study(rules, trained, longer, seeds):
    """rules {name: scaling}. -> what is measured, for data/rope_study.json."""
    tables = {"a longer table": rope_table(longer, HEAD_DIM)}
    tables |= {name: rope_table(longer, HEAD_DIM, scaling=scaling) for name, scaling in rules.items()}
    rows, use = {}, []
    for seed in range(seeds):
        head = trained_head(seed, trained)
        use.append([round(share, 4) for share in head.use_of_pairs().tolist()])
        for name, table in tables.items():
            rows.setdefault(name, []).append([found(head, table, longer, distance) for distance in DISTANCES])
        rows.setdefault(f"window of {trained}", []).append(
            [found(head, tables["a longer table"], longer, distance, window=trained)
             for distance in DISTANCES])
        print(*(f"needle, seed {seed}, {name:28s} {row[-1]}" for name, row in rows.items()),
              sep="\n", flush=True)
    return {"trained_length": trained, "length": longer, "steps": STEPS, "seeds": list(range(seeds)),
            "distances": DISTANCES,
            "score": "share of 256 texts per distance in which the needle has the largest score",
            "rules": rows, "use_of_pairs": use}
