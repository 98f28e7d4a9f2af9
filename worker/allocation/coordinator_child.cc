#include "worker/allocation/coordinator_child.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

CoordinatorChild::CoordinatorChild(EventLoop& loop, WorkerPool& pool, Options options,
                                   Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      start_by_(Deadline::After(options_.start_limit)),
      timer_(loop) {
  ::unlink(options_.endpoint_path.c_str());
  process_ = std::make_unique<ChildProcess>(
      loop, pool, options_.argv, options_.log_path,
      [this](const ProcessExit& exit) { Down("it ended with " + DescribeExit(exit)); });
  timer_.Start(kLookAgain, [this] { Look(); });
}

CoordinatorChild::~CoordinatorChild() = default;

void CoordinatorChild::End() {
  timer_.Cancel();
  process_->Signal(SIGINT);
}

void CoordinatorChild::Look() {
  const auto endpoint = ReadEndpoint(options_.endpoint_path);
  if (endpoint.ok() && endpoint->pid == process_->pid()) return handlers_.on_up(*endpoint);
  if (start_by_.Expired()) {
    return Down("it did not come up within " +
                std::to_string(static_cast<int>(ToSeconds(options_.start_limit))) + " s");
  }
  timer_.Start(kLookAgain, [this] { Look(); });
}

// The owner may destroy this object from within.
void CoordinatorChild::Down(const std::string& why) {
  const auto tell = handlers_.on_down;
  tell(why + " (log: " + options_.log_path + ")");
}

}  // namespace muster::worker
