"""Tiny configurations of the families, as the library names their sizes: what the equality is shown with.
`tiny_models.json` has them and says how they are written. """
import json
from pathlib import Path

WRITTEN = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PARTS = ("self_attn", "linear_attn", "mamba", "mixer", "conv", "attention", "attn")


def made(value):
    """A list that begins with the name of a part, or is all changes, as one dict; what is in it likewise."""
    if isinstance(value, list) and all(isinstance(x, dict) or x in WRITTEN["parts"] for x in value):
        merged = {}
        for part in value:
            merged |= made(WRITTEN["parts"].get(part) if isinstance(part, str) else part)
        return merged
    return {name: made(x) for name, x in value.items()} if isinstance(value, dict) else value


CONFIGS = {model_type: {name: value for name, value in made(["COMMON", *parts]).items() if value is not None}
           for model_type, parts in WRITTEN["tiny"].items()}
