#include "trainer/fsdp/packed_tensor.h"

#include <cstring>

#include "common/base/round_up.h"

namespace muster {
namespace {

std::int64_t Aligned(std::int64_t bytes) { return RoundUp(bytes, kPackedAlignment); }

}  // namespace

PackedLayout LayOutPacked(std::int64_t count, bool double_quantized) {
  PackedLayout layout{.count = count, .double_quantized = double_quantized};
  const std::int64_t codes = Aligned(Nf4Bytes(count));
  const auto singles = [](std::int64_t number) {
    return Aligned(number * static_cast<std::int64_t>(sizeof(float)));
  };
  if (!double_quantized) {
    layout.absmax = codes;
    layout.bytes = codes + singles(Nf4Blocks(count));
    return layout;
  }
  layout.absmax_codes = codes;
  layout.nested_absmax = codes + Aligned(Nf4Blocks(count));
  layout.bytes = layout.nested_absmax + singles(Nf4NestedBlocks(count));
  return layout;
}

void WritePacked(const PackedLayout& layout, const Nf4Tensor& tensor, std::byte* image) {
  std::memset(image, 0, static_cast<std::size_t>(layout.bytes));
  const auto put = [image](std::int64_t at, const at::Tensor& values) {
    std::memcpy(image + at, values.const_data_ptr(), values.nbytes());
  };
  put(0, tensor.codes);
  if (!layout.double_quantized) return put(layout.absmax, tensor.absmax);
  put(layout.absmax_codes, tensor.absmax_codes);
  put(layout.nested_absmax, tensor.nested_absmax);
}

Nf4Source ReadPacked(const PackedLayout& layout, const void* image, const float* nested_code,
                     float offset) {
  const auto* bytes = static_cast<const std::uint8_t*>(image);
  const auto singles = [bytes](std::int64_t at) {
    return reinterpret_cast<const float*>(bytes + at);
  };
  Nf4Source source{.count = layout.count, .codes = bytes};
  if (!layout.double_quantized) {
    source.absmax = singles(layout.absmax);
    return source;
  }
  source.absmax_codes = bytes + layout.absmax_codes;
  source.nested_absmax = singles(layout.nested_absmax);
  source.nested_code = nested_code;
  source.offset = offset;
  return source;
}

}  // namespace muster
