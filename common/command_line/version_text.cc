#include "common/command_line/version_text.h"

#include "common/base/version.h"
#include "muster_commit.h"

namespace muster {

std::string VersionText(std::string_view program) {
  const std::string_view commit = kCommit;
  std::string text = std::string(program) + " " + kVersion;
  if (!commit.empty()) text += " (commit " + std::string(commit) + ")";
  return text;
}

}  // namespace muster
