"""Which query head reads which head of keys, and what one token keeps (chapter 3)."""
import torch

from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.gqa import kv_bytes_per_token, latent_bytes_per_token, repeat_kv

LAYERS, HEAD_DIM, BYTES = 32, 128, 2            # of the model whose cache is counted, as Llama 3 8B has them
LATENT = (512, 64)                              # DeepSeek-V3's latent and its part with positions
LEFT, WIDE, QUERIES, KEYS = 30, 640, 52, 142


def reads(n_heads: int, n_kv_heads: int) -> list[int]:
    """The key head that each query head reads: `repeat_kv` of the heads' own numbers."""
    numbers = torch.arange(n_kv_heads)[None, :, None, None]
    return repeat_kv(numbers, n_heads // n_kv_heads)[0, :, 0, 0].tolist()


class SharedHeads(Explorable):
    title = "Which head reads which"
    caption = (f"Query heads above, heads of keys and values below. One token's cache in {LAYERS} layers "
               f"of heads {HEAD_DIM} wide, 2 bytes per number, beside a head of keys for each query head "
               "and a latent of 512 + 64 numbers. Click a head to see its group.")
    controls = (Slider("n_heads", (4, 8, 16, 32, 64), 32, "query heads"),
                Slider("n_kv_heads", (1, 2, 4, 8, 16, 32, 64), 8, "heads of keys and values"),
                Slider("head", range(64), 5, "query head"))
    page = {"n_heads": (8, 32), "n_kv_heads": (1, 2, 4, 8, 16, 32), "head": (5,)}

    def ranges(self, n_heads, **_):
        return {"n_kv_heads": [n for n in self.controls[1].values if n <= n_heads], "head": range(n_heads)}

    def draw(self, n_heads, n_kv_heads, head):
        table = reads(n_heads, n_kv_heads)
        group = [h for h, kv in enumerate(table) if kv == table[head]]
        canvas = Canvas(700, 292)
        draw_heads(canvas, table, n_kv_heads, head)
        own, kept, latent = sizes = (kv_bytes_per_token(LAYERS, n_heads, HEAD_DIM, BYTES),
                                     kv_bytes_per_token(LAYERS, n_kv_heads, HEAD_DIM, BYTES),
                                     latent_bytes_per_token(LAYERS, *LATENT, BYTES))
        for n, (name, size) in enumerate(zip(("a head per query head", "as chosen", "a latent"), sizes)):
            y = 206 + 26 * n
            canvas.text(190, y + 14, name, anchor="end", bold=n == 1)
            canvas.rect(198, y, 380 * size / max(sizes), 18, stroke="ink", thick=0.5,
                        fill="accent" if n == 1 else "soft")
            canvas.text(206 + 380 * size / max(sizes), y + 14, f"{size / 1024:g} KiB")
        return canvas, (f"{n_heads} query heads on {amount(n_kv_heads, 'heads')} of keys and values, groups "
                        f"of {len(group)}. Query head {head} reads key head {table[head]}, which serves "
                        f"query head{'s' * (len(group) > 1)} {', '.join(map(str, group))}. One token keeps "
                        f"{kept:,} bytes; a head of keys per query head would keep {own:,}, a latent "
                        f"{latent:,}.")


def draw_heads(canvas: Canvas, table: list[int], n_kv_heads: int, chosen: int) -> None:
    """Both rows, and a line from each query head to what it reads."""
    step, below = WIDE / len(table), WIDE / n_kv_heads
    size = min(28, step - 2)
    canvas.text(LEFT, QUERIES - 14, "query heads", fill="faint")
    canvas.text(LEFT, KEYS + 50, "heads of keys and values", fill="faint")
    for mine in (False, True):                  # the chosen group over the others
        for h, kv in enumerate(table):
            if (kv == table[chosen]) == mine:
                canvas.line(LEFT + step * (h + 0.5), QUERIES + 28, LEFT + below * (kv + 0.5), KEYS,
                            stroke="ink" if mine else "line", thick=1.6 if mine else 0.8)
    for h, kv in enumerate(table):
        canvas.rect(LEFT + step * (h + 0.5) - size / 2, QUERIES, size, 28, text=h, size=min(11, 0.62 * size),
                    fill="accent" if h == chosen else "1" if kv == table[chosen] else "empty",
                    set={"head": h}, about=f"query head {h} reads key head {kv}")
    wide = min(64, below - 2)
    for kv in range(n_kv_heads):
        canvas.rect(LEFT + below * (kv + 0.5) - wide / 2, KEYS, wide, 28, text=kv, size=min(11, 0.62 * wide),
                    fill="1" if kv == table[chosen] else "soft", set={"head": table.index(kv)},
                    about=f"key head {kv}, read by {table.count(kv)}")
