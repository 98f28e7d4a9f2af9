#include "trainer/fsdp/precision.h"

namespace muster {
namespace {

ElementType ComputeType(MixedPrecision precision) {
  switch (precision) {
    case MixedPrecision::kBf16: return ElementType::kBFloat16;
    case MixedPrecision::kFp16: return ElementType::kFloat16;
    case MixedPrecision::kFp32: return ElementType::kFloat32;
    case MixedPrecision::kFp64: return ElementType::kFloat64;
  }
  return ElementType::kFloat32;
}

ElementType StateOr(StateType type, ElementType otherwise) {
  switch (type) {
    case StateType::kAuto: return otherwise;
    case StateType::kBf16: return ElementType::kBFloat16;
    case StateType::kFp16: return ElementType::kFloat16;
    case StateType::kFp32: return ElementType::kFloat32;
    case StateType::kFp64: return ElementType::kFloat64;
  }
  return otherwise;
}

}  // namespace

Precision ResolvePrecision(const FsdpSpec& fsdp, const OptimizerSpec& optimizer) {
  Precision precision{.compute = ComputeType(fsdp.mixed_precision)};
  const ElementType wide = precision.wide();
  precision.master = StateOr(optimizer.master_weights, wide);
  precision.moments = StateOr(optimizer.moments, wide);
  precision.gradient = StateOr(fsdp.reduce_dtype, wide);
  precision.buffer = StateOr(fsdp.buffer_dtype, ElementType::kFloat32);
  return precision;
}

}  // namespace muster
