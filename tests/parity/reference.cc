#include "tests/parity/reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "trainer/model/families/family.h"

namespace muster::parity {
namespace {

at::Tensor RotateHalf(const at::Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  return at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
}

// x [B, heads, T, dim]. The angles are fp32 whatever x is, as Hugging Face's are; they grow slower
// by that factor (a linear scaling).
at::Tensor RotateAll(const at::Tensor& x, double theta, double slower) {
  const std::int64_t dim = x.size(-1);
  const at::Tensor exponents = at::arange(0, dim, 2, at::kFloat) / static_cast<double>(dim);
  const at::Tensor frequencies = 1.0 / at::pow(theta, exponents) / slower;
  const at::Tensor angles = at::outer(at::arange(x.size(2), at::kFloat), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  return x * both.cos().to(x.scalar_type()) + RotateHalf(x) * both.sin().to(x.scalar_type());
}

// Rotates the first `dim` elements of each head.
at::Tensor ApplyRotary(const at::Tensor& x, double theta, double slower, std::int64_t dim) {
  const std::int64_t rest = x.size(-1) - dim;
  return at::cat({RotateAll(x.narrow(-1, 0, dim), theta, slower), x.narrow(-1, dim, rest)}, -1);
}

at::Tensor Ids(const std::vector<std::int64_t>& values, const MicroBatch& batch) {
  return at::tensor(values, at::kLong).view({batch.rows, batch.length});
}

}  // namespace

ReferenceTrainer::ReferenceTrainer(ModelConfig config, const Weights& weights,
                                   OptimizerSpec optimizer, at::ScalarType type,
                                   const std::set<std::string>& trained, double lora_scale)
    : config_(std::move(config)), optimizer_(optimizer), lora_scale_(lora_scale) {
  // Threads that wait for one another over such small tensors cost more than they give.
  at::set_num_threads(1);
  for (const auto& [name, given] : weights) {
    at::Tensor& weight = weights_[name];
    weight = given.to(type, /*non_blocking=*/false, /*copy=*/true);
    if (!trained.empty() && !trained.contains(name)) continue;
    weight.requires_grad_(true);
    exp_avg_[name] = at::zeros_like(weight).detach();
    exp_avg_sq_[name] = at::zeros_like(weight).detach();
  }
}

at::Tensor ReferenceTrainer::Norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor normed = x / at::sqrt(x.pow(2).mean(-1, true) + config_.rms_norm_eps);
  return config_.zero_centered_norms ? normed * (1 + Weight(name)) : normed * Weight(name);
}

at::Tensor ReferenceTrainer::Linear(const at::Tensor& x, const std::string& module) const {
  at::Tensor y = at::matmul(x, Weight(module + ".weight").t());
  if (weights_.contains(module + ".bias")) y = y + Weight(module + ".bias");
  if (!weights_.contains(module + ".lora_A.weight")) return y;
  const at::Tensor hidden = at::matmul(x, Weight(module + ".lora_A.weight").t());
  return y + at::matmul(hidden, Weight(module + ".lora_B.weight").t()) * lora_scale_;
}

// Scaling of rotations is linear, where a test has any.
at::Tensor ReferenceTrainer::Turned(const at::Tensor& x, std::int64_t layer) const {
  if (!config_.Rotates(layer)) return x;
  const std::int64_t dim = config_.rotary_dim();
  const bool own = config_.attention.window_rope_theta && config_.WindowOf(layer);
  if (own) return ApplyRotary(x, *config_.attention.window_rope_theta, 1, dim);
  return ApplyRotary(x, config_.rope_theta, config_.rope_scaling ? config_.rope_scaling->factor : 1,
                     dim);
}

at::Tensor ReferenceTrainer::Attention(const at::Tensor& x, std::int64_t layer) const {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
  const std::int64_t rows = x.size(0), length = x.size(1);
  const auto heads = [&](const at::Tensor& all, std::int64_t count) {
    return all.reshape({rows, length, count, config_.head_dim}).transpose(1, 2);
  };
  const std::int64_t query_width = config_.num_attention_heads * config_.head_dim;
  const std::int64_t key_width = config_.num_key_value_heads * config_.head_dim;
  const bool fused = weights_.contains(prefix + "qkv_proj.weight");
  const at::Tensor joined = fused ? Linear(x, prefix + "qkv_proj") : at::Tensor();
  const auto projected = [&](const std::string& name) {
    if (!fused) return Linear(x, prefix + name + "_proj");
    if (name == "q") return joined.narrow(-1, 0, query_width);
    return joined.narrow(-1, query_width + (name == "v" ? key_width : 0), key_width);
  };
  const auto prepared = [&](const std::string& name, std::int64_t count) {
    const std::string norm = prefix + name + "_norm.weight";
    at::Tensor all = projected(name);
    if (config_.qk_norms == QkNorms::kAllHeads) all = Norm(all, norm);
    at::Tensor each = heads(all, count);
    if (config_.qk_norms == QkNorms::kPerHead) each = Norm(each, norm);
    return Turned(each, layer);
  };
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const at::Tensor query = prepared("q", config_.num_attention_heads);
  const at::Tensor key = prepared("k", config_.num_key_value_heads).repeat_interleave(group, 1);
  const at::Tensor value =
      heads(projected("v"), config_.num_key_value_heads).repeat_interleave(group, 1);
  const double scale = config_.attention_multiplier > 0
                           ? config_.attention_multiplier
                           : 1 / std::sqrt(static_cast<double>(config_.head_dim));
  const double cap = config_.attention.cap;
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)) * scale;
  if (cap != 0) scores = at::tanh(scores / cap) * cap;
  const at::Tensor all = at::ones({length, length}, at::kBool);
  const std::int64_t window = config_.WindowOf(layer).value_or(length);
  const at::Tensor unseen = all.triu(1).logical_or(all.tril(-window));
  scores = scores.masked_fill(unseen, -1e30);
  if (config_.attention.sinks) {
    const at::Tensor sinks = Weight(prefix + "sinks").view({1, -1, 1, 1});
    scores = at::cat({scores, sinks.expand({rows, -1, length, 1})}, -1);
  }
  const at::Tensor mixed = at::matmul(scores.softmax(-1).narrow(-1, 0, length), value);
  return Linear(mixed.transpose(1, 2).reshape({rows, length, -1}), prefix + "o_proj");
}

