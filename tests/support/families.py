"""What sets a family's blocks apart from those of a plain Llama, as in its config.json."""

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# Windows are shorter than the rows of the tests, and caps low enough that they are felt.
FAMILIES = {
    "llama": {},
    "llama 3.2": {"rope_scaling": LLAMA3_ROPE, "tie_word_embeddings": True},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": 40},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": 32},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
    "smollm3": {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layer_interval": 2},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"},
    "granite": {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": 12.0,
                "attention_multiplier": 0.015625, "residual_multiplier": 0.22, "logits_scaling": 8.0},
    "phi3": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.75,
             "sliding_window": 40},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "sliding_window": 24, "head_dim": 32,
               "query_pre_attn_scalar": 20, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0,
               "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 24,
               "head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window_pattern": 3, "rope_theta": 100000.0,
               "rope_local_base_freq": 1000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
               "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
}
# Those with experts.
MIXTURES = {
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 6,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True},
    "qwen2_moe": {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 6,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80},
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": 6,
              "num_experts_per_tok": 2},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
                "num_experts_per_tok": 2},
    "gpt_oss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 6,
                "num_experts_per_tok": 2, "sliding_window": 24, "head_dim": 32, "attention_bias": True,
                "rope_theta": 10000.0,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                 "truncate": False, "original_max_position_embeddings": 32}},
}
