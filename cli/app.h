// The muster program: its verbs, its global flags, its exit codes.
//
// One thread.
#pragma once

#include "cli/base/interrupt.h"
#include "cli/commands/command_line.h"

namespace muster {

// Prints help, a version and errors itself.
verbs::Parsed ParseCommandLine(int argc, char** argv);

// Parses and runs; returns the process's exit code. Exceptions end here.
int RunApp(int argc, char** argv, Interrupt& interrupt);

}  // namespace muster
