#include "trainer/text/chat/jinja/filters.h"

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/filter_table.h"

namespace muster::jinja {
namespace {

std::string NameOf(const Value& name, const char* what) {
  RequireDefined(name);
  if (!name.is_text()) Fail(std::string("the name of a ") + what + " must be a text");
  return name.bytes();
}

}  // namespace

Filter FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), NumberFilters(), ListFilters()})
    for (const NamedFilter& each : table)
      if (each.name == name) return each.filter;
  return nullptr;
}

Value CallFilter(const Value& name, const Value& input, const Arguments& arguments,
                 Budget& budget) {
  const Filter filter = FindFilter(NameOf(name, "filter"));
  if (filter == nullptr) Fail("the filter " + name.bytes() + " is not supported");
  budget.Spend(1);
  budget.SpendFor(input);
  return filter(input, arguments, budget);
}

bool CallTest(const Value& name, const Value& input, const Arguments& arguments, Budget& budget) {
  const Test test = FindTest(NameOf(name, "test"));
  if (test == nullptr) Fail("the test " + name.bytes() + " is not supported");
  budget.Spend(1);
  return test(input, arguments, budget);
}

}  // namespace muster::jinja
