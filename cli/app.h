// The command line of muster: flags, their MUSTER_* variables, and which command they run.
#pragma once

#include "cli/interrupt.h"

namespace muster {

// Parses and runs; returns the process's exit code. Exceptions end here.
int RunApp(int argc, char** argv, Interrupt& interrupt);

}  // namespace muster
