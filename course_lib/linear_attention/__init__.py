"""Chapter 4: attention as a recurrence."""
from .delta import (check_chunk_size, check_for_kernel, delta_rule, delta_rule_kernel, gated_linear_attention,
                    pad_to_chunks, widened)
from .linear import (FEATURE_MAPS, KERNEL_MAPS, LinformerAttention, POSITIVE_PRODUCTS, feature_map,
                     linear_attention, linear_attention_kernel, performer_attention, performer_features,
                     positive_features, taylor_features)
from .tensor_core import choose_segments, fits, run
