"""A whole model from a folder: `open_model(folder)`, its logits, and texts that it writes."""
import torch
from torch import Tensor

from course_lib.field_guide.cache import Cache
from course_lib.field_guide.describe import describe
from course_lib.field_guide.reading import Reading
from course_lib.field_guide.whole.decoder import Decoder
from course_lib.field_guide.whole import hybrids, mixtures     # noqa: F401 (each enters its families)
from course_lib.field_guide.whole.families import WHOLE, plan_of
from course_lib.field_guide.whole.folder import BadCheckpoint, Folder
from course_lib.field_guide.whole.loading import load
from course_lib.field_guide.whole.on_kernels import use_kernels
from course_lib.field_guide.whole.quantised import use_quantised
from course_lib.field_guide.whole.serving import pageable, serve
from course_lib.field_guide.whole.text import Text
from course_lib.kv_cache import next_token_probabilities


class Model:
    """`config` is config.json, `card` what `describe` says of it, `notes` what was let by on opening,
    `decoder` the modules, and layers[3].attention one of the chapter."""

    def __init__(self, folder: Folder, decoder: Decoder, notes: list[str], kernels: bool = False):
        self.folder, self.decoder, self.notes, self.config = folder.path, decoder.eval(), notes, folder.config
        self.text = Text(folder)
        self.card = describe(self.config)
        self.kernels = use_kernels(decoder) if kernels else None      # what they did, counted

    @property
    def layers(self):
        return self.decoder.layers

    @property
    def tokenizer(self):
        """Of the library tokenizers; None where the folder has none."""
        return self.text.tokenizer

    @torch.no_grad()
    def logits(self, ids: Tensor, attention_mask: Tensor | None = None, caches: list | None = None) -> Tensor:
        """ids (b, n) -> (b, n, vocab) in float32. The mask (b, all tokens so far) is 0 where a text is padded,
        left or right. With `caches` (`decoder.caches()`) ids are those not in them."""
        ids = self.checked(ids)
        b, n = ids.shape
        before = next((cache.length for layer in caches or () for cache in layer), 0)
        if attention_mask is None:
            return self.decoder(ids, torch.arange(before, before + n), None, caches)
        present = torch.as_tensor(attention_mask).bool()
        if present.shape != (b, before + n):
            raise ValueError(f"attention_mask must have shape {(b, before + n)}, a number for each token; "
                             f"got {tuple(present.shape)}")
        positions = (present.long().cumsum(-1) - 1).clamp(min=0)[:, before:]
        return self.decoder(ids, positions, present, caches)

    def checked(self, ids) -> Tensor:
        ids, vocab = torch.as_tensor(ids), self.decoder.plan.vocab
        if ids.dim() != 2 or ids.is_floating_point() or not ids.numel():
            raise ValueError("ids must be whole numbers of shape (batch, n), n at least 1; got "
                             f"{tuple(ids.shape)}, {ids.dtype}")
        if ids.min() < 0 or ids.max() >= vocab:
            raise ValueError(f"ids must be in 0 to {vocab - 1}; got {int(ids.min())} to {int(ids.max())}")
        return ids.long()

    def generate(self, prompts: list, max_new_tokens: int = 64, temperature: float = 0.0,
                 top_p: float | None = None, min_p: float | None = None, repetition_penalty: float = 1.0,
                 stop: tuple = (), seed: int = 0) -> list:
        """What the model writes after each prompt: a list of texts gives texts, a list of lists of ids lists
        of new ids, the one that ends a text included. Greedy unless a temperature is given. Several prompts
        share chapter 8's engine: pages, continuous batching, common beginnings read once. Families without
        pages (see `serving`), and calls with min_p or stop, read and continue each prompt by itself. A
        prompt's tokens do not depend on the others, but for the rounding of larger products."""
        texts = all(isinstance(prompt, str) for prompt in prompts)
        said = [self.text.encode(prompt) if texts else list(prompt) for prompt in prompts]
        sampling = dict(temperature=temperature, top_p=top_p, min_p=min_p,
                        repetition_penalty=repetition_penalty)
        if len(said) > 1 and max_new_tokens and not min_p and not stop and pageable(self.decoder):
            del sampling["min_p"]
            new = serve(self.decoder, said, max_new_tokens, self.text.ends, seed, **sampling)
        else:
            new = [list(self.stream(prompt, max_new_tokens, seed=seed + i, stop=stop, **sampling))
                   for i, prompt in enumerate(said)]
        return [cut(self.text.decode(tokens), stop) for tokens in new] if texts else new

    def stream(self, prompt: list[int], max_new_tokens: int, seed: int = 0, stop: tuple = (), caches=None,
               chunk=256, **sampling):
        """The new tokens one by one, until one that ends a text, or until the text holds one of the strings
        in `stop`. `caches` may hold the prompt's beginning; a long prompt is read in chunks."""
        if not prompt:
            raise ValueError("a prompt must have at least one token")
        caches = self.decoder.caches() if caches is None else caches
        generator, tokens, n = torch.Generator().manual_seed(seed), list(prompt), len(prompt)
        read = next((cache.length for layer in caches for cache in layer), 0)
        for _ in range(max_new_tokens):
            for piece in torch.tensor(tokens[read:])[None].split(chunk, 1):
                row = self.last_logits(piece, read, caches)
                read += piece.shape[1]
            tokens.append(choose(row.cpu(), tokens, generator, **sampling))
            yield tokens[-1]
            if tokens[-1] in self.text.ends or (stop
                                                and any(one in self.text.decode(tokens[n:]) for one in stop)):
                return

    @torch.no_grad()
    def last_logits(self, piece: Tensor, read: int, caches: list[list[Cache]]) -> Tensor:
        piece = self.checked(piece)
        return self.decoder(piece, torch.arange(read, read + piece.shape[1]), None, caches, last=[-1])[0, -1]


