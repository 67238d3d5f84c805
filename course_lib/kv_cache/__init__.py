"""Chapter 7: the KV cache, decoding, sampling, speculative decoding."""
from .quantization import BITS, FP8_LARGEST, Quantized, check_bits, dequantize, quantize
from .sampling import (acceptance, check_sampling, drawing, every_outcome, next_token_probabilities, residual,
                       verify_draft)
from .decoding import (TILE, append_kernel, check_decode, choose_splits, decode_attention, decode_kernel,
                       decode_quantized_kernel)
from .tensor_core import STEP, dense, fits, paged
from .caches import (CrossCache, GrowingCache, KVCache, QuantizedCache, RollingCache, StaticCache, caches_for,
                     generate)
from .generation import beam_search, cross_attention, generate_speculative
