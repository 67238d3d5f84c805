"""Chapter 1: softmax(QK^T / sqrt(d)) V, masks, many heads."""
from .functions import (C_TYPES, HALF, MOST_BYTES, MultiHeadAttention, ON_CHIP, aligned, attention_kernel,
                        causal_mask, masked_weights, online_softmax, padding_mask,
                        scaled_dot_product_attention, softmax, softmax_kernel, weighted_sum)
