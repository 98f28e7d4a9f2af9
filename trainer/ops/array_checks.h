// ArrayChecks: what operators demand of their arrays: shapes, types, contiguity, the device.
//
// DeviceOps::Run asks each operator's Check first, so all devices refuse the same arguments with
// the same words: a Torch exception that names the array, what it has and what it should have.
//
// Any thread.
#pragma once

#include <string>

#include "trainer/ops/array.h"
#include "trainer/ops/batch_shape.h"

namespace muster {

// Throws. Also for what only values show, such as a label beyond the vocabulary, to kernels that
// see them.
[[noreturn]] void Refuse(const std::string& what);

class ArrayChecks {
 public:
  explicit ArrayChecks(c10::DeviceType device) : device_(device) {}

  // Two dimensions of elements that kernels compute with: fp64, fp32, bf16 or fp16.
  void Rows(const ConstArray& array, const char* name) const;
  void Array(const ConstArray& array, const ArrayShape& shape, ElementType type,
             const char* name) const;
  // [width] of any such elements, or not there.
  void Gradient(const GradientArray& gradient, std::int64_t width, const char* name) const;
  // fp64, with one element at least.
  void Sum(const ConstArray& sum, const char* name) const;
  // That the documents cover the rows and none crosses a row's end.
  void Documents(const BatchShape& shape) const;

 private:
  c10::DeviceType device_;
};

}  // namespace muster
