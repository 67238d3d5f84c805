"""From the names in a file to those of a decoder: every weight has its place, and every place its weight."""
import re

from torch import Tensor

from course_lib.field_guide.families import FAMILIES
from course_lib.field_guide.weights import as_ours, renamed
from course_lib.field_guide.whole.decoder import Decoder
from course_lib.field_guide.whole.folder import BadCheckpoint, Folder

PREFIX = re.compile(r"^(?:(?:model|backbone|language_model|text_model)\.)+")
OUTER = {"embed_tokens": "embedding", "embeddings": "embedding", "norm": "norm", "norm_f": "norm",
         "lm_head": "out", "final_layernorm": "norm", "embedding_norm": "norm",
         "embed_tokens_per_layer": "per_layer_embedding", "per_layer_model_projection": "per_layer_proj",
         "per_layer_projection_norm": "per_layer_norm"}
INNER = {**dict.fromkeys(("self_attn", "linear_attn", "mamba", "mixer", "conv", "attn"), "mixers.0"),
         **dict.fromkeys(("mlp", "feed_forward", "block_sparse_moe"), "feed_forward"),
         "input_layernorm": "attention_norm", "post_attention_layernorm": "feed_forward_norm"}
# Inside a feed-forward layer: published code names these in many ways.
FEED_FORWARD = [(re.compile(pattern), ours)
                for pattern, ours in ((r"^(gate\.|experts\.)?(e_score_correction_bias|expert_bias)$",
                                       "correction"), (r"^shared_expert_gate\.", "shared_gate."),
                                      (r"^(router\.gate|router\.layer|gate|router)\.", "router."),
                                      (r"^(shared_experts?|shared_mlp)\.", "shared."),
                                      (r"^fc1_latent_proj\.", "narrow."), (r"^fc2_latent_proj\.", "widen."),
                                      (r"\bw1\.", "gate_proj."), (r"\bw3\.", "up_proj."),
                                      (r"\bw2\.", "down_proj."), (r"\bc_gate\.", "gate_proj."),
                                      (r"\blinear_gate\.", "gate_proj."),
                                      (r"\binput_linear\.", "gate_up_proj."),
                                      (r"\boutput_linear\.", "down_proj."))]
# Keys that published folders have and the model does not.
BESIDE = [(re.compile(pattern), what)
          for pattern, what in ((r"rotary_emb\.inv_freq$", "the speeds of the rotation, which follow from "
                                 "the configuration"), (r"(^|\.)mtp[._]", "draft layers"),
                                (r"\.(diagonal_decay|key_decay|query_decay|slope_rate)$", "fixed decays"),
                                (r"attn\.(masked_bias|bias)$", "a mask"),
                                (
             r"(^|\.)(vision_tower|visual|vision_model|multi_modal_projector|audio_tower)\.",
            "what reads pictures and sound"))]


def load(decoder: Decoder, folder: Folder, model_type: str, drafts: int = 0) -> list[str]:
    """Fill a decoder that was built without memory; lines on what was let by."""
    plan, layers, outer, beside = decoder.plan, [{} for _ in decoder.layers], {}, {}
    for key in folder.files:
        rest = PREFIX.sub("", key)
        place = re.match(r"layers\.(\d+)\.(.+)", rest)
        what = next((what for pattern, what in BESIDE if pattern.search(key)), None)
        if what is None and place and len(layers) <= int(place[1]) < len(layers) + drafts:
            what = "draft layers"
        if what:
            beside.setdefault(what, []).append(key)
        elif place and int(place[1]) < len(layers):
            layers[int(place[1])][place[2]] = key
        elif place:
            raise folder.bad(key, f"no place for it: config.json says {len(layers)} layers")
        else:
            outer[rest] = key
    if "lm_head.weight" in outer and plan.tied:
        beside["an output projection, which is the embedding"] = [outer.pop("lm_head.weight")]
    fill_outer(decoder, folder, outer)
    dtype = decoder.embedding.weight.dtype
    for number, keys in enumerate(layers):
        fill_layer(decoder, number, keys, layers, folder, model_type, dtype)
    return [f"Let by: {keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {what}."
            for what, keys in beside.items()]


def fill_outer(decoder: Decoder, folder: Folder, keys: dict):
    plan = decoder.plan
    if plan.tied is None and "lm_head.weight" not in keys:
        decoder.out = None
    came, weights = {}, {}
    for rest, key in keys.items():
        name = renamed(rest, {**OUTER, **plan.names})
        came[name], weights[name] = key, folder.tensor(key)
    if plan.plus_one and "norm.weight" in weights:
        weights["norm.weight"] = weights["norm.weight"].float() + 1
    ours = {name: x for name, x in decoder.state_dict().items() if not name.startswith("layers.")}
    published = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight",
                 "out.weight": "lm_head.weight"}
    assign(decoder, ours, weights, came, folder, lambda name: published.get(name, name), keep=True)


