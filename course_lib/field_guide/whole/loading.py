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
INNER = {theirs: ours for ours, several in {
    "mixers.0": "self_attn linear_attn mamba mixer conv attn",
    "feed_forward": "mlp feed_forward block_sparse_moe",
    "feed_forward.shared": "shared_mlp",
    "feed_forward.activation": "mlp.act_fn",
    "feed_forward.correction": "moe.router.expert_bias",
    "attention_norm": "input_layernorm attention_layernorm attention_layer_norm operator_norm",
    "attention_out_norm": "post_self_attn_layernorm post_attn_norm post_operator_norm",
    "feed_forward_norm": "post_attention_layernorm pre_feedforward_layernorm pre_mlp_layernorm pre_ff_layernorm "
                         "feedforward_layernorm feedforward_layer_norm ffn_norm",
    "feed_forward_out_norm": "post_feedforward_layernorm post_mlp_layernorm post_ffn_norm",
    "scalar": "layer_scalar", "per_layer_gate": "per_layer_input_gate",
    "per_layer_proj": "per_layer_projection", "per_layer_norm": "post_per_layer_input_norm"}.items() for theirs in several.split()}
# Inside a feed-forward layer: published code names these in many ways.
FEED_FORWARD = ((r"^(gate\.|experts\.)?(e_score_correction_bias|expert_bias)$", "correction"),
                (r"^shared_expert_gate\.", "shared_gate."), (r"^(shared_experts?|shared_mlp)\.", "shared."),
                (r"^(router\.gate|router\.layer|gate|router)\.", "router."),
                (r"^fc1_latent_proj\.", "narrow."), (r"^fc2_latent_proj\.", "widen."),
                (r"\b(w1|c_gate|linear_gate)\.", "gate_proj."), (r"\b(w3|fc1)\.", "up_proj."),
                (r"\b(w2|fc2|output_linear)\.", "down_proj."), (r"\binput_linear\.", "gate_up_proj."))
# Keys that published folders have and the model does not.
BESIDE = ((r"rotary_emb\.inv_freq$", "the speeds of the rotation, which follow from the configuration"),
          (r"(^|\.)mtp[._]", "draft layers"), (r"attn\.(masked_bias|bias)$", "a mask"),
          (r"\.(diagonal_decay|key_decay|query_decay|slope_rate)$", "fixed decays"),
          (r"(^|\.)(vision_tower|visual|vision_model|multi_modal_projector|audio_tower)\.",
           "what reads pictures and sound"))


def load(decoder: Decoder, folder: Folder, model_type: str, drafts: int = 0) -> list[str]:
    """Fill a decoder that was built without memory; lines on what was let by."""
    layers, outer, beside = [{} for _ in decoder.layers], {}, {}
    for key in folder.files:
        rest = PREFIX.sub("", key)
        place = re.match(r"layers\.(\d+)\.(.+)", rest)
        what = next((what for pattern, what in BESIDE if re.search(pattern, key)), None)
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
    if "lm_head.weight" in outer and decoder.plan.tied:
        beside["an output projection, which is the embedding"] = [outer.pop("lm_head.weight")]
    fill_outer(decoder, folder, outer)
    for number in range(len(layers)):
        fill_layer(decoder, number, layers, folder, model_type)
    return [f"Let by: {keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {what}."
            for what, keys in beside.items()]


class Found(dict):
    """Our name -> (key in the file, tensor)."""

    def put(self, name: str, key: str, x: Tensor, folder: Folder, plus_one: bool = False):
        if name in self:
            raise folder.bad(key, f"{self[name][0]} has its place")
        self[name] = key, x.float() + 1 if plus_one and name.endswith("norm.weight") else x


def fill_outer(decoder: Decoder, folder: Folder, keys: dict):
    found = Found()
    if decoder.plan.tied is None and "lm_head.weight" not in keys:
        decoder.out = None
    for rest, key in keys.items():
        found.put(renamed(rest, OUTER), key, folder.tensor(key), folder, decoder.plan.plus_one)
    ours = {name: x for name, x in decoder.state_dict().items() if not name.startswith("layers.")}
    published = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight",
                 "out.weight": "lm_head.weight"}
    assign(decoder, ours, found, folder, lambda name: published.get(name, name))


