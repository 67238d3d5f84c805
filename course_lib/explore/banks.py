"""Banks and padding: the pitch of a shared tile against bank conflicts (chapter 0)."""
from functools import cache

from course_lib import cuda
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider

BANKS, WIDEST = 32, 40
SOURCE = """
__global__ void tile_read(float* __restrict__ out, int down, int right) {
    extern __shared__ float tile[];
    int i = threadIdx.x, at = i * down + right * i;
    tile[at] = i;
    __syncthreads();
    out[i] = tile[at];
}
"""


@cache
def kernel():
    return cuda.compile(SOURCE).tile_read


def counted(pitch: int, read: str):
    """(the engine's counts of the one load, the word that each lane reads)."""
    down, right = (pitch, 0) if read == "column" else (0, 1)
    with cuda.profile() as report:
        kernel()[1, 32, 4 * WIDEST * 32](cuda.empty(32), down, right)
    launch = report.launches[0]
    request = launch.picture("tile").requests[-1]
    return launch.shared_load, [at // 4 for at in request["offset"]]


class Banks(Explorable):
    title = "Banks and padding"
    caption = ("Lanes that want different words of one bank wait for each other; an odd pitch spreads a "
               "column over all banks.")
    controls = (Slider("pitch", range(1, WIDEST + 1), 32, "pitch of the tile", "floats"),
                Choice("read", ("column", "row"), label="a warp reads a"))
    page = {"pitch": (8, 16, 24, 30, 31, 32, 33, 34, 36), "read": ("column", "row")}

    def draw(self, pitch, read):
        load, words = counted(pitch, read)
        canvas = Canvas(700, 460)
        index = "tile[i][0]" if read == "column" else "tile[0][i]"
        canvas.text(20, 20, f"float tile[32][{pitch}];  lane i reads {index}", code=True)
        canvas.text(680, 20, passes(load.wavefronts), anchor="end", bold=True)
        stacks = {bank: [lane for lane, word in enumerate(words) if word % BANKS == bank]
                  for bank in range(BANKS)}
        for bank, lanes in stacks.items():
            x = 20 + 20.6 * bank
            canvas.text(x + 10, 438, bank, size=11, anchor="middle", fill="faint")
            for level, lane in enumerate(lanes):
                canvas.rect(x, 411 - 12 * level, 20, 12, fill="2" if level == 0 else "warn", text=lane,
                            size=10, about=f"lane {lane} reads word {words[lane]} in bank {bank}")
        canvas.line(20, 423.5, 20 + 20.6 * BANKS, 423.5, stroke="ink")
        canvas.text(20, 456, "Columns: the 32 banks. Boxes: lanes, by the bank of the word they read. "
                             "A bank serves one word per pass.", size=11, fill="faint")
        used, most = sum(map(bool, stacks.values())), max(map(len, stacks.values()))
        return canvas, (f"Pitch {pitch}, a warp reads a {read}: the 32 words are in {used} of the 32 banks, "
                        f"and the fullest bank holds {most} of them. The load takes "
                        f"{passes(load.wavefronts)}, {load.excess} of them lost to conflicts.")


def passes(count: int) -> str:
    return f"{count} pass{'es' * (count != 1)}"
