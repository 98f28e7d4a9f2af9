// Parameters: the arguments of a call, by the parameters of what is called.
//
// Lives as long as one call; refers to the Arguments it was made from. Throws Error where Python
// would raise a TypeError.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

class Parameters {
 public:
  // Positions first, then names; the first `required` ones must be given.
  Parameters(const Arguments& arguments, std::string what,
             std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool Has(std::size_t i) const { return values_[i] != nullptr; }
  // Given, and not None.
  bool HasValue(std::size_t i) const { return Has(i) && !values_[i]->is_none(); }
  // Precondition: Has(i).
  const Value& operator[](std::size_t i) const { return *values_[i]; }
  const Text& TextAt(std::size_t i) const;
  std::int64_t IntegerAt(std::size_t i) const;
  std::int64_t IntegerOr(std::size_t i, std::int64_t absent) const {
    return HasValue(i) ? IntegerAt(i) : absent;
  }
  bool IsTrue(std::size_t i) const { return Has(i) && values_[i]->IsTrue(); }

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace muster::jinja
