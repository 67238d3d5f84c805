"""Distances between Gaussians: what a W2 score is made of, and what it is compared with."""
import torch
from torch import Tensor

from course_lib.checks.w2_attention import check_any_gaussians, check_pair


def w2_distance(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor) -> Tensor:
    """Wasserstein-2 distance of diagonal Gaussians, over the last axis; the others broadcast."""
    check_pair(mu_a, sigma_a, mu_b, sigma_b)
    squared = (mu_a - mu_b).square().sum(-1) + (sigma_a - sigma_b).square().sum(-1)
    # The root has an infinite slope at 0: equal Gaussians would give a gradient of NaN.
    apart = squared > 0
    return torch.where(apart, squared, 1.0).sqrt() * apart


def gaussian_w2(mean_a: Tensor, cov_a: Tensor, mean_b: Tensor, cov_b: Tensor) -> Tensor:
    """Wasserstein-2 distance of any two Gaussians, means (..., d), covariances (..., d, d):

        W2^2 = |mean_a - mean_b|^2 + tr(A + B - 2 (A^1/2 B A^1/2)^1/2)

    For measuring, not for training: the gradient of a matrix root is NaN where two eigenvalues are equal."""
    check_any_gaussians(mean_a, cov_a, mean_b, cov_b)
    root_a = _matrix_root(cov_a)
    cross = _matrix_root(root_a @ cov_b @ root_a)
    trace = (cov_a + cov_b - 2 * cross).diagonal(dim1=-2, dim2=-1).sum(-1)
    return ((mean_a - mean_b).square().sum(-1) + trace).clamp_min(0).sqrt()


def gaussian_overlap(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor) -> Tensor:
    """-1/2 (sum (mu_a - mu_b)^2 / (sigma_a + sigma_b) + sum log(sigma_a + sigma_b)), sigma as a variance.

    Up to a constant, the logarithm of the integral of the product of two densities. It is not a distance;
    the public W2Attn scored with it in commit 1f86662, behind its published losses."""
    check_pair(mu_a, sigma_a, mu_b, sigma_b)
    total = sigma_a + sigma_b
    return -0.5 * ((mu_a - mu_b).square() / total + total.log()).sum(-1)


def _matrix_root(matrix: Tensor) -> Tensor:
    """The symmetric root of a symmetric positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.transpose(-2, -1)) / 2)
    return vectors * values.clamp_min(0).sqrt()[..., None, :] @ vectors.transpose(-2, -1)
