// InferenceModel: a whole model in one process, for scoring and generating.
//
// Loads every weight once, as fp32 or bf16; no shards, no gradients. Owned by the verb that uses
// it; one thread at a time. Errors of files are a Status, errors of shapes are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"
#include "trainer/model/kv_cache.h"
#include "trainer/model/llama.h"

namespace muster {

class InferenceModel {
 public:
  // `adapter`: a PEFT directory that is merged into the weights; empty: none.
  static Result<InferenceModel> Load(const std::string& dir, at::ScalarType type,
                                     const std::string& adapter = {});

  const ModelConfig& config() const { return config_; }
  // [B, T] ids -> [B, T, H] after the final norm. `lengths`: of each row before its padding; empty:
  // there is none.
  at::Tensor Hidden(const at::Tensor& ids, const std::vector<std::int64_t>& lengths = {});
  const at::Tensor& head() const { return head_; }  // [V, H]
  // [B, T] ids -> [B, T, V] fp32.
  at::Tensor Logits(const at::Tensor& ids);
  // [B, T] ids that follow those that the cache has seen -> [B, V] fp32: of what comes after the
  // last one. T is at least 1; a long prompt goes through in pieces.
  at::Tensor LastLogits(const at::Tensor& ids, KvCache& cache);
  // The next id of each of B texts, which have a cache each -> [B, V] fp32: of what comes after it.
  at::Tensor NextLogits(const std::vector<std::int64_t>& ids, std::span<KvCache* const> caches);

 private:
  explicit InferenceModel(ModelConfig config);
  // As Hidden; a cache for all rows, or for each. The ids follow those that it has seen, and are
  // added to it. `lengths` as BlockForward's.
  at::Tensor HiddenOf(const at::Tensor& ids, std::span<KvCache* const> caches,
                      const std::vector<std::int64_t>& lengths);
  // What becomes of the products with the head, of any shape; fp32. They are overwritten.
  at::Tensor LogitsOf(at::Tensor products) const;

  ModelConfig config_;
  RotaryTables rotary_;
  at::Tensor embedding_;
  std::vector<BlockWeights> blocks_;
  at::Tensor final_norm_;
  at::Tensor head_;
};

}  // namespace muster
