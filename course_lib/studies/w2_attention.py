"""`python -m course_lib w2-study`: W2 attention in the small language model, as it is and after training on.

Writes data/w2_study.json. The weights of data/tiny_lm.safetensors learned dot products. Two changes, each
trained on for the same steps on the same batches: points (the score is a distance of the trained queries and
keys, no new parameters), and Gaussians (chapter 9's layer: means from the trained queries and keys, widths
that start almost equal, one temperature per head)."""
import math

import torch
from torch import nn

from course_lib import language_model
from .tuning import tuning_study
from course_lib.w2_attention import W2Attention, w2_attention

START_STD = 0.02        # exactly equal widths would stay equal: a squared difference has no slope at 0


def point_attention(q, k, v):
    """W2 attention of Gaussians of width 0, with the temperature that gives q.k its usual scale."""
    tau = 2 * math.sqrt(q.shape[-1])
    return w2_attention(q, torch.zeros_like(q), k, torch.zeros_like(k), v, tau, causal=True, form="augmented")


class GaussianAttention(nn.Module):
    """W2Attention in the place of a trained SelfAttention; means, values and output begin as they were."""

    def __init__(self, trained, d_model):
        super().__init__()
        tau = 2 * math.sqrt(d_model / trained.n_heads)
        self.layer = W2Attention(d_model, trained.n_heads, tau, form="augmented")
        with torch.no_grad():
            for own, old in ((self.layer.q_proj, trained.q_proj), (self.layer.k_proj, trained.k_proj)):
                own.weight[:d_model] = old.weight
                nn.init.normal_(own.weight[d_model:], std=START_STD)
            self.layer.v_proj.weight.copy_(trained.v_proj.weight)
            self.layer.out_proj.weight.copy_(trained.out_proj.weight)

    def forward(self, x, rope, cache=None):
        return self.layer(x, rope)


def with_mechanism(name, seed=0):
    """The small model with "softmax", "points" or "gaussians", and its tokenizer."""
    model, tokenizer = language_model.pretrained()
    if name == "points":
        model.set_attention(point_attention)
    elif name == "gaussians":
        torch.manual_seed(seed)
        for block in model.blocks:
            block.attention = GaussianAttention(block.attention, model.config.d_model)
    return model, tokenizer


MECHANISMS = ("softmax", "points", "gaussians")


def study_command(argv):
    """python -m course_lib w2-study: W2 attention in the small model, before and after tuning."""
    return tuning_study(argv, "w2-study", study_command.__doc__,
                        {name: lambda seed, name=name: with_mechanism(name, seed)[0] for name in MECHANISMS})
