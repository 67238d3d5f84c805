"""`python -m course_lib result`: the course's loop beside a plain one, on the same text and tokens.

The plain one is written the way a first language model is written: learned positions, LayerNorm, a GELU
feed-forward four times as wide, biases, torch's own AdamW, one loop. Its recipe: 4 layers, 4 heads, width
128, block 64, batch 12, 2000 steps, learning rate 1e-3 with 100 steps of warm-up and a cosine down to a
tenth. Writes data/result.json."""
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

from course_lib import datasets
from course_lib.language_model import CharTokenizer, Config, LanguageModel, evaluate, train
from .attention_table import SPEED, parameters
from .study import plays, study

BATCH, BLOCK = 12, 64
OUR_PEAK, PLAIN_PEAK = 3e-3, 1e-3


class PlainBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv_proj(self.norm_1(x)).view(b, n, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(heads.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainModel(nn.Module):
    def __init__(self, vocab_size, n_layers=4, n_heads=4, d_model=128, context=BLOCK):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(context, d_model)
        self.blocks = nn.Sequential(*(PlainBlock(d_model, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d_model)
        self.n_layers = n_layers
        self.apply(self._initialize)

    def _initialize(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, PlainBlock):
            for last in (module.out_proj, module.down):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * self.n_layers))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

    def loss(self, tokens, targets):
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


def plain_steps(model, data, steps, peak, seed=0, warmup=100):
    """The plain loop; yields after every step."""
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(steps):
        progress = (step - warmup) / max(1, steps - warmup)
        cosine = peak * (0.55 + 0.45 * math.cos(math.pi * progress))
        rate = peak * (step + 1) / warmup if step < warmup else cosine
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(data) - BLOCK, (BATCH,))
        tokens = torch.stack([data[i:i + BLOCK] for i in starts])
        targets = torch.stack([data[i + 1:i + 1 + BLOCK] for i in starts])
        optimizer.zero_grad()
        loss = model.loss(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


def our_model(vocab_size):
    return LanguageModel(Config(vocab_size, context=BLOCK, d_hidden=192))


def speeds(data, vocab_size, rounds=5, steps=20):
    """Training tokens per second of CPU time, one thread, of each loop: the best of several rounds."""
    best = {"ours": 0.0, "plain": 0.0}
    for _ in range(rounds):
        for name in best:
            model, start = (our_model if name == "ours" else PlainModel)(vocab_size), time.process_time()
            if name == "ours":
                train(model, data, steps=steps, batch=BATCH, block=BLOCK, peak=OUR_PEAK, check_every=steps)
            else:
                list(plain_steps(model, data, steps, PLAIN_PEAK))
            best[name] = max(best[name], steps * BATCH * BLOCK / (time.process_time() - start))
    return {name: round(speed, -2) for name, speed in best.items()}


def measure(args):
    torch.set_num_threads(1)
    tokenizer = CharTokenizer.from_text(datasets.shakespeare("train"))
    data, validation = plays(tokenizer)
    rows = {"ours": {"peak": OUR_PEAK}, "plain": {"peak": PLAIN_PEAK},
            "plain, our learning rate": {"peak": OUR_PEAK}}
    for name, row in rows.items():
        row["losses"] = []
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            model = (our_model if name == "ours" else PlainModel)(len(tokenizer))
            row["parameters"] = parameters(model)
            if name == "ours":
                train(model, data, steps=args.steps, batch=BATCH, block=BLOCK, peak=row["peak"], seed=seed,
                      check_every=args.steps)
            else:
                list(plain_steps(model, data, args.steps, row["peak"], seed))
            row["losses"].append(round(evaluate(model, validation, BLOCK), 4))
            print(f"{name:25} seed {seed}  loss {row['losses'][-1]:.4f}", flush=True)
    for name, speed in speeds(data, len(tokenizer)).items():
        rows[name]["tokens_per_second"] = speed
    print(json.dumps(rows, indent=1))
    return {"steps": args.steps, "batch": BATCH, "block": BLOCK,
            "loss": "nats per character, the whole of the validation plays in blocks of 64",
            "tokens_per_second": SPEED, "rows": rows}


def result_command(argv):
    """python -m course_lib result: our loop and a plain one, loss and tokens per second."""
    return study(argv, "result", result_command.__doc__, measure, steps=2000, seeds=1)
