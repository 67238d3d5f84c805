"""Chapter 10, a small language model from the chapters' parts.

    config          sizes, and the attention of each layer
    layers          attention in steps, feed-forward, norm; attentions: those of the earlier chapters
    model           LanguageModel
    saved           models in files; pretrained() is the one in data/
    training        train, evaluate; checkpoints: files that a run continues from; train_command: `train`
    tokenizers      characters, byte pairs
    look_inside     which tokens the layers attend to
    translator      an encoder and a decoder for dates"""
from .attentions import LAYERS
from .checkpoints import load_checkpoint, save_checkpoint
from .config import ATTENTIONS, Config
from .display import show_rates
from .layers import ModelAttention, RMSNorm, SelfAttention, SwiGLU, softmax_attention
from .look_inside import copying_gain, effect_of_distance, induction_scores, weight_by_distance
from .model import Block, LanguageModel
from .saved import facts, load, pretrained, pretrained_head, save
from .tokenizers import BytePairTokenizer, CharTokenizer, tokenizer_of, tokens_on_disk
from .training import TrainConfig, evaluate, learning_rate, make_optimizer, random_batch, train
from .translator import EncoderDecoder

__all__ = ["ATTENTIONS", "Block", "BytePairTokenizer", "CharTokenizer", "Config",
           "EncoderDecoder", "LAYERS", "LanguageModel", "ModelAttention", "RMSNorm", "SelfAttention",
           "SwiGLU", "TrainConfig", "copying_gain", "effect_of_distance", "evaluate", "facts",
           "induction_scores", "learning_rate", "load", "load_checkpoint", "make_optimizer", "pretrained",
           "pretrained_head", "random_batch", "save", "save_checkpoint", "show_rates", "softmax_attention",
           "tokenizer_of", "tokens_on_disk", "train", "weight_by_distance"]
