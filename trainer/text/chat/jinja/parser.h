// The parser: a template's source as a syntax tree.
//
// Pure function; any thread. Throws Error with the line; what Jinja2 has and this engine does not
// is named. Nesting is bounded, so that neither parsing nor evaluating exhausts the stack.
#pragma once

#include <string_view>

#include "trainer/text/chat/jinja/ast.h"

namespace muster::jinja {

inline constexpr int kMaxNesting = 100;

// `source` is valid UTF-8.
Program Parse(std::string_view source);

}  // namespace muster::jinja
