// Result<T>: a value or the Status that says why there is none.
#pragma once

#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace muster {

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return NotFound(...);` both read well.
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    MUSTER_CHECK(!status_.ok(), "a Result without a value needs a failed status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Precondition: ok().
  T& value() & {
    CheckOk();
    return *value_;
  }
  const T& value() const& {
    CheckOk();
    return *value_;
  }
  T&& value() && {
    CheckOk();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void CheckOk() const { MUSTER_CHECK(ok(), status_.ToString()); }

  Status status_;
  std::optional<T> value_;
};

}  // namespace muster

#define MUSTER_CONCAT_INNER_(a, b) a##b
#define MUSTER_CONCAT_(a, b) MUSTER_CONCAT_INNER_(a, b)

// MUSTER_ASSIGN_OR_RETURN(auto x, F()): x = *F(), or return F's status.
#define MUSTER_ASSIGN_OR_RETURN(declaration, expression) \
  MUSTER_ASSIGN_OR_RETURN_IMPL_(MUSTER_CONCAT_(muster_result_, __LINE__), declaration, expression)
#define MUSTER_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.ok()) return result.status();                            \
  declaration = *std::move(result)
