// Flags of the muster command, each with its variable.
//
// While the command line is parsed; one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/commands/commands.h"

namespace muster {

// What the command line asked for, bound to its options; run once it is parsed.
using Command = std::function<CommandResult(CommandContext&)>;

// Every flag has a variable; those of a command carry its name: MUSTER_SUBMIT_KEY.
template <typename T>
CLI::Option* Flagged(CLI::App* app, const std::string& flags, T& value, const std::string& help,
                     const std::string& variable) {
  return app->add_option(flags, value, help)->envname(variable);
}

inline CLI::Option* Switch(CLI::App* app, const std::string& flags, bool& value,
                           const std::string& help, const std::string& variable) {
  return app->add_flag(flags, value, help)->envname(variable);
}

// --NAME and --no-NAME; nothing when neither was given.
inline void YesNo(CLI::App* app, const std::string& name, std::optional<bool>& value,
                  const std::string& help, const std::string& variable) {
  const auto set = [&value](std::int64_t count) { value = count > 0; };
  app->add_flag_function("--" + name + ",!--no-" + name, set, help)->envname(variable);
}

// A command of `app`, or of a group of commands; `chosen` is set when it is called.
inline CLI::App* AddCommand(CLI::App& app, Command& chosen, const std::string& name,
                            const std::string& help, Command command) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->fallthrough();
  sub->callback([&chosen, command] { chosen = command; });
  return sub;
}

}  // namespace muster
