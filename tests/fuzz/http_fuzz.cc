// Bytes that a client sends to the coordinator's HTTP port, on loopback, with the routes of the
// status page behind it.
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "common/base/unique_fd.h"
#include "common/runtime/event_loop.h"
#include "common/telemetry/http_server.h"
#include "coordinator/page/page_routes.h"
#include "tests/fuzz/cluster.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace muster;

constexpr char kKey[] = "00c0ffee";

// The server of a coordinator, which is driven by this thread.
class Server {
 public:
  Server()
      : server_(*HttpServer::Listen(loop_, "127.0.0.1", 0)),
        feeds_(loop_, {.controller = cluster_.controller(),
                       .cluster = "lab",
                       .find_job = FindJob(),
                       .after_durable = [](auto done) { done(OkStatus()); },
                       .now = [this] { return cluster_.now(); }}) {
    server_->Handle("/metrics", [](const std::string&) { return HttpResponse{.body = "m 1\n"}; });
    AddPageRoutes(*server_,
                  {.key = kKey,
                   .controller = cluster_.controller(),
                   .find_job =
                       [this](const std::string& job, const JobFilter& filter, const auto& found) {
                         found(cluster_.controller().FindJob(job, filter));
                       },
                   .feeds = feeds_,
                   .read_log =
                       [](const LogLocation&, int, std::int64_t,
                          const std::function<void(Result<LogBytes>)>& done) {
                         done(LogBytes{.data = "hello\n\xff", .next_offset = 7});
                       }});
  }

  // All that is answered until the server hangs up.
  std::string Answer(std::string_view bytes) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(fd.get(), SHUT_WR);
    std::string answer;
    for (;;) {
      loop_.context().poll();
      char buffer[16384];
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) answer.append(buffer, static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN)) return answer;
    }
  }

 private:
  std::function<void(const std::string&, std::function<void(const Result<JobView>&)>)> FindJob() {
    return [this](const std::string& job, const auto& found) {
      found(cluster_.controller().FindJob(job));
    };
  }

  fuzz::Cluster cluster_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  PageFeeds feeds_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server server;
  const std::string answer = server.Answer(fuzz::TextOf(data, size));
  fuzz::Require(answer.empty() || answer.starts_with("HTTP/1."), "an answer is one of HTTP");
  return 0;
}
