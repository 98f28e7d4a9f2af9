// What a worker reads from the kernel's log: Xid errors of NVIDIA's driver and processes that the
// out-of-memory killer ended.
//
// ParseKernelLine is pure. KernelLog reads /dev/kmsg from now on: on the loop's thread it reports
// each event as it arrives, and Drain reads at once what is there, for a process that was just
// found dead. Loop thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"

namespace muster::worker {

struct XidEvent {
  std::string device;  // the GPU's PCI address as in the log: "0000:3b:00"
  int xid = 0;
  pid_t pid = 0;       // of the process that caused it; 0: none is named
  std::string detail;  // the rest of the line

  friend bool operator==(const XidEvent&, const XidEvent&) = default;
};

struct OomKillEvent {
  pid_t pid = 0;
  std::string name;
  bool of_cgroup = false;  // a cgroup's limit, not the host's memory, was reached

  friend bool operator==(const OomKillEvent&, const OomKillEvent&) = default;
};

using KernelEvent = std::variant<XidEvent, OomKillEvent>;

// `line` as a record of /dev/kmsg ("4,1234,567,-;text") or the text alone.
std::optional<KernelEvent> ParseKernelLine(std::string_view line);

class KernelLog {
 public:
  // `path` is /dev/kmsg or anything that can be polled and read in whole lines.
  static Result<std::unique_ptr<KernelLog>> Open(EventLoop& loop, const std::string& path,
                                                 std::function<void(const KernelEvent&)> tell);
  ~KernelLog();

  void Drain();

 private:
  struct Impl;
  explicit KernelLog(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Whether the process ids of the kernel's log are those that this process sees.
bool InInitialPidNamespace();

}  // namespace muster::worker
