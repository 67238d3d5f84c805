"""Honest answers, really different ones: each student decides alone, at each place where one can decide.

A task is a list of places; each place a list of ways. The first way is the one that most would take: it has half of the
weight. `answers(rng)` is one student's set."""
import random
import re

TASKS = {
    "softmax": [
        ["", "import torch\n"],
        ["def softmax(x):\n", "def softmax(scores):\n    x = scores\n", "def softmax(x, dim=-1):\n", "def softmax(x: torch.Tensor) -> torch.Tensor:\n"],
        ["    m = x.max(dim=-1, keepdim=True).values\n", "    m = x.amax(-1, keepdim=True)\n", "    m = torch.amax(x, dim=-1, keepdim=True)\n",
         "    m, _ = torch.max(x, -1, keepdim=True)\n", "    m = x.amax(-1)[..., None]\n", "    m = x.max(-1)[0].unsqueeze(-1)\n"],
        ["    e = torch.exp(x - m)\n", "    e = (x - m).exp()\n", "    x = x - m\n    e = torch.exp(x)\n", "    e = math.e ** (x - m)\n"],
        ["    return e / e.sum(dim=-1, keepdim=True)\n", "    s = e.sum(-1, keepdim=True)\n    return e / s\n", "    total = torch.sum(e, dim=-1, keepdim=True)\n    return e / total\n",
         "    return e / e.sum(-1)[..., None]\n", "    return torch.div(e, e.sum(-1, keepdim=True))\n", "    e /= e.sum(-1, keepdim=True)\n    return e\n"],
    ],
    "causal_mask": [
        ["def causal_mask(n, m):\n"],
        ["    return torch.ones(n, m, dtype=torch.bool).tril(m - n)\n", "    return torch.tril(torch.ones(n, m, dtype=torch.bool), diagonal=m - n)\n",
         "    i = torch.arange(n)[:, None]\n    j = torch.arange(m)[None, :]\n    return j <= i + m - n\n",
         "    rows = torch.arange(n) + (m - n)\n    return torch.arange(m) <= rows.unsqueeze(1)\n",
         "    mask = torch.zeros(n, m, dtype=torch.bool)\n    for i in range(n):\n        mask[i, :i + m - n + 1] = True\n    return mask\n",
         "    mask = torch.ones(n, m).bool()\n    return ~torch.triu(mask, m - n + 1)\n",
         "    return torch.tensor([[j - i <= m - n for j in range(m)] for i in range(n)])\n"]],
    "attend": [
        ["def attend(q, k, v):\n", "def attend(q, k, v):\n    d = q.shape[-1]\n", "def attend(q, k, v):\n    *_, n, d = q.shape\n"],
        ["    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n", "    scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5\n",
         "    scores = torch.einsum('...nd,...md->...nm', q, k) * q.shape[-1] ** -0.5\n", "    q = q / math.sqrt(q.shape[-1])\n    scores = q @ k.mT\n",
         "    scale = 1 / math.sqrt(k.shape[-1])\n    scores = (q @ k.mT) * scale\n"],
        ["    weights = torch.softmax(scores, dim=-1)\n    return weights @ v\n", "    return torch.softmax(scores, -1) @ v\n", "    p = scores.softmax(dim=-1)\n    return torch.matmul(p, v)\n",
         "    w = torch.nn.functional.softmax(scores, dim=-1)\n    return torch.einsum('...nm,...md->...nd', w, v)\n",
         "    e = torch.exp(scores - scores.amax(-1, keepdim=True))\n    return (e @ v) / e.sum(-1, keepdim=True)\n"],
    ],
    "repeat_kv": [
        ["def repeat_kv(x, group):\n"],
        ["    return x.repeat_interleave(group, dim=1)\n", "    return torch.repeat_interleave(x, group, 1)\n", "    b, h, n, d = x.shape\n    return x[:, :, None].expand(b, h, group, n, d).reshape(b, h * group, n, d)\n",
         "    heads = []\n    for i in range(x.shape[1]):\n        for _ in range(group):\n            heads.append(x[:, i])\n    return torch.stack(heads, dim=1)\n",
         "    return x[:, [i // group for i in range(x.shape[1] * group)]]\n", "    index = torch.arange(x.shape[1] * group) // group\n    return x[:, index]\n",
         "    return x.unsqueeze(2).repeat(1, 1, group, 1, 1).flatten(1, 2)\n", "    return torch.stack([x] * group, dim=2).flatten(1, 2)\n"],
    ],
    "norm": [
        ["def norm(x, weight, eps=1e-5):\n", "def norm(x, weight, eps=1e-5):\n    # root mean square\n", "def norm(x, weight, eps=0.00001):\n"],
        ["    rms = torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)\n", "    rms = ((x ** 2).mean(dim=-1, keepdim=True) + eps).sqrt()\n", "    ms = (x * x).sum(-1, keepdim=True) / x.shape[-1]\n    rms = torch.sqrt(ms + eps)\n",
         "    rms = (torch.mean(x.square(), dim=-1, keepdim=True) + eps) ** 0.5\n", "    rms = 1 / torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)\n"],
        ["    return x / rms * weight\n", "    return weight * (x / rms)\n", "    out = x / rms\n    return out * weight\n", "    return x.div(rms).mul(weight)\n"],
    ],
    "loss": [
        ["def loss(logits, target):\n"],
        ["    logp = torch.log_softmax(logits, -1)\n", "    logp = logits - torch.logsumexp(logits, -1, keepdim=True)\n", "    logp = logits.log_softmax(dim=-1)\n",
         "    logp = torch.softmax(logits, -1).log()\n", "    z = logits - logits.amax(-1, keepdim=True)\n    logp = z - z.exp().sum(-1, keepdim=True).log()\n"],
        ["    return -logp.gather(-1, target[:, None]).mean()\n", "    return -logp[torch.arange(len(target)), target].mean()\n", "    picked = torch.gather(logp, 1, target.unsqueeze(1))\n    return -picked.mean()\n",
         "    total = 0\n    for i, t in enumerate(target):\n        total = total - logp[i, t]\n    return total / len(target)\n",
         "    hot = torch.nn.functional.one_hot(target, logits.shape[-1])\n    return -(logp * hot).sum(-1).mean()\n"],
    ]}


def answers(rng: random.Random) -> dict[str, str]:
    """{task: source} of one honest student."""
    return {task: "".join(rng.choices(ways, [len(ways) - 1 or 1] + [1] * (len(ways) - 1))[0]
                          for ways in places) for task, places in TASKS.items()}


def disguised(source: str, rng: random.Random) -> str:
    """The same answer with other names, a comment, and a statement that does nothing."""
    for name in ("weights", "scores", "mask", "total", "logp", "rms", "e", "rows", "heads", "index"):
        if f"    {name} = " in source:
            source = re.sub(rf"(?<![.'])\b{name}\b(?!\(| *=[-\w])", f"{name}_{rng.randrange(99)}", source)
    head, _, rest = source.partition(":\n")
    return head + ":\n    # my own\n    pass\n" + rest
