// Cgroup: a group of processes that the kernel can end as one, without races.
//
// The guardian puts each generation's ranks into one if there is a writable cgroup v2 hierarchy;
// otherwise it gets the no-op, and ends processes by group and by descent instead. Their memory can
// be limited where the hierarchy has the controller for it and the daemons are in a leaf of their
// own: a cgroup with processes in it cannot pass controllers on. Owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"

namespace muster {

class Cgroup {
 public:
  virtual ~Cgroup() = default;
  // An open cgroup.procs for SpawnOptions, or -1 for the no-op.
  virtual int procs_fd() const = 0;
  // Absolute directory, empty for the no-op.
  virtual const std::string& path() const = 0;
  // SIGKILL to every process in it, including those that fork in the meantime.
  virtual Status KillAll() = 0;
  // Bytes that its processes may have together, none of them swapped; 0: not limited. Fails, with
  // the reason, where the kernel limits nothing.
  virtual Status LimitMemory(std::uint64_t bytes) = 0;
  // Fails while a process is in it.
  virtual Status Remove() = 0;
};

std::unique_ptr<Cgroup> MakeNoopCgroup();

// The leaf for daemons of a delegated hierarchy (DelegateSubgroup= of systemd).
inline constexpr char kDaemonsCgroup[] = "muster-daemons";

// The caller's own directory in the cgroup v2 hierarchy; empty if there is none.
std::string ReadOwnCgroupDirectory();

// A new cgroup of that name below the caller's own, beside it if that is a leaf for daemons; the
// no-op if that is not possible.
std::unique_ptr<Cgroup> MakeCgroup(const std::string& name,
                                   std::string own = ReadOwnCgroupDirectory());

// Ends and removes what a dead owner left at `path`; OK if there is nothing. Fails while its
// processes are still dying, so a caller repeats it.
Status EndAbandonedCgroup(const std::string& path);

// The memory.events file that counts the out-of-memory kills in a cgroup: that of `path`, or of its
// nearest ancestor that has one; of the caller's own if `path` is empty. Empty if there is no
// memory controller of cgroup v2.
std::string FindMemoryEvents(std::string path);

// The count in a memory.events file; 0 if there is none.
std::int64_t ReadOomKills(const std::string& memory_events);

// The least memory.max, in bytes, of the cgroup at `path` and those above it; of the caller's own
// if `path` is empty. 0: none of them has a limit.
std::uint64_t MemoryLimit(std::string path);

// The caller's cgroup v2 directory from the texts of /proc/self/mountinfo and /proc/self/cgroup;
// empty if there is none.
std::string OwnCgroupDirectory(const std::string& mountinfo, const std::string& cgroup);

}  // namespace muster
