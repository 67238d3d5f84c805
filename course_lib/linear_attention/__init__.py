"""Chapter 4: attention as a recurrence."""
from .approximations import LinformerAttention, performer_attention, performer_features, positive_features
from .delta import decayed_products, delta_rule, gated_linear_attention
from .kernels import delta_rule_kernel, linear_attention_kernel
from .linear import chunked_form, feature_map, linear_attention, taylor_features
