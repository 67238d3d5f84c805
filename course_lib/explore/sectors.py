"""Stride and offset against sectors (chapter 0)."""
from functools import cache

import torch

from course_lib import cuda
from course_lib.explore.frame import Canvas, Explorable, Slider

FLOATS = 1024 + 32              # stride 32 from offset 31 still fits
SOURCE = """
__global__ void every(const float* __restrict__ x, float* __restrict__ out, int stride, int offset) {
    out[threadIdx.x] = x[stride * threadIdx.x + offset];
}
"""
PER_ROW, WIDTH, CELL, HEIGHT = 16, 40, 4.5, 20


@cache
def kernel():
    return cuda.compile(SOURCE).every


def counted(stride: int, offset: int):
    """(the engine's counts of the loads, the index that each lane reads)."""
    with cuda.profile() as report:
        kernel()[1, 32](torch.zeros(FLOATS), cuda.empty(32), stride, offset)
    launch = report.launches[0]
    request = launch.picture("x").requests[0]
    return launch.global_load, [at // 4 for at in request["offset"]]


class Sectors(Explorable):
    title = "Stride and offset against sectors"
    caption = "Memory moves in sectors of 32 bytes, whole ones, however little of them a warp asks for."
    controls = (Slider("stride", range(1, 33), 1, "stride", "floats"),
                Slider("offset", range(0, 32), 0, "offset", "floats"))
    page = {"stride": (1, 2, 3, 4, 8, 16, 32), "offset": (0, 1, 4, 8)}

    def draw(self, stride, offset):
        load, indices = counted(stride, offset)
        canvas = Canvas(700, 240)
        canvas.text(20, 20, f"out[i] = x[{stride} * i + {offset}],  i = 0 to 31", code=True)
        canvas.text(680, 20, f"{load.sectors} sectors: {load.bytes} of {load.moved} bytes asked for",
                    anchor="end", bold=True)
        draw_sectors(canvas, indices)
        canvas.text(20, 232, "A frame is a sector of 8 floats, a bar in it a float that a lane reads. "
                             "Left: index of a row's first float.", size=11, fill="faint")
        share = load.bytes / load.moved
        return canvas, (f"Stride {stride}, offset {offset}: the 32 lanes read x[{indices[0]}], "
                        f"x[{indices[1]}], ... x[{indices[-1]}]. They ask for {load.bytes} bytes in "
                        f"{load.sectors} sectors, so {load.moved} bytes move, and {100 * share:.3g}% "
                        "of them were asked for.")


def place(sector: int) -> tuple[float, float]:
    return 44 + WIDTH * (sector % PER_ROW), 34 + HEIGHT * (sector // PER_ROW)


def draw_sectors(canvas: Canvas, indices: list[int]) -> None:
    """All sectors of the array, the touched ones in colour, and in them the floats that lanes read."""
    touched = {}
    for lane, at in enumerate(indices):
        touched.setdefault(at // 8, []).append(lane)
    for sector in range(0, FLOATS // 8, PER_ROW):
        canvas.text(38, place(sector)[1] + 13, sector * 8, size=11, anchor="end", fill="faint")
    untouched = [place(sector) for sector in range(FLOATS // 8) if sector not in touched]
    canvas.frames(untouched, WIDTH - 4, HEIGHT - 4)
    for sector, lanes in touched.items():
        canvas.rect(*place(sector), WIDTH - 4, HEIGHT - 4, fill="accent", stroke="ink",
                    about=f"sector {sector}: {span('lane', lanes)}")
    read = [(place(at // 8)[0] + CELL * (at % 8), place(at // 8)[1]) for at in indices]
    canvas.frames(read, CELL, HEIGHT - 4, fill="ink", stroke="accent")


def span(word: str, numbers: list[int]) -> str:
    return f"{word} {numbers[0]}" if len(numbers) == 1 else f"{word}s {numbers[0]} to {numbers[-1]}"
