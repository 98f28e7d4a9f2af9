// The operators: the fused operations of a training step, each on every kind of device.
//
// An operator is a struct of its arguments (trainer/ops/OPERATOR.h), with its name (kName) and what
// it demands of them (Check). Each device has a kernel for it, in trainer/ops/cpu/OPERATOR.cc and
// trainer/ops/cuda/OPERATOR.cu, and a table of kernels, indexed by the operator's number in the
// list below; a kernel that is missing fails the link.
//
// Arrays are contiguous unless said otherwise, of the step's compute type ("T": fp32, fp64, bf16 or
// fp16) or of its wide type ("W": fp64 for fp64, else fp32). Arithmetic is in W, and results are
// rounded to T once. Bits do not depend on the number of threads. Letters: N tokens (rows times
// length), H hidden size, V vocabulary.
#pragma once

#include <cstddef>
#include <type_traits>

namespace muster {

template <typename... Ops>
struct OperatorList {
  template <typename Op>
  static constexpr std::size_t NumberOf() {
    static_assert((std::is_same_v<Op, Ops> || ...), "not in the list of operators");
    std::size_t number = 0;
    (void)((std::is_same_v<Op, Ops> || (++number, false)) || ...);
    return number;
  }
};

namespace op {

// clang-format off
using Operators = OperatorList<
    struct AdamW,
    struct AddNorm,
    struct ApplyRope,
    struct Attention,
    struct AttentionBackward,
    struct ClampedSwiGlu,
    struct ClampedSwiGluBackward,
    struct Convert,
    struct CrossEntropy,
    struct DequantizeNf4,
    struct Dropout,
    struct EmbeddingBackward,
    struct GeGlu,
    struct GeGluBackward,
    struct NormBackward,
    struct QkNorm,
    struct QkNormBackward,
    struct RecomputeRmsNorm,
    struct SumOfSquares,
    struct SumRows,
    struct SwiGlu,
    struct SwiGluBackward,
    struct WeightedSwiGlu,
    struct WeightedSwiGluBackward>;
// clang-format on

}  // namespace op

// Any of the operators with its arguments, for what treats all alike. Good as long as the operator.
class AnyOperator {
 public:
  template <typename Op>
  explicit AnyOperator(const Op& op)
      : number_(op::Operators::NumberOf<Op>()), name_(Op::kName), arguments_(&op) {}

  std::size_t number() const { return number_; }
  const char* name() const { return name_; }
  const void* arguments() const { return arguments_; }
  // Null where it is another one.
  template <typename Op>
  const Op* As() const {
    return number_ == op::Operators::NumberOf<Op>() ? static_cast<const Op*>(arguments_) : nullptr;
  }

 private:
  std::size_t number_;
  const char* name_;
  const void* arguments_;
};

}  // namespace muster
