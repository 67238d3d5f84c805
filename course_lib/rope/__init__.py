"""Chapter 2: rotary positions."""
from .rotation import (RUNGS, RoPEAttention, alibi_bias, apply_rope, check_rope, interleaved_to_half,
                       rope_kernel, rope_table)
from .scaling import RULES, interpolate, llama3, ntk_aware, rescale, yarn, yarn_magnitude
