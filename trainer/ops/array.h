// ConstArray, Array: what a kernel sees of a tensor: where it lies, its shape, its element type.
//
// An operator's arguments are arrays, made of ATen's tensors where the operator is called, and good
// as long as those are. Kernels are compiled without ATen, so nothing of it is in this header;
// those of a GPU take arrays as they are. A tensor that is undefined is an array that is not there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "trainer/core/element.h"
#include "trainer/core/element_type.h"

namespace at {
class Tensor;
}
namespace c10 {
enum class DeviceType : std::int8_t;
}

namespace muster {

// What arithmetic on elements of `type` is done in: "W" where "T" is the type.
constexpr ElementType WideType(ElementType type) {
  return type == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32;
}

struct ArrayShape {
  static constexpr int kMostDimensions = 4;

  ArrayShape() = default;
  ArrayShape(std::initializer_list<std::int64_t> of) : dimensions(static_cast<int>(of.size())) {
    std::copy(of.begin(), of.end(), lengths);
  }
  bool operator==(const ArrayShape&) const = default;

  int dimensions = 0;
  std::int64_t lengths[kMostDimensions] = {};
};

class ConstArray {
 public:
  ConstArray() = default;
  // Throws where there are more dimensions than a shape holds, or elements that no kernel has.
  ConstArray(const at::Tensor& tensor);

  MUSTER_HOST_DEVICE bool defined() const { return defined_; }
  MUSTER_HOST_DEVICE ElementType type() const { return type_; }
  const ArrayShape& shape() const { return shape_; }
  std::int64_t count() const;  // of elements
  bool is_contiguous() const { return contiguous_; }
  c10::DeviceType device() const { return device_; }
  // The array has two dimensions; rows() is also the length of one that has one.
  MUSTER_HOST_DEVICE std::int64_t rows() const { return shape_.lengths[0]; }
  MUSTER_HOST_DEVICE std::int64_t width() const { return shape_.lengths[1]; }

  MUSTER_HOST_DEVICE const void* data() const { return data_; }
  template <typename T>
  MUSTER_HOST_DEVICE const T* data() const {
    return static_cast<const T*>(data_);
  }

 protected:
  void* data_ = nullptr;

 private:
  bool defined_ = false;
  bool contiguous_ = true;
  c10::DeviceType device_{};
  ElementType type_ = ElementType::kFloat32;
  ArrayShape shape_;
};

// One that is written.
class Array : public ConstArray {
 public:
  using ConstArray::ConstArray;

  MUSTER_HOST_DEVICE void* data() const { return data_; }
  template <typename T>
  MUSTER_HOST_DEVICE T* data() const {
    return static_cast<T*>(data_);
  }
};

// A gradient that is written, or added to what is there. Where it is not there, the weight is
// frozen, and nothing is computed for it.
struct GradientArray {
  Array array;
  bool add = false;
};

}  // namespace muster
