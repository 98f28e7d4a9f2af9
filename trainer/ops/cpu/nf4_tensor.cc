#include "trainer/ops/cpu/nf4_tensor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <utility>

#include "trainer/ops/cpu/nf4.h"

namespace muster {
namespace {

// Blocks that are worth another thread.
constexpr std::int64_t kGrain = 512;

// The order in which a sum is taken depends on the number of threads.
float MeanOnOneThread(const at::Tensor& values) {
  struct OneThread {
    const int before = at::get_num_threads();
    OneThread() { at::set_num_threads(1); }
    ~OneThread() { at::set_num_threads(before); }
  };
  const OneThread guard;
  return values.mean().item<float>();
}

void QuantizeAbsmax(const at::Tensor& absmax, Nf4Tensor& tensor) {
  tensor.offset = MeanOnOneThread(absmax);
  tensor.absmax_codes = at::empty(absmax.sizes(), at::kByte);
  tensor.nested_absmax = at::empty({Nf4NestedBlocks(tensor.count)}, at::kFloat);
  tensor.nested_code = at::tensor(at::ArrayRef<float>(Nf4NestedCode().data(), 256));
  QuantizeNf4Nested({.blocks = absmax.numel(),
                     .absmax = absmax.const_data_ptr<float>(),
                     .offset = tensor.offset,
                     .absmax_codes = tensor.absmax_codes.data_ptr<std::uint8_t>(),
                     .nested_absmax = tensor.nested_absmax.data_ptr<float>()});
}

}  // namespace

Nf4Source Nf4Tensor::source() const {
  Nf4Source source{.count = count, .codes = codes.const_data_ptr<std::uint8_t>()};
  if (absmax.defined()) {
    source.absmax = absmax.const_data_ptr<float>();
    return source;
  }
  source.absmax_codes = absmax_codes.const_data_ptr<std::uint8_t>();
  source.nested_absmax = nested_absmax.const_data_ptr<float>();
  source.nested_code = nested_code.const_data_ptr<float>();
  source.offset = offset;
  return source;
}

Nf4Tensor QuantizeNf4(const at::Tensor& values, bool double_quantized) {
  const at::ScalarType type = values.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "NF4 is made of fp32, bf16 or fp16, not of ", type);
  TORCH_CHECK(values.is_cpu() && values.is_contiguous() && values.numel() > 0,
              "NF4 is made of contiguous values in the host's memory, not of ", values.sizes(),
              " on ", values.device());
  const at::Tensor singles = values.detach().to(at::kFloat);
  const std::int64_t count = values.numel();
  const at::Tensor codes = at::empty({Nf4Bytes(count)}, at::kByte);
  const at::Tensor absmax = at::empty({Nf4Blocks(count)}, at::kFloat);
  const Nf4Quantization quantization{.count = count,
                                     .values = singles.const_data_ptr<float>(),
                                     .codes = codes.data_ptr<std::uint8_t>(),
                                     .absmax = absmax.data_ptr<float>()};
  at::parallel_for(0, absmax.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    QuantizeNf4(quantization, begin, end);
  });
  return JoinNf4(count, codes, absmax, double_quantized);
}

Nf4Tensor JoinNf4(std::int64_t count, at::Tensor codes, at::Tensor absmax, bool double_quantized) {
  Nf4Tensor tensor{.count = count, .codes = std::move(codes)};
  if (double_quantized) {
    QuantizeAbsmax(absmax, tensor);
  } else {
    tensor.absmax = std::move(absmax);
  }
  return tensor;
}

}  // namespace muster
