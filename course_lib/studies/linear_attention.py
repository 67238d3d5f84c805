"""`python -m course_lib linear-study`: linear attention in the small language model, as it is and after
training on.

Writes data/linear_study.json. The weights of data/tiny_lm.safetensors learned softmax attention; another
attention is put in its place, without a parameter more, and every model trains on for the same number of
steps on the same batches.
"""
import torch
from torch.nn import functional as F

from course_lib import language_model
from course_lib.linear_attention import delta_rule, linear_attention
from .tuning import tuning_study


def elu_attention(q, k, v):
    return linear_attention(q, k, v, "elu", causal=True)


def delta_attention(q, k, v):
    """Keys and queries of length 1 and beta 1: each token replaces what the state returned for its key."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return delta_rule(q, k, v, torch.ones_like(k[..., 0]), form="chunked", chunk_size=32)


MECHANISMS = {"softmax": language_model.softmax_attention, "elu + 1": elu_attention,
              "delta rule": delta_attention}


def study_command(argv):
    """python -m course_lib linear-study: linear attention and the delta rule in the small model, before and
    after tuning."""
    def maker(attend):
        def make(seed):
            model, _ = language_model.pretrained()
            model.set_attention(attend)
            return model
        return make

    makers = {name: maker(attend) for name, attend in MECHANISMS.items()}
    return tuning_study(argv, "linear-study", study_command.__doc__, makers)
