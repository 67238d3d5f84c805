"""Chapter 3: fewer heads of keys and values than of queries."""
from .cache_size import cache_bytes, flops_per_key, kv_bytes_per_token, latent_bytes_per_token
from .grouped import grouped_query_attention, pool_heads, repeat_kv
from .kernels import gqa_kernel, latent_decode_kernel, shared_bytes
from .latent import LatentAttention
from .layer import GroupedQueryAttention, rotate_and_cache
