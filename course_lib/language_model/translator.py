"""An encoder reads a date in any spelling, a decoder writes it as ISO. Cross-attention is chapter 1's.

source (batch, m) and target (batch, n) are characters as numbers, 0 is padding; x is (batch, n, d_model).
`python -m course_lib dates` trains data/dates.safetensors and measures it on other days."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

from course_lib import datasets
from course_lib.attention import MultiHeadAttention
from course_lib.checks.language_model import check_spellings, check_translation
from course_lib.rope import RoPEAttention, rope_table
from .checkpoints import fit_state, load_checkpoint, save_checkpoint
from .layers import RMSNorm, SwiGLU
from .training import train

# 0 = padding, 1 = begin, 2 = end of a target
LETTERS = {c for month in datasets.MONTHS for c in month + month.upper()} | set("thrdsnofe")
CHARACTERS = "\0\1\2" + "".join(sorted(LETTERS | set(" .,/-0123456789")))
BEGIN, END = 1, 2
FILE = datasets.DATA / "dates.safetensors"


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_hidden):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = RMSNorm(d_model), RMSNorm(d_model)
        self.attention = RoPEAttention(d_model, n_heads)
        self.feed_forward = SwiGLU(d_model, d_hidden)

    def forward(self, x, rope, mask=None):
        """mask: causal in a decoder; in an encoder True where x is text, not padding."""
        y = self.attention_norm(x)
        x = x + self.attention(y, y, y, rope, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class DecoderBlock(EncoderBlock):
    """Attends to the target so far, then to the source."""

    def __init__(self, d_model, n_heads, d_hidden):
        super().__init__(d_model, n_heads, d_hidden)
        self.cross_norm = RMSNorm(d_model)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)

    def forward(self, x, rope, mask, context, context_mask):
        y = self.attention_norm(x)
        x = x + self.attention(y, y, y, rope, mask)
        x = x + self.cross_attention(self.cross_norm(x), context, mask=context_mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class EncoderDecoder(nn.Module):
    """One embedding for source and target, which is also the read-out."""

    def __init__(self, vocab_size, n_layers=2, n_heads=4, d_model=64, d_hidden=128, context=32):
        super().__init__()
        self.sizes = {"vocab_size": vocab_size, "n_layers": n_layers, "n_heads": n_heads, "d_model": d_model,
                      "d_hidden": d_hidden, "context": context}
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, n_heads, d_hidden) for _ in range(n_layers))
        self.decoder = nn.ModuleList(DecoderBlock(d_model, n_heads, d_hidden) for _ in range(n_layers))
        self.encoder_norm, self.decoder_norm = RMSNorm(d_model), RMSNorm(d_model)
        cos, sin = rope_table(context, d_model // n_heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def encode(self, source):
        """source (b, m) -> the decoder's context (b, m, d_model), and a mask (b, 1, 1, m), True for text."""
        rope, mask = self._rope("source", source), (source != 0)[:, None, None]
        x = self.embedding(source)
        for block in self.encoder:
            x = block(x, rope, mask)
        return self.encoder_norm(x), mask

    def decode(self, target, context, context_mask):
        """target (b, n) -> logits of the next character at each position (b, n, vocab_size)."""
        rope, n = self._rope("target", target), target.shape[1]
        x = self.embedding(target)
        causal = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        for block in self.decoder:
            x = block(x, rope, causal, context, context_mask)
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def forward(self, source, target):
        return self.decode(target, *self.encode(source))

    def loss(self, tokens, targets):
        """tokens: source and target concatenated, as by `batch_of`; targets as long as the target part."""
        n = targets.shape[1]
        return F.cross_entropy(self(tokens[:, :-n], tokens[:, -n:]).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def translate(self, texts: list) -> list:
        """The likeliest character at each position, until END."""
        source = encode(texts)
        target, context = torch.full((len(source), 1), BEGIN), self.encode(source)
        for _ in range(11):
            target = torch.cat([target, self.decode(target, *context)[:, -1:].argmax(-1)], 1)
        written = ("".join(CHARACTERS[t] for t in row) for row in target[:, 1:].tolist())
        return [text.split(CHARACTERS[END])[0] for text in written]

    @torch.no_grad()
    def looks_at(self, text: str, written: str) -> torch.Tensor:
        """(n_layers, n_heads, n, m): the weights with which each character written reads the source."""
        context, mask = self.encode(encode([text]))
        target = torch.cat([torch.tensor([[BEGIN]]), encode([written])], 1)[:, :-1]
        kept = []
        hooks = [block.cross_attention.register_forward_pre_hook(
            lambda layer, args, kwargs: kept.append((layer, args[0])), with_kwargs=True)
            for block in self.decoder]
        self.decode(target, context, mask)
        for hook in hooks:
            hook.remove()
        return torch.cat([layer.forward(x, context, mask=mask, return_weights=True)[1] for layer, x in kept])

    def _rope(self, name, tokens):
        check_translation(name, tokens, len(self.cos))
        return self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]]


def encode(texts: list) -> torch.Tensor:
    """(len(texts), longest) of int64, padded with 0."""
    check_spellings(texts, CHARACTERS[3:])
    rows = [torch.tensor([CHARACTERS.index(c) for c in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def batch_of(pairs):
    """[(spelling, iso)] -> tokens: spellings, then BEGIN and ISO dates; targets: the ISO dates and END."""
    source, target = encode([spelling for spelling, _ in pairs]), encode([iso for _, iso in pairs])
    edge = torch.ones(len(pairs), 1, dtype=torch.long)
    return torch.cat([source, BEGIN * edge, target], 1), torch.cat([target, END * edge], 1)


def draw_dates(batch, generator):
    """A batch for `train`: new pairs from the training days."""
    return batch_of(datasets.dates(batch, seed=int(torch.randint(2**31, (), generator=generator))))


def exact_matches(model, pairs) -> float:
    """The share of dates that are right in every character."""
    written = []
    for i in range(0, len(pairs), 500):
        written += model.translate([spelling for spelling, _ in pairs[i:i + 500]])
    return sum(text == iso for text, (_, iso) in zip(written, pairs)) / len(pairs)


def pretrained() -> EncoderDecoder:
    """The model of data/dates.safetensors. Only notebooks call it."""
    state, about = load_checkpoint(FILE)
    model = EncoderDecoder(**about["sizes"])
    fit_state(model, {name: x.float() for name, x in state.items()}, FILE)
    return model.eval()


def facts() -> dict:
    return load_checkpoint(FILE)[1]


def dates_command(argv):
    """python -m course_lib dates: train the encoder-decoder on dates, measure it on other days."""
    parser = argparse.ArgumentParser(prog="python -m course_lib dates", description=dates_command.__doc__)
    parser.add_argument("--out", default=FILE)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = EncoderDecoder(len(CHARACTERS))
    history = train(model, draw_dates, steps=args.steps, batch=64, block=12, peak=3e-3, seed=args.seed,
                    report=lambda step, loss, _: print(f"step {step:5}  loss {loss:.4f}", flush=True))
    matches = {split: exact_matches(model, datasets.dates(2000, split)) for split in ("validation", "test")}
    save_checkpoint(args.out, {name: x.half() for name, x in model.state_dict().items()},
                    {"sizes": model.sizes, "command": " ".join(["python -m course_lib dates", *argv]),
                     "exact_matches": matches, "loss": round(history[-1][1], 4)})
    told = ", ".join(f"{split} {share:.4f}" for split, share in matches.items())
    print(f"{args.out}: exact matches {told}")
    return 0
