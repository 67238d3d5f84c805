"""A tensor map for a launch: what `cuTensorMapEncodeTiled` makes in a program, for an array of Python's.

    mod.kernel[grid, block](cuda.tensor_map(a, box=(64, 32), swizzle=128), ...)      # tiles of 64 rows and 32 columns"""
import ctypes
import struct
from itertools import chain

from numpy.lib.stride_tricks import as_strided

from ..arguments import ArgumentError, arrays
from ..arguments.held import Held, held
from ..errors import KernelError

MADE, SIZE = 0x6D617054, 128         # as include/laptop_asynchronous.h has it
MANUAL = "CUDA Driver API, cuTensorMapEncodeTiled"


class BadDescriptor(KernelError, ArgumentError):
    """A tensor map that breaks a rule: a bad argument, and the kernel's error that it would be."""


def _need(holds: bool, rule: str) -> None:
    if not holds:
        raise BadDescriptor("bad descriptor", f"tensor_map: {rule} ({MANUAL})")


def _check_row(size: int, swizzle: int, atom: int, fill: float, dtype: str) -> None:
    _need(size % 16 == 0, f"box: rows of a multiple of 16 bytes, not of {size}")
    _need(swizzle in (0, 32, 64, 128), f"swizzle: 0, 32, 64 or 128 bytes, not {swizzle}")
    _need(atom == 16 or swizzle == 128 and atom in (32, 64),
          f"atom: 16 bytes, of a swizzle of 128 also 32 or 64, not {atom} of {swizzle}")
    _need(not swizzle or size <= swizzle, f"box: a row has at most the {swizzle} bytes of the swizzle, not {size}")
    _need(fill == 0 or fill != fill and dtype.startswith(("float", "bfloat")),
          f"fill: zeros (None, 0), or NaN in an array of floating-point numbers, not {fill} in {dtype}")


def _check_corners(lower, upper, shape) -> None:
    limit, n = {3: 32768, 4: 128, 5: 16}.get(len(shape), 0), len(shape) - 2
    _need(len(lower) == len(upper) == n > 0 and all(-limit <= c < limit for c in (*lower, *upper)),
          f"corners: of an array of 3, 4 or 5 dimensions 1, 2 or 3 each, from {-limit} to {limit - 1}, not "
          f"{lower, upper}")
    _need(all(a < size + b for a, b, size in zip(lower, upper, shape[1:])),
          f"corners: a box of pixels that is not empty, not {lower, upper}")


def tensor_map(array, box, swizzle: int | None = None, fill: float | None = None, *, steps=None, atom=16,
               corners=None) -> Held:
    """The 128 bytes for an array of 1 to 5 dimensions. `box`: a tile's sizes, in the array's order of dimensions; `steps`:
    take every so-manieth element; `swizzle`: 32, 64 or 128 bytes, of which `atom` move together: 16, or of 128 also 32 or
    64; `fill`: what is read beyond the array, 0 or NaN. With `corners` of a box in (d, h, w), the lower and the upper, by
    im2col: `box` is the pixels and the channels of each."""
    swizzle, fill = swizzle or 0, fill or 0
    shape, rank = tuple(array.shape), array.ndim
    itemsize = array.element_size() if arrays.is_tensor(array) else array.itemsize
    box, steps, (lower, upper) = tuple(box), tuple(steps or (1,) * rank), map(tuple, corners or ((), ()))
    strides = [s * itemsize for s in array.stride()] if arrays.is_tensor(array) else list(array.strides)
    address, most = arrays.address(array) or 0, (1024, 256) if corners else (256,) * rank
    _need(1 <= rank <= 5 and len(box) == (2 if corners else rank) and len(steps) == rank,
          f"array has {rank} dimensions, box {len(box)} and steps {len(steps)}; all the same, 1 to 5 (im2col: box 2)")
    _need(all(0 < n <= 1 << 32 for n in shape), f"array: each dimension has 1 to 2^32 elements, not {shape}")
    _need(address % 16 == 0, f"array: begins at a multiple of 16 bytes, not at {address:#x}")
    _need(strides[-1] == itemsize and not any(s % 16 or not 0 <= s < 1 << 40 for s in strides[:-1]),
          "array: elements of the last dimension lie side by side, and the strides of the others are multiples of 16 bytes "
          f"below 2^40, not {strides}")
    _need(all(1 <= b <= n for b, n in zip(box, most)), f"box: 1 to {most[-1]} elements in each dimension"
          f"{', and to 1,024 pixels' if corners else ''}, not {box}")
    _need(all(1 <= s <= 8 for s in steps), f"steps: 1 to 8 in each dimension, not {steps}")
    _check_row(box[-1] * itemsize, swizzle, atom, fill, arrays.dtype_of(array))
    if corners:
        _check_corners(lower, upper, shape)

    def inner_first(numbers):
        return (*reversed(tuple(numbers)), *(0,) * (5 - rank))

    if arrays.on_gpu(array):
        sides = (inner_first(x)[:rank] for x in (shape, strides, steps))
        return _of_driver(array, *sides, box[::-1], (lower[::-1], upper[::-1]), (swizzle, atom), fill != fill)
    ends = ((*c[::-1], *(0,) * (3 - len(c))) for c in (lower, upper))
    sizes = (*box[::-1], *(0,) * (5 - len(box)))
    numbers = (*inner_first(shape), *inner_first(strides), *sizes, *inner_first((*steps[:-1], 1)))
    raw = struct.pack("=I4BQ5Q5Q5H6B6h3B", MADE, rank, itemsize, swizzle, fill != fill, address, *numbers,
                      TYPES.get(arrays.dtype_of(array), 0), *chain(*ends), 0, atom, bool(corners))
    span = (1 + sum((n - 1) * s // itemsize for n, s in zip(shape, strides)),)
    whole = array.as_strided(span, (1,)) if arrays.is_tensor(array) else as_strided(array, span, (itemsize,))
    return held(raw.ljust(SIZE, b"\0"), [whole])             # gaps between rows included


# the driver's numbers of the types
TYPES = {"uint8": 0, "int8": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5,
         "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}


def _of_driver(array, shape, strides, steps, box, corners, swizzle, nan: bool) -> Held:
    """The same for a tensor on a card, by its driver. Numbers from the innermost dimension out."""
    rank, room = len(shape), ctypes.create_string_buffer(SIZE + 63)
    place = (ctypes.addressof(room) + 63) // 64 * 64
    wide, narrow, signed = (kind * rank for kind in (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int))
    driver = ctypes.CDLL("libcuda.so.1")
    make, tile = driver.cuTensorMapEncodeTiled, [narrow(*box)]
    if corners[0]:
        make, tile = driver.cuTensorMapEncodeIm2col, [signed(*corners[0]), signed(*corners[1]), *box]
    status = make(
        ctypes.c_void_p(place), TYPES[arrays.dtype_of(array)], rank, ctypes.c_void_p(arrays.address(array)),
        wide(*shape), wide(*strides[1:]), *tile, narrow(*steps), 0,
        ((0, 16), (32, 16), (64, 16), (128, 16), (128, 32), None, (128, 64)).index(swizzle), 0, int(nan))
    _need(status == 0, f"the driver refuses it, error {status}")
    return held(ctypes.string_at(place, SIZE), [array])
