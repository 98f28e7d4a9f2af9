#include "trainer/model/linear_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "trainer/model/products.h"
#include "trainer/ops/cpu/row_product.h"
#include "trainer/ops/host_threads.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

constexpr std::int64_t kElementsPerThread = 1 << 16;

bool HasKernel(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
}

bool IsOnePosition(const at::Tensor& x, const at::Tensor& weight) {
  return !at::GradMode::is_enabled() && x.dim() > 0 && weight.dim() == 2 &&
         x.numel() == weight.size(1) && x.size(-1) == weight.size(1) && x.is_cpu() &&
         weight.is_contiguous() && x.scalar_type() == weight.scalar_type() &&
         HasKernel(x.scalar_type());
}

}  // namespace

at::Tensor LinearLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!IsOnePosition(x, weight)) return Linear(x, weight, bias);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor y = at::empty(shape, x.options());
  const at::Tensor row = x.contiguous();
  const ProductRows rows{.type = ElementTypeOf(x.scalar_type()),
                         .width = weight.size(1),
                         .x = row.const_data_ptr(),
                         .weight = weight.const_data_ptr(),
                         .y = y.mutable_data_ptr()};
  OverRanges(weight.size(0), std::max<std::int64_t>(1, kElementsPerThread / rows.width),
             [&](std::int64_t begin, std::int64_t end) { RowProduct(rows, begin, end); });
  return bias.defined() ? y + bias : y;
}

}  // namespace muster
