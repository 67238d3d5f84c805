"""Tiny folders whose weights anybody can make again from names, and what the published code gave for them.

`data/field_guide/whole.safetensors` holds, for each family, configuration, keys and shapes as the library
writes them, every fourth logit of a padded batch, and 64 greedy tokens after each of two prompts. Written by
`python -m course_lib whole-models --record`. """
import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from course_lib.field_guide.recorded import about_families
from course_lib.field_guide.weights import made_up
from course_lib.files import ROOT

FILE = ROOT / "data" / "field_guide" / "whole.safetensors"
BATCH, LENGTH, PADDING, EVERY, STEPS = 2, 23, 5, 4, 64


@dataclass
class Tiny:
    model_type: str
    library: str
    config: dict
    shapes: dict                # key -> shape, as in the file
    seed: int
    padded: bool                # the library holds what it gives when a text is padded
    logits: Tensor  # of `texts`, every fourth; the second text padded at the left where that is so
    tokens: Tensor              # greedy, after each text, (BATCH, STEPS)

    def write(self, folder, dtype=torch.float32, shards: int = 1) -> Path:
        return write_tiny(folder, self.config, self.shapes, self.seed, dtype, shards)

    @property
    def texts(self) -> Tensor:
        return texts(self.config.get("vocab_size", 64))


def tiny(model_type: str | None = None) -> list[str] | Tiny:
    """The recording of one family; without a name, the names of all."""
    with safe_open(str(FILE), "pt") as file:
        about = about_families(file, model_type)
        if model_type is None:
            return sorted(about["families"])
        said = about["families"][model_type]
        return Tiny(model_type, about["library"], said["config"], unfold(said["shapes"]), said["seed"],
                    said["padded"],
                    *(file.get_tensor(f"{model_type}/{what}") for what in ("logits", "tokens")))


def texts(vocab: int) -> Tensor:
    """Two texts; ids 0 to 2 are kept for padding, beginning and end."""
    return 3 + (made_up("whole.texts", (BATCH, LENGTH)).abs() * 1e4).long() % (vocab - 3)


def mask() -> Tensor:
    present = torch.ones(BATCH, LENGTH, dtype=torch.long)
    present[1, :PADDING] = 0
    return present


def write_tiny(folder, config: dict, shapes: dict, seed: int = 0, dtype=torch.float32,
               shards: int = 1) -> Path:
    """A folder as models are published in, of made-up weights."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    weights = {key: weight(f"{config['model_type']}.{seed}.{key}", key, shape).to(dtype)
               for key, shape in shapes.items()}
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    names = [f"model-{n + 1:05d}-of-{shards:05d}.safetensors" for n in range(shards)]
    places = {key: names[n % shards] for n, key in enumerate(weights)}
    for name in names:
        save_file({key: x for key, x in weights.items() if places[key] == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def weight(name: str, key: str, shape) -> Tensor:
    """Matrices keep lengths; factors of norms are around 1, or around 0 where stored minus one."""
    if key.endswith(("act_fn.beta", "act_fn.eps")):
        return made_up(name, shape, 0.1, mean=-0.5 if key.endswith("eps") else 0.5)
    if key.endswith("A_log"):               # a state forgets as fast as in trained models
        return made_up(name, shape, 0.3, mean=0.5)
    if len(shape) < 2:
        return made_up(name, shape, 0.3, mean=1.0 if re.search(r"norm[^.]*\.weight$|norm_f|\.D$|scalar$", key)
                       else 0.0)
    return made_up(name, shape, shape[-1] ** -0.5)


def fold(shapes: dict) -> dict:
    """Keys that differ in numbers alone, and have one shape, in one entry."""
    folded = {}
    for key, shape in shapes.items():
        numbers = [int(number) for number in re.findall(r"(?<=\.)\d+(?=\.)", key)]
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "#", key)
        folded.setdefault(f"{pattern} {'x'.join(map(str, shape))}", []).append(numbers)
    return folded


def unfold(folded: dict) -> dict:
    shapes = {}
    for entry, several in folded.items():
        pattern, _, sizes = entry.partition(" ")
        for numbers in several:
            parts = pattern.split("#")
            key = "".join(f"{part}{number}" for part, number in zip(parts, [*numbers, ""]))
            shapes[key] = [int(size) for size in sizes.split("x") if size]
    return dict(sorted(shapes.items()))
