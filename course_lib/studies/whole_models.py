"""Whole models against the published ones.

    python -m course_lib whole-models                     the table, all families
    python -m course_lib whole-models qwen3 gemma4_text   some of them
    python -m course_lib whole-models --record            also write whole.safetensors and whole.json
    python -m course_lib whole-models --unsaid            write unsaid.json: what a file may leave to the class

Needs `transformers` (pip install "course_lib[field_guide]"). The library writes a tiny folder; its weights
are replaced by made-up ones, and both read it. Nothing is downloaded. Logits are compared over the largest of
them. """
import json
import statistics
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from course_lib.field_guide import open_model
from course_lib.field_guide.whole.families import WHOLE
from course_lib.field_guide.whole.tiny import EVERY, FILE, STEPS, fold, mask, texts, write_tiny
from course_lib.files import write_whole
from course_lib.studies.field_guide import library
from course_lib.studies.tiny_models import CONFIGS, WRITTEN, made

COMMAND = "python -m course_lib whole-models --record"
# Beside what attention is compared with: more experts, groups of them, what only a whole model has.
CHANGES = {model_type: made(parts) for model_type, parts in WRITTEN["whole"].items()}
BASES = {"qwen3_moe": CONFIGS["qwen3"], "mixtral": CONFIGS["qwen3"], "glm": CONFIGS["glm4"],
         "exaone_moe": CONFIGS["exaone4"], "youtu": CONFIGS["deepseek_v3"], "axk1": CONFIGS["deepseek_v3"],
         "qwen3_5_moe_text": CONFIGS["qwen3_next"], "bamba": {**CONFIGS["granitemoehybrid"]}}
# The library's own outputs depend on padding: by the slot (llama4), by whole blocks (minimax_m3).
NOT_PADDED = ("llama4_text", "minimax_m3_vl_text")
# Their chunks differ from float64 by more than other families do.
CHUNKED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "kimi_linear")
LENGTHS = made(["LENGTHS"])


def library_config(model_type: str, **changes):
    import transformers
    base = {**CONFIGS, **BASES}[model_type]
    return transformers.AutoConfig.for_model(
        model_type, **{name: x for name, x in json.loads(json.dumps(
            {**base, **LENGTHS, **CHANGES.get(model_type, {}), **changes})).items() if x is not None})


def written(model_type: str, folder: Path, seed: int = 0, **changes) -> dict:
    """A folder of the family: what the library writes, with made-up weights. {key: shape}"""
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(library_config(model_type, **changes))
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()
                  if not key.endswith(("_decay", "slope_rate"))}      # they follow from the configuration
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    write_tiny(folder, config, shapes, seed)
    return shapes


def published(folder: Path, dtype=torch.float32):
    import transformers
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()


@torch.no_grad()
def their_logits(model, ids, present=None):
    positions = None if present is None else (present.cumsum(-1) - 1).clamp(min=0)
    return model(ids, attention_mask=present, position_ids=positions, use_cache=False).logits.float()


@torch.no_grad()
def their_tokens(model, ids) -> tuple[torch.Tensor, float]:
    """Greedy tokens of the library, (b, STEPS), and the smallest distance between the best two logits."""
    out = model.generate(ids, max_new_tokens=STEPS, do_sample=False, eos_token_id=None, pad_token_id=0,
                         output_logits=True, return_dict_in_generate=True)
    best = torch.stack(out.logits).float().topk(2, -1).values
    return out.sequences[:, ids.shape[1]:], float((best[..., 0] - best[..., 1]).min())


def our_tokens(model, ids) -> torch.Tensor:
    """Greedy tokens with our caches, one at a time."""
    caches, new = model.decoder.caches(), [ids]
    for _ in range(STEPS):
        new.append(model.logits(new[-1], caches=caches)[:, -1:].argmax(-1))
    return torch.cat(new[1:], 1)


def own_rounding(folder: Path, ids) -> float:
    """How far the library is from itself in float64."""
    return gap(their_logits(published(folder), ids), their_logits(published(folder, torch.float64), ids))


def gap(ours, theirs, present=None) -> float:
    difference = (ours - theirs).abs().nan_to_num(float("inf"))
    difference = difference if present is None else difference * present[..., None]
    return float(difference.max() / theirs.abs().max())


def in_chunks(model, ids, sizes=(9, 1, 5)):
    caches, parts = model.decoder.caches(), []
    for part in ids.split([*sizes, ids.shape[1] - sum(sizes)], 1):
        parts.append(model.logits(part, caches=caches))
    return torch.cat(parts, 1)


def in_bfloat16(folder: Path, config: dict, shapes: dict, ids, draws: int) -> list[float]:
    """How far logits in bfloat16 are from the library's in float32, ours and the library's own: of the middle one
    of the tokens, and the middle one of some draws of weights. (Where experts are chosen, a rounding can choose
    another, here as there, and that token is far off.)"""
    distances = []
    for seed in range(draws):
        write_tiny(folder, config | {"dtype": "bfloat16"}, shapes, seed, torch.bfloat16)
        exact = their_logits(published(folder), ids)
        both = open_model(folder).logits(ids), their_logits(published(folder, torch.bfloat16), ids)
        distances.append([float(((one - exact).abs().amax(-1) / exact.abs().max()).median()) for one in both])
    return [statistics.median(some) for some in zip(*distances)]


