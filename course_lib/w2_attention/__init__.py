"""Chapter 9: the Wasserstein-2 distance as a score."""
from .scores import (EPS, FORMS, RotaryEmbedding, W2Attention, W2Config, W2TransformerBlock, augment,
                     check_gaussians, check_tau, check_values, gaussian_overlap, gaussian_w2, w2_attention,
                     w2_distance, w2_scores)
from .kernels import (LARGEST_HEAD, QUERIES_A_BLOCK, backward_kernels, check_kernel_inputs, forward_kernel,
                      w2_attention_kernel, w2_flash_attention)
