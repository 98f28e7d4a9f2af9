// How the programs' --help is written: values and their limits in words instead of CLI11's names of
// C++ types, and at the end of a subcommand's help the options that every command takes.
//
//   --slots N            Ranks that a node may hold [its CPUs] (1 to 1024; $MUSTER_UP_SLOTS)
//
// Set on a program's App before its subcommands are added, which take it over. While the command
// line is parsed; one thread.
#pragma once

#include <CLI/CLI.hpp>

namespace muster {

void WriteHelpInWords(CLI::App& app);

}  // namespace muster
