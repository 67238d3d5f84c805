"""Where a copy by a tensor map puts the bytes of a tile in shared memory, and which banks a read of it meets.

Rows of a tile are side by side. Pieces of 16 bytes change places within each stretch of 128 bytes: the piece's
number takes an exclusive or with the number of the stretch. `mode` is the width of the swizzle in bytes: 32, 64
and 128 change the last 1, 2 and 3 bits of the piece's number, 0 changes none."""
from course_lib.checks.asynchrony import check_mode

PIECE, LINE, BANK = 16, 128, 4          # bytes that stay together, of all 32 banks, of one bank


def swizzled(row: int, byte: int, mode: int, width: int | None = None) -> int:
    """The place, from the tile's beginning, of a byte of a row. width: bytes of a row; `mode` where not given, 128
    without a swizzle."""
    check_mode(mode)
    place = row * (width or mode or LINE) + byte
    moves = place // LINE % (mode // PIECE) if mode else 0
    return place ^ moves * PIECE


def banks(rows, byte: int, mode: int, width: int | None = None) -> list[int]:
    """The first of the four banks that hold 16 bytes, from `byte` on, of each of these rows."""
    return [swizzled(row, byte, mode, width) % LINE // BANK for row in rows]
