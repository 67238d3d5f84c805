"""A tile of queries chosen, and the flash kernel compiled and counted again (chapter 6)."""
from functools import cache

import torch

from course_lib import cuda
from course_lib.explore.frame import Canvas, Choice, Explorable, Slider
from course_lib.flash_attention import traffic

D, KEYS_PER_TILE, WARPS = 32, 32, 4


@cache
def counted(n: int, rows: int, causal: bool):
    """The engine's counts of one head through rung 4 with tiles of `rows` queries."""
    kernel = cuda.load("flash_attention")[f"flash_vectors<float, {D}, {D}, {rows // WARPS}>"]
    q, k, v = torch.zeros(3, n, D)
    out, lse = cuda.empty(n, D), cuda.empty(n)
    with cuda.profile() as report:
        kernel[(-(-n // rows), 1), 32 * WARPS](q, k, v, None, out, lse, 1, n, n, D, D, D**-0.5, int(causal))
    return report.launches[0]


class TileTraffic(Explorable):
    title = "The tile of queries and the bytes"
    caption = ("Rung 4 of the ladder, compiled anew for each size of tile and counted by the engine, beside "
               "the formula of this chapter. A query tile twice as tall halves the bytes of keys and values. "
               "This rung skips no tile, so a causal mask saves nothing yet.")
    controls = (Choice("rows", (4, 8, 16, 32), 16, "queries per tile"),
                Slider("n", (32, 64, 96, 100, 128), 96, "tokens"), Choice("causal", ("no", "yes")))
    page = {control.name: control.values for control in controls}

    def draw(self, rows, n, causal):
        masked = causal == "yes"
        launch = counted(n, rows, masked)
        moved = launch.global_load.moved + launch.global_store.moved
        formula = traffic(n, D, rows, KEYS_PER_TILE, "query-outer", causal=False, lse=True)
        standard = traffic(n, D, rows, KEYS_PER_TILE, "standard")
        canvas = Canvas(700, 170)
        canvas.text(20, 20, f"{n} tokens, head_dim {D}, tiles of {rows} queries and {KEYS_PER_TILE} "
                            "keys", bold=True)
        widest = max(standard, moved, formula)
        for y, name, size, fill in ((38, "counted: moved", moved, "accent"), (80, "formula, all "
                                                                                  "tiles", formula, "soft"),
                                    (122, "standard attention", standard, "soft")):
            canvas.text(158, y + 19, name, size=12, anchor="end")
            canvas.rect(166, y, 430 * size / widest, 28, fill=fill, stroke="ink", thick=0.5)
            canvas.text(174 + 430 * size / widest, y + 19, f"{size / 1024:.1f} KiB")
        return canvas, (f"{n} tokens, {'causal' if masked else 'no mask'}, tiles of {rows} queries: the "
                        f"engine counts {moved} bytes moved, the formula for all tiles says {formula}, "
                        f"standard attention {standard}. {launch.barriers} barriers, {launch.grid[0]} "
                        "blocks.")
