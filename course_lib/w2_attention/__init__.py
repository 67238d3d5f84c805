"""Chapter 9: each token is a Gaussian N(mu, diag(sigma^2)), a score minus a squared W2 distance.

    distance      of two Gaussians; of diagonal ones W2^2 = |mu_a - mu_b|^2 + |sigma_a - sigma_b|^2
    scores        minus W2^2 over tau, and the same as dot products
    forms         w2_attention: five forms of one answer
    layer, block  attention and a transformer block as modules
    kernels       the rungs of kernels/w2_attention.cu"""
from .block import RotaryEmbedding, W2Config, W2TransformerBlock
from .distance import gaussian_overlap, gaussian_w2, w2_distance
from .forms import w2_attention
from .kernels import w2_attention_kernel, w2_flash_attention
from .layer import W2Attention
from .scores import EPS, augment, w2_scores

__all__ = ["EPS", "RotaryEmbedding", "W2Attention", "W2Config", "W2TransformerBlock", "augment",
           "gaussian_overlap", "gaussian_w2", "w2_attention", "w2_attention_kernel", "w2_distance",
           "w2_flash_attention", "w2_scores"]
