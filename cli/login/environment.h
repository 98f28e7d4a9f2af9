// The environment of this process, for what login finds in it and passes on. Any thread, while none
// changes it.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace muster {

// Empty where it is not set.
inline std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "NAME=value", for a child that is to have all of it.
inline std::vector<std::string> WholeEnvironment() {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) all.emplace_back(*each);
  return all;
}

}  // namespace muster
