#include "cli/login/loopback_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace muster {
namespace {

constexpr int kBrowserBacklog = 16;
constexpr std::size_t kMaxRequestBytes = 8 << 10;
constexpr Duration kReadLimit = std::chrono::seconds(1);
constexpr Duration kBrowserLook = std::chrono::milliseconds(100);  // for an interrupt

bool IsReadable(int fd, Duration limit) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  return ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(ms, 0))) > 0;
}

// The first line of a request whose head is whole; "" for others.
std::string RequestLine(int fd) {
  const Deadline deadline = Deadline::After(kReadLimit);
  std::string text;
  while (text.find("\r\n\r\n") == text.npos) {
    if (text.size() > kMaxRequestBytes || !IsReadable(fd, deadline.Remaining())) return {};
    char part[2048];
    const ssize_t got = ::recv(fd, part, sizeof part, 0);
    if (got <= 0) return {};
    text.append(part, static_cast<std::size_t>(got));
  }
  return text.substr(0, text.find("\r\n"));
}

void Reply(int fd, const char* status, std::string_view text) {
  const std::string answer = std::string("HTTP/1.1 ") + status +
                             "\r\nContent-Type: text/plain; charset=utf-8\r\n"
                             "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                             "Connection: close\r\nContent-Length: " +
                             std::to_string(text.size()) + "\r\n\r\n" + std::string(text);
  (void)!::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
}

}  // namespace

Result<LoopbackListener> LoopbackListener::Open() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener.valid() || ::bind(listener.get(), generic, size) != 0 ||
      ::listen(listener.get(), kBrowserBacklog) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0)
    return ErrnoStatus(errno, "listen on 127.0.0.1 for the browser");
  return LoopbackListener(
      std::move(listener),
      "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/callback");
}

Result<std::string> LoopbackListener::AwaitCode(const CodeLogin& login, const std::string& issuer,
                                                Duration limit, Interrupt& interrupt) const {
  const Deadline deadline = Deadline::After(limit);
  while (!deadline.Expired()) {
    if (interrupt.requested()) return Cancelled("interrupted");
    if (!IsReadable(listener_.get(), kBrowserLook)) continue;
    const UniqueFd browser(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!browser.valid()) continue;
    const Result<std::string> code = CodeFromRequest(RequestLine(browser.get()), login, issuer);
    if (code.ok() || code.status().code() == StatusCode::kPermissionDenied) {
      Reply(browser.get(), "200 OK", "Muster goes on in the terminal; close this page.\n");
      return code;
    }
    const bool other = code.status().code() == StatusCode::kNotFound;
    Reply(browser.get(), other ? "404 Not Found" : "400 Bad Request",
          code.status().message() + "\n");
  }
  return DeadlineExceeded("no browser has come back from the sign-in\n  next: muster login");
}

}  // namespace muster