at::Tensor ReferenceTrainer::FeedForward(const at::Tensor& x, const std::string& prefix) const {
  at::Tensor gate, up;
  if (weights_.contains(prefix + "gate_up_proj.weight")) {
    const std::vector<at::Tensor> parts = Linear(x, prefix + "gate_up_proj").chunk(2, -1);
    gate = parts[0];
    up = parts[1];
  } else {
    gate = Linear(x, prefix + "gate_proj");
    up = Linear(x, prefix + "up_proj");
  }
  if (config_.activation == Activation::kSilu) {
    return Linear(gate * at::sigmoid(gate) * up, prefix + "down_proj");
  }
  const at::Tensor bent = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate.pow(3));
  return Linear(0.5 * gate * (1 + at::tanh(bent)) * up, prefix + "down_proj");
}

at::Tensor ReferenceTrainer::StackedExpert(const at::Tensor& x, const std::string& experts,
                                           std::int64_t number) const {
  const std::string end = "." + std::to_string(number);
  const ClampedSwiGluForm& form = *config_.experts->clamped;
  const at::Tensor gate_up = at::matmul(x, (Weight(experts + "gate_up_proj" + end) +
                                            ExpertDelta(experts + "gate_up_proj", number))
                                               .t()) +
                             Weight(experts + "gate_up_proj_bias" + end);
  const std::vector<at::Tensor> turns = gate_up.unflatten(-1, {-1, 2}).unbind(-1);
  const at::Tensor gate = turns[0].clamp_max(form.limit);
  const at::Tensor up = turns[1].clamp(-form.limit, form.limit);
  const at::Tensor inner = (up + 1) * (gate * at::sigmoid(form.alpha * gate));
  return at::matmul(inner, (Weight(experts + "down_proj" + end) +
                            ExpertDelta(experts + "down_proj", number))
                               .t()) +
         Weight(experts + "down_proj_bias" + end);
}

