#include "trainer/inputs/init_weights.h"

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "trainer/formats/safetensors.h"
#include "trainer/inputs/stored_type.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

constexpr double kStandardDeviation = 0.02;

// Box and Muller's pairs: unlike std::normal_distribution, the same numbers with every library.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : random_(seed) {}

  void Fill(std::vector<float>* values) {
    for (std::size_t i = 0; i < values->size(); i += 2) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform())) * kStandardDeviation;
      const double angle = 2.0 * std::numbers::pi * Uniform();
      (*values)[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < values->size()) (*values)[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }

 private:
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

  std::mt19937_64 random_;
};

}  // namespace

Status WriteRandomWeights(const ModelConfig& config, std::uint64_t seed, const std::string& dir) {
  const std::vector<UnitTensor> tensors = ModelTensors(config);
  std::vector<TensorSpec> specs;
  for (const UnitTensor& tensor : tensors) {
    specs.push_back(
        {.name = tensor.name, .type = StoredType(config.torch_dtype), .shape = tensor.shape});
  }
  MUSTER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(dir + "/model.safetensors", std::move(specs)));
  Normal normal(seed);
  std::vector<float> values;
  for (const UnitTensor& tensor : tensors) {
    const bool is_bias = tensor.role == TensorRole::kQkvBias;
    values.assign(static_cast<std::size_t>(ElementCount(tensor.shape)), is_bias ? 0.0f : 1.0f);
    const bool is_matrix = tensor.shape.size() > 1;
    if (is_matrix) normal.Fill(&values);
    MUSTER_RETURN_IF_ERROR(
        writer.AppendFloats(values.data(), static_cast<std::int64_t>(values.size())));
  }
  return writer.Finish();
}

}  // namespace muster
