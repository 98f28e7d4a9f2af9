#include "cli/base/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace muster {

Result<std::string> MakeTemporaryDirectory(const std::string& prefix) {
  const char* const chosen = std::getenv("TMPDIR");
  const std::string place = chosen == nullptr || *chosen == '\0' ? "/tmp" : chosen;
  std::string path = place + "/" + prefix + "XXXXXX";
  if (::mkdtemp(path.data()) != nullptr) return path;
  return Unavailable("create a directory in " + place + ": " + std::strerror(errno) +
                     "\n  next: set TMPDIR to a directory that can be written, such as /var/tmp");
}

}  // namespace muster
