#include "trainer/ops/array_checks.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace muster {
namespace {

std::string TextOf(const ArrayShape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.dimensions; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape.lengths[i]);
  }
  return text + "]";
}

bool IsFloating(ElementType type) {
  return type != ElementType::kUint8 && type != ElementType::kInt64;
}

}  // namespace

void Refuse(const std::string& what) { C10_THROW_ERROR(Error, what); }

void ArrayChecks::Rows(const ConstArray& array, const char* name) const {
  TORCH_CHECK(array.defined(), name, " is missing");
  TORCH_CHECK(array.shape().dimensions == 2, name, " has shape ", TextOf(array.shape()),
              ", not two dimensions");
  TORCH_CHECK(IsFloating(array.type()), name, " has elements of type ",
              ElementTypeName(array.type()));
  Array(array, array.shape(), array.type(), name);
}

void ArrayChecks::Array(const ConstArray& array, const ArrayShape& shape, ElementType type,
                        const char* name) const {
  TORCH_CHECK(array.defined(), name, " is missing");
  TORCH_CHECK(array.shape() == shape, name, " has shape ", TextOf(array.shape()), ", not ",
              TextOf(shape));
  TORCH_CHECK(array.type() == type, name, " has elements of type ", ElementTypeName(array.type()),
              ", not ", ElementTypeName(type));
  TORCH_CHECK(array.is_contiguous(), name, " is not contiguous");
  TORCH_CHECK(array.device() == device_, name, " is on ",
              c10::DeviceTypeName(array.device(), true));
}

void ArrayChecks::Gradient(const GradientArray& gradient, std::int64_t width,
                           const char* name) const {
  if (gradient.array.defined()) Array(gradient.array, {width}, gradient.array.type(), name);
}

void ArrayChecks::Sum(const ConstArray& sum, const char* name) const {
  TORCH_CHECK(sum.defined() && sum.type() == ElementType::kFloat64 && sum.count() > 0, name,
              " is not an fp64 number");
  TORCH_CHECK(sum.device() == device_, name, " is on ", c10::DeviceTypeName(sum.device(), true));
}

void ArrayChecks::Documents(const BatchShape& shape) const {
  const std::vector<std::int64_t>& begins = shape.document_begins;
  if (begins.empty()) return;
  const auto rising = std::adjacent_find(begins.begin(), begins.end(), std::greater_equal<>());
  TORCH_CHECK(rising == begins.end(), "a document begins at token ", *rising,
              ", and the next one not after it");
  TORCH_CHECK(begins.front() >= 0 && begins.back() < shape.tokens(), "documents begin at tokens ",
              begins.front(), " to ", begins.back(), " of ", shape.tokens());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    TORCH_CHECK(std::binary_search(begins.begin(), begins.end(), row * shape.length),
                "no document begins with row ", row, ", at token ", row * shape.length);
  }
}

}  // namespace muster
