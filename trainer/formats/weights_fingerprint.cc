#include "trainer/formats/weights_fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <vector>

namespace muster {
namespace {

constexpr std::int64_t kSampled = 64;  // elements of each part of a tensor that is looked at

// A model that was written in a wider type has the same values; of types that are no floats the
// stored bytes count.
Result<std::uint64_t> HashElements(const SafetensorsModel& model, const TensorSpec& tensor,
                                   std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  Status read = model.ReadFloats(tensor.name, begin, count, values.data());
  if (read.ok()) return XXH3_64bits(values.data(), values.size() * sizeof(float));
  if (read.code() != StatusCode::kUnimplemented) return read;
  std::vector<char> stored(static_cast<std::size_t>(count * TensorTypeSize(tensor.type)));
  MUSTER_RETURN_IF_ERROR(model.ReadStored(tensor.name, begin, count, stored.data()));
  return XXH3_64bits(stored.data(), stored.size());
}

}  // namespace

Result<std::uint64_t> FingerprintWeights(const SafetensorsModel& model) {
  std::vector<std::uint64_t> words;
  for (const std::string& name : model.names()) {
    const TensorSpec& tensor = *model.Find(name);
    words.push_back(XXH3_64bits(name.data(), name.size()));
    words.insert(words.end(), tensor.shape.begin(), tensor.shape.end());
    const std::int64_t count = std::min(kSampled, tensor.count());
    const std::int64_t beyond = tensor.count() - count;
    for (const std::int64_t begin : {std::int64_t{0}, beyond / 2, beyond}) {
      MUSTER_ASSIGN_OR_RETURN(const std::uint64_t values,
                              HashElements(model, tensor, begin, count));
      words.push_back(values);
    }
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

std::string FingerprintText(std::uint64_t fingerprint) {
  char text[32];
  std::snprintf(text, sizeof text, "xxh3:%016" PRIx64, fingerprint);
  return text;
}

}  // namespace muster
