#include "common/process/run_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace muster {
namespace {

// A file in memory and no pipe: the child may read it when and as it likes, or not at all.
Result<UniqueFd> InputFile(const std::string& input) {
  UniqueFd fd(::memfd_create("muster-input", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  for (std::size_t at = 0; at < input.size();) {
    const ssize_t n = ::write(fd.get(), input.data() + at, input.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write the child's input");
    at += static_cast<std::size_t>(n);
  }
  if (::lseek(fd.get(), 0, SEEK_SET) < 0) return ErrnoStatus(errno, "rewind the child's input");
  return fd;
}

struct OutputPipe {
  UniqueFd read, write;
};
Result<OutputPipe> MakeOutputPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  OutputPipe pipe{.read = UniqueFd(ends[0]), .write = UniqueFd(ends[1])};
  // Only our end: what the child prints must not fail because we are slow.
  if (::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return pipe;
}

// Takes what is in the pipe; false at its end.
bool TakeOutput(int fd, std::size_t max_bytes, std::string* output) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    output->append(buffer, static_cast<std::size_t>(n));
    if (output->size() > max_bytes) output->erase(0, output->size() - max_bytes);
  }
}

// Waits for the child's end, the limit or the cancelling, whatever is first.
void Watch(const RunChildOptions& options, int pidfd, int output_fd, int errors_fd,
           ChildOutcome* outcome) {
  const Deadline deadline = Deadline::After(options.limit);
  pollfd fds[] = {{pidfd, POLLIN, 0},
                  {output_fd, POLLIN, 0},
                  {options.cancel_fd, POLLIN, 0},
                  {errors_fd, POLLIN, 0}};
  while (!outcome->timed_out && !outcome->cancelled && fds[0].revents == 0) {
    const int ready =
        ::poll(fds, std::size(fds), static_cast<int>(deadline.RemainingMillis().count()));
    if (ready < 0 && errno != EINTR) return;
    if (ready <= 0) {
      outcome->timed_out = deadline.Expired();
      continue;
    }
    // At the end of its output the pipe would be readable for ever.
    if (fds[1].revents != 0 && !TakeOutput(output_fd, options.max_output, &outcome->output))
      fds[1].fd = -1;
    if (fds[3].revents != 0 && !TakeOutput(errors_fd, options.max_output, &outcome->errors))
      fds[3].fd = -1;
    outcome->cancelled = fds[0].revents == 0 && fds[2].revents != 0;
  }
}

}  // namespace

std::string ChildOutcome::Describe() const {
  if (cancelled) return "cancelled";
  std::string text = timed_out ? "it did not end in time" : DescribeExit(exit);
  const std::string& printed = errors.empty() ? output : errors;
  std::string line = printed.substr(0, printed.find_last_not_of(" \n\r") + 1);
  line.erase(0, line.find_last_of('\n') + 1);
  return line.empty() ? text : text + ": " + line;
}

Result<ChildOutcome> RunChild(const RunChildOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd input, InputFile(options.input));
  MUSTER_ASSIGN_OR_RETURN(OutputPipe output, MakeOutputPipe());
  OutputPipe errors;
  if (options.errors_apart) {
    MUSTER_ASSIGN_OR_RETURN(errors, MakeOutputPipe());
  }
  SpawnOptions spawn = options.spawn;
  spawn.input_fd = input.get();
  spawn.output_fd = output.write.get();
  spawn.errors_fd = errors.write.get();
  spawn.die_with_parent = true;
  MUSTER_ASSIGN_OR_RETURN(const pid_t pid, SpawnChild(spawn));
  output.write.reset();
  errors.write.reset();
  ChildOutcome outcome;
  auto pidfd = OpenPidfd(pid);
  if (pidfd.ok()) Watch(options, pidfd->get(), output.read.get(), errors.read.get(), &outcome);
  // Also after an end of its own: its group is known by a number that is ours until it is reaped.
  ::kill(-pid, SIGKILL);
  int wait_status = 0;
  while (::waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!pidfd.ok()) return pidfd.status();
  TakeOutput(output.read.get(), options.max_output, &outcome.output);
  if (options.errors_apart) TakeOutput(errors.read.get(), options.max_output, &outcome.errors);
  outcome.exit = ProcessExitFromWaitStatus(wait_status);
  return outcome;
}

}  // namespace muster
