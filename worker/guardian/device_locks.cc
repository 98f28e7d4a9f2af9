#include "worker/guardian/device_locks.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/files.h"
#include "worker/process/record_file.h"

namespace muster::guardian {
namespace {

// From the end of a guardian's connection to that of its locks.
constexpr std::chrono::milliseconds kHandOver{500};

bool Contains(const std::vector<std::string>& devices, const std::string& device) {
  return std::ranges::find(devices, device) != devices.end();
}

// "job J (guardian N, or a process that it left)" from the file that its holder wrote.
std::string HolderOf(const std::string& path) {
  const auto text = ReadFile(path);
  const std::size_t space = text.ok() ? text->find(' ') : std::string::npos;
  if (space == std::string::npos) return "another process";
  return "job " + text->substr(0, space) + " (guardian " +
         text->substr(space + 1, text->find('\n') - space - 1) + ", or a process that it left)";
}

}  // namespace

DeviceLocks::DeviceLocks(std::string directory, std::string job)
    : directory_(std::move(directory)), job_(std::move(job)) {}

Result<LockedRecord> DeviceLocks::Lock(const std::string& device) const {
  const std::string path = directory_ + "/" + device + ".lock";
  Result<LockedRecord> lock = LockedRecord::Acquire(path, kHandOver, kPrivateFile);
  if (lock.status().code() == StatusCode::kAlreadyExists)
    return AlreadyExists("device " + device + " is still held by " + HolderOf(path));
  if (lock.ok())
    MUSTER_RETURN_IF_ERROR(lock->Write(job_ + " " + std::to_string(::getpid()) + "\n"));
  return lock;
}

Status DeviceLocks::Hold(const LockDevices& wanted) {
  std::erase_if(held_, [&](const auto& entry) {
    return !Contains(wanted.devices, entry.first) || Contains(wanted.anew, entry.first);
  });
  if (!wanted.devices.empty())
    MUSTER_RETURN_IF_ERROR(MakeDirectories(directory_, kPrivateDirectory));
  std::map<std::string, LockedRecord> taken;
  for (const std::string& device : wanted.devices) {
    if (held_.contains(device) || taken.contains(device)) continue;
    MUSTER_ASSIGN_OR_RETURN(LockedRecord lock, Lock(device));
    taken.emplace(device, std::move(lock));
  }
  held_.merge(taken);
  return OkStatus();
}

Result<std::vector<int>> DeviceLocks::Descriptors(const std::vector<std::string>& devices) const {
  std::vector<int> descriptors;
  for (const std::string& device : devices) {
    const auto it = held_.find(device);
    if (it == held_.end()) return FailedPrecondition("device " + device + " is not locked");
    descriptors.push_back(it->second.fd());
  }
  return descriptors;
}

}  // namespace muster::guardian
