// CoordinatorChild: the coordinator that a leading supervisor runs on its node, from its start to
// its end: a process, and the endpoint file that it writes once it accepts connections.
//
// Owned by a Supervisor; loop thread only. Its destructor ends the coordinator at once, which loses
// nothing: everything that it has sent is in the journal.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/rpc/endpoint.h"
#include "common/runtime/event_loop.h"
#include "worker/allocation/child_process.h"

namespace muster::worker {

class CoordinatorChild {
 public:
  struct Handlers {
    std::function<void(const Endpoint& endpoint)> on_up;
    // `why` is a sentence; also called if it does not come up in time.
    std::function<void(const std::string& why)> on_down;
  };
  struct Options {
    std::vector<std::string> argv;
    std::string endpoint_path;  // the one that an earlier coordinator left is removed
    std::string log_path;
    Duration start_limit = std::chrono::seconds(30);
  };

  CoordinatorChild(EventLoop& loop, WorkerPool& pool, Options options, Handlers handlers);
  ~CoordinatorChild();

  // SIGINT; on_down is called when it has ended.
  void End();

 private:
  void Look();
  void Down(const std::string& why);

  const Options options_;
  const Handlers handlers_;
  Deadline start_by_;
  Timer timer_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace muster::worker
