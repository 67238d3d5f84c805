"""What chapter 10 refuses: of configurations, tokens and caches, of training, of text."""
import torch

from . import (check_choice, check_count, check_equal, check_multiple, check_number, check_sizes,
               check_tensor, described, listed)

PRECISIONS = ("auto", "float32", "bfloat16")


def check_config(config, known):
    """known: the names of all attentions."""
    names = ("vocab_size", "n_layers", "n_heads", "d_model", "d_hidden", "context", "n_kv_heads",
             "latent_dim", "rope_dim", "window")
    check_sizes(**{name: getattr(config, name) for name in names})
    n = config.n_layers
    if config.d_model % config.n_heads or config.head_dim % 2:
        raise ValueError(f"d_model must be n_heads times an even head_dim; got d_model={config.d_model}, "
                         f"n_heads={config.n_heads}")
    if len(config.attentions) != n or not all(name in known for name in config.attentions):
        raise ValueError(f"attention must be {listed(known)}, or a list of {n} of them; got "
                         f"{config.attention!r}")
    if len(config.ropes) != n or not all(isinstance(rope, bool) for rope in config.ropes):
        raise ValueError(f"rope must be True, False or a list of {n} of them; got {config.rope!r}")
    if "gqa" in config.attentions and config.n_heads % config.n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads, {config.n_heads}; got {config.n_kv_heads}")
    if "latent" in config.attentions and (config.rope_dim % 2 or config.rope_dim > config.head_dim):
        raise ValueError(f"rope_dim must be even and at most head_dim, {config.head_dim}; got "
                         f"{config.rope_dim}")


def check_model_tokens(tokens, context):
    whole = isinstance(tokens, torch.Tensor) and tokens.dtype in (torch.int64, torch.int32)
    if not whole or tokens.dim() != 2 or tokens.shape[1] > context:
        raise ValueError(f"tokens must be (batch, n) of int64 with n at most the context, {context}; "
                         f"got {described(tokens)}")


def out_of_vocabulary(name, tokens, vocab_size, also="") -> ValueError:
    """The error for tokens that the embedding or the loss did not find. (Looking first would stall a GPU.)"""
    return ValueError(f"{name} must be from 0 to {vocab_size - 1}{also}; got {tokens.min().item()} to "
                      f"{tokens.max().item()}")


def check_targets(targets, tokens):
    if targets.shape != tokens.shape or targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64 of the shape of tokens, {tuple(tokens.shape)}; "
                         f"got {described(targets)}")


def check_caches(caches, blocks):
    check_equal("caches", "be one per block", len(caches), len(blocks))
    if any("attend" in vars(block.attention) for block in blocks):
        raise ValueError("caches must be used with the model's own attention; undo set_attention() first")


def check_state_cache(cache, kind):
    if not isinstance(cache, kind):
        raise ValueError("caches must hold a state for this layer, as those of make_caches "
                         f"(make_cache=None) do; got {type(cache).__name__}")


def check_state(cache):
    if cache.state is None:
        raise ValueError("cache must hold tokens before it is reordered; got an empty one")


def check_whole_state(n, length):
    if n != length:
        raise ValueError(f"n must be all {length} tokens: a state cannot forget the last ones; got {n}")


def check_attend(attend):
    if attend is not None and not callable(attend):
        raise ValueError(f"attend must be a function (q, k, v) -> output, or None; got {attend!r}")


def check_generation(tokens, n_new, temperature, context, use_cache):
    check_tensor("tokens", tokens, ("batch", "n"))
    if tokens.shape[1] == 0:
        raise ValueError("tokens must hold at least one token per sequence; got none")
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0; got {temperature!r}")
    check_count("n_new", n_new, 0)
    if use_cache and tokens.shape[1] + n_new > context + 1:         # the last token is drawn and not read
        raise ValueError(f"n_new must leave the text within the context of {context} tokens, with a cache; "
                         f"got {n_new} after {tokens.shape[1]}")


