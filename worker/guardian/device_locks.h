// DeviceLocks: the locks of the devices that a job has on this node, one file each.
//
// A lock belongs to an open file description (flock). The processes that may use the device get
// duplicates, which their children inherit: the kernel gives the lock up when the guardian and all
// of them are gone, in whatever order they end. A program that closes the descriptors that it
// inherited, as Python's subprocess does for its children, leaves the lock to the guardian and to
// the process that the guardian started.
//
// Owned by ProcessHost; the guardian's main thread. Waits for half a second at most for a holder
// that is on its way out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/locked_record.h"
#include "common/base/result.h"
#include "worker/guardian/guardian_effects.h"

namespace muster::guardian {

class DeviceLocks {
 public:
  // `job` is written into the files, for messages; `jobs_dir` has those of this node.
  DeviceLocks(std::string directory, std::string job, std::string jobs_dir);

  // kAlreadyExists names the job that has a device.
  Status Hold(const LockDevices& wanted);
  void DropAll() { (void)Hold({}); }
  // One for each; kFailedPrecondition for a device that is not held.
  Result<std::vector<int>> Descriptors(const std::vector<std::string>& devices) const;

 private:
  Result<LockedRecord> Lock(const std::string& device) const;

  const std::string directory_;
  const std::string job_;
  const std::string jobs_dir_;
  std::map<std::string, LockedRecord> held_;  // by device
};

}  // namespace muster::guardian
