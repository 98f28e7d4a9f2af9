#include "trainer/model/linear_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "trainer/model/products.h"
#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/row_product.h"
#include "trainer/ops/host_threads.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

constexpr std::int64_t kElementsPerThread = 1 << 16;

bool HasKernel(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
}

// So many positions take less time than LibTorch's products, where a sum fits into registers.
constexpr std::int64_t kMostPositions = 16;

bool IsFewPositions(const at::Tensor& x, const at::Tensor& weight) {
  if (at::GradMode::is_enabled() || x.dim() == 0 || weight.dim() != 2 || weight.size(1) == 0 ||
      x.size(-1) != weight.size(1) || !x.is_cpu() || !weight.is_contiguous() ||
      x.scalar_type() != weight.scalar_type() || !HasKernel(x.scalar_type())) {
    return false;
  }
  const std::int64_t positions = x.numel() / weight.size(1);
  const bool libtorch_has_tiles = x.scalar_type() == at::kBFloat16 && ThisCpu().amx_bf16;
  return positions == 1 ||
         (positions > 1 && positions <= kMostPositions && ThisCpu().avx512 && !libtorch_has_tiles);
}

}  // namespace

at::Tensor LinearLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!IsFewPositions(x, weight)) return Linear(x, weight, bias);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor y = at::empty(shape, x.options());
  const at::Tensor positions = x.contiguous();
  const ProductRows rows{.type = ElementTypeOf(x.scalar_type()),
                         .width = weight.size(1),
                         .rows = weight.size(0),
                         .count = x.numel() / weight.size(1),
                         .x = positions.const_data_ptr(),
                         .weight = weight.const_data_ptr(),
                         .y = y.mutable_data_ptr()};
  OverRanges(weight.size(0), std::max<std::int64_t>(1, kElementsPerThread / rows.width),
             [&](std::int64_t begin, std::int64_t end) { RowProduct(rows, begin, end); });
  return bias.defined() ? y + bias : y;
}

}  // namespace muster