def fill_layer(decoder: Decoder, number: int, layers: list, folder: Folder, model_type: str):
    plan, block, found = decoder.plan, decoder.layers[number], Found()
    names = {**INNER, **({"mamba": "mixers.1"} if len(block.mixers) > 1 else {}), **plan.names,
             **block.plan.names}
    mixers = [{} for _ in block.mixers]
    for rest, key in layers[number].items():
        name, x = renamed(rest, names), folder.tensor(key)
        if name.startswith("mixers."):
            if not mixers:
                raise folder.bad(key, f"no place for it: nothing mixes tokens in layer {number}")
            _, part, inner = name.split(".", 2)
            reuses = getattr(block.mixers[int(part)].recipe, "reuses", None) is not None
            if not reuses or inner[:2] not in ("k_", "v_"):
                mixers[int(part)][inner] = key, x
        elif name.startswith("feed_forward."):
            for inner, one in of_feed_forward(name.removeprefix("feed_forward."), x, plan.packed):
                found.put(f"feed_forward.{inner}", key, one, folder)
        else:
            found.put(name, key, x, folder, plan.plus_one)
    for part, given in enumerate(mixers):
        found.update({f"mixers.{part}.{name}": one for name, one in
                      of_mixer(given, block.mixers[part], model_type, folder).items()})
    called = likely_names(decoder, number, layers, names)
    prefix = next((key.split("layers.")[0] for key in folder.files if "layers." in key), "model.")
    assign(block, dict(block.state_dict()), found, folder,
           lambda name: f"{prefix}layers.{number}.{called(name)}", decoder.embedding.weight.dtype)


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


def of_mixer(given: dict, mixer, model_type: str, folder: Folder) -> dict:
    """A mixer's weights: our name -> (the key that it came from, tensor)."""
    family = FAMILIES[model_type]
    origin = {renamed(name, family.names): key for name, (key, _) in given.items()}
    try:
        ours = as_ours({name: x for name, (_, x) in given.items()}, mixer.recipe, model_type)
    except (RuntimeError, KeyError) as error:  # a matrix that holds several is of another shape, or missing
        plain = mixer.state_dict().keys()
        key = next((key for name, key in origin.items() if name not in plain), next(iter(origin.values())))
        raise folder.bad(key, "expected a matrix that holds several, of other sizes than "
                         f"{folder.shape(key)}: {error}") from None
    several = next((key for name, key in origin.items() if name not in ours), next(iter(origin.values()), ""))
    return {name: (origin.get(name, several), x) for name, x in ours.items()}


def of_feed_forward(name: str, x: Tensor, packed: str):
    """(our name, tensor) of all that one tensor of a file holds."""
    for pattern, ours in FEED_FORWARD:
        name = re.sub(pattern, ours, name)
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


def assign(module, ours: dict, found: Found, folder: Folder, called, dtype=None):
    """Put weights in their places without a copy; those in another kind of number than the embedding follow
    it, but for vectors, which are small and often meant to be float32."""
    for name in found.keys() - ours.keys():
        raise folder.bad(found[name][0], "no place for it in this model")
    weights = {}
    for name, want in ours.items():
        if name not in found:
            named, first = called(name), next(iter(folder.headers))
            raise BadCheckpoint((folder.weight_map or {}).get(named, first), named,
                                f"missing; expected a tensor of shape {tuple(want.shape)}")
        key, x = found[name]
        if [n for n in x.shape if n != 1] != [n for n in want.shape if n != 1]:
            held = folder.shape(key)
            raise folder.bad(key, f"expected shape {tuple(want.shape)}, got {tuple(x.shape)}" + (
                f" of a tensor of {held}" if held != tuple(x.shape) else ""))
        x = x.reshape(want.shape)
        follows = dtype is not None and (x.dim() > 1 or name.endswith("proj.bias"))
        weights[name] = x.to(dtype) if follows else x
    module.load_state_dict(weights, assign=True, strict=dtype is not None)  # outer parts lack the layers
    for parameter in module.parameters():
        parameter.requires_grad_(False)
