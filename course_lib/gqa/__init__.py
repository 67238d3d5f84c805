"""Chapter 3: fewer keys and values than queries."""
from .grouped import (GroupedQueryAttention, cache_bytes, check_grouped, gqa_kernel, grouped_query_attention,
                      kv_bytes_per_token, pool_heads, repeat_kv, rotate_and_cache, shared_bytes)
from .latent import LatentAttention, flops_per_key, latent_bytes_per_token
