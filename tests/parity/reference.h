// ReferenceTrainer: a Llama trainer written to be obviously right and nothing else: the whole model
// in one process, one autograd graph over whole batches, attention by an explicit mask, AdamW in
// tensor operations. Shares no code with trainer/.
//
// The numbers of the sharded engine are held against it. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/data/batch_loader.h"

namespace muster::parity {

struct ReferenceNumbers {
  double loss = 0;
  double grad_norm = 0;
};

struct ReferenceEvaluation {
  double loss = 0;  // mean over the labels
  std::int64_t labels = 0;
  std::int64_t correct = 0;  // labels that are the most likely word
};

class ReferenceTrainer {
 public:
  using Weights = std::map<std::string, at::Tensor>;  // by Hugging Face name

  // Everything is computed in `type`. `trained`: the tensors that are; empty: all. Adapters are
  // those weights that have the names of adapters; lora_scale is on their products.
  ReferenceTrainer(ModelConfig config, const Weights& weights, OptimizerSpec optimizer,
                   at::ScalarType type, const std::set<std::string>& trained = {},
                   double lora_scale = 1);

  // The router's decisions, one tensor for each sparse layer.
  struct Gates {
    std::vector<at::Tensor> probabilities, chosen;
  };

  // [B, T] ids -> [B, T, V].
  at::Tensor Logits(const at::Tensor& ids, Gates* gates = nullptr) const;
  // One step over `batches`, the micro-batches of all ranks.
  ReferenceNumbers Step(const std::vector<MicroBatch>& batches, double lr);

  ReferenceEvaluation Evaluate(const std::vector<MicroBatch>& batches) const;
  // The most likely word after a text.
  std::int64_t NextToken(const std::vector<std::int32_t>& text) const;

  const Weights& weights() const { return weights_; }

 private:
  const at::Tensor& Weight(const std::string& name) const { return weights_.at(name); }
  at::Tensor Norm(const at::Tensor& x, const std::string& name) const;
  // x through a linear layer with its bias and adapter, if it has any.
  at::Tensor Linear(const at::Tensor& x, const std::string& module) const;
  at::Tensor Attention(const at::Tensor& x, std::int64_t layer) const;
  at::Tensor Turned(const at::Tensor& x, std::int64_t layer) const;
  at::Tensor Block(const at::Tensor& x, std::int64_t layer, Gates* gates) const;
  at::Tensor FeedForward(const at::Tensor& x, const std::string& prefix) const;
  // Every expert sees every token; `gates`, if wanted, takes the probabilities [N, E] and which
  // experts were chosen [N, E].
  at::Tensor Mixture(const at::Tensor& x, const std::string& prefix, Gates* gates) const;
  // The output of one expert, of those that files have in one tensor, or of others.
  at::Tensor StackedExpert(const at::Tensor& x, const std::string& experts,
                           std::int64_t number) const;
  at::Tensor SingleExpert(const at::Tensor& x, const std::string& prefix,
                          std::int64_t number) const;
  // What the adapters add to the matrices of an expert, [2 I, H] and [H, I]; 0: there are none.
  at::Tensor ExpertDelta(const std::string& parameter, std::int64_t expert) const;
  at::Tensor Balance(const Gates& gates) const;
  at::Tensor Head(const at::Tensor& x) const;
  void Update(const std::vector<at::Tensor>& gradients, double clip, double lr);

  ModelConfig config_;
  Weights weights_;
  OptimizerSpec optimizer_;
  double lora_scale_;
  std::map<std::string, at::Tensor> exp_avg_;
  std::map<std::string, at::Tensor> exp_avg_sq_;
  int steps_ = 0;
};

}  // namespace muster::parity
