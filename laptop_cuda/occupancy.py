"""How many blocks and warps a multiprocessor holds at once, by NVIDIA's published rules.

The limits per architecture are those of the table "Technical Specifications per Compute Capability" of the
CUDA programming guide; the rules of allocation are those that the toolkit publishes in `cuda_occupancy.h`."""
from dataclasses import dataclass

KIB = 1024
REGISTERS = 64 * KIB             # per multiprocessor, and the most for one block
MOST_REGISTERS = 255             # per thread
REGISTER_UNIT = 256              # a warp gets its registers in units of so many
SCHEDULERS = 4                   # each owns a quarter of the registers; a warp's are in one of the quarters
MOST_THREADS = 1024              # per block


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor of an architecture holds."""
    warps: int
    blocks: int
    shared: int                  # bytes
    shared_per_block: int        # the most for one block, asked for with cudaFuncSetAttribute
    shared_unit: int = 128       # a block gets shared memory in units of so many bytes
    shared_reserved: int = KIB   # what the system keeps of each block's


LIMITS = {"sm_75": Limits(32, 16, 64 * KIB, 64 * KIB, 256, 0), "sm_80": Limits(64, 32, 164 * KIB, 163 * KIB),
          "sm_86": Limits(48, 16, 100 * KIB, 99 * KIB), "sm_89": Limits(48, 24, 100 * KIB, 99 * KIB),
          "sm_90": Limits(64, 32, 228 * KIB, 227 * KIB), "sm_100": Limits(64, 32, 228 * KIB, 227 * KIB),
          "sm_120": Limits(48, 24, 100 * KIB, 99 * KIB)}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps on one multiprocessor. `by` is how many blocks each limit alone would allow."""
    blocks: int
    warps: int
    most_warps: int
    by: dict[str, int]

    @property
    def share(self) -> float:
        """Warps present, of those that there is room for."""
        return self.warps / self.most_warps

    @property
    def limited_by(self) -> str:
        return " and ".join(name for name, blocks in self.by.items() if blocks == self.blocks)


def limits(arch: str) -> Limits:
    """Of "sm_90", and of "sm_90a", which is the same card."""
    name = arch.rstrip("af")
    if name not in LIMITS:
        raise ValueError(f"arch: the limits of {', '.join(LIMITS)} are known, got {arch!r}")
    return LIMITS[name]


def occupancy(arch: str, registers: int, threads: int, shared_bytes: int = 0) -> Occupancy:
    """Of a kernel with so many registers per thread, and threads and bytes of shared memory per block."""
    of = limits(arch)
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"threads: a block has 1 to {MOST_THREADS}, got {threads}")
    if not 0 <= registers <= MOST_REGISTERS:
        raise ValueError(f"registers: a thread has at most {MOST_REGISTERS}, got {registers}")
    if shared_bytes < 0:
        raise ValueError(f"shared_bytes: cannot be negative, got {shared_bytes}")
    warps = -(-threads // 32)
    by = {"registers": _by_registers(registers, warps), "shared memory": _by_shared(of, shared_bytes),
          "warps": of.warps // warps, "blocks": of.blocks}
    blocks = min(by.values())
    return Occupancy(blocks, blocks * warps, of.warps, by)


def _by_registers(registers: int, warps: int) -> int:
    per_warp = _up(max(registers, 1) * 32, REGISTER_UNIT)
    # The launch is refused as if every scheduler got the same number of warps.
    if per_warp * _up(warps, SCHEDULERS) > REGISTERS:
        return 0
    return REGISTERS // SCHEDULERS // per_warp * SCHEDULERS // warps


def _by_shared(of: Limits, shared_bytes: int) -> int:
    if shared_bytes > of.shared_per_block:
        return 0
    taken = _up(shared_bytes + of.shared_reserved, of.shared_unit)
    return of.shared // taken if taken else of.blocks


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit
