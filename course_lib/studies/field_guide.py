"""The field guide's layers against the published ones.

    python -m course_lib field-guide                     the table of equality, all families
    python -m course_lib field-guide qwen3 gemma4_text   some of them
    python -m course_lib field-guide --record            also write data/field_guide/

Needs `transformers` (pip install "course_lib[field_guide]"). A model of a few thousand random weights is built
from a configuration; nothing is downloaded. Every attention layer of it is given made-up inputs, to be compared
by itself, with the masks, positions and caches that the published model makes."""
import json
import re
from dataclasses import dataclass

import torch
from safetensors.torch import save_file

from course_lib.field_guide import (FAMILIES, Reading, copy_weights, layer_recipes, made_up_weights, outline,
                                    run_layers)
from course_lib.field_guide.recorded import BATCH, EVERY, FILE, LENGTH, inputs, ways
from course_lib.files import write_whole
from course_lib.studies.tiny_models import CONFIGS, PARTS

TOLERANCE = 1e-5
COMMAND = "python -m course_lib field-guide --record"


@dataclass
class Case:
    """One layer, run one way: the largest difference from the published output, and where it is."""
    model_type: str
    place: tuple
    name: str               # of the module in the published model
    published: str          # its class
    way: str
    difference: float
    where: tuple

    def __str__(self):
        return (f"{self.model_type}: {self.published} at {self.name}, {self.way}: the output differs by "
                f"{self.difference:.1e}, most at (text, token, feature) = {self.where}")


def published_model(model_type: str, **changes):
    """The library's model with tiny sizes, its attention layers filled with made-up weights."""
    import transformers
    transformers.logging.set_verbosity_error()
    if model_type not in CONFIGS:
        raise ValueError(
            f"model_type {model_type!r} has no tiny configuration here; these have: {', '.join(CONFIGS)}")
    try:
        config = transformers.AutoConfig.for_model(model_type, **{**CONFIGS[model_type], **changes})
    except ValueError as error:
        if "Unrecognized model" not in str(error):
            raise
        raise ValueError(f"transformers {transformers.__version__}, which is installed, has no model_type "
                         f"{model_type!r}") from None
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    for (layer, part), (_, module) in published_layers(model).items():
        weights = made_up_weights(f"{model_type}.{layer}.{part}", outline(module))
        module.load_state_dict(weights, strict=False)
    return model


def published_layers(model) -> dict:
    """{(layer, part): (its name, its module)}: what mixes tokens in each layer, in the order of PARTS."""
    pattern = re.compile(rf"(?:^|\.)layers\.(\d+)\.({'|'.join(PARTS)})$")
    found = {}
    for name, module in model.named_modules():
        match = pattern.search(name)
        if match and list(module.children()):
            found.setdefault(int(match[1]), []).append((PARTS.index(match[2]), name, module))
    return {(layer, i): (name, module) for layer, parts in sorted(found.items())
            for i, (_, name, module) in enumerate(sorted(parts, key=lambda part: part[0]))}


def our_layers(model, model_type: str) -> dict:
    """{(layer, part): our layer with the published weights}."""
    config, layers = Reading(model.config), {}
    for (layer, part), (_, module) in published_layers(model).items():
        ours = layers[layer, part] = layer_recipes(config, layer, model_type)[part].build().eval()
        copy_weights(ours, dict(module.named_parameters()), model_type)
    return layers


@torch.no_grad()
def run_published(model, model_type, pieces, present=None, positions=None) -> dict:
    """{(layer, part): outputs}, the text given in pieces: one piece without a cache, several with one."""
    layers, outputs, span = (
        published_layers(model), {place: [] for place in published_layers(model)}, slice(0))
    whole = {place: inputs(model_type, place, model.config.get_text_config().hidden_size) for place in layers}

    def give(place):
        def hook(module, args, kwargs):
            x = whole[place][:, span]
            return ((args, {**kwargs, "hidden_states": x}) if "hidden_states" in kwargs
                    else ((x, *args[1:]), kwargs))
        return hook

    def take(place):
        def hook(module, args, out):
            outputs[place].append((out[0] if isinstance(out, tuple) else out).clone())
        return hook

    hooks = [hook for place, (_, module) in layers.items()
             for hook in (module.register_forward_pre_hook(give(place), with_kwargs=True),
                          module.register_forward_hook(take(place)))]
    positions = torch.arange(LENGTH).expand(BATCH, -1) if positions is None else positions
    past = None
    for start, end in pieces:
        span = slice(start, end)
        mask = None if present is None else present[:, :end].long()
        past = model(input_ids=torch.ones(BATCH, end - start, dtype=torch.long), attention_mask=mask,
                     past_key_values=past, use_cache=len(pieces) > 1,
                     position_ids=positions[..., span]).past_key_values
    for hook in hooks:
        hook.remove()
    return {place: torch.cat(parts, 1) for place, parts in outputs.items()}


