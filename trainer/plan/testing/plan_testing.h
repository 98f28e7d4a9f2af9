// Models and jobs for the tests of plans.
#pragma once

#include "trainer/plan/plan_job.h"

namespace muster {

// Llama 3.1 8B: 8.03 B parameters.
inline ModelConfig Llama8B() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  return config;
}

// Llama 3.1 70B: 70.55 B parameters.
inline ModelConfig Llama70B() {
  ModelConfig config = Llama8B();
  config.hidden_size = 8192;
  config.intermediate_size = 28672;
  config.num_hidden_layers = 80;
  config.num_attention_heads = 64;
  return config;
}

// 8 experts of a Llama 3.1 8B in each layer, of which a token has two: 47 B parameters.
inline ModelConfig Mixture47B() {
  ModelConfig config = Llama8B();
  config.architecture = "MixtralForCausalLM";
  config.experts = {.count = 8, .per_token = 2, .intermediate_size = 14336};
  return config;
}

inline PlanJob GpuJob(ModelConfig model, int nodes, int ranks_per_node) {
  PlanJob job;
  job.model = std::move(model);
  job.resources.nodes = nodes;
  job.resources.ranks_per_node = ranks_per_node;
  job.resources.device = "cuda";
  job.train.data.max_seq_len = 2048;
  job.train.schedule.max_steps = 1000;
  job.train.fsdp.activation_checkpointing = ActivationCheckpointing::kFull;
  return job;
}

}  // namespace muster
