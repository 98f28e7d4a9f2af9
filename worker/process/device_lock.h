// The lock file of a device, DIR/muster-ID.lock: what may use the device holds its flock
// (worker/guardian/device_locks.h). Real GPUs are locked in a directory that all workers of the
// machine share, of all clusters and users.
//
// Safe from any thread.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// The first of /run/lock, /dev/shm and /tmp in which every user may make files and only their
// owners remove them: the same one for all users. They are empty after a boot, or may be.
// `root` is "/", or a tree of a test.
Result<std::string> SharedLockDirectory(const std::string& root = "/");

std::string DeviceLockPath(const std::string& directory, const std::string& device);

// For reading and writing by every user who reaches the directory; made where it is missing. Links,
// and whatever else another user may have put into its place, are refused.
Result<UniqueFd> OpenDeviceLock(const std::string& directory, const std::string& device);

// Who has a device, by what is in its lock file: any user may have written that.
struct DeviceHolder {
  bool is_here = false;  // a job of this node
  std::string text;      // "job J (guardian N, or a process that it left)"
};
DeviceHolder HolderOf(const UniqueFd& lock, const std::string& jobs_dir);
// What HolderOf reads.
std::string HolderRecord(const std::string& job);

}  // namespace muster