def compare(model_type: str, folder: Path, draws: int = 8, **changes) -> dict:
    """One family: differences of logits, and whether the greedy tokens are equal. Weights are made anew until
    the best two tokens are well apart in every step, or equality would be that of roundings."""
    for seed in range(20):
        shapes = written(model_type, folder, seed, **changes)
        theirs = published(folder)
        ids, present = texts(theirs.config.get_text_config().vocab_size), mask()
        tokens, margin = their_tokens(theirs, ids)
        if margin > 1e-3 and (model_type not in CHUNKED or own_rounding(folder, ids) < 4e-6):
            break
    ours = open_model(folder)
    want = their_logits(theirs, ids)
    padded = want if model_type in NOT_PADDED else their_logits(theirs, ids, present)
    present = None if model_type in NOT_PADDED else present
    row = {"family": model_type, "seed": seed, "logits": gap(ours.logits(ids), want),
           "padded": gap(ours.logits(ids, present), padded, present),
           "in chunks": gap(in_chunks(ours, ids), want), "tokens": torch.equal(our_tokens(ours, ids), tokens)}
    write_tiny(folder / "sharded", ours.config, shapes, seed, shards=3)
    row["sharded"] = gap(open_model(folder / "sharded").logits(ids), want)
    row["bfloat16"], row["bfloat16, theirs"] = in_bfloat16(folder / "half", ours.config, shapes, ids, draws)
    row["kept"] = dict(config=ours.config, shapes=shapes, logits=padded[..., ::EVERY].contiguous(),
                       tokens=tokens.contiguous(), padded=present is not None)
    return row


# What is taken where neither file nor class says anything else.
USUAL = {"rms_norm_eps": 1e-6, "norm_eps": 1e-6, "layer_norm_eps": None, "norm_topk_prob": None,
         "routed_scaling_factor": 1.0, "router_scaling_factor": 1.0, "num_experts_per_tok": None,
         "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "final_logit_softcapping": None,
         "attn_logit_softcapping": None, "query_pre_attn_scalar": None, "attention_multiplier": None,
         "attention_value_scale": 1.0, "sliding_window": None, "use_qk_norm": None, "attention_bias": False,
         "mlp_bias": False, **{f"{part}_{which}_factor": None for part in ("full_attn", "linear_attn", "mlp")
                               for which in ("alpha", "beta")}}


def unsaid(model_type: str) -> dict:
    """What the library's class of a family takes where a file says nothing, and we would take otherwise."""
    import transformers
    config = transformers.AutoConfig.for_model(model_type, num_hidden_layers=31).get_text_config()
    left = {name: value for name, usual in USUAL.items()
            if (value := getattr(config, name, None)) is not None and value != usual}
    rope = getattr(config, "rope_parameters", None) or {}
    if any(isinstance(part, dict) for part in rope.values()) or rope.get("rope_type", "default") != "default":
        left["rope_parameters"] = {name: value for name, value in rope.items() if name != "type"}
    theta = config.default_theta if isinstance(config.default_theta, float) else 1e4    # or one for each kind
    beside = {"rope_theta": (theta, 1e4),
              "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), 1.0)} if rope else {}
    left |= {name: value for name, (value, usual) in beside.items() if value != usual}
    kinds = [] if hasattr(config, "no_rope_layers") else getattr(config, "layer_types", None) or []
    period = next((n for n in range(2, 7) if kinds == (kinds[:n] * 31)[:31] and len(set(kinds[:n])) > 1), 0)
    return left | ({"layer_types": kinds[:period]} if period else {})


def write_unsaid() -> None:
    found = {model_type: unsaid(model_type) for model_type in NAMES}
    kept = {name: one for name, one in found.items() if one}
    write_whole(FILE.parent / "unsaid.json", json.dumps(kept, indent=1) + "\n")


def main(arguments) -> int:
    name_of_it = library()
    if "--unsaid" in arguments:
        write_unsaid()
        return 0
    names = [name for name in arguments if not name.startswith("-")] or NAMES
    print(f"{name_of_it}, float32; differences over the largest logit, bfloat16 ours / theirs")
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = compare(name, Path(folder))
        rows.append(row)
        print(f"{name:20s} {row['logits']:.1e} padded {row['padded']:.1e} chunks {row['in chunks']:.1e} "
              f"sharded {row['sharded']:.1e} tokens {'equal' if row['tokens'] else 'DIFFER'} bfloat16 "
              f"{row['bfloat16']:.1e} / {row['bfloat16, theirs']:.1e}", flush=True)
    if "--record" in arguments:
        record(rows, name_of_it)
    return 0


def record(rows: list[dict], name_of_it: str) -> None:
    kept = {row["family"]: (row.pop("kept"), row["seed"]) for row in rows}
    families = {name: dict(config=one["config"], shapes=fold(one["shapes"]), seed=seed, padded=one["padded"])
                for name, (one, seed) in kept.items()}
    about = {"command": COMMAND, "library": name_of_it, "families": families}
    save_file({f"{name}/{what}": one[what] for name, (one, _) in kept.items()
               for what in ("logits", "tokens")}, FILE, {"about": json.dumps(about)})
    write_whole(FILE.parent / "whole.json",
                json.dumps({"command": COMMAND, "library": name_of_it, "torch": torch.__version__,
                            "families": rows}, indent=1) + "\n")


NAMES = [name for name in {**CONFIGS, **BASES} if name in WHOLE]
