#include "trainer/model/adapter_merge.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trainer/model/adapters.h"

namespace muster {
namespace {

constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kB = ".lora_B.weight";

Result<std::vector<float>> ReadWhole(const SafetensorsModel& file, const std::string& name,
                                     const UnitTensor& tensor, const std::string& path) {
  const TensorSpec* found = file.Find(name);
  if (found == nullptr) return InvalidArgument(path + " has no tensor " + name);
  if (found->shape != tensor.shape) {
    const bool vocabulary =
        tensor.role == TensorRole::kEmbedding || tensor.role == TensorRole::kHead;
    return InvalidArgument(path + ": the shape of " + name +
                           " is not that of an adapter of this model" +
                           (vocabulary ? "; of one with new tokens muster-trainer merge makes a "
                                         "model that has them"
                                       : ""));
  }
  std::vector<float> values(static_cast<std::size_t>(found->count()));
  MUSTER_RETURN_IF_ERROR(file.ReadFloats(name, 0, found->count(), values.data()));
  return values;
}

}  // namespace

Result<AdapterMerge> AdapterMerge::Open(const std::string& dir, const ModelConfig& config) {
  MUSTER_ASSIGN_OR_RETURN(LoraSpec spec, ReadAdapterConfig(dir));
  MUSTER_RETURN_IF_ERROR(CheckLora(config, spec));
  const std::string path = dir + "/" + kAdapterWeights;
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel file, SafetensorsModel::OpenFile(path));
  AdapterMerge merge(std::move(spec));
  MUSTER_RETURN_IF_ERROR(merge.Read(file, config, path));
  return merge;
}

Status AdapterMerge::Read(const SafetensorsModel& file, const ModelConfig& config,
                          const std::string& path) {
  std::set<std::string> read;
  for (const UnitSpec& unit : SplitModel(config, 1, spec_).trained) {
    for (const UnitTensor& tensor : unit.tensors) {
      const std::string name = PeftName(tensor, spec_);
      MUSTER_ASSIGN_OR_RETURN(std::vector<float> values, ReadWhole(file, name, tensor, path));
      read.insert(name);
      if (!IsAdapterTensor(tensor)) {
        whole_[tensor.name] = std::move(values);
        continue;
      }
      const bool is_a = IsLoraA(tensor.role);
      const std::string module =
          tensor.name.substr(0, tensor.name.size() - (is_a ? kA : kB).size());
      Matrices& matrices = adapters_[module + ".weight"];
      if (is_a) matrices.in = tensor.shape[1];
      (is_a ? matrices.a : matrices.b) = std::move(values);
    }
  }
  for (const std::string& name : file.names()) {
    if (!read.contains(name)) {
      return InvalidArgument(path + ": tensor " + name + " belongs to nothing of this model");
    }
  }
  return OkStatus();
}

void AdapterMerge::Apply(const std::string& tensor, std::int64_t begin, std::int64_t count,
                         float* values) const {
  if (const auto whole = whole_.find(tensor); whole != whole_.end()) {
    std::copy_n(whole->second.begin() + begin, count, values);
    return;
  }
  const auto found = adapters_.find(tensor);
  if (found == adapters_.end()) return;
  const Matrices& matrices = found->second;
  const auto scale = static_cast<float>(LoraScale(spec_));
  std::vector<float> delta(static_cast<std::size_t>(matrices.in));
  for (std::int64_t at = begin; at < begin + count;) {
    const std::int64_t row = at / matrices.in, column = at % matrices.in;
    const std::int64_t run = std::min(begin + count - at, matrices.in - column);
    std::fill(delta.begin(), delta.end(), 0.0f);
    for (int k = 0; k < spec_.r; ++k) {
      const float factor = matrices.b[static_cast<std::size_t>(row * spec_.r + k)];
      const float* a = matrices.a.data() + k * matrices.in + column;
      for (std::int64_t i = 0; i < run; ++i) delta[static_cast<std::size_t>(i)] += factor * a[i];
    }
    float* out = values + (at - begin);
    for (std::int64_t i = 0; i < run; ++i) out[i] += scale * delta[static_cast<std::size_t>(i)];
    at += run;
  }
}

}  // namespace muster
