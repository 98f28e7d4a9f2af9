#include "worker/health/prober.h"

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/telemetry/log.h"

namespace muster::worker {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr int kMaxAtOnce = 64;
constexpr int kDefaultTimeoutMs = 500;
constexpr int kLongestTimeoutMs = 10000;
// HTTP answers this with few bytes; a port for probes alone closes the connection unread.
constexpr std::string_view kQuestion = "HEAD /healthz HTTP/1.0\r\n\r\n";

// What a failed connection reveals about the other host; empty: nothing.
std::optional<ProbeOutcome> OutcomeOf(const ErrorCode& error) {
  namespace errors = asio::error;
  if (error == errors::connection_refused) return ProbeOutcome::kRefused;
  if (error == errors::host_unreachable || error == errors::network_unreachable ||
      error == errors::timed_out)
    return ProbeOutcome::kUnreachable;
  return std::nullopt;
}

}  // namespace

// One probe. Owns itself through the handlers of its pending operation.
class Prober::Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(EventLoop& loop, Probe probe, std::shared_ptr<Prober*> prober)
      : probe_(std::move(probe)),
        prober_(std::move(prober)),
        resolver_(loop.context()),
        socket_(loop.context()),
        timer_(loop.context()) {}

  void Start() {
    const int timeout = probe_.timeout_ms > 0 ? probe_.timeout_ms : kDefaultTimeoutMs;
    timer_.expires_after(std::chrono::milliseconds(std::min(timeout, kLongestTimeoutMs)));
    timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
      if (error) return;
      self->Finish(self->OutcomeOfSilence());
    });
    resolver_.async_resolve(probe_.address, std::to_string(probe_.port),
                            [self = shared_from_this()](const ErrorCode& error, const auto& to) {
                              if (error) return self->Finish(std::nullopt);
                              self->addresses_ = to;
                              self->resolved_ = true;
                              self->Connect();
                            });
  }

 private:
  void Connect() {
    if (done_) return;
    asio::async_connect(socket_, addresses_,
                        [self = shared_from_this()](const ErrorCode& error, const auto&) {
                          if (!error) return self->Ask();
                          if (error == asio::error::connection_reset) return self->LoseConnection();
                          self->Finish(OutcomeOf(error));
                        });
  }

  void Ask() {
    if (done_) return;
    connected_ = true;
    asio::async_write(socket_, asio::buffer(kQuestion),
                      [self = shared_from_this()](const ErrorCode&, std::size_t) {});
    socket_.async_read_some(
        asio::buffer(answer_), [self = shared_from_this()](const ErrorCode& error, std::size_t) {
          error ? self->LoseConnection() : self->Finish(ProbeOutcome::kAnswered);
        });
  }

  // A port for probes alone has closed the connection unread, or the kernel has, for a worker that
  // was dying. A second connection distinguishes them: the kernel closes the listening socket
  // before it resets what waits in its queue.
  void LoseConnection() {
    if (done_) return;
    if (std::exchange(connects_again_, true)) return Finish(ProbeOutcome::kAnswered);
    connected_ = false;
    ErrorCode ignored;
    socket_.close(ignored);
    Connect();
  }

  std::optional<ProbeOutcome> OutcomeOfSilence() const {
    if (connected_) return ProbeOutcome::kSilent;
    if (resolved_) return ProbeOutcome::kUnreachable;
    return std::nullopt;  // silence of the name service is no evidence about the node
  }

  void Finish(std::optional<ProbeOutcome> outcome) {
    if (std::exchange(done_, true)) return;
    timer_.cancel();
    resolver_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
    if (*prober_ != nullptr) (*prober_)->Finish(probe_, outcome ? &*outcome : nullptr);
  }

  const Probe probe_;
  const std::shared_ptr<Prober*> prober_;
  tcp::resolver resolver_;
  tcp::resolver::results_type addresses_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  std::array<char, 1> answer_;
  bool resolved_ = false;
  bool connected_ = false;
  bool connects_again_ = false;
  bool done_ = false;
};

Prober::Prober(EventLoop& loop, std::function<void(const ProbeResult&)> tell)
    : loop_(loop), tell_(std::move(tell)), self_(std::make_shared<Prober*>(this)) {}

Prober::~Prober() { *self_ = nullptr; }

void Prober::Start(const Probe& probe) {
  ++under_way_;
  if (under_way_ > kMaxAtOnce) {
    Log().warn("a probe of {} is left out: {} are under way", probe.node.value, kMaxAtOnce);
    return Finish(probe, nullptr);
  }
  std::make_shared<Attempt>(loop_, probe, self_)->Start();
}

void Prober::Finish(const Probe& probe, const ProbeOutcome* outcome) {
  --under_way_;
  if (outcome == nullptr) {
    ++totals_.unknown;
    return;
  }
  switch (*outcome) {
    case ProbeOutcome::kAnswered: ++totals_.answered; break;
    case ProbeOutcome::kRefused: ++totals_.refused; break;
    case ProbeOutcome::kUnreachable: ++totals_.unreachable; break;
    case ProbeOutcome::kSilent: ++totals_.silent; break;
  }
  tell_({probe.probe_id, probe.node, *outcome});
}

}  // namespace muster::worker
