"""Chapter 6: softmax tile by tile, forward and backward."""
from .kernels import (INFINITY, LARGEST_WIDTH, RUNGS, TENSOR_CORES, backward_kernels, best_rung, check_inputs,
                      check_kernel_inputs, check_results, check_rung, fits_tensor_cores, forward_kernel,
                      padded, sizes, tensor_core_backward, tensor_core_kernel, three_launches)
from .tiles import (State, finish, finite, flash_attention, flash_backward_tiles, flash_forward_tiles,
                    grouped, merge, score_tile, state_of)
from .traffic import check_tiles, keys_seen, tile_kinds
