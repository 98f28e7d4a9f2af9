#include "common/command_line/finite_numbers.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace muster {

void CheckNumbersAreFinite(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_type_name().starts_with("FLOAT")) continue;
    for (const std::string& text : option->results()) {
      if (!std::isfinite(std::strtod(text.c_str(), nullptr)))
        throw CLI::ValidationError(option->get_name(), text + " is not a finite number");
    }
  }
  for (const CLI::App* verb : app.get_subcommands()) CheckNumbersAreFinite(*verb);
}

}  // namespace muster
