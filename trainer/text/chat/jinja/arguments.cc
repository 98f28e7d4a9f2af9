#include "trainer/text/chat/jinja/arguments.h"

#include <algorithm>

#include "trainer/text/chat/jinja/error.h"

namespace muster::jinja {

Parameters::Parameters(const Arguments& arguments, std::string what,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : what_(std::move(what)), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size())
    Fail(what_ + " takes " + std::to_string(names_.size()) + " arguments at most, not " +
         std::to_string(arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) Fail(what_ + " has no parameter '" + name + "'");
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr) Fail(what_ + " is given '" + name + "' twice");
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr) Fail(what_ + " needs '" + std::string(names_[i]) + "'");
}

const Text& Parameters::TextAt(std::size_t i) const {
  RequireDefined(*values_[i]);
  if (!values_[i]->is_text())
    Fail(what_ + " needs a text as '" + std::string(names_[i]) + "', not a " +
         values_[i]->TypeName());
  return values_[i]->text();
}

std::int64_t Parameters::IntegerAt(std::size_t i) const {
  RequireDefined(*values_[i]);
  if (!values_[i]->is_integer() && !values_[i]->is_boolean())
    Fail(what_ + " needs an integer as '" + std::string(names_[i]) + "', not a " +
         values_[i]->TypeName());
  return values_[i]->integer();
}

}  // namespace muster::jinja
