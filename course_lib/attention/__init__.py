"""Chapter 1: softmax(q k^T / sqrt(d)) v, masks, many heads."""
from .functions import (causal_mask, masked_weights, online_softmax, padding_mask,
                        scaled_dot_product_attention, softmax, weighted_sum)
from .kernels import attention_kernel, softmax_kernel
from .layer import MultiHeadAttention
