// The switch of the mutants in muster-simulation-mutants; no other program has it.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace muster::sim {

// Whether the variable MUSTER_MUTANT names this one. Any thread.
inline bool IsMutant(std::string_view name) {
  static const std::string active = [] {
    const char* variable = std::getenv("MUSTER_MUTANT");
    return std::string(variable == nullptr ? "" : variable);
  }();
  return name == active;
}

}  // namespace muster::sim
