#include "trainer/text/chat/jinja/template.h"

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/evaluator.h"
#include "trainer/text/chat/jinja/parser.h"

namespace muster::jinja {
namespace {

Status StatusOf(const std::string& origin, const Error& error) {
  const std::string line = error.line() > 0 ? ":" + std::to_string(error.line()) : "";
  return InvalidArgument(origin + line + ": " + error.message());
}

}  // namespace

Template::Template(std::string origin, std::unique_ptr<const Program> program)
    : origin_(std::move(origin)), program_(std::move(program)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::Parse(std::string_view source, const std::string& origin) {
  if (source.size() > kMaxTemplateBytes)
    return InvalidArgument(origin + " is larger than " + std::to_string(kMaxTemplateBytes >> 20) +
                           " MiB");
  if (!IsValidUtf8(source)) return InvalidArgument(origin + " is not UTF-8");
  try {
    return Template(origin, std::make_unique<const Program>(jinja::Parse(source)));
  } catch (const Error& error) {
    return StatusOf(origin, error);
  }
}

Result<Text> Template::Render(const RenderInput& input, const RenderLimits& limits) const {
  Budget budget{.steps_left = limits.steps, .now = input.now};
  try {
    return Evaluator(*program_, input.variables, budget).Run();
  } catch (const Error& error) {
    return StatusOf(origin_, error);
  }
}

bool Template::has_generation() const { return program_->has_generation; }

}  // namespace muster::jinja
