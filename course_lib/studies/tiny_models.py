"""Tiny configurations of the families, as the library names their sizes: what the equality is shown with."""

COMMON = dict(vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
              eos_token_id=2)
MIX = dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"], sliding_window=6)
EXPERTS = dict(num_experts=2, num_local_experts=2, num_experts_per_tok=1, moe_intermediate_size=16)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
PARTS = ("self_attn", "linear_attn", "mamba", "mixer", "conv", "attention", "attn")


def tiny(*parts, **changes):
    options = dict(COMMON)
    for part in (*parts, changes):
        options.update(part)
    return {name: value for name, value in options.items() if value is not None}


LATENT = dict(
    q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, head_dim=None,
    num_key_value_heads=4, n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, n_group=1,
    topk_group=1, first_k_dense_replace=1, n_shared_experts=1)
INDEX = dict(index_n_heads=8, index_head_dim=8, index_topk=6)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
             linear_conv_kernel_dim=4, num_hidden_layers=4, mlp_only_layers=[0, 1, 2, 3], norm_topk_prob=True,
             layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"])
PARTIAL = dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)
KDA = dict(LATENT, linear_head_dim=8, linear_num_heads=4, linear_conv_kernel_dim=4, first_k_dense_replace=3)

CONFIGS = {
    "llama": tiny(rope_parameters=LLAMA3),
    "mistral": tiny(sliding_window=6),
    "ministral3": tiny(
        rope_parameters=dict(YARN, llama_4_scaling_beta=0.1, original_max_position_embeddings=8)),
    "qwen2": tiny(head_dim=None),
    "qwen3": tiny(),
    "apertus": tiny(),
    "seed_oss": tiny(attention_bias=True, attention_out_bias=False),
    "arcee": tiny(),
    "cwm": tiny(MIX),
    "hy_v3": tiny(EXPERTS),
    "mellum": tiny(EXPERTS, MIX),
    "qwen3_vl_text": tiny(rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1],
                                               mrope_interleaved=True)),
    "qwen2_vl_text": tiny(
        head_dim=None, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1])),
    "hunyuan_v1_dense": tiny(),
    "nanochat": tiny(),
    "gemma2": tiny(MIX, query_pre_attn_scalar=10, attn_logit_softcapping=1.5),
    "gemma3_text": tiny(MIX, query_pre_attn_scalar=10),
    "gemma4_text": tiny(
        MIX, num_hidden_layers=5, num_kv_shared_layers=2, global_head_dim=12, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=32, num_global_key_value_heads=1, attention_k_eq_v=True,
        layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"]),
    "gpt_oss": tiny(MIX, EXPERTS, rope_parameters=dict(YARN, truncate=False)),
    "olmo2": tiny(),
    "olmo3": tiny(MIX),
    "minimax_m2": tiny(
        EXPERTS, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
    "smollm3": tiny(no_rope_layers=[1, 0, 1]),
    "llama4_text": tiny(EXPERTS, layer_types=["chunked_attention", "full_attention", "chunked_attention"],
                        no_rope_layers=[1, 0, 1], attention_chunk_size=8, floor_scale=4, attn_scale=0.1,
                        intermediate_size_mlp=32, rope_parameters=LLAMA3),
    "cohere2": tiny(MIX),
    "exaone4": tiny(MIX, sliding_window_pattern=2),
    "kolibri1": tiny(MIX),
    "granite": tiny(attention_multiplier=0.2),
    "granite_swa": tiny(MIX, attention_multiplier=0.2, layer_rope_theta=[1e4, 0, 5e3]),
    "phi3": tiny(rope_parameters=dict(rope_type="longrope", rope_theta=1e4, factor=2.0,
                                      short_factor=[1.0, 1.5], long_factor=[1.0, 4.0],
                                      original_max_position_embeddings=64, partial_rotary_factor=0.5)),
    "glm4": tiny(rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
    "ernie4_5": tiny(),
    "mimo_v2_flash": tiny(MIX, EXPERTS, num_key_value_heads=1, v_head_dim=6, n_routed_experts=2),
    "afmoe": tiny(MIX, EXPERTS),
    "laguna": tiny(MIX, EXPERTS, num_attention_heads_per_layer=[4, 2, 4]),
    "muse_glimmer_text": tiny(MIX, qk_scale_factor=2.0),
    "deepseek_v3": tiny(LATENT, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.7)),
    "deepseek_v2": tiny(LATENT, q_lora_rank=None),
    "mistral4": tiny(
        LATENT, rope_parameters=dict(YARN, llama_4_scaling_beta=0.1, original_max_position_embeddings=8)),
    "deepseek_v32": tiny(LATENT, INDEX),
    "glm_moe_dsa": tiny(
        LATENT, INDEX, indexer_types=["full", "shared", "full"], mlp_layer_types=["dense"] * 3),
    "hy_v4": tiny(LATENT, INDEX, indexer_types=["full", "shared", "full"], mlp_layer_types=["dense"] * 3),
    "mistral_large4_text": tiny(
        LATENT, INDEX, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], kv_source_layers=[0, 1, 0, 3],
        indexer_types=["full", "full", "full", "shared"], mlp_layer_types=["dense"] * 4,
        rope_parameters=dict(YARN, attention_factor=1.0)),
    "qwen3_next": tiny(DELTA, EXPERTS, rope_parameters=PARTIAL),
    "qwen3_5_text": tiny(DELTA,
                         rope_parameters=dict(PARTIAL, partial_rotary_factor=1.0, mrope_section=[2, 1, 1],
                                              mrope_interleaved=True)),
    "olmo_hybrid": tiny(DELTA),
    "kimi_linear": tiny(KDA, layer_types=["linear_attention", "linear_attention", "full_attention"]),
    "nemotron_h": tiny(layers_block_type=["mamba", "attention", "mamba"], mamba_num_heads=4, mamba_head_dim=8,
                       ssm_state_size=6, n_groups=2, conv_kernel=4, chunk_size=8),
    "granitemoehybrid": tiny(
        layer_types=["mamba", "attention", "mamba"], mamba_n_heads=4, mamba_d_head=8, mamba_d_state=6,
        mamba_n_groups=2, mamba_d_conv=4, mamba_expand=1, mamba_chunk_size=8, num_local_experts=0,
        shared_intermediate_size=32, attention_multiplier=0.2),
    "minimax": tiny(
        EXPERTS, layer_types=["full_attention", "linear_attention", "full_attention"], block_size=8),
    "lfm2": tiny(layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, head_dim=None),
    "lfm3": tiny(
        layer_types=["conv", "full_attention", "sliding_attention"], sliding_window=6, conv_L_cache=4),
    "deepseek_v4": tiny(
        num_key_value_heads=1, head_dim=12, q_lora_rank=12, n_routed_experts=2, num_experts_per_tok=1,
        sliding_window=6, compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=8),
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        rope_theta=1e4, compress_rope_theta=5e3, partial_rotary_factor=0.34, o_groups=2, o_lora_rank=6,
        index_n_heads=8, index_head_dim=8, index_topk=2, mlp_layer_types=["moe"] * 3,
        moe_intermediate_size=16),
    "minimax_m3_vl_text": tiny(
        EXPERTS, layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], rotary_dim=4,
        index_n_heads=2, index_head_dim=8, index_block_size=4, index_topk_blocks=2,
        shared_intermediate_size=16, dense_intermediate_size=32, rope_parameters=PARTIAL),
    "qwen4_exp_text": tiny(
        DELTA, EXPERTS,
        layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
        hc_count=2, hc_lowrank=8, shared_expert_intermediate_size=16, indexer_n_heads=8, indexer_kv_heads=1,
        indexer_head_dim=8, indexer_budget=8, indexer_compress_ratio=4, rope_parameters=PARTIAL),
    "glm5_next_text": tiny(KDA, INDEX, qk_rope_head_dim=0, head_dim=0, index_topk=8, index_kpool=4,
                           layer_types=["linear_attention", "indexed_attention", "indexed_attention"],
                           indexer_types=["full", "full", "shared"], mlp_layer_types=["dense"] * 3),
    "falcon_h1": tiny(
        mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=6, mamba_d_conv=4,
        mamba_chunk_size=8, key_multiplier=0.5, ssm_in_multiplier=0.8,
        ssm_multipliers=[0.9, 1.1, 0.7, 1.3, 0.6], mamba_rms_norm=True)}
