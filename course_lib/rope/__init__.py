"""Chapter 2: rotary positions."""
from .kernels import RUNGS, rope_kernel
from .layer import RoPEAttention
from .other_positions import alibi_bias, axes_table, sinusoidal_table
from .rotation import apply_rope, interleaved_to_half, rope_frequencies, rope_table
from .scaling import interpolate, llama3, ntk_aware, ntk_base, rescale, yarn, yarn_magnitude
