// Which environment variables a job may set for its ranks.
//
// Pure functions; any thread.
#pragma once

#include <string>

namespace muster {

bool IsVariableName(const std::string& name);

// Why a job must not set this variable itself; empty: it may.
std::string WhyReserved(const std::string& name);

// Whether a variable of one process is true of it alone, or of its machine or its task of Slurm,
// and must not go along to ranks elsewhere. What Slurm says of the whole job may: its id, its name.
bool IsOfOneTask(const std::string& name);

}  // namespace muster
