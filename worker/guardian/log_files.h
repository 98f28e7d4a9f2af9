// LogFiles: opens and reads the logs of ranks, which may lie on a disk that does not answer: a
// network file system whose server is away holds up who touches it for minutes. The guardian must
// see ends and answer its worker meanwhile.
//
// Each operation runs on a thread of its own, which is waited for as long as `timeout` and then
// left behind; while one is stuck, others fail at once. Owned by the guardian's main thread.
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

  // For appending; made if it is not there. DEADLINE_EXCEEDED: the disk does not answer.
  Result<UniqueFd> Open(const std::string& path);
  // The last `lines` of a log. One line that says so where the disk does not answer.
  std::vector<std::string> LastLines(const std::string& path, int lines);

 private:
  struct Stuck;  // what threads left behind and this object share

  // True: `operation` was carried out.
  template <typename Operation>
  bool Run(Operation operation);

  const Duration timeout_;
  const std::shared_ptr<Stuck> stuck_;
};

}  // namespace muster::guardian
