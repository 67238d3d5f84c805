"""Chapter 2: rotary positions."""
from .kernels import RUNGS, rope_kernel
from .layer import RoPEAttention
from .rotation import alibi_bias, apply_rope, interleaved_to_half, rope_table
from .scaling import interpolate, llama3, ntk_aware, rescale, yarn, yarn_magnitude
