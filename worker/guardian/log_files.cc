#include "worker/guardian/log_files.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "worker/process/record_file.h"

namespace muster::guardian {
namespace {

Result<UniqueFd> OpenForAppending(const std::string& path) {
  UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!log.valid()) return ErrnoStatus(errno, "open " + path);
  return log;
}

}  // namespace

struct LogFiles::Stuck {
  std::atomic<int> threads = 0;
};

LogFiles::LogFiles(Duration timeout) : timeout_(timeout), stuck_(std::make_shared<Stuck>()) {}

template <typename Operation>
bool LogFiles::Run(Operation operation) {
  if (stuck_->threads > 0) return false;
  ++stuck_->threads;
  std::promise<void> promise;
  std::future<void> done = promise.get_future();
  try {
    std::thread([operation = std::move(operation), promise = std::move(promise),
                 stuck = stuck_]() mutable {
      operation();
      --stuck->threads;
      promise.set_value();
    }).detach();
  } catch (const std::system_error&) {  // the node has no process or memory left for a thread
    --stuck_->threads;
    return false;
  }
  return done.wait_for(timeout_) == std::future_status::ready;
}

Result<UniqueFd> LogFiles::Open(const std::string& path) {
  const auto opened = std::make_shared<Result<UniqueFd>>(UniqueFd());
  if (!Run([opened, path] { *opened = OpenForAppending(path); })) {
    return DeadlineExceeded("open " + path + ": the disk does not answer");
  }
  return std::move(*opened);
}

std::vector<std::string> LogFiles::LastLines(const std::string& path, int lines) {
  const auto read = std::make_shared<std::vector<std::string>>();
  if (!Run([read, path, lines] { *read = ReadLastLines(path, lines); })) {
    return {"muster: the log could not be read: the disk of " + path + " does not answer"};
  }
  return std::move(*read);
}

}  // namespace muster::guardian
