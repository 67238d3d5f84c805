"""The machine that is counted: its banks, its sectors, the shared memory of a block, the lanes of a warp."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What counts depend on. The default is the machine that the course describes; another one changes the
    counts and the shared memory that a block may have. A result changes with `warp_size` alone, and only that
    of a kernel that takes a warp for 32 lanes."""
    banks: int = 32              # of shared memory
    bank_bytes: int = 4          # one word of a bank: what it serves in one pass
    sector_bytes: int = 32       # of global memory
    shared_bytes: int = 0        # per block; 0: 48 KiB, or what the kernel has asked for
    warp_size: int = 32          # lanes; CUDA's masks have 32 bits, so no more

    def __post_init__(self):
        if not 1 <= self.banks <= 64:
            raise ValueError(f"banks: 1 to 64, got {self.banks}")
        if self.bank_bytes not in (4, 8):
            raise ValueError(f"bank_bytes: 4 or 8, got {self.bank_bytes}")
        if self.sector_bytes not in (16, 32, 64, 128):
            raise ValueError(f"sector_bytes: 16, 32, 64 or 128, got {self.sector_bytes}")
        if not 0 <= self.shared_bytes <= 163 << 10:
            raise ValueError(f"shared_bytes: at most {163 << 10}, got {self.shared_bytes}")

        if self.warp_size not in (8, 16, 32):
            raise ValueError(f"warp_size: 8, 16 or 32, got {self.warp_size}")

    def words(self, place: int, size: int) -> range:
        """The words of shared memory that an access of `size` bytes touches from byte `place` on."""
        return range(place // self.bank_bytes, (place + size - 1) // self.bank_bytes + 1)

    def bank_parts(self, places: dict[int, int], size: int, load=True) -> list[dict[int, set[int]]]:
        """{bank: the words that lanes want of it} for each part of a warp that is served together, which
        takes as many passes as its fullest bank has words. `places` are the lanes' bytes of shared memory."""
        found: dict[int, dict[int, set[int]]] = {}
        together = lanes_together(size) << (size > 4 and load and in_pairs(places))
        for lane, place in sorted(places.items()):
            part = found.setdefault(lane // together, {})
            for word in self.words(place, size):
                part.setdefault(word % self.banks, set()).add(word)
        return list(found.values())


def lanes_together(size: int) -> int:
    """Lanes whose words are fetched together: a warp for up to 4 bytes per lane, half of it for 8, a quarter
    for 16; for a load of more than 4 bytes by lanes `in_pairs` twice as many."""
    return 32 if size <= 4 else 16 if size <= 8 else 8


def in_pairs(places: dict[int, int]) -> bool:
    """Whether every lane has the place of its neighbour (0 of 1, 2 of 3, ...), or every lane that of the lane
    two further (0 of 2, 1 of 3, ...), where the other one is active. So NVIDIA says of compute
    capability 7 (forums.developer.nvidia.com/t/77228), and so read on 8.0 and 9.0: tests/engine/test_readings.py. Of 12.0
    a reader says the same where no words conflict, and that it does not hold where some do (cicuvc/nvidia-sass-document)."""
    return any(all(places.get(lane ^ bit, at) == at for lane, at in places.items()) for bit in (1, 2))


def fullest(parts: list[dict[int, set[int]]]) -> dict[int, int]:
    """{bank: its words in the part that wants most of it}"""
    found: dict[int, int] = {}
    for bank, words in (item for part in parts for item in part.items()):
        found[bank] = max(found.get(bank, 0), len(words))
    return found


REAL = Machine()
