"""Split keys and the waves of blocks on a card (chapter 7)."""
import math

from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.kv_cache.decoding import BLOCKS_PER_MULTIPROCESSOR, choose_splits

SHOWN, NARROWEST = 12, 55       # waves that the picture has room for, each at least so wide


class Waves(Explorable):
    title = "Split keys fill a card"
    caption = ("A block of one warp per key head and part of the keys. A frame is one wave: as many blocks "
               "as the card holds at once. The empty part of a frame is idle.")
    controls = (Slider("heads", (1, 8, 16, 32, 64, 128, 256), 8, "sequences x key heads"),
                Slider("keys", tuple(2**n for n in range(9, 18)), 8192, "keys per sequence"),
                Slider("splits", (1, 2, 4, 8, 16, 32, 33, 34, 64, 128, 256, 512, 1024), 1, "parts", play=True),
                Slider("multiprocessors", (16, 40, 58, 108, 132), 132))
    page = {"heads": (8, 64), "keys": (8192,), "splits": (1, 4, 16, 33, 34, 64, 256, 1024),
            "multiprocessors": (132,)}

    def draw(self, heads, keys, splits, multiprocessors):
        slots, blocks = BLOCKS_PER_MULTIPROCESSOR * multiprocessors, heads * splits
        waves, chosen = math.ceil(blocks / slots), choose_splits(heads, keys, multiprocessors)
        length = math.ceil(keys / splits)
        canvas = Canvas(700, 150)
        canvas.text(20, 20, f"{amount(blocks, 'blocks')} of {length:,} keys on {multiprocessors} "
                            f"multiprocessors ({slots:,} places)", bold=True)
        width = max(NARROWEST, NARROWEST * SHOWN // waves)
        for wave in range(min(waves, SHOWN)):
            share = min(1, (blocks - wave * slots) / slots)
            x = 20 + width * wave
            canvas.rect(x, 34, width - 7, 60, about=f"wave {wave + 1}: {share:.1%} of the places")
            canvas.rect(x, 34, (width - 7) * share, 60, fill="accent", stroke="ink", thick=0.5)
        if waves > SHOWN:
            canvas.text(20 + NARROWEST * SHOWN, 68, "...")
        busy = blocks / (waves * slots)
        canvas.text(20, 116, f"{amount(waves, 'waves')}, {busy:.1%} of the places busy; one after another a "
                             "block reads "
                    f"{waves * length:,} keys")
        canvas.text(20, 138, f"The chapter's rule takes {amount(chosen, 'parts')} here.", fill="faint")
        return canvas, (f"{amount(heads, 'heads')}, {keys:,} keys, {amount(splits, 'parts')}: "
                        f"{amount(blocks, 'blocks')} on {slots:,} places, {amount(waves, 'waves')}, "
                        f"{busy:.1%} busy, each block reads {length:,} keys. choose_splits takes {chosen}.")
