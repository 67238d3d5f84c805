"""`python -m course_lib multi-token-study`: a head that predicts one token further, as a draft.

Writes data/multi_token_study.json and the head of seed 0, data/multi_token_head.safetensors. The model of
data/tiny_lm.safetensors does not change. Beside the head, trained for one prediction and for three in a row:
the same head that never sees the model's states, and drafts that were not trained with the model."""
import copy

import torch
from torch import nn

from course_lib import language_model
from course_lib.datasets import DATA
from course_lib.kv_cache import MultiTokenHead, dequantize, generate_speculative, quantize
from course_lib.language_model import Block, random_batch, save_checkpoint
from .attention_table import parameters
from .study import plays, study

N_DRAFT, PROMPT, NEW, CONTEXT_OF_COUNTS = 5, 64, 96, 3
HEAD = DATA / "multi_token_head.safetensors"


class BlindHead(MultiTokenHead):
    """The control: as many parameters, the same tokens, no state of the model."""

    def forward(self, model, states, tokens, cache=None):
        return super().forward(model, torch.zeros_like(states), tokens, cache)


class Counts:
    """What followed the last three characters in the training plays, as a draft model."""

    def __init__(self, text, vocabulary, order=CONTEXT_OF_COUNTS):
        self.blocks, self.order, self.vocabulary = [None], order, vocabulary
        context = self.numbers(text.long().unfold(0, order + 1, 1)[:, :order])
        pairs = context * vocabulary + text[order:].long()
        counts = torch.bincount(pairs, minlength=vocabulary ** (order + 1)).view(-1, vocabulary)
        rare = torch.bincount(text.long(), minlength=vocabulary).float()
        self.logits = (counts + rare / rare.sum()).log()

    def numbers(self, windows):
        return windows @ self.vocabulary ** torch.arange(self.order)

    def __call__(self, tokens, caches):
        row = tokens[:, None, :, None].float()
        caches[0].append(row, row)
        text = nn.functional.pad(caches[0].view()[0][0, 0, :, 0].long(), (self.order - 1, 0))
        return self.logits[self.numbers(text.unfold(0, self.order, 1))[-tokens.shape[1]:]][None]


def train_head(kind, model, text, seed, steps, depth):
    """One head, from batches of 8 windows of the model's context."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    head = kind(Block(model.config), model.config.d_model)
    for matrix in (p for p in head.parameters() if p.dim() == 2):
        nn.init.normal_(matrix, std=0.02)
    optimizer = language_model.make_optimizer(head, 2e-3, 0.1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = language_model.learning_rate(step, steps, 2e-3, 50)
        tokens, targets = random_batch(text, 8, model.config.context, generator)
        loss = head.loss(model, torch.cat([tokens, targets[:, -1:]], 1), depth)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
    return head.eval()


def untrained_drafts(model, text):
    """{name: (draft, share of the model's weights that one drafted token reads)}"""
    half, four_bits = copy.deepcopy(model), copy.deepcopy(model)
    half.blocks = half.blocks[:2]
    for weight in four_bits.parameters():
        if weight.dim() == 2:
            weight.data = dequantize(quantize(weight.data, 4, -1), 4)
    return {"lower half of the model": (half, parameters(half) / parameters(model)),
            "the model in 4 bits": (four_bits, 0.25),
            "counts of 4 characters": (Counts(text, model.config.vocab_size), 0.0)}


def accepted(model, draft, prompts, seed):
    """For every prompt, (drafted, kept) of each pass of the model."""
    passes = []
    for number, prompt in enumerate(prompts):
        kept, generator = [], torch.Generator().manual_seed(1000 * seed + number)
        generate_speculative(model, draft, prompt[None], NEW, N_DRAFT, 1.0, generator=generator, kept=kept)
        left, rounds = NEW, []
        for n in kept:
            rounds.append((min(N_DRAFT, left - 1), n))
            left -= n + 1
        passes.append(rounds)
    return passes


def summary(passes, share):
    """Acceptance by depth with its counts; tokens per pass with half of the 95 % interval over prompts."""
    rounds, by_depth = [r for prompt in passes for r in prompt], []
    for depth in range(1, N_DRAFT + 1):
        asked = [kept >= depth for drafted, kept in rounds if drafted >= depth and kept >= depth - 1]
        by_depth.append([round(sum(asked) / len(asked), 4), len(asked)] if asked else [None, 0])
    per_prompt = torch.tensor([NEW / len(prompt) for prompt in passes])
    mean, half = per_prompt.mean(), 1.96 * per_prompt.std() / len(per_prompt) ** 0.5
    return {"accepted_by_depth": by_depth, "tokens_per_pass": [round(float(mean), 3), round(float(half), 3)],
            "weights_read_per_token": round(float((1 + N_DRAFT * share) / mean), 3)}


def measure(args):
    torch.set_num_threads(1)
    model, _ = language_model.pretrained()
    text, validation = plays()
    starts = torch.linspace(0, len(validation) - PROMPT, args.prompts).long()
    prompts = validation[starts[:, None] + torch.arange(PROMPT)].long()
    heads = {"head": (MultiTokenHead, 1), "head, trained three deep": (MultiTokenHead, 3),
             "head without the model's states": (BlindHead, 1)}
    rows = {}
    for name, (kind, depth) in heads.items():
        passes = []
        for seed in range(args.seeds):
            head = train_head(kind, model, text, seed, args.steps, depth)
            passes += accepted(model, head, prompts, seed)
            print(name, seed, summary(passes[-args.prompts:], 0), flush=True)
            if seed == 0 and depth == 3 and args.out.parent == DATA:
                half = {key: x.half() for key, x in head.state_dict().items()}
                save_checkpoint(HEAD, half, {"command": "python -m course_lib multi-token-study", "seed": 0})
        share = (parameters(head) + model.embedding.weight.numel()) / parameters(model)
        rows[name] = {"share": round(share, 3), **summary(passes, share)}
    for name, (draft, share) in untrained_drafts(model, text).items():
        passes = [p for seed in range(args.seeds) for p in accepted(model, draft, prompts, seed)]
        rows[name] = {"share": round(share, 3), **summary(passes, share)}
        print(name, rows[name], flush=True)
    return {"steps": args.steps, "seeds": args.seeds, "prompts": args.prompts, "drafted": N_DRAFT,
            "new": NEW, "temperature": 1.0, "rows": rows,
            "accepted_by_depth": "the share of drafted tokens kept at depth 1 to 5, where all before were "
                                 "kept, and of how many",
            "tokens_per_pass": "of the model: mean over prompts and seeds, and half of the 95 % interval",
            "share": "of the model's weights that a drafted token reads"}


def study_command(argv):
    """python -m course_lib multi-token-study: acceptance of a multi-token head, by depth."""
    return study(argv, "multi-token-study", study_command.__doc__, measure, steps=300, seeds=3, prompts=24)
