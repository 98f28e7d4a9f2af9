#include "coordinator/on_event/on_event_runner.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/process/run_child.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

constexpr std::size_t kMaxAtOnce = 8;
constexpr std::size_t kMaxWaiting = 256;
constexpr int kTries = 3;

bool Wants(const JobSpec& spec, const EventRecord& event) {
  const auto& kinds = spec.on_event.kinds;
  return std::find(kinds.begin(), kinds.end(), event.kind) != kinds.end();
}

std::string About(const EventRecord& event) {
  return "job " + event.job.value + ": on_event for '" + event.kind + "'";
}

// The coordinator's own, with what the command may want to know without reading JSON.
std::vector<std::string> Environment(const EventRecord& event) {
  std::vector<std::string> all = {"MUSTER_JOB_ID=" + event.job.value,
                                  "MUSTER_EVENT_KIND=" + event.kind};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!text.starts_with("MUSTER_JOB_ID=") && !text.starts_with("MUSTER_EVENT_KIND="))
      all.push_back(text);
  }
  return all;
}

std::string SearchPath() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

}  // namespace

struct OnEventRunner::Webhook {
  explicit Webhook(EventLoop& loop) : timer(loop) {}
  HttpUrl url;
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
  // A message may quote a rank's log, which may hold anything.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

OnEventRunner::OnEventRunner(EventLoop& loop, OnEventOptions options)
    : loop_(loop),
      options_(options),
      cancel_(::eventfd(0, EFD_CLOEXEC)),
      pool_("on_event", static_cast<int>(kMaxAtOnce), kMaxWaiting) {}

OnEventRunner::~OnEventRunner() {
  *alive_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(cancel_.get(), &one, sizeof one);
}

void OnEventRunner::Offer(const JobSpec& spec, const EventRecord& event) {
  if (!Wants(spec, event)) return;
  if (!spec.on_event.command.empty()) OfferCommand(spec, event);
  if (!spec.on_event.webhook.empty()) OfferWebhook(spec, event);
}

void OnEventRunner::OfferCommand(const JobSpec& spec, const EventRecord& event) {
  if (!pool_.TrySubmit([this, spec, event] { RunCommand(spec, event); })) Refuse(event, "commands");
}

void OnEventRunner::RunCommand(const JobSpec& spec, const EventRecord& event) {
  const std::string about = About(event);
  RunChildOptions options{.spawn = {.argv = spec.on_event.command,
                                    .environment = Environment(event),
                                    .working_directory = spec.workdir},
                          .input = OnEventJson(spec, event),
                          .limit = options_.command_limit,
                          .cancel_fd = cancel_.get()};
  auto program = FindProgram(options.spawn.argv.front(), SearchPath(), spec.workdir);
  if (!program.ok()) return Fail(about, program.status().message());
  options.spawn.argv.front() = *std::move(program);
  const auto outcome = RunChild(options);
  if (!outcome.ok()) return Fail(about, outcome.status().message());
  if (!outcome->ok()) return Fail(about, "the command failed: " + outcome->Describe());
  ++commands_;
  Log().debug("{}: the command is done", about);
}

void OnEventRunner::OfferWebhook(const JobSpec& spec, const EventRecord& event) {
  const auto url = ParseHttpUrl(spec.on_event.webhook);
  if (!url.ok()) return Fail(About(event), url.status().message());
  if (waiting_.size() >= kMaxWaiting) return Refuse(event, "webhooks");
  auto webhook = std::make_shared<Webhook>(loop_);
  webhook->url = *url;
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
  PostJson(loop_, webhook->url, webhook->body, options_.webhook_limit,
           [this, alive = alive_, webhook](const HttpReply& reply) {
             if (*alive) OnReply(webhook, reply);
           });
}

void OnEventRunner::OnReply(const std::shared_ptr<Webhook>& webhook, const HttpReply& reply) {
  if (!reply.ok() && reply.WorthAnotherTry() && webhook->tries < kTries) {
    const Duration pause = options_.first_retry * (1 << (webhook->tries - 1));
    // The timer is the webhook's own: it must not hold it.
    const std::weak_ptr<Webhook> again = webhook;
    webhook->timer.Start(pause, [this, again] { Try(again.lock()); });
    return;
  }
  posting_.erase(webhook);
  if (reply.ok()) {
    ++webhooks_;
  } else {
    Fail(webhook->about, reply.code != 0
                             ? "the webhook was answered with " + std::to_string(reply.code)
                             : reply.status.message());
  }
  PostNext();
}

void OnEventRunner::Refuse(const EventRecord& event, const std::string& what) {
  ++refused_;
  Log().warn("{} is left out: {} {} wait already", About(event), kMaxWaiting, what);
}

void OnEventRunner::Fail(const std::string& about, const std::string& why) {
  ++failed_;
  Log().warn("{}: {}", about, why);
}

OnEventRunner::Totals OnEventRunner::totals() const {
  return {commands_, webhooks_, failed_, refused_};
}

}  // namespace muster
