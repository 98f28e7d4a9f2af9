#include "worker/guardian/device_locks.h"

#include <algorithm>
#include <utility>

#include "worker/process/device_lock.h"

namespace muster::guardian {
namespace {

// From the end of a guardian's connection to that of its locks.
constexpr std::chrono::milliseconds kHandOver{500};

bool Contains(const std::vector<std::string>& devices, const std::string& device) {
  return std::ranges::find(devices, device) != devices.end();
}

}  // namespace

DeviceLocks::DeviceLocks(std::string directory, std::string job, std::string jobs_dir)
    : directory_(std::move(directory)), job_(std::move(job)), jobs_dir_(std::move(jobs_dir)) {}

Result<LockedRecord> DeviceLocks::Lock(const std::string& device) const {
  MUSTER_ASSIGN_OR_RETURN(UniqueFd file, OpenDeviceLock(directory_, device));
  const std::string holder = HolderOf(file, jobs_dir_).text;
  Result<LockedRecord> lock =
      LockedRecord::Acquire(DeviceLockPath(directory_, device), std::move(file), kHandOver);
  if (lock.status().code() == StatusCode::kAlreadyExists)
    return AlreadyExists("device " + device + " is still held by " + holder);
  if (lock.ok()) MUSTER_RETURN_IF_ERROR(lock->Write(HolderRecord(job_)));
  return lock;
}

Status DeviceLocks::Hold(const LockDevices& wanted) {
  for (auto& [device, lock] : held_)  // what locks it next may not say who it is
    if (!Contains(wanted.devices, device)) (void)lock.Write("");
  std::erase_if(held_, [&](const auto& entry) {
    return !Contains(wanted.devices, entry.first) || Contains(wanted.anew, entry.first);
  });
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