def check_row(name, row, block):
    """A row of tokens, longer than a block."""
    if not isinstance(row, torch.Tensor) or row.dim() != 1 or row.is_floating_point():
        raise ValueError(f"{name} must be a row of tokens, (n,); got {described(row)}")
    if len(row) <= block:
        raise ValueError(f"{name} must be longer than a block of {block} tokens; got {len(row)}")


def check_training(config, data, validation, world):
    """config: a TrainConfig. world: the number of processes."""
    check_sizes(0, steps=config.steps, warmup=config.warmup, seed=config.seed)
    check_sizes(1, batch=config.batch, block=config.block, check_every=config.check_every,
                accumulate=config.accumulate)
    for name in ("peak", "clip", "weight_decay"):
        check_number(name, getattr(config, name), least=0)
    check_choice("precision", config.precision, PRECISIONS)
    if not callable(data):
        check_row("data", data, config.block)
    if validation is not None:
        check_row("validation", validation, config.block)
    check_multiple("batch", config.batch, "accumulate * processes", config.accumulate * world)


def check_same_run(path, recipe, other):
    """A checkpoint continues only the run that wrote it. A function as data has no fingerprint to compare."""
    unlike = [name for name in recipe if other.get(name) != recipe[name]]
    if "data" in unlike and None in (recipe["data"], other.get("data")):
        unlike.remove("data")
    if unlike:
        name = unlike[0]
        raise ValueError(f"checkpoint must be of the same run; in {path} {name} is {other.get(name)}, here "
                         f"{recipe[name]}. Give another file, or delete that one to start again")


def check_state_shapes(module, state, path):
    want, got = ({name: tuple(x.shape) for name, x in s.items()} for s in (module.state_dict(), state))
    if want != got:
        name = min(want.items() ^ got.items())[0]
        raise ValueError(f"path must hold a model of this shape; in {path} {name} is "
                         f"{got.get(name, 'missing')}, and here {want.get(name, 'unknown')}")


def check_saved_model(about, path):
    if not {"config", "vocabulary"} <= about.keys():
        raise ValueError(f"path must hold a language model and its vocabulary, as written by save; {path} "
                         "does not")


def check_characters(vocabulary):
    if not isinstance(vocabulary, str) or len(set(vocabulary)) != len(vocabulary) or not vocabulary:
        raise ValueError(f"vocabulary must be distinct characters, at least one; got {vocabulary!r}")


def check_pair(pair, number):
    """A merged pair consists of two earlier tokens."""
    if len(pair) != 2 or not all(isinstance(t, int) and 0 <= t < number for t in pair):
        raise ValueError(f"vocabulary must be pairs of earlier tokens; got {pair} for token {number}")


def check_text(text) -> str:
    if not isinstance(text, str):
        raise ValueError(f"text must be a string; got {type(text).__name__}")
    return text


def check_known(tokens, n) -> list:
    tokens = [int(t) for t in tokens]
    if tokens and not 0 <= min(tokens) <= max(tokens) < n:
        raise ValueError(f"tokens must be from 0 to {n - 1}; got {min(tokens)} to {max(tokens)}")
    return tokens


def check_int16(tokenizer):
    if len(tokenizer) > 2 ** 15:
        raise ValueError(f"tokenizer must have at most 32768 tokens, for int16; got {len(tokenizer)}")


def check_spellings(texts, characters):
    if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(t, str) and t for t in texts):
        raise ValueError(f"texts must be a list of strings of at least one character; got {texts!r}")
    for text in texts:
        if unknown := set(text) - set(characters):
            raise ValueError(f"text has {min(unknown)!r}, which no date has")


def check_translation(name, tokens, context):
    if tokens.dim() != 2 or tokens.dtype != torch.int64 or not 1 <= tokens.shape[1] <= context:
        raise ValueError(f"{name} must be (batch, n) of int64, n at most {context}; got {described(tokens)}")
