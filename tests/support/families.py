"""What sets a family's blocks apart from those of a plain Llama, as in its config.json."""

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# Mistral's window is shorter than the rows of the tests.
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
}
# Those with experts.
MIXTURES = {
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 6,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True},
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": 6,
              "num_experts_per_tok": 2},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
                "num_experts_per_tok": 2},
}
