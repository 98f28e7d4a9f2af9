#include "trainer/model/linear_layer.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "trainer/model/products.h"
#include "trainer/ops/cpu/row_product.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

constexpr std::int64_t kElementsPerThread = 1 << 16;

bool IsOnePosition(const at::Tensor& x, const at::Tensor& weight) {
  return !at::GradMode::is_enabled() && x.dim() > 0 && weight.dim() == 2 &&
         x.numel() == weight.size(1) && x.size(-1) == weight.size(1) && x.is_cpu() &&
         weight.is_contiguous() && x.scalar_type() == weight.scalar_type();
}

template <typename Element>
void Multiply(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  const ProductRows<Element> rows{.width = weight.size(1),
                                  .x = static_cast<const Wide<Element>*>(x.const_data_ptr()),
                                  .weight = static_cast<const Element*>(weight.const_data_ptr()),
                                  .y = static_cast<Element*>(y.mutable_data_ptr())};
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerThread / rows.width);
  at::parallel_for(0, weight.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
    RowProduct<Element>(rows, begin, end);
  });
}

// False: there is no kernel for the type.
bool MultiplyByType(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  switch (weight.scalar_type()) {
    case at::kFloat: Multiply<float>(x, weight, y); return true;
    case at::kBFloat16: Multiply<BFloat16>(x, weight, y); return true;
    case at::kHalf: Multiply<Float16>(x, weight, y); return true;
    case at::kDouble: Multiply<double>(x, weight, y); return true;
    default: return false;
  }
}

}  // namespace

at::Tensor LinearLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!IsOnePosition(x, weight)) return Linear(x, weight, bias);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor y = at::empty(shape, x.options());
  if (!MultiplyByType(x.to(WideType(x.scalar_type())).contiguous(), weight, y))
    return Linear(x, weight, bias);
  return bias.defined() ? y + bias : y;
}

}  // namespace muster
