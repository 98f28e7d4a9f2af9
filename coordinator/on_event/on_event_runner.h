// OnEventRunner: posts the webhooks that job files request for events of their jobs (`on_event`),
// to the hosts that the operator allows.
//
// Owned by the server. A failure is a line in the log and a counter, never a fault of the job, and
// no part of the coordinator waits for it: webhooks are posted by separate threads, at most 4 at
// once, 10 s a try, three tries. A receiver may get an event twice, if its answer was lost, or not
// at all: after three tries, when 256 wait already, and when the coordinator ends. Events of one
// job may overtake each other; `seq` in them gives their order.
//
// Loop thread only, the destructor after the loop has ended; totals() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include "common/job_spec/job_spec.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "coordinator/domain/records.h"
#include "coordinator/on_event/webhook_rules.h"

namespace muster {

// The event as sent to webhooks: one JSON object.
std::string OnEventJson(const JobSpec& spec, const EventRecord& event);

struct OnEventOptions {
  WebhookRules rules;
  // The proxies of the environment. Addresses are not checked then: the proxy resolves names.
  bool may_use_proxy = false;
  Duration limit = std::chrono::seconds(10);
  Duration first_retry = std::chrono::seconds(1);  // doubles
};

class OnEventRunner {
 public:
  struct Totals {
    std::uint64_t done = 0;     // answered with 2xx
    std::uint64_t failed = 0;   // given up
    std::uint64_t refused = 0;  // because too many waited
  };

  explicit OnEventRunner(EventLoop& loop, OnEventOptions options = {});
  // Abandons what is under way, within a second or so, and what waits.
  ~OnEventRunner();
  OnEventRunner(const OnEventRunner&) = delete;
  OnEventRunner& operator=(const OnEventRunner&) = delete;

  // Whether a job with this file is acceptable: its webhook is allowed.
  Status Check(const JobSpec& spec) const;
  // Does nothing for a kind of event that the job does not name.
  void Offer(const JobSpec& spec, const EventRecord& event);

  Totals totals() const;

 private:
  struct Webhook;

  void PostNext();
  void Try(const std::shared_ptr<Webhook>& webhook);
  // The answer's code. Blocks; on the pool's threads.
  Result<long> Post(const std::string& url, const std::string& body) const;
  void OnAnswer(const std::shared_ptr<Webhook>& webhook, const Result<long>& code);
  void Fail(const std::string& about, const std::string& why);

  EventLoop& loop_;
  const OnEventOptions options_;
  std::deque<std::shared_ptr<Webhook>> waiting_;
  std::set<std::shared_ptr<Webhook>> posting_;  // including those that pause before another try
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<bool> ending_{false};
  // Answers that are under way keep it alive after this.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkerPool pool_;  // joins before what its work uses is destroyed
};

}  // namespace muster
