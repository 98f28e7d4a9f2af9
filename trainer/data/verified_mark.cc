#include "trainer/data/verified_mark.h"

#include <unistd.h>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "trainer/data/cache_folder.h"

namespace muster {
namespace {

// Without the time of change of what the file system keeps: each mark of a reader sets it.
std::string LineOf(const std::string& boot, const FileIdentity& entry) {
  return boot + " " + std::to_string(entry.device) + " " + std::to_string(entry.inode) + " " +
         std::to_string(entry.bytes) + " " + std::to_string(entry.modified_ns) + "\n";
}

}  // namespace

VerifiedMark::VerifiedMark(const std::string& entry_path)
    : path_(entry_path + ".checked-" + HostLabel()) {}

bool VerifiedMark::Holds(const FileIdentity& entry) const {
  const std::string boot = BootId();
  const Result<std::string> line = ReadFile(path_);
  return !boot.empty() && line.ok() && *line == LineOf(boot, entry);
}

void VerifiedMark::Set(const FileIdentity& entry) const {
  const std::string boot = BootId();
  if (!boot.empty()) (void)WriteFileAtomically(path_, LineOf(boot, entry));
}

void VerifiedMark::Clear() const { ::unlink(path_.c_str()); }

}  // namespace muster
