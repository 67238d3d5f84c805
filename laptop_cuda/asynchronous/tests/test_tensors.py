"""Tensor maps and the copies that follow them, against tiles cut by NumPy: edges, swizzles, one to five dimensions; a map made
in a program; what the driver refuses."""
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, compiled, mod, ramp  # noqa: F401
from laptop_cuda.programs import run
from laptop_cuda.programs.report import text


def fetch_and_store(n):
    """im2col's PTX of n dimensions: p has the coordinates, then the offsets."""
    at, by = (", ".join(f"%{i + 3}" for i in numbers) for numbers in (range(n), range(n, 2 * n - 2)))
    inputs = ", ".join(f'"r"(p[{i}])' if i < n else f'"h"((short)p[{i}])' for i in range(2 * n - 2))
    forms = {"fetch": f"shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {{{at}}}], [%2], {{{by}}}",
             "store": f"global.shared::cta.im2col_no_offs.bulk_group [%1, {{{at}}}], [%0]"}
    return "".join(f'template <> __device__ void {name}<{n}>(unsigned tile, const CUtensorMap* map, unsigned bar, const int* p) {{ '
                   f'asm volatile("cp.async.bulk.tensor.{n}d.{form};" :: "r"(tile), "l"(map), "r"(bar), {inputs} : "memory"); }}\n'
                   for name, form in forms.items())


SOURCE, PROGRAM = tomllib.loads(Path(__file__).with_name("tensors.toml").read_text(encoding="utf-8")).values()
SOURCE = SOURCE.replace("FETCH_AND_STORE", "".join(map(fetch_and_store, (3, 4, 5))))
# as the manual draws it: which 16 bytes of a row each piece of a tile's row r goes to
MOVES = {(0, 16): lambda piece, r: piece, (32, 16): lambda piece, r: piece ^ r // 4 % 2,
         (64, 16): lambda piece, r: piece ^ r // 2 % 4, (128, 16): lambda piece, r: piece ^ r % 8,
         (128, 32): lambda piece, r: piece ^ r % 4 * 2, (128, 64): lambda piece, r: piece ^ r % 2 * 4}


