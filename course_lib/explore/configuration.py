"""A configuration edited by hand, and what its cache costs (chapter 11)."""
import json

from course_lib.explore.frame import Canvas, Choice, Explorable, Text
from course_lib.field_guide import describe, published_models
from course_lib.field_guide.costs import LENGTHS, bytes_per_token, in_words, kept_bytes, read_bytes

LARGEST = 10**6                 # of a number that a reader types: layers are read one by one
MODELS = ("Llama 3 8B", "gpt-oss 120B", "DeepSeek-V3", "Qwen3-Next 80B-A3B")
SUGGESTED = {
    "half the key heads": "num_key_value_heads=4",
    "windows in 3 of 4 layers": "model_type=mine sliding_window_pattern=4 sliding_window=1024",
    "a latent": "model_type=mine kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128",
    "an unknown key": "attention_swirl=3"}


def edits(text: str) -> dict:
    """name=value pairs, separated by spaces or commas; a value is a number, true, false, null or a word."""
    found = {}
    for pair in text.replace(",", " ").split():
        name, sign, value = pair.partition("=")
        if not (name and sign and value):
            raise ValueError(f"edit: {pair!r} is not name=value, as in num_key_value_heads=4")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
        if isinstance(found[name], (int, float)) and not 0 <= found[name] <= LARGEST:
            raise ValueError(f"edit: {name} must be between 0 and {LARGEST:,}; got {value}")
    if found.get("num_hidden_layers", 0) > 1000:
        raise ValueError(f"edit: num_hidden_layers must be at most 1,000; got {found['num_hidden_layers']:,}")
    return found


def costs(about, size: int) -> dict[str, float]:
    """Bytes that one more token adds, bytes kept and bytes read per step at each length, of all layers."""
    further = sum(bytes_per_token(recipe, size) for layer in about.recipes for recipe in layer)
    return {"one more token": further} | {
        f"{name} at {length}": about.total(lambda recipe, n: count(recipe, n, size), tokens)
        for name, count in (("cache", kept_bytes), ("read per step", read_bytes))
        for length, tokens in LENGTHS.items()}


class Configuration(Explorable):
    title = "A configuration, edited by hand"
    caption = ("Above each other: what the model keeps and reads as it was published, and as edited. Type "
               "name=value pairs, or click a suggestion. The last line names keys that could not be placed.")
    controls = (Choice("model", MODELS), Text("edit", SUGGESTED["half the key heads"], "edit", 120),
                Choice("bytes", (2, 1), 2, "bytes per number"))
    page = {"model": MODELS, "edit": tuple(SUGGESTED.values()), "bytes": (2,)}

    def draw(self, model, edit, bytes):
        config = published_models()[model]["config"]
        before, after = describe(config), describe({**config, **edits(edit)})
        old, new = costs(before, bytes), costs(after, bytes)
        kinds = [f"{row['layers']} x {row['kind']}" for row in after.rows]
        canvas = Canvas(700, 348)
        draw_suggestions(canvas, edit)
        canvas.text(20, 66, f"{model}, edited: {'; '.join(kinds)}"[:104], bold=True)
        for n, label in enumerate(old):
            draw_pair(canvas, 86 + 32 * n + 8 * (n > 0) + 8 * (n > 3), label, old[label], new[label])
        canvas.text(20, 338, after.remarks()[-1][:110], size=11, fill="faint")
        told = "; ".join(f"{label}: {in_words(new[label])} (published {in_words(size)})"
                         for label, size in old.items())
        return canvas, (f"{model} with {edit or 'no edit'}, {bytes} bytes per number: {'; '.join(kinds)}. "
                        f"{told[0].upper() + told[1:]}. {after.remarks()[-1]}")


def draw_suggestions(canvas: Canvas, edit: str) -> None:
    for n, (name, text) in enumerate(SUGGESTED.items()):
        canvas.rect(20 + 168 * n, 14, 160, 26, text=name, fill="accent" if text == edit else "soft", round=4,
                    size=12, set={"edit": text}, about=name)


def draw_pair(canvas: Canvas, y: float, label: str, old: float, new: float) -> None:
    """Published above edited, both as parts of the larger."""
    canvas.text(168, y + 15, label, anchor="end")
    for down, size, fill in ((0, old, "soft"), (12, new, "accent")):
        canvas.rect(178, y + down, 330 * size / max(old, new, 1), 11, fill=fill, stroke="ink", thick=0.5)
    canvas.text(518, y + 15, f"{in_words(old)} → {in_words(new)}", bold=old != new)
