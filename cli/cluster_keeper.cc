#include "cli/cluster_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace muster {
namespace {

constexpr auto kTimeout = std::chrono::seconds(2);

// A line means that all is done; the end of input, that nobody does it.
constexpr char kScript[] =
    "cd /\n"
    "read -r word && exit 0\n"
    "unset MUSTER_COORDINATOR MUSTER_TLS MUSTER_SLURM_JOB\n"
    "\"$0\" down --dir \"$1\" --timeout 5s && rm -rf -- \"$1\"";

}  // namespace

Status ClusterKeeper::Start(const std::string& muster, const std::string& dir) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  const UniqueFd input(ends[0]);
  lifeline_.reset(ends[1]);
  MUSTER_ASSIGN_OR_RETURN(
      keeper_, StartDaemon({"/bin/sh", "-c", kScript, muster, dir}, "/dev/null", input.get()));
  return OkStatus();
}

void ClusterKeeper::Dismiss() {
  if (!lifeline_.valid()) return;
  // A keeper that is gone has no reader for it, and SIGPIPE would end us.
  [[maybe_unused]] const ssize_t written = IsAlive(keeper_) ? ::write(lifeline_.get(), "\n", 1) : 0;
  lifeline_.reset();
  static_cast<void>(WaitUntilGone({keeper_}, Deadline::After(kTimeout)));
}

}  // namespace muster
