// Which environment variables a job may set for its ranks.
//
// Pure functions; any thread.
#pragma once

#include <string>

namespace muster {

bool IsVariableName(const std::string& name);

// Why a job must not set this variable itself; empty: it may.
std::string WhyReserved(const std::string& name);

}  // namespace muster
