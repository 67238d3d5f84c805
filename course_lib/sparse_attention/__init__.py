"""Chapter 5: masks as graphs, windows, sinks, blocks."""
from .blocks import BlockMask, block_sparse_attention, select_blocks, topk_attention
from .indexer import (Indexer, choose, chosen_mask, distillation_loss, gather_attention,
                      gather_attention_kernel, index_scores, index_scores_kernel)
from .kernels import block_sparse_kernel, dense_masked_kernel, window_sink_kernel
from .rules import (bigbird_mask, bigbird_rule, causal_rule, dilated_mask, dilated_rule, document_rule,
                    documents, fixed_mask, fixed_rule, longformer_mask, longformer_rule, mask_of,
                    receptive_field, sink_mask, sink_rule, sliding_window_mask, strided_mask, strided_rule,
                    window_rule)
