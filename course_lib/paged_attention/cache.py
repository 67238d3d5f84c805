"""A key-value cache in blocks of fixed size, found through a table, as an operating system finds pages."""
import torch

from course_lib.checks.paged_attention import check_pool, check_span, check_write
from .blocks import BlockAllocator


class PagedKVCache:
    """keys and values (n_layers, n_blocks, n_kv_heads, block_size, head_dim), and their allocator.

    If v_dim is given, values are v_dim wide."""

    def __init__(self, n_blocks, block_size, n_layers, n_kv_heads, head_dim, dtype=torch.float32, device=None,
                 v_dim=None):
        self.allocator = BlockAllocator(n_blocks, block_size)
        v_dim = head_dim if v_dim is None else v_dim
        check_pool(dtype, v_dim, n_layers=n_layers, n_kv_heads=n_kv_heads, head_dim=head_dim)
        shape = n_layers, n_blocks, n_kv_heads, block_size
        self.keys, self.values = (torch.zeros(*shape, width, dtype=dtype, device=device)
                                  for width in (head_dim, v_dim))

    @property
    def block_size(self) -> int:
        return self.allocator.block_size

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def append_slot(self, name):
        """(block, offset) of one more slot, in a block that only this sequence holds."""
        block, offset, source = self.allocator.append_slot(name)
        if source is not None:
            for pool in (self.keys, self.values):
                pool[:, block] = pool[:, source]
        return block, offset

    def tables(self, names):
        """(tables, lengths): int32 (b, pages), padded with -1, and int32 (b).

        Valid until one of these sequences grows or is freed."""
        tables = [self.allocator.table(name) for name in names]
        width = max((len(table.blocks) for table in tables), default=0)
        rows = [table.blocks + [-1] * (width - len(table.blocks)) for table in tables]
        return (torch.tensor(rows, dtype=torch.int32).view(len(rows), width),
                torch.tensor([table.length for table in tables], dtype=torch.int32))

    def slots(self, name, start: int, stop: int) -> torch.Tensor:
        """Positions start to stop of a sequence as slots of the whole pool: block * block_size + offset."""
        table = self.allocator.table(name)
        check_span(start, stop, table.length)
        size = self.block_size
        slots = [table.blocks[p // size] * size + p % size for p in range(start, stop)]
        return torch.tensor(slots, dtype=torch.long)

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        """k (n, n_kv_heads, head_dim) and v (n, n_kv_heads, v_dim) of one layer into n slots."""
        check_write(slots, self.keys.shape[1] * self.block_size, k=(k, self.keys), v=(v, self.values))
        blocks, offsets = slots // self.block_size, slots % self.block_size
        self.keys[layer, blocks, :, offsets] = k
        self.values[layer, blocks, :, offsets] = v

    def read_blocks(self, blocks):
        """Swapping out: a copy of these blocks (two tensors)."""
        return self.keys[:, blocks].clone(), self.values[:, blocks].clone()

    def write_blocks(self, blocks, saved):
        """Swapping in: what read_blocks returned, into other blocks."""
        self.keys[:, blocks], self.values[:, blocks] = saved