def choose(logits: Tensor, tokens: list[int], generator, temperature=0.0, top_p=None, min_p=None,
           repetition_penalty=1.0) -> int:
    """The next token; min_p drops those less likely than that share of the likeliest."""
    if not 0 <= (min_p or 0) <= 1:
        raise ValueError(f"min_p must be a number in 0 to 1; got {min_p!r}")
    seen = torch.tensor(tokens)
    probabilities = next_token_probabilities(logits, temperature, None, top_p, repetition_penalty, seen)
    if temperature == 0:
        return int(probabilities.argmax())
    if min_p:
        probabilities = probabilities.masked_fill(probabilities < min_p * probabilities.max(), 0)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def cut(text: str, stop) -> str:
    """Up to the first of the strings that end it."""
    return min((text.split(one)[0] for one in stop), key=len, default=text)


# Families in which nothing is hidden in the code: an unknown one may be made of the same parts.
PLAIN = ("llama", "qwen2", "qwen3", "olmo2", "mixtral", "qwen3_moe", "deepseek_v3")


def open_model(folder, dtype: torch.dtype | None = None, kernels: bool = False, device=None,
               weights: str | None = None, group: int = 64) -> Model:
    """The model in a folder with config.json, safetensors and perhaps tokenizer.json. Weights are mapped, in
    the kind of number that the file has unless `dtype` is given. A folder that does not hold what its
    configuration says is a BadCheckpoint, which names file and key. No code of a folder is run.
    `kernels`: attention, rotations and norms are launches of the course's own, see `on_kernels`.
    `weights`: "int8" or "int4", the latter in groups of `group`, see `quantised`."""
    folder = Folder(folder)
    inner = folder.config.get("text_config")
    config = {**folder.config, **(inner if isinstance(inner, dict) else {}), "text_config": None}
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise BadCheckpoint("config.json", "model_type", f"expected the name of a family, got {model_type!r}")
    decoder, notes = (filled if model_type in WHOLE else of_known_parts)(folder, config)
    if folder.config.get("auto_map"):
        notes.insert(0, "auto_map is ignored: the family is built here, and no code of a folder is run.")
    decoder = decoder.to(device, dtype)
    if weights is not None:
        notes.append(use_quantised(decoder, weights, group))
    return Model(folder, decoder, notes, kernels)


def of_known_parts(folder: Folder, config: dict) -> tuple[Decoder, list[str]]:
    """An unknown family as the first plain one that has a place for all its weights and all its keys."""
    said, fits = f"{config['model_type']!r} is not one of the {len(WHOLE)} that are built here", None
    if folder.config.get("auto_map"):
        raise BadCheckpoint("config.json", "model_type",
                            f"{said}, and auto_map names code of its own, which is never run")
    for like in PLAIN:
        try:
            config["model_type"] = like
            fits = None if describe(config).unplaced else filled(folder, config)
        except (BadCheckpoint, ValueError):
            continue
        if fits:
            decoder, notes = fits
            return decoder, [f"{said}: its weights and keys are those of {like}, so it is built like that, and "
                             "was compared with no published code.", *notes]
    raise BadCheckpoint("config.json", "model_type", f"{said}, nor of the parts of one of {', '.join(PLAIN)}: "
                        f"{', '.join(sorted(WHOLE))}")


def filled(folder: Folder, config: dict) -> tuple[Decoder, list[str]]:
    """The decoder that config.json asks for, with its weights, and lines on what was let by."""
    try:
        reading = Reading(config)
        plan = plan_of(reading)
        with torch.device("meta"):
            decoder = Decoder(plan)
    except BadCheckpoint:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError,
            RuntimeError) as error:
        raise BadCheckpoint("config.json", None, str(error)) from error
    notes = []
    if reading.from_the_class:
        notes.append(f"Not in config.json, so taken from the library's class: {', '.join(reading.from_the_class)}.")
    turns = str(config.get("rope_parameters") or config.get("rope_scaling") or "")
    if "'longrope'" in turns or "'su'" in turns or ("'dynamic'" in turns and "alpha" not in turns):
        notes.append("Positions turn as in texts of the trained length, in longer ones too: there the published "
                     "code changes them.")
    # These carry a layer beyond the model even where the configuration counts none.
    one = config["model_type"].startswith(("deepseek_v3", "glm_moe_dsa", "glm4_moe", "mimo", "hy_v"))
    drafts = config.get("num_nextn_predict_layers") or int(one)
    return decoder, notes + load(decoder, folder, config["model_type"], drafts)
