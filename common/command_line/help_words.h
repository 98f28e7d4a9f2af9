// The format of --help: values and their limits in words instead of CLI11's names of C++ types, and
// at the end of a subcommand's help the global options.
//
//   --timeout DURATION   Grace period before SIGKILL [default: 10s] ($MUSTER_DOWN_TIMEOUT)
//
// Set on a program's App before its subcommands are added, which inherit it. Used while the command
// line is parsed; one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace muster {

void WriteHelpInWords(CLI::App& app);

// The words of which an option's value is one; none where it may be another.
std::vector<std::string> AcceptedWords(const CLI::Option& option);

// For an option whose value must not be an empty text.
inline CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "");
}

}  // namespace muster
