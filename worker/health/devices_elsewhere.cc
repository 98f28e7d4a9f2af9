#include "worker/health/devices_elsewhere.h"

#include <sys/file.h>

#include "worker/process/device_lock.h"

namespace muster::worker {
namespace {

// Why no job of this node can have it; empty: one has it, or could.
std::string TakenBy(const std::string& locks_dir, const std::string& jobs_dir,
                    const std::string& id) {
  const Result<UniqueFd> lock = OpenDeviceLock(locks_dir, id);
  if (!lock.ok()) return "cannot be locked: " + lock.status().message();
  // Shared, so that workers who look at the same time do not see each other.
  if (::flock(lock->get(), LOCK_SH | LOCK_NB) == 0) return "";
  const DeviceHolder holder = HolderOf(*lock, jobs_dir);
  return holder.is_here ? "" : "in use elsewhere on this machine, by " + holder.text;
}

}  // namespace

std::map<std::string, std::vector<std::string>> DevicesElsewhere(
    const std::string& locks_dir, const std::string& jobs_dir,
    const std::vector<std::string>& ids) {
  std::map<std::string, std::vector<std::string>> taken;
  for (const std::string& id : ids)
    if (const std::string why = TakenBy(locks_dir, jobs_dir, id); !why.empty())
      taken[why].push_back(id);
  return taken;
}

}  // namespace muster::worker