def tile_of(a, box, at, steps=None, beyond=0):
    """What NumPy cuts out of the array for a box; `at` begins with the innermost coordinate, as a map's do."""
    steps = steps or (1,) * a.ndim
    places = [start + step * np.arange(-(-n // step))
              for n, start, step in zip(box, reversed(at), (*steps[:-1], 1))]
    inside = np.meshgrid(*((p >= 0) & (p < n) for p, n in zip(places, a.shape)), indexing="ij")
    found = a[np.ix_(*(p.clip(0, n - 1) for p, n in zip(places, a.shape)))]
    return np.where(np.logical_and.reduce(inside), found, beyond)


def pixels_of(a, start, corners, steps, offsets, count, channels, beyond=0):
    """Those of an array (n, ..., c) that im2col brings, by the manual's text: along the box of an image, then of the next."""
    (lower, upper), found, at = corners, np.full((count, channels), beyond, a.dtype), list(start)
    for row in found:
        place = [at[0], *(c + o for c, o in zip(at[1:-1], offsets))]
        for c in range(at[-1], at[-1] + channels):
            if c < a.shape[-1] and all(0 <= x < n for x, n in zip(place, a.shape)):
                row[c - at[-1]] = a[(*place, c)]
        for d in range(a.ndim - 2, -1, -1):
            at[d] += steps[d]
            if d == 0 or at[d] <= a.shape[d] - 1 + upper[d - 1]:
                break
            at[d] = lower[d - 1]
    return found


def moved(mod, swizzle, x=0, y=0, fault=0, type_=np.float32, atom=16):
    width = swizzle // 4 or 32
    a, b = ramp(20 * 44).reshape(20, 44)[:, :40], np.full((20, 44), -1, np.float32)
    seen = np.zeros(512, np.float32)
    maps = [cuda.tensor_map(x, (16, width), swizzle, atom=atom) for x in (a, b[:, :40].view(type_))]
    mod.moved[1, 64](*maps, seen, x, y, 64 * width, fault)
    return a, b, seen[: 16 * width].reshape(16, width)


@pytest.mark.parametrize("swizzle, atom", MOVES)
def test_a_tile_comes_swizzled_and_goes_back(mod, swizzle, atom):
    for x, y in ((0, 0), (20, 9), (-4, -3), (36, 19), (40, 0)):
        for how in EVERY_ORDER:
            with how():
                a, b, seen = moved(mod, swizzle, x, y, atom=atom)
            pieces = seen.reshape(16, -1, 4)
            order = np.array([[MOVES[swizzle, atom](p, r) for p in range(len(pieces[0]))] for r in range(16)])
            tile = tile_of(a, seen.shape, (x, y))
            assert (np.take_along_axis(pieces, order[..., None], 1).reshape(tile.shape) == tile).all(), how
            kept = np.full_like(b, -1)
            into = kept[max(y, 0):, max(x, 0):40][:16, :seen.shape[1]]
            into[:] = tile[:into.shape[0], :into.shape[1]] + 1
            assert (b == kept).all(), how


@pytest.mark.parametrize("fault, type_, right", [(6, np.float32, lambda a: a), (7, np.int32, lambda a: a + 1)])
def test_a_tile_is_added_to_a_tensor_or_its_largest_kept(mod, fault, type_, right):
    for how in EVERY_ORDER:
        with how():
            a, b, _ = moved(mod, 128, 20, 9, fault, type_)      # floats from 0 on order as their bits do
        kept = np.full_like(b, -1)
        kept[9:, 20:40] = right(a[9:, 20:40])
        assert (b == kept).all(), how


def test_copies_are_counted_row_by_row_up_to_the_edge(mod):
    for x, y in ((0, 0), (20, 9), (-4, -3), (36, 19), (40, 0)):
        with cuda.profile() as report:
            moved(mod, 128, x, y)
        launch = report.launches[0]
        for traffic, first, sides in ((launch.copies_in, (x, y), launch.copied["from"]),
                                      (launch.copies_out, (max(x, 0), max(y, 0)), launch.copied["to"])):
            ends = zip(first, (32, 16), (40, 20))
            columns, rows = (range(max(at, 0), min(at + n, end)) for at, n, end in ends)
            asked = [{(176 * row + 4 * column) // 32 for column in columns} for row in rows]
            assert traffic.requests == 1 and traffic.bytes == 4 * len(columns) * len(rows)
            assert traffic.sectors == sum(map(len, asked))
            assert traffic.unique_sectors == len(set().union(*asked))
            assert traffic.bytes in [side.bytes for side in sides]
        line, = [line for line in launch.lines if line.copies_in.requests]
        assert "cp_async_bulk_tensor_2d" in line.text and line.copies_in == launch.copies_in


def test_loads_of_matrices_take_a_pass_for_each_piece_of_a_swizzled_tile(mod):
    for swizzled, passes in ((1, 4), (0, 32)):
        with cuda.profile() as report:
            mod.by_matrix[1, 32](np.zeros(32, np.float32), swizzled)
        assert report.launches[0].shared_load.wavefronts == passes


@pytest.mark.parametrize("shape, box, steps, fill", [
    ((50,), (40,), None, None), ((3, 4, 12), (2, 3, 8), (1, 2, 5), np.nan),
    ((4, 2, 3, 3, 8), (4, 2, 3, 2, 4), (3, 1, 2, 1, 1), 0)])
def test_one_to_five_dimensions(mod, shape, box, steps, fill):
    rank = len(shape)
    a = ramp(int(np.prod(shape))).reshape(shape)
    tile = tile_of(a, box, (4, 1, 1, 1, 1)[:rank], steps, fill or 0)
    for mode in (cuda.profile, cuda.sanitize):
        seen = np.zeros(tile.shape, np.float32)
        with mode():
            mod.cut[f"{rank}"][1, 32, tile.nbytes](cuda.tensor_map(a, box, steps=steps, fill=fill), seen, 1, tile.nbytes)
        assert np.array_equal(seen, tile, equal_nan=True)


# shape; corners, steps; start, c first, offsets, w first; pixels; a fill, or 128: 8 floats of each, swizzled
BOXES = [((2, 4, 8), ((0,), (0,)), (1, 1, 1), (0, 1, 0), (0,), 9, None),
         ((2, 4, 8), ((-1,), (-1,)), (2, 1, 1), (4, -1, 0), (1,), 12, None),
         ((3, 9, 8, 12), ((-1, -1), (-1, -1)), (1, 2, 2, 1), (4, 3, 5, 0), (1, 1), 40, None),
         ((3, 4, 5, 8), ((-2, -1), (1, 0)), (1, 1, 3, 1), (0, 1, -2, 1), (2, 255), 24, np.nan),
         ((2, 3, 4, 3, 8), ((0, -1, -1), (-1, 0, 1)), (1, 1, 1, 2, 1), (0, 3, 0, 1, 0), (0, 1, 2), 30, None),
         ((3, 4, 4, 16), ((0, 0), (-2, -2)), (1, 1, 1, 1), (8, 1, 0, 0), (2, 1), 16, 128)]


@pytest.mark.parametrize("shape, corners, steps, start, offsets, count, more", BOXES)
def test_pixels_by_im2col(mod, shape, corners, steps, start, offsets, count, more):
    """Rows that are narrower than the swizzle lie its width apart."""
    a, swizzle = ramp(int(np.prod(shape))).reshape(shape), 128 if more == 128 else None
    fill, channels = (more, 4) if not swizzle else (None, 8)
    one = cuda.tensor_map(a, (count, channels), corners=corners, steps=steps, swizzle=swizzle, fill=fill)
    right = pixels_of(a, start[::-1], corners, steps, offsets[::-1], count, channels, fill or 0)
    if swizzle:
        apart, right, rows = right.reshape(count, 2, 4), np.zeros((count, 8, 4), np.float32), np.arange(count)
        for piece in (0, 1):
            right[rows, piece ^ rows % 8] = apart[:, piece]
    for how in (cuda.profile, *EVERY_ORDER):
        seen = np.zeros(right.size, np.float32)
        with how() as report:
            mod.pixels[f"{len(shape)}"][1, 32, right.nbytes](one, one, np.array((*start, *offsets), np.int32), seen,
                                                           4 * count * channels, right.nbytes, 0)
        assert np.array_equal(seen, right.ravel(), equal_nan=True), how
        if how is cuda.profile:
            inside = pixels_of(np.ones_like(a), start[::-1], corners, steps, offsets[::-1], count, channels)
            assert report.launches[0].copies_in.bytes == 4 * inside.sum()


def stored(mod, shape, corners, place):
    a = ramp(int(np.prod(shape))).reshape(shape)
    b = np.zeros_like(a)
    maps = [cuda.tensor_map(x, (20, 4), corners=corners) for x in (a, b)]
    mod.pixels[f"{a.ndim}"][1, 32, 320](*maps, np.array(place, np.int32), np.zeros(80, np.float32), 320, 320, 1)
    return a, b


def test_pixels_are_stored_where_they_are_in_the_tensor(mod):
    for how in EVERY_ORDER:
        with how():
            a, b = stored(mod, (2, 3, 4, 8), ((0, 1), (0, -1)), (4, 1, 0, 0, 0, 0))
        inside = np.zeros(a.shape, bool)
        inside[:, :, 1:3, 4:] = True
        assert (b == np.where(inside, a + 1, 0)).all(), how


@pytest.mark.parametrize("place, corners, said", [
    ((0, 4, 0), ((0,), (0,)), "tensorCoords outside of the bounding box"), ((0, -1, 0), ((0,), (0,)), "tensorCoords outside"),
    ((0, 0, 0), ((0,), (1,)), "whose bounding box leaves the tensor")])
def test_pixels_that_no_card_copies(mod, place, corners, said):
    with pytest.raises(cuda.KernelError, match=said) as caught:
        stored(mod, (2, 4, 8), corners, (*place, 0))
    assert caught.value.kind == "bad descriptor" and "im2col" in str(caught.value)


def launched(name, fault):
    return moved(compiled(SOURCE), 128, x=fault == 5, fault=fault)


A = np.zeros((4, 8), np.float32)


@pytest.mark.parametrize("array, box, more, said", [
    (A, (4, 320), {}, "box: 1 to 256"), (A, (4, 2), {}, "box: rows of a multiple of 16 bytes"), (A, (4,), {}, "box 1 and"),
    (A, (4, 8), {"steps": (1, 9)}, "steps: 1 to 8"), (A, (4, 16), {"swizzle": 32}, "at most the 32 bytes"),
    (A, (4, 8), {"swizzle": 16}, "swizzle: 0, 32"), (A, (4, 8), {"fill": 1}, "fill: zeros"),
    (A.astype(np.int32), (4, 8), {"fill": np.nan}, "fill: zeros"), (A[:, :6].copy(), (4, 4), {}, "strides"), (A[:, 1:], (4, 4), {}, "begins"),
    (A[:, ::2], (4, 4), {}, "side by side"), (A[:0], (4, 4), {}, "each dimension has 1"), (A, (4, 8), {"swizzle": 64, "atom": 32}, "atom: 16"),
    (A[None], (9, 4), {"corners": ((-32769,), (0,))}, "corners: of an array"), (A[None], (9, 4), {"corners": ((0,), (-4,))}, "corners: a box"),
    (A[None], (1025, 4), {"corners": ((0,), (0,))}, "and to 1,024 pixels"), (A, (9, 4), {"corners": ((), ())}, "corners: of an array")])
def test_what_the_driver_refuses(array, box, more, said):
    with pytest.raises(cuda.ArgumentError, match=said) as caught:
        cuda.tensor_map(array, box, **more)
    assert isinstance(caught.value, cuda.KernelError) and caught.value.kind == "bad descriptor"


def test_an_array_in_place_of_its_map(mod):
    with pytest.raises(cuda.ArgumentError, match=r"from. \(CUtensorMap\) needs .laptop_cuda.tensor_map\(x, box=...\)., got"):
        mod.moved[1, 64](A, A, A, 0, 0, 0, 0)


def test_the_driver_of_a_card_is_asked_the_same(monkeypatch):
    from laptop_cuda.asynchronous import tensor_map as module
    asked, a = [], ramp(144).reshape(3, 4, 12)
    driver = SimpleNamespace(cuTensorMapEncodeTiled=lambda *given: asked.extend(given) or 0)
    monkeypatch.setattr(module.arrays, "on_gpu", lambda array: True)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: driver)
    assert len(cuda.tensor_map(a, (2, 3, 8), swizzle=32, steps=(1, 2, 1))) == 128
    place, kind, rank, address, *lists = asked
    assert place.value % 64 == 0 and (kind, rank, address.value) == (7, 3, a.ctypes.data)
    assert [*map(list, lists[:4]), *lists[4:]] == [[12, 4, 3], [48, 192, 0], [8, 3, 2], [1, 2, 1], 0, 1, 0, 0]
    driver.cuTensorMapEncodeIm2col, asked[:] = driver.cuTensorMapEncodeTiled, []
    cuda.tensor_map(a, (9, 8), swizzle=128, atom=64, corners=((-1,), (1,)), fill=np.nan)
    assert [asked[6][0], asked[7][0], *asked[8:10], *asked[11:]] == [-1, 1, 8, 9, 0, 6, 0, 1]


REFUSALS = SOURCE + r"""
#include <cstdio>
struct Asked {
    unsigned type = 7, rank = 3, shift = 0, box = 4, step = 1, interleave = 0, swizzle = 0, promotion = 0, fill = 0, channels = 4, pixels = 9;
    cuuint64_t size = 8, stride = 64;
    int lower = 0, upper = 0;
};
float* a;
alignas(64) CUtensorMap map;
int made(Asked k, bool by_pixels) {
    cuuint64_t sizes[] = {k.size, 4, 3, 1, 1}, strides[] = {k.stride, 256, 1024, 1024};
    cuuint32_t box[] = {k.box, 4, 2, 1, 1}, steps[] = {k.step, k.step, 1, 1, 1};
    int lower[] = {k.lower, 0, 0}, upper[] = {k.upper, 0, 0};
    auto common = [&](auto encode, auto... tile) {
        return (int)encode(&map, (CUtensorMapDataType)k.type, k.rank, (char*)a + k.shift, sizes, strides, tile..., steps, (CUtensorMapInterleave)k.interleave,
                           (CUtensorMapSwizzle)k.swizzle, (CUtensorMapL2promotion)k.promotion, (CUtensorMapFloatOOBfill)k.fill);
    };
    return by_pixels ? common(cuTensorMapEncodeIm2col, lower, upper, k.channels, k.pixels) : common(cuTensorMapEncodeTiled, box);
}
void shown(const float* seen, int n) {
    cudaDeviceSynchronize();
    for (int i = 0; i < n; ++i) printf("%g ", seen[i]);
    printf("\n");
}
int main() {
    float* seen;
    int* p;
    cudaMallocManaged(&a, 1 << 16), cudaMallocManaged(&seen, 4096), cudaMallocManaged(&p, 64);
    for (int i = 0; i < 1 << 14; ++i) a[i] = i;
    TRIED
    cuuint64_t sizes[] = {8, 3, 2}, strides[] = {128, 384}, wide[] = {256, 768};
    cuuint32_t box[] = {8, 2, 1}, steps[] = {2, 1, 1};
    for (int slice : {1, 2}) {          // slices of 16 and 32 bytes
        auto swizzle = slice == 2 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_NONE;
        cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, a, sizes, slice == 2 ? wide : strides, box, steps, (CUtensorMapInterleave)slice,
                               swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        cut<3><<<1, 32, 2048>>>(map, seen, 1, 128 * slice), shown(seen, 32 * slice);
        cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, a, sizes, slice == 2 ? wide : strides, std::begin({-1}), std::begin({0}), 4, 9, steps,
                                (CUtensorMapInterleave)slice, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        p[0] = 3, p[1] = 1, p[2] = 0, p[3] = 1;
        pixels<3><<<1, 32, 2048>>>(map, map, p, seen, 144 * slice, 288, 0), shown(seen, 36 * slice);
    }
    sizes[0] = 32, strides[0] = 128, box[0] = 32, box[1] = 8, sizes[1] = 8, steps[0] = 1;
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, a, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    cut<2><<<1, 32, 2048>>>(map, seen, 0, 1024), shown(seen, 256);
    moved<<<1, 64>>>(map, map, seen, 0, 0, 1024, 0);
    printf("%d\n", cudaDeviceSynchronize() != cudaSuccess);
}
"""
# what is asked otherwise, and what cuTensorMapEncodeTiled and ...Im2col answer: 1 is CUDA_ERROR_INVALID_VALUE
TRIED = {"": "0 0", "k.rank = 0": "1 1", "k.rank = 2": "0 1", "k.rank = 6": "1 1", "k.shift = 8": "1 1", "k.size = 0": "1 1", "k.stride = 72": "1 1",
         "k.stride = 1ull << 40": "1 1", "k.step = 9": "1 1", "k.step = 0": "1 1", "k.box = 3": "1 0", "k.box = 257": "1 0", "k.box = 16, k.swizzle = 1": "1 0",
         "k.channels = 16, k.swizzle = 1": "0 1", "k.swizzle = 7": "1 1", "k.swizzle = 6": "0 0", "k.interleave = 3": "1 1", "k.promotion = 4": "1 1",
         "k.fill = 1": "0 0", "k.fill = 1, k.type = 3": "1 1", "k.type = 14": "801 801", "k.type = 16": "1 1", "k.channels = 260": "0 1",
         "k.channels = 0": "0 1", "k.pixels = 1025": "0 1", "k.lower = 32768": "0 1", "k.lower = -32768": "0 0", "k.upper = -4": "0 1",
         "k.rank = 4, k.lower = -129": "0 1", "k.rank = 5, k.upper = 16": "0 1", "k.interleave = 1": "0 0", "k.interleave = 1, k.rank = 2": "1 1",
         "k.interleave = 1, k.box = 3": "0 0", "k.interleave = 2": "1 1", "k.interleave = 2, k.swizzle = 1": "0 0",
         "k.interleave = 2, k.swizzle = 1, k.shift = 16": "1 1", "k.interleave = 2, k.swizzle = 1, k.stride = 80": "1 1"}


def test_a_program_makes_its_map_by_the_driver_and_its_copies_are_counted(tmp_path):
    (tmp_path / "map.cu").write_text(SOURCE + PROGRAM)
    ran = run(tmp_path / "map.cu", mode="profile")
    assert ran.stdout == "168 208 169\n"
    assert (ran.total("copies_in"), ran.total("copies_in_bytes"), ran.total("copies_out_sectors")) == (1, 2048, 64)
    assert "2,048" in text(ran, "profile", {})


def test_what_the_driver_answers_and_slices_of_channels(tmp_path):
    tried = "".join(f'{{ Asked k; {more}; printf("%d %d, ", made(k, false), made(k, true)); }}\n' for more in TRIED)
    (tmp_path / "map.cu").write_text(REFUSALS.replace("TRIED", tried + 'printf("\\n");'))
    ran = run(tmp_path / "map.cu")
    answers, *seen, stored = ran.stdout.splitlines()
    assert dict(zip(TRIED, answers.split(", "))) == TRIED
    seen = [np.array(line.split(), float) for line in seen]
    for slice_, tile, pixels in ((4, *seen[:2]), (8, *seen[2:4])):
        a = np.arange(48 * slice_).reshape(2, 3, 8, slice_)          # n, c / slice, w, channels of a slice
        columns = np.zeros((1, 2, 4, slice_))
        columns[0, :, :2] = a[1, 1:, 4:8:2]
        right = pixels_of(a[:, 1], (0, 3, 0), ((-1,), (0,)), (1, 2, 1), (1,), 9, slice_)
        for found, rows in ((tile, columns.reshape(-1, slice_)), (pixels, right)):
            moves = np.arange(rows.size // 4)
            moves = moves ^ (moves // 8 % 2 if slice_ == 8 else 0)           # the swizzle of 32 bytes
            assert (found[:rows.size].reshape(-1, 4)[moves].ravel() == rows.ravel()).all()
    halves, right = np.arange(256).reshape(8, 8, 2, 2), np.zeros((8, 8, 2, 2))        # rows, pieces, halves
    for r, piece in np.ndindex(8, 8):
        right[r, piece ^ r % 4 * 2] = halves[r, piece, :: -1 if r % 2 else 1]
    assert (seen[4] == right.ravel()).all() and stored == "1" and len(ran.errors) == 1
    error = ran.errors[0]
    assert error["kind"] == "bad descriptor" and "flips 8 bytes; only loads may" in error["message"]
