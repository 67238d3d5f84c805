"""What chapter 9's audit counts of memory: the bytes that autograd keeps for backward, form by form."""
import torch
from torch.nn import functional as F

from course_lib.attention import scaled_dot_product_attention
from course_lib.studies import w2_audit_public as public
from course_lib.studies.w2_audit_models import AuditModel, attend
from course_lib.studies.study import parameters
from course_lib.w2_attention import gaussian_overlap, w2_attention


def saved_bytes(function):
    """What autograd keeps for the backward pass of function(), in bytes: each storage once, no parameters."""
    storages, kept = {}, []

    def pack(x):
        if not isinstance(x, torch.nn.Parameter):
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            kept.append(x)      # a storage that is freed could lend its address to the next
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        function()
    return sum(storages.values())


ATTENTION_FORMS = ("softmax, direct", "softmax, fused",
                   "W2, direct", "W2, expanded", "W2, augmented", "W2, fused",
                   "overlap", "scalar", "separable")


def every_pair_at_once(mu_q, sigma_q, mu_k, sigma_k):
    """The overlap as its commit computes it: (batch, heads, n, m, head_dim) numbers before the sum."""
    return gaussian_overlap(mu_q[..., :, None, :], sigma_q[..., :, None, :],
                            mu_k[..., None, :, :], sigma_k[..., None, :, :])


def memory_bytes(form, n, heads=4, head_dim=16):
    """Bytes kept for backward by one attention layer, from q, k, v on, for one sequence of n tokens."""
    rand = lambda: torch.rand(1, heads, n, head_dim, requires_grad=True)
    mu_q, sigma_q, mu_k, sigma_k, v = (rand() for _ in range(5))
    name, _, how = form.partition(", ")
    if form not in ATTENTION_FORMS:
        raise ValueError(f"form must be one of {', '.join(ATTENTION_FORMS)}; got {form!r}")
    if form == "softmax, direct":
        return saved_bytes(lambda: scaled_dot_product_attention(mu_q, mu_k, v, causal=True))
    if form == "softmax, fused":
        return saved_bytes(lambda: F.scaled_dot_product_attention(mu_q, mu_k, v, is_causal=True))
    if form == "W2, fused":
        q, k = torch.cat([mu_q, sigma_q], -1), torch.cat([mu_k, sigma_k], -1)
        return saved_bytes(lambda: attend(q, k, v, torch.ones(heads), "w2"))
    if name in public.SCORES:
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        score = every_pair_at_once if name == "overlap" else public.SCORES[name]
        gaussians = mu_q, sigma_q, mu_k, sigma_k
        return saved_bytes(lambda: score(*gaussians).masked_fill(later, -torch.inf).softmax(-1) @ v)
    return saved_bytes(lambda: w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, 1.0, causal=True, form=how))


def model_bytes(mechanism, width, n=512):
    """One step on one sequence of n tokens: weights, gradients, AdamW's moments, and what backward keeps."""
    model = AuditModel(1024, 1024, width, 4 * width, 4, mechanism)
    tokens = torch.zeros(1, n, dtype=torch.long)
    kept = saved_bytes(lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
    return {"mechanism": mechanism, "width": width, "n": n, "state": 16 * parameters(model), "kept": kept}


def memory_section():
    lengths, models = (64, 128, 256, 512), [(name, width) for name in ("softmax", "w2") for width in (64, 96)]
    return {"attention": {form: {str(n): memory_bytes(form, n) for n in lengths} for form in ATTENTION_FORMS},
            "model": [model_bytes(*arm) for arm in models]}