at::Tensor ReferenceTrainer::SingleExpert(const at::Tensor& x, const std::string& prefix,
                                          std::int64_t number) const {
  const BlockNames& names = FamilyOf(config_).names;
  const std::string expert = prefix + names.experts + std::to_string(number);
  const at::Tensor gate_up =
      at::cat({Weight(expert + names.expert_gate), Weight(expert + names.expert_up)}) +
      ExpertDelta(prefix + "mlp.experts.gate_up_proj", number);
  const at::Tensor down =
      Weight(expert + names.expert_down) + ExpertDelta(prefix + "mlp.experts.down_proj", number);
  const std::vector<at::Tensor> both = at::matmul(x, gate_up.t()).chunk(2, -1);
  return at::matmul(both[0] * at::sigmoid(both[0]) * both[1], down.t());
}

at::Tensor ReferenceTrainer::Mixture(const at::Tensor& x, const std::string& prefix,
                                     Gates* gates) const {
  const ExpertsConfig& config = *config_.experts;
  at::Tensor logits = at::matmul(x, Weight(prefix + FamilyOf(config_).names.router).t());
  if (config.biases) logits = logits + Weight(prefix + "mlp.router.bias");
  const at::Tensor probabilities = logits.softmax(-1);  // [B, T, E]
  const at::Tensor chosen = at::zeros_like(probabilities)
                                .scatter(-1, std::get<1>(probabilities.topk(config.per_token)), 1);
  at::Tensor shares = probabilities * chosen;
  if (config.normalizes_weights) shares = shares / shares.sum(-1, true);
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t e = 0; e < config.count; ++e) {
    const at::Tensor out =
        config.clamped ? StackedExpert(x, prefix + "mlp.experts.", e) : SingleExpert(x, prefix, e);
    y = y + out * shares.narrow(-1, e, 1);
  }
  if (gates != nullptr) {
    gates->probabilities.push_back(probabilities.flatten(0, -2));
    gates->chosen.push_back(chosen.flatten(0, -2));
  }
  if (config.shared_intermediate_size == 0) return y;
  const at::Tensor gate = Linear(x, prefix + "mlp.shared_expert_gate");
  return y + gate.sigmoid() * FeedForward(x, prefix + "mlp.shared_expert.");
}

// As PEFT's ParamWrapper: rows of A, and every E-th column of B, are an expert's.
at::Tensor ReferenceTrainer::ExpertDelta(const std::string& parameter, std::int64_t expert) const {
  if (!weights_.contains(parameter + ".lora_A.weight"))
    return at::zeros({}, weights_.begin()->second.options().requires_grad(false));
  const std::int64_t experts = config_.experts->count;
  const at::Tensor& a = Weight(parameter + ".lora_A.weight");
  const at::Tensor& b = Weight(parameter + ".lora_B.weight");
  const at::Tensor of_a = a.view({experts, -1, a.size(1)}).select(0, expert);
  const at::Tensor of_b = b.view({b.size(0), -1, experts}).select(2, expert);
  return lora_scale_ * at::matmul(of_b, of_a);
}

at::Tensor ReferenceTrainer::Balance(const Gates& gates) const {
  const at::Tensor shares = at::cat(gates.chosen).mean(0);
  const at::Tensor means = at::cat(gates.probabilities).mean(0);
  return static_cast<double>(config_.experts->count) * (shares * means).sum();
}

at::Tensor ReferenceTrainer::Head(const at::Tensor& x) const {
  const std::string name =
      config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  const at::Tensor logits =
      at::matmul(Norm(x, "model.norm.weight"), Weight(name).t()) / config_.logits_scaling;
  return config_.logit_cap != 0 ? at::tanh(logits / config_.logit_cap) * config_.logit_cap : logits;
}

at::Tensor ReferenceTrainer::Block(const at::Tensor& x, std::int64_t layer, Gates* gates) const {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const auto fed = [&](const at::Tensor& entered) {
    return config_.IsSparse(layer) ? Mixture(entered, prefix, gates)
                                   : FeedForward(entered, prefix + "mlp.");
  };
  const auto norm = [&](const at::Tensor& y, const char* name) {
    return Norm(y, prefix + name + "_layernorm.weight");
  };
  switch (config_.norm_placement) {
    case NormPlacement::kBefore: {
      const double multiplier = config_.residual_multiplier;
      const at::Tensor middle = x + Attention(norm(x, "input"), layer) * multiplier;
      return middle + fed(norm(middle, "post_attention")) * multiplier;
    }
    case NormPlacement::kAfter: {
      const at::Tensor middle = x + norm(Attention(x, layer), "post_attention");
      return middle + norm(fed(middle), "post_feedforward");
    }
    case NormPlacement::kBoth: break;
  }
  const at::Tensor middle = x + norm(Attention(norm(x, "input"), layer), "post_attention");
  return middle + norm(fed(norm(middle, "pre_feedforward")), "post_feedforward");
}

