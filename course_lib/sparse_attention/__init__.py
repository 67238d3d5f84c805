"""Chapter 5: masks as graphs, windows, sinks, blocks."""
from .kernels import BLOCK, MAX_D, block_sparse_kernel, dense_masked_kernel, stored_masks, window_sink_kernel
from .rules import (BlockMask, bigbird_mask, bigbird_rule, block_sparse_attention, causal_rule,
                    check_block_mask, dilated_mask, dilated_rule, document_rule, documents, fixed_mask,
                    fixed_rule, longformer_mask, longformer_rule, mask_of, receptive_field, select_blocks,
                    sink_mask, sink_rule, sliding_window_mask, strided_mask, strided_rule, topk_attention,
                    window_rule)
from .tensor_core import blocks, fits, window
