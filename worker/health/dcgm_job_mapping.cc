#include "worker/health/dcgm_job_mapping.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/files.h"

namespace muster::worker {
namespace {

Status Remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
  return ErrnoStatus(errno, "remove " + path);
}

std::vector<int> Known(std::vector<int> gpus) {
  std::erase_if(gpus, [](int gpu) { return gpu < 0; });
  return gpus;
}

}  // namespace

DcgmJobMapping::DcgmJobMapping(std::string dir, std::vector<int> gpus)
    : dir_(std::move(dir)), gpus_(Known(std::move(gpus))) {}

DcgmJobMapping::~DcgmJobMapping() { (void)Set({}); }

std::string DcgmJobMapping::PathOf(int gpu) const { return dir_ + "/" + std::to_string(gpu); }

Status DcgmJobMapping::Begin() {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir_));
  for (const int gpu : gpus_) MUSTER_RETURN_IF_ERROR(Remove(PathOf(gpu)));
  return OkStatus();
}

Status DcgmJobMapping::Set(const RunsOfGpu& runs) {
  Status first;
  for (const int gpu : gpus_) {
    const auto wanted = runs.find(gpu);
    const auto before = written_.find(gpu);
    const bool none = wanted == runs.end() || wanted->second.empty();
    if (none && before == written_.end()) continue;
    if (!none && before != written_.end() && before->second == wanted->second) continue;
    Status done;
    if (none) {
      done = Remove(PathOf(gpu));
      if (done.ok()) written_.erase(gpu);
    } else {
      std::string text;
      for (const std::string& run : wanted->second) text += run + "\n";
      done = WriteFileAtomically(PathOf(gpu), text);
      if (done.ok()) written_[gpu] = wanted->second;
    }
    if (first.ok()) first = done;
  }
  return first;
}

}  // namespace muster::worker
