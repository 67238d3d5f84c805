"""`python -m course_lib moving-picture`: docs/player.svg, some steps of the player as one animated drawing.

A page that runs no script shows it too (the README is one). Who asks for less motion sees one step."""
import torch

from course_lib import cuda
from course_lib.files import ROOT, write_whole
from laptop_cuda.pictures.player import Trace
from laptop_cuda.pictures.svg import Canvas

FILE = ROOT / "docs" / "player.svg"
SECONDS = 1.6                   # per step
SOURCE = """
__global__ void transpose(const float* __restrict__ x, float* __restrict__ out) {
    __shared__ float tile[32][32];
    for (int row = 0; row < 32; ++row)
        tile[row][threadIdx.x] = x[32 * row + threadIdx.x];
    __syncthreads();
    for (int row = 0; row < 32; ++row)
        out[32 * row + threadIdx.x] = tile[threadIdx.x][row];
}
"""


def recorded() -> Trace:
    x, out = torch.arange(1024.0).reshape(32, 32), cuda.empty(32, 32)
    with cuda.profile() as report:
        cuda.compile(SOURCE).transpose[1, 32](x, out)
    return Trace(report.launches[0].replay())


def chosen(trace: Trace) -> list[int]:
    """Two rows on their way into the tile, two columns on their way out."""
    requests = [n for n, step in enumerate(trace.steps) if step["n_events"]]
    half = len(requests) // 2
    return requests[:4] + requests[half:half + 4]


def drawing() -> str:
    """One group per step, each visible in its share of the time."""
    trace = recorded()
    steps = chosen(trace)
    pictures = [trace.picture(n) for n in steps]
    still = steps.index(trace.first)
    canvas = Canvas(700, max(p.canvas.height for p in pictures) + 8)
    canvas.marks.append(f"<style>{animation(len(steps))}</style>")
    for n, picture in enumerate(pictures):
        name = "frame still" if n == still else "frame"
        canvas.marks.append(f'<g class="{name}" style="animation-delay:{n * SECONDS:g}s">'
                            f'{"".join(picture.canvas.marks)}</g>')
    told = " ".join(trace.words(n) for n in steps)
    return canvas.svg(f"Eight steps of a transposition through shared memory. {told}", alone=True) + "\n"


def animation(count: int) -> str:
    share = 100 / count
    return (f"@keyframes turn{{0%{{opacity:1}}{share:g}%{{opacity:0}}100%{{opacity:0}}}}"
            f".frame{{opacity:0;animation:turn {count * SECONDS:g}s step-end infinite}}"
            "@media(prefers-reduced-motion:reduce){.frame{animation:none}.still{opacity:1}}")


def main(argv: list[str]) -> int:
    write_whole(FILE, drawing())
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1000:.0f} kB")
    return 0
