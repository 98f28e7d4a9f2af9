#include "trainer/model/adapter_merge.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "trainer/model/adapters.h"
#include "trainer/model/families/units.h"

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
  const bool finite =
      std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (!finite) return DataLoss(path + ": tensor " + name + " has a number that is not finite");
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
  Factors of_experts;
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
      Matrices& matrices =
          IsExpertAdapter(tensor.role) ? of_experts[module] : adapters_[module + ".weight"];
      if (is_a) matrices.in = tensor.shape[1];
      (is_a ? matrices.a : matrices.b) = std::move(values);
    }
  }
  AddExperts(config, of_experts);
  for (const std::string& name : file.names()) {
    if (!read.contains(name)) {
      return InvalidArgument(path + ": tensor " + name + " belongs to nothing of this model");
    }
  }
  return OkStatus();
}

// PEFT's layout (expert_adapters.h): rows of A and columns of B belong to one expert.
void AdapterMerge::AddExperts(const ModelConfig& config, const Factors& factors) {
  if (factors.empty()) return;
  const auto rank = static_cast<std::size_t>(spec_.r);
  const auto experts = static_cast<std::size_t>(config.experts->count);
  for (const UnitSpec& unit : ModelUnits(config)) {
    std::size_t part = 0;  // of those that are one matrix
    for (const UnitTensor& tensor : unit.tensors) {
      part = tensor.joined ? part + 1 : 0;
      const auto found = factors.find(ExpertAdapterOf(tensor));
      if (found == factors.end()) continue;
      const auto parts = static_cast<std::size_t>(TensorsOfExpert(config, tensor.role));
      const std::size_t expert = part / parts;
      const auto rows = static_cast<std::size_t>(tensor.shape[0]);
      const auto in = static_cast<std::size_t>(tensor.shape[1]);
      Matrices& matrices = adapters_[tensor.name];
      matrices.in = tensor.shape[1];
      const auto a = found->second.a.begin() + static_cast<std::ptrdiff_t>(expert * rank * in);
      matrices.a.assign(a, a + static_cast<std::ptrdiff_t>(rank * in));
      const std::size_t first = part % parts * rows;
      for (std::size_t row = first; row < first + rows; ++row) {
        for (std::size_t k = 0; k < rank; ++k)
          matrices.b.push_back(found->second.b[(row * rank + k) * experts + expert]);
      }
    }
  }
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
  // Whole rows in one product, and what is cut of the first and the last row by itself.
  for (std::int64_t at = begin; at < begin + count;) {
    const std::int64_t row = at / matrices.in, column = at % matrices.in;
    const std::int64_t left = begin + count - at;
    const bool is_cut = column > 0 || left < matrices.in;
    const std::int64_t rows = is_cut ? 1 : left / matrices.in;
    const std::int64_t columns = is_cut ? std::min(left, matrices.in - column) : matrices.in;
    AddProduct(matrices, {.row = row, .rows = rows, .column = column, .columns = columns},
               values + (at - begin));
    at += rows * columns;
  }
}

// values += scale * B A. BLAS, on the threads that ATen has.
void AdapterMerge::AddProduct(const Matrices& matrices, const Part& part, float* values) const {
  const auto view = [](const std::vector<float>& matrix, std::int64_t columns) {
    const auto rows = static_cast<std::int64_t>(matrix.size()) / columns;
    // Only read; from_blob has no other form.
    return at::from_blob(const_cast<float*>(matrix.data()), {rows, columns}, at::kFloat);
  };
  at::from_blob(values, {part.rows, part.columns}, at::kFloat)
      .addmm_(view(matrices.b, spec_.r).narrow(0, part.row, part.rows),
              view(matrices.a, matrices.in).narrow(1, part.column, part.columns), 1,
              LoraScale(spec_));
}

}  // namespace muster
