// LogFiles: opens and reads the logs of ranks, which may lie on a disk that does not answer: a
// network file system without its server blocks every access for minutes. The guardian must detect
// ends and answer its worker in that time.
//
// Each operation runs on a thread of its own, is waited for up to `timeout`, and is abandoned after
// that; while one is stuck, others fail at once. Owned by the guardian's main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster::guardian {

class LogFiles {
 public:
  explicit LogFiles(Duration timeout = std::chrono::seconds(1));

  // For appending; created if missing. DEADLINE_EXCEEDED: the disk does not answer.
  Result<UniqueFd> Open(const std::string& path);
  // The last `lines` of a log. One line with the reason if the disk does not answer.
  std::vector<std::string> LastLines(const std::string& path, int lines);

 private:
  struct Stuck;  // shared between abandoned threads and this object

  // True: `operation` was carried out.
  template <typename Operation>
  bool Run(Operation operation);

  const Duration timeout_;
  const std::shared_ptr<Stuck> stuck_;
};

}  // namespace muster::guardian
