#include "worker/health/kernel_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <charconv>
#include <utility>

namespace muster::worker {

namespace asio = boost::asio;

namespace {

// More than the kernel puts into one record.
constexpr std::size_t kMaxRecord = 16 << 10;
// Per wake-up, so that a storm of records does not keep the loop from its work.
constexpr int kMaxRecordsAtOnce = 512;
// The kernel's fixed inode of the first pid namespace.
constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;

template <typename Number>
bool TakeNumber(std::string_view* text, Number* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return true;
}

// The text between `before` and the next `after`; `text` keeps the rest.
std::optional<std::string_view> TakeBetween(std::string_view* text, std::string_view before,
                                            std::string_view after) {
  const std::size_t begin = text->find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = text->find(after, begin + before.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view found = text->substr(begin + before.size(), end - begin - before.size());
  text->remove_prefix(end);
  return found;
}

// "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
std::optional<XidEvent> ParseXid(std::string_view text) {
  const auto device = TakeBetween(&text, "NVRM: Xid (PCI:", "): ");
  if (!device) return std::nullopt;
  XidEvent event{.device = std::string(*device)};
  text.remove_prefix(3);
  if (!TakeNumber(&text, &event.xid)) return std::nullopt;
  if (text.starts_with(", ")) text.remove_prefix(2);
  event.detail = std::string(text);
  if (const std::size_t at = text.find("pid="); at != std::string_view::npos) {
    std::string_view pid = text.substr(at + 4);
    // The driver prints '<unknown>' where it knows none.
    if (!TakeNumber(&pid, &event.pid)) event.pid = 0;
  }
  return event;
}

// "Out of memory: Killed process 1234 (name) total-vm:..." or "Memory cgroup out of memory: ...".
std::optional<OomKillEvent> ParseOomKill(std::string_view text) {
  OomKillEvent event{.of_cgroup = text.find("Memory cgroup out of memory: ") != text.npos};
  if (!event.of_cgroup && text.find("Out of memory") == text.npos) return std::nullopt;
  auto pid = TakeBetween(&text, "Killed process ", " (");
  if (!pid || !TakeNumber(&*pid, &event.pid) || !pid->empty()) return std::nullopt;
  text.remove_prefix(2);
  // A name may hold parentheses itself.
  const std::size_t end = text.find(") total-vm:");
  event.name = std::string(text.substr(0, end == text.npos ? text.rfind(')') : end));
  return event;
}

}  // namespace

std::optional<KernelEvent> ParseKernelLine(std::string_view line) {
  // Lines that begin with a blank carry a record's properties.
  if (line.empty() || line.front() == ' ') return std::nullopt;
  // A record's head has no blanks: "6,339,5140900,-,caller=T1;".
  const std::size_t head = line.find_first_of("; ");
  const bool is_record = head != line.npos && line[head] == ';';
  const std::string_view text = is_record ? line.substr(head + 1) : line;
  if (auto xid = ParseXid(text)) return *xid;
  if (auto kill = ParseOomKill(text)) return *kill;
  return std::nullopt;
}

struct KernelLog::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, int fd, std::function<void(const KernelEvent&)> tell_event)
      : descriptor(loop.context(), fd), tell(std::move(tell_event)) {}

  void Await() {
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (error || !self->descriptor.is_open()) return;
                            if (self->Read()) self->Await();
                          });
  }

  // False when the log has come to its end, which /dev/kmsg never does.
  bool Read() {
    char buffer[kMaxRecord];
    for (int records = 0; records < kMaxRecordsAtOnce; ++records) {
      const ssize_t n = ::read(descriptor.native_handle(), buffer, sizeof buffer);
      // EPIPE: the ring has overwritten unread lines; the next read continues after them.
      if (n < 0 && (errno == EINTR || errno == EPIPE)) continue;
      if (n < 0) return errno == EAGAIN;
      if (n == 0) return false;
      TellLines(std::string_view(buffer, static_cast<std::size_t>(n)));
    }
    return true;
  }

  void TellLines(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      if (const auto event = ParseKernelLine(text.substr(0, end)); event && tell) tell(*event);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  asio::posix::stream_descriptor descriptor;
  std::function<void(const KernelEvent&)> tell;
};

Result<std::unique_ptr<KernelLog>> KernelLog::Open(EventLoop& loop, const std::string& path,
                                                   std::function<void(const KernelEvent&)> tell) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(path + " is a plain file, which cannot be waited on");
  }
  // Earlier lines belong to the past. A pipe cannot seek and has no past.
  (void)::lseek(fd, 0, SEEK_END);
  std::shared_ptr<Impl> impl;
  try {
    impl = std::make_shared<Impl>(loop, fd, std::move(tell));
  } catch (const boost::system::system_error& error) {
    ::close(fd);
    return InvalidArgument(path + " cannot be waited on: " + error.what());
  }
  impl->Await();
  return std::unique_ptr<KernelLog>(new KernelLog(std::move(impl)));
}

KernelLog::KernelLog(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

KernelLog::~KernelLog() {
  impl_->tell = nullptr;
  boost::system::error_code ignored;
  impl_->descriptor.close(ignored);
}

void KernelLog::Drain() { (void)impl_->Read(); }

bool InInitialPidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 && info.st_ino == kInitialPidNamespace;
}

}  // namespace muster::worker
