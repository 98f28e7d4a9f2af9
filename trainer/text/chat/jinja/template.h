// Template: a chat template in Jinja, with exactly the text that Python's jinja2 gives where it is
// set up as transformers does (trim_blocks, lstrip_blocks, loop controls, sandbox, tojson).
//
// What of Jinja2 it knows is listed in docs/model-and-data.md; all else is refused by name when the
// template is parsed. Rendering reaches no file and no network, and is bounded in steps, memory and
// depth, whatever the template says.
//
// Immutable, movable, owned by the caller; Render may be called by any thread. Errors are
// kInvalidArgument: "ORIGIN:LINE: what".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/jinja/text.h"
#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

struct Program;

inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

struct RenderLimits {
  std::int64_t steps = 20'000'000;
};

struct RenderInput {
  std::vector<std::pair<std::string, Value>> variables;
  // Unix seconds for strftime_now; none: the template finds no such function.
  std::optional<std::int64_t> now;
};

class Template {
 public:
  // `origin` names the template in errors.
  static Result<Template> Parse(std::string_view source, const std::string& origin);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  Result<Text> Render(const RenderInput& input, const RenderLimits& limits = {}) const;

  // Whether {% generation %} says what is trained on.
  bool has_generation() const;

 private:
  Template(std::string origin, std::unique_ptr<const Program> program);

  std::string origin_;
  std::unique_ptr<const Program> program_;
};

}  // namespace muster::jinja
