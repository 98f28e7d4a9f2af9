#include "trainer/model/block_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/kernels/block_kernels.h"

namespace muster {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Elements of work that are worth another thread.
constexpr std::int64_t kGrain = 1 << 15;

template <typename T>
T* Data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

template <typename Rows, typename Kernel>
void OverRows(const Rows& rows, std::int64_t count, std::int64_t width, Kernel kernel) {
  at::parallel_for(0, count, std::max<std::int64_t>(1, kGrain / width),
                   [&](std::int64_t begin, std::int64_t end) { kernel(rows, begin, end); });
}

// Calls f with a null pointer of the kernels' element type.
template <typename F>
void ForElement(const at::Tensor& tensor, F f) {
  if (tensor.scalar_type() == at::kBFloat16) {
    f(static_cast<BFloat16*>(nullptr));
  } else {
    TORCH_CHECK(tensor.scalar_type() == at::kFloat, "weights are fp32 or bf16");
    f(static_cast<float*>(nullptr));
  }
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          double eps) {
    const at::Tensor x = input.contiguous();
    const std::int64_t count = x.numel() / x.size(-1);
    at::Tensor y = at::empty_like(x);
    at::Tensor scale = at::empty({count}, at::kFloat);
    ForElement(x, [&]<typename T>(T*) {
      const NormRows<T> rows{.width = x.size(-1),
                             .eps = eps,
                             .x = Data<T>(x),
                             .weight = Data<T>(weight),
                             .scale = Data<float>(scale),
                             .y = Data<T>(y)};
      OverRows(rows, count, rows.width,
               [](const auto& r, auto begin, auto end) { NormForward(r, begin, end); });
    });
    context->save_for_backward({x, weight, scale});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const at::Tensor y_gradient = gradients[0].contiguous();
    at::Tensor x_gradient = at::empty_like(x);
    at::Tensor weight_gradient = at::empty({x.size(-1)}, at::kFloat);
    ForElement(x, [&]<typename T>(T*) {
      const NormRows<T> rows{.width = x.size(-1),
                             .x = Data<T>(x),
                             .weight = Data<T>(weight),
                             .scale = Data<float>(scale),
                             .y_gradient = Data<T>(y_gradient),
                             .x_gradient = Data<T>(x_gradient)};
      const std::int64_t count = scale.numel();
      OverRows(rows, count, rows.width,
               [](const auto& r, auto begin, auto end) { NormBackward(r, begin, end); });
      at::parallel_for(0, rows.width, 256, [&](std::int64_t begin, std::int64_t end) {
        NormWeightGradient(rows, count, begin, end, Data<float>(weight_gradient));
      });
    });
    return {x_gradient, weight_gradient.to(weight.scalar_type()), Variable()};
  }
};

struct GatedSiluFunction : torch::autograd::Function<GatedSiluFunction> {
  static Variable forward(AutogradContext* context, const Variable& input) {
    const at::Tensor gate_up = input.contiguous();
    std::vector<std::int64_t> shape = gate_up.sizes().vec();
    shape.back() /= 2;
    at::Tensor out = at::empty(shape, gate_up.options());
    ForElement(gate_up, [&]<typename T>(T*) {
      const GateRows<T> rows{
          .width = shape.back(), .gate_up = Data<T>(gate_up), .out = Data<T>(out)};
      OverRows(rows, out.numel() / rows.width, rows.width,
               [](const auto& r, auto begin, auto end) { GateForward(r, begin, end); });
    });
    context->save_for_backward({gate_up});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const at::Tensor out_gradient = gradients[0].contiguous();
    at::Tensor gate_up_gradient = at::empty_like(gate_up);
    ForElement(gate_up, [&]<typename T>(T*) {
      const GateRows<T> rows{.width = gate_up.size(-1) / 2,
                             .gate_up = Data<T>(gate_up),
                             .out_gradient = Data<T>(out_gradient),
                             .gate_up_gradient = Data<T>(gate_up_gradient)};
      OverRows(rows, out_gradient.numel() / rows.width, rows.width,
               [](const auto& r, auto begin, auto end) { GateBackward(r, begin, end); });
    });
    return {gate_up_gradient};
  }
};

template <typename T>
RotaryRows<T> MakeRotaryRows(const at::Tensor& joined, const at::Tensor& cos, const at::Tensor& sin,
                             const QueryKeyValue& parts) {
  return {.heads = parts.query.size(2),
          .kv_heads = parts.key.size(2),
          .head_dim = parts.query.size(3),
          .length = parts.query.size(1),
          .cos = Data<float>(cos),
          .sin = Data<float>(sin),
          .joined = Data<T>(joined),
          .query = Data<T>(parts.query),
          .key = Data<T>(parts.key),
          .value = Data<T>(parts.value)};
}

struct SplitAndRotateFunction : torch::autograd::Function<SplitAndRotateFunction> {
  static variable_list forward(AutogradContext* context, const Variable& input, const Variable& cos,
                               const Variable& sin, std::int64_t heads, std::int64_t kv_heads,
                               std::int64_t head_dim) {
    const at::Tensor joined = input.contiguous();
    const std::int64_t rows = joined.size(0), length = joined.size(1);
    const QueryKeyValue parts{
        .query = at::empty({rows, length, heads, head_dim}, joined.options()),
        .key = at::empty({rows, length, kv_heads, head_dim}, joined.options()),
        .value = at::empty({rows, length, kv_heads, head_dim}, joined.options())};
    ForElement(joined, [&]<typename T>(T*) {
      OverRows(MakeRotaryRows<T>(joined, cos, sin, parts), rows * length, joined.size(2),
               [](const auto& r, auto begin, auto end) { RotaryForward(r, begin, end); });
    });
    context->save_for_backward({cos, sin});
    return {parts.query, parts.key, parts.value};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const QueryKeyValue parts{.query = gradients[0].contiguous(),
                              .key = gradients[1].contiguous(),
                              .value = gradients[2].contiguous()};
    const std::int64_t rows = parts.query.size(0), length = parts.query.size(1);
    const std::int64_t width = (parts.query.size(2) + 2 * parts.key.size(2)) * parts.query.size(3);
    at::Tensor joined = at::empty({rows, length, width}, parts.query.options());
    ForElement(joined, [&]<typename T>(T*) {
      OverRows(MakeRotaryRows<T>(joined, saved[0], saved[1], parts), rows * length, width,
               [](const auto& r, auto begin, auto end) { RotaryBackward(r, begin, end); });
    });
    return {joined, Variable(), Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return RmsNormFunction::apply(x, weight, eps);
}

at::Tensor GatedSilu(const at::Tensor& gate_up) { return GatedSiluFunction::apply(gate_up); }

QueryKeyValue SplitAndRotate(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                             const RotaryShape& shape) {
  const variable_list parts =
      SplitAndRotateFunction::apply(qkv, cos, sin, shape.heads, shape.kv_heads, shape.head_dim);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace muster
