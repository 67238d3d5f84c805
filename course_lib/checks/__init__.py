"""Argument checks: a function of a chapter keeps one line, the reasons are here.

Each check raises a ValueError that begins with the name of the argument and says what was wanted and given.
The vocabulary is exported here; the checks of only one chapter are in the file of its word, `checks/rope.py`.
"""
from .attention import (check_alike, check_attention, check_grouped, check_head_sizes, check_lengths,
                        check_mask, check_sequence, check_sequences, check_softmax_kernel)
from .tensors import (broadcasts, check_axis, check_dtype, check_floating, check_integers, check_like,
                      check_shared_memory, check_tensor, check_tensor_cores, described)
from .values import (check_choice, check_count, check_dropout, check_equal, check_multiple, check_number,
                     check_scale, check_sizes, listed)
