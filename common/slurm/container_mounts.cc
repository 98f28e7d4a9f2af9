#include "common/slurm/container_mounts.h"

#include <algorithm>
#include <sstream>

namespace muster::slurm {
namespace {

// Where a mount of such a list appears in the container.
std::string TargetOf(const std::string& mount) {
  const std::size_t colon = mount.find(':');
  if (colon == std::string::npos) return mount;
  const std::string rest = mount.substr(colon + 1);
  return rest.substr(0, rest.find(':'));
}

bool Holds(const std::string& directory, const std::string& path) {
  if (directory == path) return true;
  return path.starts_with(directory.ends_with('/') ? directory : directory + "/");
}

}  // namespace

Result<std::vector<std::string>> MissingMounts(const std::vector<std::string>& needed,
                                               const std::vector<std::string>& given) {
  std::vector<std::string> targets;
  for (const std::string& list : given) {
    std::istringstream mounts(list);
    for (std::string mount; std::getline(mounts, mount, ',');)
      if (!mount.empty()) targets.push_back(TargetOf(mount));
  }
  std::vector<std::string> missing;
  for (const std::string& path : needed) {
    const bool there = std::any_of(targets.begin(), targets.end(),
                                   [&](const auto& target) { return Holds(target, path); });
    if (there) continue;
    if (path.find_first_of(":,") != std::string::npos)
      return InvalidArgument("'" + path +
                             "' cannot be mounted in a container, because of its colon or comma; "
                             "set workdir or train.output.dir");
    targets.push_back(path);
    missing.push_back(path);
  }
  return missing;
}

}  // namespace muster::slurm
