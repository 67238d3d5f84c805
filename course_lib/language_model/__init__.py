"""Chapter 10: a small language model from the chapters' parts."""
from .config import ATTENTIONS, Config
from .model import (Block, LanguageModel, RMSNorm, SelfAttention, SwiGLU, apply_rope, facts, load, pretrained,
                    save, softmax_attention)
from .attentions import (Delta, Flash, Grouped, LAYERS, Latent, Linear, PartlyRotated, Recurrent, Sliding,
                         StateCache, Tiles, W2)
from .tokenizers import BytePairTokenizer, CharTokenizer, tokenizer_of, tokens_on_disk
from .training import (Interrupt, check_row, checksum, evaluate, fingerprint, fit_state, learning_rate,
                       load_checkpoint, load_run, make_optimizer, n_counted, random_batch, save_checkpoint,
                       save_run, train, train_command)
from .display import Display, show_rates, watched_in
from .look_inside import copying_gain, effect_of_distance, induction_scores, weight_by_distance
from .translator import (CHARACTERS, DecoderBlock, EncoderBlock, EncoderDecoder, LETTERS, batch_of,
                         dates_command, draw_dates, encode, exact_matches)
