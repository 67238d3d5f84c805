"""`python -m course_lib linear-study`: linear attention in the small model, and after training on.

Writes data/linear_study.json. The weights of data/tiny_lm.safetensors learned softmax attention; another
attention takes its place, without a parameter more, and each trains on for the same steps and batches."""
from functools import partial

import torch
from torch.nn import functional as F

from course_lib import language_model
from course_lib.linear_attention import delta_rule, feature_map, linear_attention
from course_lib.rope import apply_rope
from .tuning import tuning_study


def elu_attention(q, k, v):
    return linear_attention(q, k, v, "elu", causal=True)


def delta_attention(q, k, v):
    """Keys and queries of length 1 and beta 1: each token replaces what the state returned for its key."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return delta_rule(q, k, v, torch.ones_like(k[..., 0]), form="chunked", chunk_size=32)


class RotatedFeatures:
    """elu + 1 with the rotation after the feature map, so that a product depends on the distance alone.

    The denominator is not rotated: turned features may be negative, it must stay above 0 (Su et al., 2021).
    """

    def rotate(self, x, rope, positions=None):
        self.rope = rope
        return x

    def attend(self, q, k, v):
        q, k = (feature_map("elu")(x) for x in (q, k))
        sums = partial(linear_attention, feature_map="identity", normalise=False, causal=True)
        turned = [apply_rope(x, *(table[:x.shape[2]] for table in self.rope)) for x in (q, k)]
        return sums(*turned, v) / sums(q, k, torch.ones_like(v[..., :1]))


MECHANISMS = {"softmax": language_model.softmax_attention, "elu + 1": elu_attention,
              "elu + 1, rotated after": RotatedFeatures, "delta rule": delta_attention}


def with_attention(attend):
    """The pretrained model with this attention in every layer."""
    model, _ = language_model.pretrained()
    if attend is RotatedFeatures:
        for block in model.blocks:
            layer = RotatedFeatures()
            block.attention.rotate, block.attention.attend = layer.rotate, layer.attend
    else:
        model.set_attention(attend)
    return model


def study_command(argv):
    """python -m course_lib linear-study: linear attention and the delta rule, before and after tuning."""
    makers = {name: lambda seed, attend=attend: with_attention(attend) for name, attend in MECHANISMS.items()}
    return tuning_study(argv, "linear-study", study_command.__doc__, makers)
