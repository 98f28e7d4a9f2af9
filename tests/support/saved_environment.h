// Puts the process's environment back, for cases that change it. The thread of the case makes and
// destroys it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace muster {

class SavedEnvironment {
 public:
  SavedEnvironment() {
    for (char** entry = environ; *entry != nullptr; ++entry) entries_.emplace_back(*entry);
  }
  ~SavedEnvironment() {
    ::clearenv();
    for (const std::string& entry : entries_) {
      const std::size_t equals = entry.find('=');
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
  }
  SavedEnvironment(const SavedEnvironment&) = delete;
  SavedEnvironment& operator=(const SavedEnvironment&) = delete;

 private:
  std::vector<std::string> entries_;
};

}  // namespace muster
