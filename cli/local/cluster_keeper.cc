#include "cli/local/cluster_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/clock.h"

namespace muster {
namespace {

constexpr Duration kKeeperTimeout = std::chrono::seconds(2);

// A line means that the cluster is down; the end of input, that the program is gone.
constexpr char kKeeperScript[] =
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
  MUSTER_ASSIGN_OR_RETURN(keeper_, StartDaemon({"/bin/sh", "-c", kKeeperScript, muster, dir},
                                               "/dev/null", input.get()));
  return OkStatus();
}

void ClusterKeeper::Dismiss() {
  if (!lifeline_.valid()) return;
  // Without a keeper there is no reader, and SIGPIPE would end this process.
  [[maybe_unused]] const ssize_t written = IsAlive(keeper_) ? ::write(lifeline_.get(), "\n", 1) : 0;
  lifeline_.reset();
  static_cast<void>(WaitUntilGone({keeper_}, Deadline::After(kKeeperTimeout)));
}

}  // namespace muster
