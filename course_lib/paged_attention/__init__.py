"""Chapter 8: a cache in pages, and serving from it."""
from .kernels import (check_chunks, check_paged, copy_blocks_kernel, paged_attention_kernel,
                      paged_prefill_kernel)
from .cache import BlockAllocator, OutOfBlocks, PagedKVCache, Prefix, Table, paged_attention, paged_prefill
from .serving import Engine, Request, Scheduler, Sequence, Step, kept_of_a_token
from .batching import Row, Served, chart, continuous_batches, static_batches
from .memory_maps import KINDS, RESERVE, check_room, contiguous_maps, draw_maps, paged_maps, shares
from .ring import in_processes, pass_on, ring_attention
from .trace import Arrival, FILE, draw_trace, load_trace, trace_command
