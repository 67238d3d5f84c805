"""What the caches of published models weigh (chapter 3)."""
import json
from functools import cache

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider, amount
from course_lib.files import ROOT
from course_lib.gqa import cache_bytes

GIB = 2**30
CARD, NAME = 80, "H100 SXM"     # GiB, drawn as the frame
CONTEXTS = tuple(2**n for n in range(10, 21))
KINDS = {"full": "0", "window": "1", "latent": "2", "linear": "3"}
LEFT, WIDE = 150, 440


@cache
def models() -> dict[str, dict]:
    """The entries of data/models.json whose layers are known, by name."""
    entries = json.loads((ROOT / "data" / "models.json").read_text(encoding="utf-8"))["models"]
    return {m["name"]: m for m in entries if "layers" in m}


@cache
def bandwidth() -> float:
    """Bytes per second that the card's memory delivers, by its data sheet."""
    cards = json.loads((ROOT / "data" / "cards.json").read_text(encoding="utf-8"))
    return 1e9 * cards[NAME]["memory_gb_per_s"]


def tokens_per_second(batch: int, groups: list[tuple[str, int, int]]) -> float:
    """At most: one token per sequence each time that the memory delivers the whole cache."""
    return batch * bandwidth() / sum(size for _, _, size in groups)


def variants(model: dict, shared: int) -> dict[str, dict]:
    """The model as published, and with other numbers of key and value heads in its full and window layers."""
    found = {"as published": model}
    if any(group["kind"] in ("full", "window") for group in model["layers"]):
        if model["n_heads"] % shared:
            raise ValueError(f"{model['name']}: {model['n_heads']} query heads do not form "
                             f"groups of {shared}")
        name = f"{shared} query heads per head of keys" if shared > 1 else "a head of keys per query head"
        found |= {name: model | {"n_kv_heads": model["n_heads"] // shared},
                  "one head of keys": model | {"n_kv_heads": 1}}
    return found


def parts(model: dict, tokens: int, batch: int, size: int) -> list[tuple[str, int, int]]:
    """(kind of layer, number of layers, bytes of the batch) for each group of layers."""
    return [(group["kind"], group["count"], batch * cache_bytes(model | {"layers": [group]}, tokens, size))
            for group in model["layers"]]


class CacheSizes(Explorable):
    title = "What a cache weighs"
    caption = ("The cache of a batch, layer by layer, beside the memory of a card of 80 GiB: first the model "
               "as it was published, then with other numbers of key and value heads. The tokens per second "
               "are those of an H100 that reads the cache once per step and nothing else.")
    controls = (Choice("model", tuple(models()), "Llama 3 8B"),
                Slider("shared", (1, 2, 4, 8, 16, 32, 64), 1, "query heads per head of keys"),
                Slider("tokens", CONTEXTS, 8192, "tokens per sequence", play=True),
                Slider("batch", (1, 2, 4, 8, 16, 32, 64), 8, "sequences"),
                Choice("bytes", (2, 1), 2, "bytes per number"))
    page = {"model": ("Llama 2 7B", "Llama 3 8B", "Gemma 3 27B", "DeepSeek-V3"), "tokens": CONTEXTS[::2],
            "batch": (1, 8), "bytes": (2,), "shared": (1,)}

    def draw(self, model, shared, tokens, batch, bytes):
        kinds = variants(models()[model], shared)
        rows = {name: parts(m, tokens, batch, bytes) for name, m in kinds.items()}
        canvas = Canvas(700, 62 + 44 * len(rows))
        canvas.text(20, 20, f"{batch} x {tokens:,} tokens in {model}", bold=True)
        legend(canvas, {kind for kind, _, _ in rows["as published"]})
        for n, (name, groups) in enumerate(rows.items()):
            bar(canvas, 44 + 44 * n, name, groups, tokens_per_second(batch, groups))
        canvas.text(LEFT + WIDE, 56 + 44 * len(rows), "80 GiB", size=11, anchor="end", fill="faint")
        told = [sentence(name, groups, tokens_per_second(batch, groups)) for name, groups in rows.items()]
        return canvas, " ".join([f"{model}, {amount(batch, 'sequences')} of {tokens:,} tokens, "
                                 f"{amount(bytes, 'bytes')} per number."] + told)


def legend(canvas: Canvas, kinds: set[str]) -> None:
    for n, kind in enumerate(k for k in KINDS if k in kinds):
        canvas.rect(440 + 62 * n, 11, 10, 10, fill=KINDS[kind])
        canvas.text(453 + 62 * n, 20, kind, size=11)


def bar(canvas: Canvas, top: float, name: str, groups: list[tuple[str, int, int]], rate: float) -> None:
    """One row: a frame of 80 GiB, filled from the left; what does not fit ends in a warning."""
    total, at = sum(size for _, _, size in groups), LEFT
    canvas.text(LEFT - 8, top + 19, name.replace("a head of keys per query head", "own keys per head")
                .replace(" query heads per head of keys", " heads share keys"), anchor="end", size=11)
    for kind, count, size in groups:
        width = min(size / GIB / CARD * WIDE, LEFT + WIDE - at)
        canvas.rect(at, top, width, 28, fill=KINDS[kind], stroke="ink", thick=0.5,
                    about=f"{count} {kind} layers: {size / GIB:.2f} GiB")
        at += width
    canvas.rect(LEFT, top, WIDE, 28, fill=None)
    canvas.text(LEFT + WIDE + 8, top + 13, f"{total / GIB:.2f} GiB", bold=total > CARD * GIB)
    canvas.text(LEFT + WIDE + 8, top + 27, f"{rate:,.0f} tokens/s", size=11, fill="faint")


def sentence(name: str, groups: list[tuple[str, int, int]], rate: float) -> str:
    total = sum(size for _, _, size in groups)
    layers = ", ".join(f"{count} {kind} {size / GIB:.2f}" for kind, count, size in groups)
    fits = "" if total <= CARD * GIB else "; more than a card of 80 GiB holds"
    return (f"{name.capitalize()}: {total / GIB:.2f} GiB ({layers}){fits}; at most {rate:,.0f} tokens per "
            "second.")
