"""Chapter 6, FlashAttention: exact attention in tiles, without the n x n matrix, forward and backward.

    tiles         the online softmax as an associative operation; the algorithm in plain PyTorch
    orders        which tiles a causal mask leaves, and the bytes that each order of the loops moves
    kernels       every rung of the ladder as a function of tensors; tensor_core is its last rung
    op            flash_attention: the kernels as one differentiable function
    sinks         the same with a learned sink for each head
    packed        the same for texts of different lengths in one row of tokens"""
from .kernels import backward_kernels, best_rung, forward_kernel
from .op import flash_attention
from .orders import keys_seen, tile_kinds, traffic
from .packed import flash_attention_packed
from .sinks import flash_attention_with_sinks
from .tiles import State, finish, flash_backward_tiles, flash_forward_tiles, grouped, merge, state_of

__all__ = ["State", "backward_kernels", "best_rung", "finish", "flash_attention", "flash_attention_packed",
           "flash_attention_with_sinks", "flash_backward_tiles", "flash_forward_tiles", "forward_kernel",
           "grouped", "keys_seen", "merge", "state_of", "tile_kinds", "traffic"]
