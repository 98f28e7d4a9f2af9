#include "coordinator/on_event/on_event_runner.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/json.h"
#include "common/http/http_client.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

constexpr std::size_t kMaxAtOnce = 4;
constexpr std::size_t kMaxWaiting = 256;
constexpr int kTries = 3;

bool Wants(const JobSpec& spec, const EventRecord& event) {
  const auto& kinds = spec.on_event.kinds;
  return std::find(kinds.begin(), kinds.end(), event.kind) != kinds.end();
}

std::string About(const EventRecord& event) {
  return "job " + event.job.value + ": webhook for '" + event.kind + "'";
}

// Whether a retry of the same request may succeed.
bool WorthAnotherTry(const Result<long>& code) {
  if (!code.ok()) return code.status().code() == StatusCode::kUnavailable;
  return *code == 408 || *code == 429 || *code >= 500;
}

}  // namespace

struct OnEventRunner::Webhook {
  explicit Webhook(EventLoop& loop) : timer(loop) {}
  std::string url;
  std::string body;
  std::string about;
  int tries = 0;
  Timer timer;
};

std::string OnEventJson(const JobSpec& spec, const EventRecord& event) {
  const nlohmann::json json = {{"seq", event.seq},
                               {"unix_ms", event.unix_ms},
                               {"job", event.job.value},
                               {"name", spec.name},
                               {"generation", event.generation},
                               {"kind", event.kind},
                               {"severity", Name(event.severity)},
                               {"message", event.message}};
  // A message may quote a rank's log, which may contain anything.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

OnEventRunner::OnEventRunner(EventLoop& loop, OnEventOptions options)
    : loop_(loop),
      options_(std::move(options)),
      pool_("webhooks", static_cast<int>(kMaxAtOnce), kMaxAtOnce) {}

OnEventRunner::~OnEventRunner() {
  *alive_ = false;
  ending_ = true;
}

Status OnEventRunner::Check(const JobSpec& spec) const {
  if (spec.on_event.kinds.empty()) return OkStatus();
  return options_.rules.CheckUrl(spec.on_event.webhook).WithContext("on_event.webhook");
}

void OnEventRunner::Offer(const JobSpec& spec, const EventRecord& event) {
  if (!Wants(spec, event)) return;
  // The rules may have changed since the job was submitted.
  if (const Status allowed = Check(spec); !allowed.ok())
    return Fail(About(event), allowed.message());
  if (waiting_.size() >= kMaxWaiting) {
    ++refused_;
    Log().warn("{} is left out: {} wait already", About(event), kMaxWaiting);
    return;
  }
  auto webhook = std::make_shared<Webhook>(loop_);
  webhook->url = spec.on_event.webhook;
  webhook->body = OnEventJson(spec, event);
  webhook->about = About(event);
  waiting_.push_back(std::move(webhook));
  PostNext();
}

void OnEventRunner::PostNext() {
  while (posting_.size() < kMaxAtOnce && !waiting_.empty()) {
    const std::shared_ptr<Webhook> webhook = std::move(waiting_.front());
    waiting_.pop_front();
    posting_.insert(webhook);
    Try(webhook);
  }
}

void OnEventRunner::Try(const std::shared_ptr<Webhook>& webhook) {
  ++webhook->tries;
  // Its timer belongs to the loop's thread, so no other thread may release the last reference.
  const std::weak_ptr<Webhook> weak = webhook;
  const bool taken =
      pool_.TrySubmit([this, weak, url = webhook->url, body = webhook->body, alive = alive_] {
        loop_.Post([this, weak, alive, code = Post(url, body)] {
          if (*alive) OnAnswer(weak.lock(), code);
        });
      });
  MUSTER_CHECK(taken, "more webhooks at once than threads");
}

Result<long> OnEventRunner::Post(const std::string& url, const std::string& body) const {
  HttpClientRequest request{.url = url};
  request.json = body;
  request.limit = options_.limit;
  request.may_use_proxy = options_.may_use_proxy;
  request.cancelled = &ending_;
  // A proxy resolves the name itself, and the proxy's own address is the operator's choice.
  if (!options_.may_use_proxy)
    request.check_address = [this](const IpAddress& to) { return options_.rules.CheckAddress(to); };
  const auto drop = [](const HttpClientResponse&, std::string_view) { return OkStatus(); };
  Failpoint("webhook.before");
  MUSTER_ASSIGN_OR_RETURN(const HttpClientResponse answer, MakeHttpClient()->Send(request, drop));
  return answer.code;
}

void OnEventRunner::OnAnswer(const std::shared_ptr<Webhook>& webhook, const Result<long>& code) {
  Failpoint("webhook.after");
  const bool done = code.ok() && *code / 100 == 2;
  if (!done && WorthAnotherTry(code) && webhook->tries < kTries) {
    const Duration pause = options_.first_retry * (1 << (webhook->tries - 1));
    // The timer is the webhook's own: it must not hold a reference to it.
    const std::weak_ptr<Webhook> again = webhook;
    webhook->timer.Start(pause, [this, again] { Try(again.lock()); });
    return;
  }
  posting_.erase(webhook);
  if (done) {
    ++done_;
  } else {
    Fail(webhook->about,
         code.ok() ? "the answer was " + std::to_string(*code) : code.status().message());
  }
  PostNext();
}

void OnEventRunner::Fail(const std::string& about, const std::string& why) {
  ++failed_;
  Log().warn("{}: {}", about, why);
}

OnEventRunner::Totals OnEventRunner::totals() const { return {done_, failed_, refused_}; }

}  // namespace muster
