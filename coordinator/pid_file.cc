#include "coordinator/pid_file.h"

#include <unistd.h>

#include "common/base/files.h"

namespace muster {
namespace {

std::string HolderPid(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  const std::string pid = text.ok() ? text->substr(0, text->find('\n')) : "";
  return pid.empty() ? "unknown" : pid;
}

}  // namespace

Result<LockedRecord> AcquirePidFile(const std::string& path, Duration timeout) {
  constexpr int kReadByAll = 0644;
  Result<LockedRecord> file = LockedRecord::Acquire(path, timeout, kReadByAll);
  if (file.status().code() == StatusCode::kAlreadyExists)
    return AlreadyExists("another coordinator runs in this directory, pid " + HolderPid(path) +
                         " (lock " + path + "); use it, or end it with: muster down");
  if (file.ok()) MUSTER_RETURN_IF_ERROR(file->Write(std::to_string(::getpid()) + "\n"));
  return file;
}

}  // namespace muster
