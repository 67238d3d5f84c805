"""Language models in files, and the trained ones in data/."""
from course_lib.checks.language_model import check_saved_model
from course_lib.datasets import DATA
from course_lib.kv_cache import MultiTokenHead
from .checkpoints import fit_state, load_checkpoint, save_checkpoint
from .config import Config
from .model import Block, LanguageModel
from .tokenizers import tokenizer_of


def save(path, model, tokenizer, dtype=None, **facts):
    """Write one file with the weights (as dtype, if given), configuration, vocabulary, and facts."""
    state = {name: x.to(dtype or x.dtype) for name, x in model.state_dict().items()}
    save_checkpoint(path, state, {"config": vars(model.config), "vocabulary": tokenizer.vocabulary, **facts})


def load(path):
    """(model, tokenizer) from a file written by save; the weights become float32."""
    state, about = load_checkpoint(path)
    check_saved_model(about, path)
    model = LanguageModel(Config(**about["config"]))
    fit_state(model, {name: x.float() for name, x in state.items()}, path)
    return model.eval(), tokenizer_of(about["vocabulary"])


def facts(name="tiny_lm"):
    """What a file of data/ says about its model: config, command, validation_loss."""
    return load_checkpoint(DATA / f"{name}.safetensors")[1]


def pretrained(name="tiny_lm"):
    """(model, tokenizer) of the trained model in data/. Notebooks call it, the course's modules do not."""
    return load(DATA / f"{name}.safetensors")


def pretrained_head(model):
    """The MultiTokenHead in data/, trained beside pretrained()'s model."""
    path = DATA / "multi_token_head.safetensors"
    head = MultiTokenHead(Block(model.config), model.config.d_model)
    fit_state(head, {name: x.float() for name, x in load_checkpoint(path)[0].items()}, path)
    return head.eval()
