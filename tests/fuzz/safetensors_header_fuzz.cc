// The header of a safetensors file: behind eight bytes of how much data follows it.
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "trainer/formats/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  std::int64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  if (data_bytes < 0) return 0;  // it is what is left of a file
  const std::string_view json = fuzz::TextOf(data + sizeof data_bytes, size - sizeof data_bytes);
  const Result<SafetensorsHeader> header = ParseSafetensorsHeader(json, data_bytes, "file");
  if (!header.ok()) return 0;
  std::int64_t end = 0;
  std::vector<TensorSpec> specs;
  for (const SafetensorsHeader::Tensor& tensor : header->tensors) {
    fuzz::Require(tensor.begin == end && tensor.end >= tensor.begin, "tensors follow each other");
    fuzz::Require(
        tensor.end - tensor.begin == tensor.spec.count() * TensorTypeSize(tensor.spec.type),
        "a tensor is as large as its shape");
    end = tensor.end;
    specs.push_back(tensor.spec);
  }
  fuzz::Require(end == data_bytes, "tensors cover the data");
  const std::string printed = FormatSafetensorsHeader(specs, header->metadata);
  const auto again =
      ParseSafetensorsHeader(std::string_view(printed).substr(8), data_bytes, "file");
  fuzz::Require(
      again.ok() && again->tensors.size() == specs.size() && again->metadata == header->metadata,
      "a header that is written is the same");
  return 0;
}
