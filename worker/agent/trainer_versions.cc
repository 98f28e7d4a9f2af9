#include "worker/agent/trainer_versions.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "common/process/spawn.h"

namespace muster::worker {
namespace {

constexpr std::size_t kMaxAnswerBytes = 16 << 10;

// Until the writer is gone, at most this many bytes.
Result<std::string> ReadAnswer(int fd, Deadline deadline) {
  std::string text;
  for (;;) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int timeout = static_cast<int>(deadline.RemainingMillis().count());
    const int n = ::poll(&ready, 1, timeout);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return DeadlineExceeded("`muster-trainer version` did not answer in time");
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || text.size() > kMaxAnswerBytes) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<CudaStack> AskCudaStack(const std::string& trainer_path,
                               const std::map<std::string, std::string>& environment,
                               Duration timeout) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  SpawnOptions options{.argv = {trainer_path, "version", "--json"}, .output_fd = write_end.get()};
  for (const auto& [name, value] : environment) options.environment.push_back(name + "=" + value);
  MUSTER_ASSIGN_OR_RETURN(const pid_t pid, SpawnChild(options));
  write_end.reset();
  Result<std::string> answer = ReadAnswer(read_end.get(), Deadline::After(timeout));
  // Its output is complete, or never will be.
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!answer.ok()) return answer.status();
  return ParseCudaStack(*answer);
}

Result<CudaStack> ParseCudaStack(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    return FailedPrecondition("`muster-trainer version --json` printed no JSON: " +
                              text.substr(0, 200));
  }
  if (json.contains("cuda_error") && json["cuda_error"].is_string()) {
    return FailedPrecondition(json["cuda_error"].get<std::string>());
  }
  if (!json.contains("cuda") || !json["cuda"].is_object()) {
    return FailedPrecondition("the muster-trainer of this node does not support GPUs; update it");
  }
  const auto text_of = [&json](const char* key) {
    const auto& value = json["cuda"].value(key, nlohmann::json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  return CudaStack{text_of("plugin"), text_of("runtime"), text_of("driver"), text_of("nccl")};
}

}  // namespace muster::worker
