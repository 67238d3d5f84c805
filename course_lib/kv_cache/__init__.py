"""Chapter 7, the KV cache: decoding from it, sampling, and generation.

    caches        growing, static and rolling caches, and one for cross-attention
    quantization  int8, int4 and fp8, and a cache of them
    decoding      one new query per sequence, the keys cut into parts
    sampling      from logits to the next token; verifying drafted tokens
    multi_token   a head that drafts from the model's own states
    generation    generate, beam search, speculative decoding, cross-attention
    kernels       kernels/kv_cache.cu as functions; tensor_core for half precision"""
from .caches import CrossCache, GrowingCache, KVCache, RollingCache, StaticCache
from .decoding import choose_splits, decode_attention
from .generation import beam_search, caches_for, cross_attention, generate, generate_speculative
from .kernels import append_kernel, decode_kernel, decode_quantized_kernel
from .multi_token import MultiTokenHead
from .quantization import QuantizedCache, Quantized, dequantize, quantize
from .sampling import acceptance, drawing, every_outcome, next_token_probabilities, residual, verify_draft

__all__ = ["CrossCache", "GrowingCache", "KVCache", "MultiTokenHead", "Quantized", "QuantizedCache",
           "RollingCache", "StaticCache", "acceptance", "append_kernel", "beam_search", "caches_for",
           "choose_splits", "cross_attention", "decode_attention", "decode_kernel", "decode_quantized_kernel",
           "dequantize", "drawing", "every_outcome", "generate", "generate_speculative",
           "next_token_probabilities", "quantize", "residual", "verify_draft"]