at::Tensor ReferenceTrainer::Logits(const at::Tensor& ids, Gates* gates) const {
  at::Tensor x = at::embedding(Weight("model.embed_tokens.weight"), ids);
  x = x * at::full({}, config_.embedding_multiplier, x.options());
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    x = Block(x, layer, gates);
  }
  return Head(x);
}

ReferenceNumbers ReferenceTrainer::Step(const std::vector<MicroBatch>& batches, double lr) {
  double labels = 0;
  for (const MicroBatch& batch : batches) labels += static_cast<double>(batch.label_count);
  at::Tensor loss = at::zeros({}, weights_.begin()->second.options().requires_grad(false));
  for (const MicroBatch& batch : batches) {
    Gates gates;
    const at::Tensor logits = Logits(Ids(batch.input_ids, batch), &gates).flatten(0, 1);
    if (config_.experts && config_.experts->balance_coefficient > 0) {
      loss = loss + Balance(gates) * (config_.experts->balance_coefficient /
                                      static_cast<double>(batches.size()));
    }
    loss = loss + at::cross_entropy_loss(logits, Ids(batch.labels, batch).flatten(), {},
                                         at::Reduction::Sum, -100) /
                      labels;
  }
  std::vector<at::Tensor> inputs;
  for (const auto& [name, weight] : weights_) {
    if (weight.requires_grad()) inputs.push_back(weight);
  }
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, inputs);
  double squares = 0;
  for (const at::Tensor& gradient : gradients) {
    squares += gradient.to(at::kDouble).pow(2).sum().item<double>();
  }
  const double norm = std::sqrt(squares);
  const double clip =
      optimizer_.grad_clip > 0 ? std::min(1.0, optimizer_.grad_clip / (norm + 1e-6)) : 1.0;
  Update(gradients, clip, lr);
  return {.loss = loss.item<double>(), .grad_norm = norm};
}

ReferenceEvaluation ReferenceTrainer::Evaluate(const std::vector<MicroBatch>& batches) const {
  const at::NoGradGuard no_grad;
  ReferenceEvaluation found;
  for (const MicroBatch& batch : batches) {
    const at::Tensor logits = Logits(Ids(batch.input_ids, batch)).flatten(0, 1);
    const at::Tensor labels = Ids(batch.labels, batch).flatten();
    found.loss +=
        at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, -100).item<double>();
    found.labels += batch.label_count;
    found.correct += logits.argmax(-1).eq(labels).sum().item<std::int64_t>();
  }
  found.loss /= static_cast<double>(found.labels);
  return found;
}

std::int64_t ReferenceTrainer::NextToken(const std::vector<std::int32_t>& text) const {
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> ids(text.begin(), text.end());
  return Logits(at::tensor(ids, at::kLong).unsqueeze(0))
      .select(1, -1)
      .argmax(-1)
      .item<std::int64_t>();
}

void ReferenceTrainer::Update(const std::vector<at::Tensor>& gradients, double clip, double lr) {
  const at::NoGradGuard no_grad;
  ++steps_;
  const double correction1 = 1 - std::pow(optimizer_.beta1, steps_);
  const double correction2 = 1 - std::pow(optimizer_.beta2, steps_);
  std::size_t next = 0;
  for (auto& [name, weight] : weights_) {
    if (!weight.requires_grad()) continue;
    const at::Tensor gradient = gradients[next++] * clip;
    at::Tensor& m = exp_avg_[name];
    at::Tensor& v = exp_avg_sq_[name];
    m.mul_(optimizer_.beta1).add_(gradient, 1 - optimizer_.beta1);
    v.mul_(optimizer_.beta2).add_(gradient.pow(2), 1 - optimizer_.beta2);
    weight.mul_(1 - lr * optimizer_.weight_decay);
    weight.sub_((m / correction1) / ((v / correction2).sqrt() + optimizer_.eps) * lr);
  }
}

}  // namespace muster::parity
