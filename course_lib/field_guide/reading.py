"""Reading a published configuration, noting what has been read: what is left over has no place."""
import json
from pathlib import Path

from course_lib.field_guide.base import Recipe
from course_lib.field_guide.rotary import Rotary, read_rotary
from course_lib.files import ROOT

FILE = ROOT / "data" / "field_guide" / "names.json"
# What older files, and those with an encoder and a decoder, call the sizes; their codes for kinds of layers;
# what published files of a family leave to the library's class.
OTHER_NAMES, KINDS, UNSAID = json.loads(FILE.read_text(encoding="utf-8")).values()
# The same of every family, as the library has it (`whole-models --unsaid`); of layer_types one period.
for _family, _keys in json.loads(FILE.with_name("unsaid.json").read_text(encoding="utf-8")).items():
    UNSAID[_family] = {**_keys, **UNSAID.get(_family, {})}
# Keys of which one says what the others would.
TOLD_BY = {"layer_types": ("layer_types", "layers_block_type", "attention_layers", "attn_layer_period",
                           "full_attention_interval", "sliding_window_pattern", "global_attn_every_n_layers"),
           "rope_parameters": ("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq"),
           "num_experts_per_tok": ("num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts")}


class Reading:
    """A configuration: a dict, or an object with `to_dict`. Of several parts the text's is read."""

    def __init__(self, config):
        values = config.to_dict() if hasattr(config, "to_dict") else config
        if isinstance(values, (str, Path)):
            values = json.loads(Path(values).read_text())
        if not isinstance(values, dict):
            raise ValueError("config must be a dict, the path of a config.json, or an object with to_dict(); "
                             f"got {type(config).__name__}")
        inner = values.get("text_config")
        self.values = {**inner} if isinstance(inner, dict) else {**values}
        self.model_type = self.values.get("model_type") or values.get("model_type")
        self.used = {"model_type", "text_config"}
        self.values.update(self.values.pop("attn_config", None) or {})
        for name, others in OTHER_NAMES.items():
            found = next((other for other in others if self.values.get(other) is not None), None)
            if found and self.values.get(name) is None:
                self.values[name] = self.values.pop(found)
                self.used.update(others)
        self.name_kinds()
        self.unsaid = self.left_to_the_class()
        self.values.update(self.unsaid)

    @property
    def from_the_class(self) -> list[str]:
        """The keys that were read and that the file leaves to the class."""
        return [name for name in self.unsaid if name in self.used]

    def left_to_the_class(self) -> dict:
        """What the file says nothing of, and the library's class of the family something else than is usual."""
        turns = str(self.values.get("rope_parameters") or self.values.get("rope_scaling"))
        left = {name: value for name, value in UNSAID.get(self.model_type, {}).items()
                if name not in self.values and f"'{name}'" not in turns
                and not any(self.values.get(other) is not None for other in TOLD_BY.get(name, ()))}
        if "rope_parameters" in left:
            for name in ("rope_theta", "partial_rotary_factor", "rope_local_base_freq"):
                left.pop(name, None)
        if "layer_types" in left:
            kinds, layers = left["layer_types"], self.values.get("num_hidden_layers") or 0
            left["layer_types"] = (kinds * layers)[:layers]
        return left

    def name_kinds(self):
        """layer_types, where a file tells the kind of each layer in another way."""
        layers, linear = self.values.get("num_hidden_layers"), self.values.pop("linear_attn_config", None)
        kinds = [[named.get(str(code), str(code)) for code in self.values[name]][:layers]
                 for name, named in KINDS.items() if self.values.get(name)]
        self.used.update((*KINDS, "attn_layer_indices"))
        if self.values.get("attn_layer_indices"):
            kinds.append(["attention" if layer in self.values["attn_layer_indices"] else "mamba"
                          for layer in range(layers)])
        if linear:
            self.values.update({
                "linear_" + name.replace("short_conv_kernel_size", "conv_kernel_dim"): x
                for name, x in linear.items() if name not in ("kda_layers", "full_attn_layers")})
            kinds = [["full_attention" if layer + 1 in linear["full_attn_layers"] else "linear_attention"
                      for layer in range(layers)]]
        if kinds and not (self.values.get("layer_types") or self.values.get("layers_block_type")):
            self.values["layer_types"] = kinds[0]

    def __getitem__(self, name):
        if self.values.get(name) is None:
            raise ValueError(f"config must have {name} for model_type {self.model_type!r}; it has none")
        return self.get(name)

    def get(self, name, default=None):
        self.used.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def size(self, name, default=None) -> int:
        """A positive integer."""
        value = self[name] if default is None else self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"config must have a positive integer as {name}; got {value!r}")
        return value

    @property
    def layers(self) -> int:
        blocks = self.get("layers_block_type")
        return len(blocks) if blocks else self.size("num_hidden_layers")

    def per_layer(self, name: str, layer: int):
        """One entry of a list that has one for each layer."""
        values = self[name]
        if not isinstance(values, (list, tuple)) or len(values) != self.layers:
            raise ValueError(f"config must have one entry for each of its {self.layers} layers in {name}; "
                             f"got {len(values) if isinstance(values, (list, tuple)) else values!r}")
        return values[layer]

    def layer_type(self, layer: int) -> str:
        """Which kind a layer is; older files say only how often the full ones come."""
        kinds = next((name for name in ("layer_types", "layers_block_type", "attention_layers")
                      if self.get(name)), None)
        if kinds:
            return self.per_layer(kinds, layer)
        period = self.get("attn_layer_period")
        if isinstance(period, int) and period > 0:
            return "mamba" if layer % period != self.get("attn_layer_offset", 0) else "full_attention"
        for name, other in (("full_attention_interval", "linear_attention"),
                            ("sliding_window_pattern", "sliding_attention"),
                            ("global_attn_every_n_layers", "sliding_attention")):
            every = self.get(name)
            if isinstance(every, int) and every > 0:
                return other if (layer + 1) % every else "full_attention"
        if self.values.get("use_sliding_window") is False:
            self.used.add("sliding_window")
        if self.get("use_sliding_window") and layer >= self.get("max_window_layers", 0):
            return "sliding_attention"
        return "full_attention"

    def window(self) -> int | None:
        """sliding_window, of every layer. None where no text is as long."""
        window, longest = self.get("sliding_window"), self.get("max_position_embeddings")
        return None if window and longest and window >= longest else window

    def rotates(self, layer: int) -> bool:
        """Whether a layer has positions, where some have none; by default every fourth has none."""
        if self.get("no_rope_layers"):
            return bool(self.per_layer("no_rope_layers", layer))
        return (layer + 1) % self.get("no_rope_layer_interval", 4) != 0

    def rope(self, kind: str | None = None) -> dict:
        """The rotation's options, of one kind of layer where kinds differ; older files spread the keys."""
        options = self.get("rope_parameters") or self.get("rope_scaling") or {}
        own = self.get("rope_local_base_freq") or self.get("swa_rope_theta")
        if kind in options:
            options = options[kind] or {}
        elif kind == "sliding_attention" and own:           # a base of its own, and never stretched
            options = {"rope_theta": own}
        old = {"rope_theta": self.get("rope_theta"),
               "partial_rotary_factor": self.get("partial_rotary_factor"),
               "original_max_position_embeddings": self.get(
                   "original_max_position_embeddings", self.get("max_position_embeddings"))}
        merged = {name: value for name, value in [*old.items(), *options.items()] if value is not None}
        return {**merged, "rope_type": merged.get("rope_type") or merged.get("type", "default")}

    def rotary(self, head_dim: int, kind: str | None = None, layout="half", at="front",
               dim: int | None = None, base: float | None = None) -> Rotary:
        """`dim` entries of a head turn, or the share that the configuration names."""
        options = {**self.rope(kind), **({} if base is None else {"rope_theta": base})}
        own = self.get("rotary_dim")
        dim = own if dim is None and "partial_rotary_factor" not in options else dim
        if dim is not None:
            options["partial_rotary_factor"] = dim / head_dim
        return read_rotary(options, head_dim, layout, at)

    def heads(self, layer: int = 0) -> dict:
        """d_model, n_heads, n_kv_heads and head_dim, which must fit."""
        own = next((own for at, own in (self.get("per_layer_config") or {}).items() if int(at) == layer), {})
        d_model, n_heads = self.size("hidden_size"), self.size("num_attention_heads")
        one = not self.get("new_decoder_architecture") and self.get("multi_query")
        one = one or self.get("attn_type") == "multiquery_attention"
        n_kv_heads = 1 if one else own.get("num_key_value_heads") or self.size("num_key_value_heads", n_heads)
        self.used.update(("multi_query_attention", "num_key_value_heads"))
        head_dim = own.get("head_dim") or self.get("head_dim")
        if n_heads % n_kv_heads:
            raise ValueError(f"config must have num_attention_heads that num_key_value_heads divides; "
                             f"got {n_heads} and {n_kv_heads}")
        if head_dim is None and d_model % n_heads:
            raise ValueError(f"config must have head_dim, or a hidden_size that num_attention_heads divides; "
                             f"got {d_model} and {n_heads}")
        return dict(
            d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim or d_model // n_heads)

    def plain(self, layer: int, rope=True, **changes) -> Recipe:
        """The recipe of an ordinary layer, as Llama has it, with a family's changes."""
        kind = self.layer_type(layer)
        sizes = {name: changes.pop(name) for name in ("d_model", "n_heads", "n_kv_heads", "head_dim")
                 if name in changes}
        sizes = {**self.heads(layer), **sizes}
        bias = bool(self.get("attention_bias", False))
        facts = dict(
            layer=layer, bias=bias, out_bias=bias, eps=self.get("rms_norm_eps", self.get("norm_eps", 1e-6)),
            **sizes)
        if rope and "rotary" not in changes:
            facts["rotary"] = self.rotary(sizes["head_dim"], kind)
        if kind == "sliding_attention":
            facts["window"] = self.size("sliding_window")
        return Recipe(**{**facts, **changes})


def layer_recipes(config, layer: int, model_type: str | None = None) -> tuple:
    """The recipes of one layer of a configuration: one, several that mix tokens side by side, or none."""
    from course_lib.field_guide.families import FAMILIES
    config = config if isinstance(config, Reading) else Reading(config)
    model_type = model_type or config.model_type
    if model_type not in FAMILIES:
        raise ValueError(
            f"model_type {model_type!r} is not one the field guide knows: {', '.join(sorted(FAMILIES))}")
    if not 0 <= layer < config.layers:
        raise ValueError(f"layer must be in 0 to {config.layers - 1}; got {layer}")
    recipe = FAMILIES[model_type].recipe(config, layer)
    return recipe if isinstance(recipe, tuple) else () if recipe is None else (recipe,)
