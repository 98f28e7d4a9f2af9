// The parts of the table of filters. Private to this folder: filters.h is the way to them.
#pragma once

#include <span>
#include <string_view>

#include "trainer/text/chat/jinja/filters.h"

namespace muster::jinja {

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

std::span<const NamedFilter> TextFilters();    // filters_text.cc
std::span<const NamedFilter> NumberFilters();  // filters_number.cc
std::span<const NamedFilter> ListFilters();    // filters_list.cc

// What |sort and its like compare: lower case unless case counts.
Value IgnoreCase(const Value& value);

}  // namespace muster::jinja
