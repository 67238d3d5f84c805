"""Any configuration in one table: what its layers keep per token, read per step, and their ideas."""
import re
from dataclasses import dataclass, field

from course_lib.field_guide.costs import (
    LENGTHS, bytes_per_token, in_flops, in_words, kept_bytes, read_bytes, step_flops)
from course_lib.field_guide.families import FAMILIES
from course_lib.field_guide.families.generic import by_keys
from course_lib.field_guide.ideas import ideas_of
from course_lib.field_guide.reading import Reading, layer_recipes
from course_lib.field_guide.table import Table
from course_lib.field_guide.state import ConvRecipe, StateRecipe

# Keys that, by their names, are of other parts, of training, generation or files. A description lists them.
ELSEWHERE = re.compile("|".join("""
    token_(id|index) per_tok vocab expert moe router mlp hidden_act activation initializer initialize dropout
    dtype architectures _version$ label problem feed_forward intermediate_size vision audio image video quantization
    loss topk_group topk_method norm_topk routed scoring swiglu logits pretraining_tp ep_size auto_map _name
    residual_in rescale_prenorm lm_head max_position max_length mtp nextn per_layer_input first_k_dense
    sparse_step ^chunk_size$ cache_dtype double_wide route_scale num_hash_layers routing_bias
    final_logit _aux$ num_return num_beam penalty ^temperature$ ^top_[kp]$ ^typical_p$
    tokenizer parallel_attn mup_enabled ngram number_of_conv post_?norm layernorm time_step _dt_ a_log
    sandwich dense_ num_dense torchscript use_mamba_kernels is_encoder max_window_layers ^expand$ _eps$ _epsilon$ pdrop init_std ffn
    summary_ _hidden_layers$ ^block_size$ block_ff block_auto attn_impl cache_impl
    ^(embedding|residual|logits|lm_head)_multiplier$
    ^use_cache ^tie_ ^output_ ^return_dict ^n_group$ ^hc_ ^ple_ ^seed$ ^bo[ia]_ ^eo[ia]_
    """.split()))
OF_A_STATE = re.compile("mamba|ssm|lru_|state_size|conv_|_conv|conv1d|chunkwise")


@dataclass
class Description:
    """`rows` has one entry per kind of layer; `unplaced` names what the configuration says and nobody here
    can read, `aside` what was not read since its name speaks of something else."""
    model_type: str
    known: bool
    rows: list
    unplaced: list
    aside: list
    notes: list
    recipes: list = field(repr=False, default_factory=list)

    def total(self, count, tokens: int) -> int:
        """A cost summed over the layers: `kept_bytes`, `read_bytes` or `step_flops`."""
        return sum(count(recipe, tokens) for layer in self.recipes for recipe in layer)

    @property
    def ideas(self) -> list[str]:
        return list(dict.fromkeys(idea for row in self.rows for idea in row["ideas"]))

    def table(self) -> Table:
        head = ["layers", "kind", "ideas", "kept per token", *(f"cache at {name}" for name in LENGTHS),
                "read per step at 128k", *(f"FLOPs at {name}" for name in LENGTHS)]
        body = [[str(row["layers"]), row["kind"], ", ".join(row["ideas"]) or "none",
                 in_words(row["per token"]), *(in_words(row["kept"][name]) for name in LENGTHS),
                 in_words(row["read"]), *(in_flops(row["flops"][name]) for name in LENGTHS)]
                for row in self.rows]
        total = [str(len(self.recipes)), "all", "", in_words(sum(row["per token"] for row in self.rows)),
                 *(in_words(self.total(kept_bytes, tokens)) for tokens in LENGTHS.values()),
                 in_words(self.total(read_bytes, LENGTHS["128k"])),
                 *(in_flops(self.total(step_flops, tokens)) for tokens in LENGTHS.values())]
        title = f"{self.model_type}, one sequence, 2 bytes per number, states 4; FLOPs per step"
        return Table(title, head, [*body, total], self.remarks())

    def remarks(self) -> list[str]:
        aside = [f"Set aside, by their names: {', '.join(self.aside)}."] if self.aside else []
        return [*self.notes, *aside, f"Not placed: {', '.join(self.unplaced)}." if self.unplaced else
                f"Every {'other ' * bool(aside)}key was placed."]

    def __str__(self):
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self):
        return self.table()._repr_html_()


def describe(config) -> Description:
    """The attention of a published configuration: a dict, as in config.json, or an object with `to_dict`."""
    reading = Reading(config)
    known = reading.model_type in FAMILIES
    notes = [] if known else [
        f"model_type {reading.model_type!r} is not one of the {len(FAMILIES)} that the field guide knows, so "
        "it was read by its keys alone: norms, gates and sinks are often in the code only."]
    if reading.get("is_encoder_decoder"):
        notes.append(
            "It has an encoder and a decoder: only the decoder's attention to its own text is counted.")
    recipes = []
    for layer in range(reading.layers):
        recipes.append(layer_recipes(reading, layer) if known else by_keys(reading, layer, notes))
    if reading.from_the_class:
        notes.append(f"Not in the file, so taken from the library's class: {', '.join(reading.from_the_class)}.")
    rest = sorted(name for name, value in reading.values.items()
                  if name not in {*reading.used, *reading.unsaid} and value not in (None, False, [], {}))
    aside = [name for name in rest if ELSEWHERE.search(name)]
    unplaced = [name for name in rest if name not in aside]
    states = [name for name in unplaced if OF_A_STATE.search(name)]
    if states and not any(isinstance(r, (StateRecipe, ConvRecipe)) for layer in recipes for r in layer):
        notes.append("Some keys that could not be placed speak of a state or a convolution, of which "
                     f"nothing is counted: {', '.join(states)}.")
    return Description(reading.model_type or "no model_type", known, group(recipes), unplaced, aside,
                       list(dict.fromkeys(notes)), recipes)


def group(recipes: list) -> list[dict]:
    """Layers of one kind in one row."""
    rows = {}
    for layer in recipes:
        for recipe in layer:
            key = (
                kind_of(recipe), tuple(ideas_of(recipe)), *(kept_bytes(recipe, n) for n in LENGTHS.values()),
                step_flops(recipe, LENGTHS["8k"]))
            rows.setdefault(key, []).append(recipe)
    return [dict(layers=len(same), kind=key[0], ideas=list(key[1]),
                 **{"per token": len(same) * bytes_per_token(same[0]),
                    "kept": {name: len(same) * kept_bytes(same[0], n) for name, n in LENGTHS.items()},
                    "read": len(same) * read_bytes(same[0], LENGTHS["128k"]),
                    "flops": {name: len(same) * step_flops(same[0], n) for name, n in LENGTHS.items()}})
            for key, same in rows.items()]


def kind_of(recipe) -> str:
    """What a layer is called in one word or two."""
    if isinstance(recipe, ConvRecipe):
        return f"convolution over {recipe.conv} tokens"
    if isinstance(recipe, StateRecipe):
        return f"state of {recipe.n_heads} x {recipe.key_dim} x {recipe.value_dim}"
    reach = (f"window of {recipe.window:,}" if recipe.window else f"chunks of {recipe.chunk:,}"
             if recipe.chunk else "full")
    if getattr(recipe, "ratio", None):
        return f"{reach} and entries of {recipe.ratio}"
    if hasattr(recipe, "latent_dim"):
        return f"latent of {recipe.latent_dim} + {recipe.rope_dim}"
    heads = f"{reach}, {recipe.n_kv_heads} of {recipe.n_heads} heads of {recipe.head_dim}"
    return f"{heads}, ALiBi" if recipe.positions == "ALiBi" else heads
