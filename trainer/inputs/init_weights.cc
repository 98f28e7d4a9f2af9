#include "trainer/inputs/init_weights.h"

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "trainer/formats/stored_tensor.h"
#include "trainer/model/families/units.h"
#include "trainer/model/stored_model.h"

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

bool IsBiasOrSink(TensorRole role) {
  switch (role) {
    case TensorRole::kQkvBias:
    case TensorRole::kSinks:
    case TensorRole::kAttentionOutputBias:
    case TensorRole::kRouterBias:
    case TensorRole::kExpertGateUpBias:
    case TensorRole::kExpertDownBias: return true;
    default: return false;
  }
}

}  // namespace

Status WriteRandomWeights(const ModelConfig& config, std::uint64_t seed, const std::string& dir) {
  const std::vector<StoredTensor> stored = StoredTensors(config);
  WeightFiles files(dir, {{"model.safetensors", FileTensors(stored)}});
  MUSTER_RETURN_IF_ERROR(files.Begin());
  TensorStream stream(stored, files);
  Normal normal(seed);
  std::vector<float> values;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    const bool is_zero = IsBiasOrSink(tensor.role) || config.zero_centered_norms;
    values.assign(static_cast<std::size_t>(ElementCount(tensor.shape)), is_zero ? 0.0f : 1.0f);
    const bool is_matrix = tensor.shape.size() > 1;
    if (is_matrix) normal.Fill(&values);
    MUSTER_RETURN_IF_ERROR(stream.Append(values.data(), static_cast<std::int64_t>(values.size())));
  }
  return files.Finish();
}

}  // namespace muster
