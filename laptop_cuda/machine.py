"""The machine that is counted: its shared memory's banks, its sectors, the shared memory of a block."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What counts depend on. The default is the machine that the course describes; another one changes the
    counts and the shared memory that a block may have, never a result."""
    banks: int = 32              # of shared memory
    bank_bytes: int = 4          # one word of a bank: what it serves in one pass
    sector_bytes: int = 32       # of global memory
    shared_bytes: int = 0        # per block; 0: 48 KiB, or what the kernel has asked for

    def __post_init__(self):
        if not 1 <= self.banks <= 64:
            raise ValueError(f"banks: 1 to 64, got {self.banks}")
        if self.bank_bytes not in (4, 8):
            raise ValueError(f"bank_bytes: 4 or 8, got {self.bank_bytes}")
        if self.sector_bytes not in (16, 32, 64, 128):
            raise ValueError(f"sector_bytes: 16, 32, 64 or 128, got {self.sector_bytes}")
        if not 0 <= self.shared_bytes <= 163 << 10:
            raise ValueError(f"shared_bytes: at most {163 << 10}, got {self.shared_bytes}")


REAL = Machine()