def fill_layer(decoder: Decoder, number: int, keys: dict, layers: list, folder: Folder, model_type: str,
               dtype):
    plan, block = decoder.plan, decoder.layers[number]
    names = {**INNER, **({"mamba": "mixers.1"} if len(block.mixers) > 1 else {}), **plan.names,
             **block.plan.names}
    weights, came, mixers = {}, {}, [{} for _ in block.mixers]
    for rest, key in keys.items():
        name, x = renamed(rest, names), folder.tensor(key)
        if name.startswith("mixers."):
            if not mixers:
                raise folder.bad(key, f"no place for it: nothing mixes tokens in layer {number}")
            _, part, inner = name.split(".", 2)
            reuses = getattr(block.mixers[int(part)].recipe, "reuses", None) is not None
            if not reuses or inner[:2] not in ("k_", "v_"):
                mixers[int(part)][inner] = key, x
            continue
        if name.startswith("feed_forward."):
            for inner, part in of_feed_forward(name.removeprefix("feed_forward."), x, plan.packed):
                weights[f"feed_forward.{inner}"], came[f"feed_forward.{inner}"] = part, key
            continue
        weights[name] = x.float() + 1 if plan.plus_one and name.endswith("norm.weight") else x
        came[name] = key
    for part, given in enumerate(mixers):
        got, origin = of_mixer(given, block.mixers[part], model_type, folder)
        weights.update({f"mixers.{part}.{name}": x for name, x in got.items()})
        came.update({f"mixers.{part}.{name}": key for name, key in origin.items()})
    called = likely_names(decoder, number, layers, names)
    prefix = next((key.split("layers.")[0] for key in folder.files if "layers." in key), "model.")
    assign(block, dict(block.state_dict()), weights, came, folder,
           lambda name: f"{prefix}layers.{number}.{called(name)}", dtype)


def likely_names(decoder: Decoder, number: int, layers: list, names: dict):
    """What a file would call a weight that layer `number` lacks: as other layers of the kind have it, if any do."""
    block = decoder.layers[number]
    missing = sorted({rest for other, layer in zip(decoder.layers, layers) for rest in layer
                      if other.plan.feed_forward == block.plan.feed_forward
                      and type(other.attention) is type(block.attention)} - layers[number].keys())
    back = {ours: rest for rest, ours in reversed(names.items())}
    back["mixers.0.out_proj"] = f"{back['mixers.0']}.o_proj"

    def called(name):
        near = [rest for rest in missing if renamed(rest, names) == name
                or rest.split(".")[-1].removesuffix("_bias") in name.split(".")
                or rest.split(".")[-2:] == name.split(".")[-2:]]
        return near[0] if near else renamed(name, back)
    return called


def of_mixer(given: dict, mixer, model_type: str, folder: Folder) -> tuple[dict, dict]:
    """Our names of a mixer's weights, and the key that each came from."""
    family = FAMILIES[model_type]
    weights = {name: x for name, (_, x) in given.items()}
    try:
        ours = as_ours(weights, mixer.recipe, model_type)
    except (RuntimeError, KeyError) as error:  # a matrix that holds several is of another shape, or missing
        plain = mixer.state_dict().keys()
        several = [key for name, (key, _) in given.items() if renamed(name, family.names) not in plain]
        key = (several or [key for key, _ in given.values()])[0]
        raise folder.bad(key, "expected a matrix that holds several, of other sizes than "
                         f"{folder.shape(key)}: {error}") from None
    origin = {renamed(name, family.names): key for name, (key, _) in given.items()}
    several = next((key for name, key in origin.items() if name not in ours),
                   next(iter(origin.values()), None))
    return ours, {name: origin.get(name, several) for name in ours}


def of_feed_forward(name: str, x: Tensor, packed: str):
    """(our name, tensor) of all that one tensor of a file holds."""
    for pattern, ours in FEED_FORWARD:
        name = pattern.sub(ours, name)
    if x.dim() == 3 or (name.startswith("experts.") and name.endswith("_bias")):        # all experts in one
        kind = "bias" if name.endswith("_bias") else "weight"
        short = name.removeprefix("experts.").removesuffix("_bias").removesuffix(".weight")
        for number, one in enumerate(x):
            one = one.T if one.dim() == 2 and packed != "rows" else one
            for inner, part in halves(f"{short}.{kind}", one, "in turn" in packed):
                yield f"experts.{number}.{inner}", part
    else:
        yield from halves(name, x)


def halves(name: str, x: Tensor, in_turn: bool = False):
    if "gate_up_proj." not in name:
        yield name, x
        return
    parts = (x[::2], x[1::2]) if in_turn else x.chunk(2)
    yield from ((name.replace("gate_up_proj", one), part)
                for one, part in zip(("gate_proj", "up_proj"), parts))


def assign(module, ours: dict, weights: dict, came: dict, folder: Folder, called, dtype=None, keep=False):
    """Put weights in their places without a copy; those in another kind of number than the embedding follow
    it, but for vectors, which are small and often meant to be float32."""
    for name in weights.keys() - ours.keys():
        raise folder.bad(came[name], "no place for it in this model")
    for name, want in ours.items():
        if name not in weights:
            first = next(iter(folder.headers))
            named = called(name)
            raise BadCheckpoint((folder.weight_map or {}).get(named, first), named,
                                f"missing; expected a tensor of shape {tuple(want.shape)}")
        x = weights[name]
        if [n for n in x.shape if n != 1] != [n for n in want.shape if n != 1]:
            held = folder.shape(came[name])
            raise folder.bad(came[name], f"expected shape {tuple(want.shape)}, got {tuple(x.shape)}" + (
                f" of a tensor of {held}" if held != tuple(x.shape) else ""))
        x = x.reshape(want.shape)
        if dtype is not None and x.dtype != dtype and (x.dim() > 1 or name.endswith("proj.bias")):
            x = x.to(dtype)
        weights[name] = x
    module.load_state_dict({name: weights[name] for name in ours}, assign=True, strict=not keep)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
