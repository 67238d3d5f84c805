"""Chapter 8, paged attention: a cache in blocks, and serving from it.

    blocks       which sequence holds which block; shared prefixes
    cache        keys and values in blocks
    paged        attention over them, the reference; kernels is kernels/paged_attention.cu as functions
    scheduler    which sequence computes how many tokens in each step
    serving      the engine: one model, many requests
    memory_maps, batching, trace     simulations: how memory is used, how requests are batched
    ring         a sequence in slices, one per process"""
from .batching import Row, Served, chart, continuous_batches, static_batches
from .blocks import BlockAllocator, OutOfBlocks
from .cache import PagedKVCache
from .kernels import (copy_blocks_kernel, paged_attention_kernel, paged_prefill_kernel, shared_pages,
                      shared_prefix_kernel)
from .memory_maps import KINDS, RESERVE, contiguous_maps, draw_maps, paged_maps, shares
from .paged import paged_attention, paged_prefill
from .ring import in_processes, ring_attention
from .scheduler import Request, Scheduler, Sequence
from .serving import Engine, Step
from .trace import Arrival, draw_trace, load_trace

__all__ = ["Arrival", "BlockAllocator", "Engine", "KINDS", "OutOfBlocks", "PagedKVCache",
           "RESERVE", "Request", "Row", "Scheduler", "Sequence", "Served", "Step", "chart",
           "contiguous_maps", "continuous_batches", "copy_blocks_kernel", "draw_maps", "draw_trace",
           "in_processes", "load_trace", "paged_attention", "paged_attention_kernel", "paged_maps",
           "paged_prefill", "paged_prefill_kernel", "ring_attention", "shared_pages", "shared_prefix_kernel",
           "shares", "static_batches"]
