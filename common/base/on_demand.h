// OnDemand: a value that lies on the heap from its first change on, for what most of its owners
// never change. Until then it reads as a default value. Not copied.
#pragma once

#include <memory>

namespace muster {

template <typename Value>
class OnDemand {
 public:
  const Value& operator*() const { return value_ ? *value_ : kDefault; }
  const Value* operator->() const { return &**this; }
  Value& Mutable() {
    if (!value_) value_ = std::make_unique<Value>();
    return *value_;
  }

 private:
  inline static const Value kDefault = {};
  std::unique_ptr<Value> value_;
};

}  // namespace muster
