// OnEventRunner: carries out what a job's file wants done when something happens to the job
// (`on_event`): runs its command, posts its webhook, or both.
//
// Owned by the server. A failure is a line in the log and a counter, never a fault of the job, and
// nothing of the coordinator waits for it: commands run on threads of their own, at most 8 at once,
// 30 s each; webhooks on the loop, at most 8 at once, 10 s a try, three tries. Each event is
// carried out at most once: what waits when the coordinator ends is lost. Events of one job may
// overtake each other; `seq` in them tells their order.
//
// Loop thread only, the destructor after the loop has ended; totals() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include "common/base/unique_fd.h"
#include "common/job_spec/job_spec.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/http_client.h"
#include "coordinator/domain/records.h"

namespace muster {

// The event as commands and webhooks get it: one JSON object.
std::string OnEventJson(const JobSpec& spec, const EventRecord& event);

struct OnEventOptions {
  Duration command_limit = std::chrono::seconds(30);
  Duration webhook_limit = std::chrono::seconds(10);
  Duration first_retry = std::chrono::seconds(1);  // doubles
};

class OnEventRunner {
 public:
  struct Totals {
    std::uint64_t commands = 0;  // that ended with 0
    std::uint64_t webhooks = 0;  // that were answered with 2xx
    std::uint64_t failed = 0;    // of both, given up
    std::uint64_t refused = 0;   // because too many waited
  };

  explicit OnEventRunner(EventLoop& loop, OnEventOptions options = {});
  // Ends commands that run, gives up what waits.
  ~OnEventRunner();
  OnEventRunner(const OnEventRunner&) = delete;
  OnEventRunner& operator=(const OnEventRunner&) = delete;

  // Does nothing for a kind of event that the job does not name.
  void Offer(const JobSpec& spec, const EventRecord& event);

  Totals totals() const;

 private:
  struct Webhook;

  void OfferCommand(const JobSpec& spec, const EventRecord& event);
  void RunCommand(const JobSpec& spec, const EventRecord& event);
  void OfferWebhook(const JobSpec& spec, const EventRecord& event);
  void PostNext();
  void Try(const std::shared_ptr<Webhook>& webhook);
  void OnReply(const std::shared_ptr<Webhook>& webhook, const HttpReply& reply);
  void Refuse(const EventRecord& event, const std::string& what);
  void Fail(const std::string& about, const std::string& why);

  EventLoop& loop_;
  const OnEventOptions options_;
  const UniqueFd cancel_;
  std::deque<std::shared_ptr<Webhook>> waiting_;
  std::set<std::shared_ptr<Webhook>> posting_;  // with those that pause before another try
  std::atomic<std::uint64_t> commands_{0};
  std::atomic<std::uint64_t> webhooks_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> refused_{0};
  // Outlives this in replies that are under way.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkerPool pool_;  // joins before what its work uses is destroyed
};

}  // namespace muster