def compare(model_type: str, model=None) -> list[Case]:
    """Every layer of a family, every way."""
    model = published_model(model_type) if model is None else model
    layers, names, cases = our_layers(model, model_type), published_layers(model), []
    for way, pieces, present, positions in ways(CONFIGS[model_type]):
        theirs = run_published(model, model_type, pieces, present, positions)
        ours = run_layers(layers, model_type, pieces, present, positions)
        for place, (name, module) in names.items():
            gap = (ours[place] - theirs[place]).abs().nan_to_num(float("inf"))
            gap = gap if present is None else gap * present[..., None]
            where = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
            cases.append(Case(model_type, place, name, type(module).__name__, way, float(gap.max()), where))
    return cases


def record(path=FILE) -> None:
    """Write what the quick tests compare with: outputs of padded texts, and of three axes, thinned out."""
    tensors, families = {}, {}
    for model_type in CONFIGS:
        model = published_model(model_type)
        reading, outlines = Reading(model.config), {}
        for (layer, part), (_, module) in published_layers(model).items():
            layer_recipes(reading, layer, model_type)
            sizes = outline(module)
            same = next((place for place, other in outlines.items() if other == sizes), None)
            outlines[f"{layer}.{part}"] = sizes if same is None else [int(i) for i in same.split(".")]
        for way, pieces, present, positions in ways(CONFIGS[model_type]):
            if way in ("padded", "three axes"):
                theirs = run_published(model, model_type, pieces, present, positions)
                for (layer, part), out in theirs.items():
                    tensors[f"{model_type}/{way}/{layer}/{part}"] = out[..., ::EVERY].contiguous()
        used = {name: reading.values[name] for name in sorted(reading.used) if name in reading.values}
        families[model_type] = {"config": {**used, "model_type": model_type}, "outlines": outlines}
    path.parent.mkdir(exist_ok=True)
    about = {"command": COMMAND, "families": families, "library": library()}
    save_file(tensors, path, {"about": json.dumps(about)})


def table(model_types) -> list[dict]:
    """One row per family: what is published, how many cases, the largest difference, with a cache or not."""
    rows = []
    for model_type in model_types:
        cases = compare(model_type)
        with_cache = [case.difference for case in cases if "step" in case.way]
        without = [case.difference for case in cases if "step" not in case.way]
        rows.append({"family": model_type, "classes": sorted({case.published for case in cases}),
                     "cases": len(cases), "without cache": max(without), "with cache": max(with_cache),
                     "lines": FAMILIES[model_type].lines})
    return rows


def library() -> str:
    """Its name and version, or how to get it."""
    try:
        import transformers
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'this compares with the library transformers: pip install "course_lib[field_guide]"') from None
    return f"transformers {transformers.__version__}"


def main(arguments) -> int:
    name_of_it = library()
    names = [name for name in arguments if not name.startswith("-")] or list(CONFIGS)
    rows = table(names)
    if "--record" in arguments:
        record()
        about = {"command": COMMAND, "library": name_of_it, "torch": torch.__version__}
        write_whole(FILE.parent / "equality.json", json.dumps({**about, "families": rows}, indent=1) + "\n")
    print(f"{name_of_it}, float32; largest difference of the outputs")
    print(f"{'family':20s} {'no cache':>9s} {'cache':>9s} {'cases':>6s} {'lines':>6s}  published classes")
    for row in rows:
        print(f"{row['family']:20s} {row['without cache']:9.1e} {row['with cache']:9.1e} {row['cases']:6d} "
              f"{row['lines']:6d}  {', '.join(row['classes'])}")
    worst = [max(row["with cache"], row["without cache"]) for row in rows]
    equal = sum(difference < TOLERANCE for difference in worst)
    print(f"{equal} of {len(rows)} families within {TOLERANCE:.0e}; largest difference {max(worst):.1e}")
    return 0 if equal == len(rows) else 1
