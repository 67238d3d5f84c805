"""Chapter 12, asynchrony: attention whose tiles are ordered by one thread and arrive while others multiply.

    kernels       every rung of the ladder as a function of tensors
    swizzle       where a copy puts the bytes of a tile, and which banks a column of it meets
    pipeline      the ladder without a machine: who waits for whom, by the depth of a ring and the speeds"""
from .kernels import asynchronous_attention, tile_map
from .pipeline import Tile, pipeline, taking_turns
from .swizzle import banks, swizzled

__all__ = ["Tile", "asynchronous_attention", "banks", "pipeline", "swizzled", "taking_turns", "tile_map"]
