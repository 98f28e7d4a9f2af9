// AdapterMerge: a PEFT adapter added to the weights of its model.
//
// Belongs to who merges: inference in memory, `muster-trainer merge` from file to file. Immutable
// once open; any thread, and within a call those of ATen. Torch exceptions pass through.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/safetensors.h"
#include "trainer/model/peft.h"

namespace muster {

class AdapterMerge {
 public:
  // Reads all of `dir`. kInvalidArgument where the adapter does not fit the model: a tensor of
  // another shape, missing, or one that belongs to nothing.
  static Result<AdapterMerge> Open(const std::string& dir, const ModelConfig& config);

  const LoraSpec& spec() const { return spec_; }
  // values[i] = element begin + i of the model's tensor: W + scale * B A, or what the adapter has
  // in its place (modules_to_save, biases); unchanged where the adapter has nothing for it.
  void Apply(const std::string& tensor, std::int64_t begin, std::int64_t count,
             float* values) const;

 private:
  struct Matrices {
    std::int64_t in = 0;
    std::vector<float> a;  // [r, in]
    std::vector<float> b;  // [out, r]
  };
  // A part of a tensor; more than one row are whole rows.
  struct Part {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    std::int64_t column = 0;
    std::int64_t columns = 0;
  };
  explicit AdapterMerge(LoraSpec spec) : spec_(std::move(spec)) {}
  Status Read(const SafetensorsModel& file, const ModelConfig& config, const std::string& path);
  // An adapter of all experts of a layer by its name without .lora_A.weight.
  using Factors = std::map<std::string, Matrices>;
  // Cuts them into those of each expert's tensors.
  void AddExperts(const ModelConfig& config, const Factors& factors);
  void AddProduct(const Matrices& matrices, const Part& part, float* values) const;

  LoraSpec spec_;
  std::map<std::string, Matrices> adapters_;         // by the tensor that they are added to
  std::map<std::string, std::vector<float>> whole_;  // by the tensor that they stand for
};

}  // namespace muster
