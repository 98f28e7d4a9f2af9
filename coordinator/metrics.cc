#include "coordinator/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "common/base/version.h"
#include "common/telemetry/metrics.h"

namespace muster {
namespace {

const std::vector<double> kRecoveryBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1,
                                             3,     10,    30,   100,  300, 1000};

// A job's series outlive it by some scrapes, then go.
constexpr std::int64_t kKeptAfterEndMillis = 5 * 60 * 1000;

bool IsShown(const JobView& view, std::int64_t now_unix_ms) {
  return !IsTerminal(view.record->state) ||
         view.record->ended_unix_ms + kKeptAfterEndMillis > now_unix_ms;
}

std::string HostAndPort(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos && host.front() != '[';
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

void Metrics::Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<std::size_t>(bucket)];
  sum += value;
}

void Metrics::Observe(const Observation& observation) {
  if (const auto* wait = std::get_if<QueueWaitObserved>(&observation)) {
    queue_wait_.Observe(wait->seconds);
  } else if (const auto* restart = std::get_if<RestartObserved>(&observation)) {
    ++restarts_[restart->cause];
  } else if (const auto* recovery = std::get_if<RecoveryObserved>(&observation)) {
    const StageSeconds& s = recovery->seconds;
    const std::pair<const char*, double> stages[] = {
        {"detect", s.detect}, {"abort", s.abort},           {"reform", s.reform},
        {"load", s.load},     {"first_step", s.first_step}, {"total", recovery->total_seconds}};
    for (const auto& [stage, seconds] : stages) {
      if (seconds < 0) continue;
      const auto key = std::pair(recovery->rung, std::string(stage));
      recovery_.try_emplace(key, kRecoveryBounds).first->second.Observe(seconds);
    }
  } else if (const auto* lost = std::get_if<LostStepsObserved>(&observation)) {
    lost_steps_ += static_cast<std::uint64_t>(std::max<std::int64_t>(0, lost->steps));
  } else if (std::holds_alternative<StaleMessageObserved>(observation)) {
    ++stale_messages_;
  } else if (std::holds_alternative<HangObserved>(observation)) {
    ++hangs_;
  } else if (std::holds_alternative<StragglerObserved>(observation)) {
    ++stragglers_;
  } else if (std::holds_alternative<FaultObserved>(observation)) {
    ++faults_;
  } else if (std::holds_alternative<CheckpointFailureObserved>(observation)) {
    ++checkpoint_failures_;
  } else if (const auto* scrub = std::get_if<ScrubObserved>(&observation)) {
    ++scrubs_[scrub->outcome];
  }
}

void Metrics::AddJobs(const Controller& controller, MetricFamilies& out) const {
  auto& state =
      out.Gauge("muster_run_state", "1 for the state that a run is in, 0 for the others.");
  auto& loss = out.Gauge("muster_train_loss", "Loss of the newest finished step.");
  auto& step = out.Gauge("muster_train_last_step", "Newest finished step.");
  auto& speed = out.Gauge("muster_train_tokens_per_second", "Tokens a second, whole run.");
  auto& saved = out.Gauge("muster_checkpoint_last_success_step", "Step of the newest checkpoint.");
  auto& saved_at = out.Gauge("muster_checkpoint_last_success_timestamp_seconds",
                             "When the newest checkpoint was committed.");
  auto& damaged = out.Gauge("muster_checkpoints_damaged",
                            "Committed checkpoints that are not resumed from: damaged, or refused "
                            "by a trainer.");
  const std::int64_t now = SystemClock().UnixMillis();
  for (const JobView& view : controller.Jobs()) {
    if (!IsShown(view, now)) continue;
    const std::string& id = view.record->id.value;
    for (int i = 1; i <= kJobStateCount; ++i) {
      const auto candidate = static_cast<JobState>(i);
      state.Add({{"run", id}, {"name", view.record->name}, {"state", std::string(Name(candidate))}},
                candidate == view.record->state ? 1 : 0);
    }
    if (view.step > 0) {
      loss.Add({{"run", id}}, view.loss);
      step.Add({{"run", id}}, static_cast<double>(view.step));
      speed.Add({{"run", id}}, view.tokens_per_second);
    }
    if (!view.checkpoints->empty()) {
      damaged.Add({{"run", id}},
                  static_cast<double>(
                      std::count_if(view.checkpoints->begin(), view.checkpoints->end(),
                                    [](const CheckpointRecord& c) { return !c.refused.empty(); })));
    }
    if (view.record->committed_step > 0 && !view.checkpoints->empty()) {
      saved.Add({{"run", id}}, static_cast<double>(view.record->committed_step));
      saved_at.Add({{"run", id}},
                   static_cast<double>(view.checkpoints->back().committed_unix_ms) / 1000);
    }
  }
}

void Metrics::AddNodes(const Controller& controller, MetricFamilies& out) const {
  auto& state =
      out.Gauge("muster_node_state", "1 for the state that a node is in, 0 for the others.");
  auto& slots = out.Gauge("muster_node_slots", "Slots that a node offers.");
  auto& used = out.Gauge("muster_node_slots_used", "Slots in use or withheld.");
  for (const NodeView& view : controller.Nodes()) {
    const std::string& name = view.record->name.value;
    for (int i = 1; i <= kNodeStateCount; ++i) {
      const auto candidate = static_cast<NodeState>(i);
      state.Add({{"node", name}, {"state", std::string(Name(candidate))}},
                candidate == view.record->state ? 1 : 0);
    }
    slots.Add({{"node", name}}, view.record->slots);
    used.Add({{"node", name}}, view.slots_used);
  }
}

void Metrics::AddFaults(MetricFamilies& out) const {
  auto& restarts = out.Counter("muster_restarts_total", "Attempts that were made after a failure.");
  for (const auto& [cause, count] : restarts_) {
    restarts.Add({{"level", "gang"}, {"cause", std::string(Name(cause))}},
                 static_cast<double>(count));
  }
  auto& recovery = out.Histogram("muster_recovery_duration_seconds",
                                 "From a fault until training again, by stage and rung.");
  for (const auto& [key, h] : recovery_) {
    recovery.AddHistogram({{"stage", key.second}, {"rung", std::string(Name(key.first))}}, h.bounds,
                          h.counts, h.sum);
  }
  out.Histogram("muster_queue_wait_seconds", "From submission to the first placement.")
      .AddHistogram({}, queue_wait_.bounds, queue_wait_.counts, queue_wait_.sum);
  out.Counter("muster_lost_steps_total", "Finished steps that had to be done again.")
      .Add({}, static_cast<double>(lost_steps_));
  out.Counter("muster_stale_messages_total", "Messages of an older generation that were refused.")
      .Add({}, static_cast<double>(stale_messages_));
  out.Counter("muster_hangs_total", "Gangs that stood still, whose culprit was ended.")
      .Add({}, static_cast<double>(hangs_));
  out.Counter("muster_stragglers_total", "Ranks that were named because they hold the others up.")
      .Add({}, static_cast<double>(stragglers_));
  out.Counter("muster_injected_faults_total", "Faults that were caused on request.")
      .Add({}, static_cast<double>(faults_));
  out.Counter("muster_checkpoint_failures_total", "Shards that a rank could not write.")
      .Add({}, static_cast<double>(checkpoint_failures_));
  auto& scrubs = out.Counter("muster_checkpoint_scrubs_total",
                             "Committed checkpoints that were read again, by what was found.");
  const std::pair<const char*, ScrubOutcome> outcomes[] = {
      {"whole", ScrubOutcome::kWhole},
      {"damaged", ScrubOutcome::kDamaged},
      {"unreadable", ScrubOutcome::kUnreadable}};
  for (const auto& [word, outcome] : outcomes) {
    const auto count = scrubs_.find(outcome);
    scrubs.Add({{"result", word}}, count == scrubs_.end() ? 0 : static_cast<double>(count->second));
  }
}

std::string Metrics::Render(const Controller& controller, const EdgeFigures& edges) const {
  MetricFamilies out;
  out.Gauge("muster_build_info", "Constant 1; the version is a label.")
      .Add({{"version", kVersion}, {"component", "coordinator"}}, 1);
  AddJobs(controller, out);
  AddNodes(controller, out);
  AddFaults(out);
  out.Gauge("muster_runs_pending", "Runs that wait for a gang.").Add({}, controller.PendingJobs());
  out.Gauge("muster_worker_streams", "Open streams of workers.")
      .Add({}, static_cast<double>(edges.worker_streams));
  out.Gauge("muster_watchers", "Open watches of clients.")
      .Add({}, static_cast<double>(edges.watchers));
  out.Gauge("muster_pending_requests", "Requests that wait for their commit.")
      .Add({}, static_cast<double>(edges.pending_requests));
  out.Counter("muster_refused_requests_total", "Requests refused because a queue was full.")
      .Add({}, static_cast<double>(edges.refused_requests));
  if (edges.certificate_not_after_ms > 0)
    out.Gauge("muster_certificate_expiry_timestamp_seconds",
              "When the certificate in use expires, in Unix time.")
        .Add({}, static_cast<double>(edges.certificate_not_after_ms) / 1000);
  auto& pilots = out.Gauge("muster_pilots", "Pilot jobs that have not ended, by state.");
  for (const auto& [state, count] : edges.pilots) pilots.Add({{"state", state}}, count);
  auto& on_event = out.Counter("muster_on_event_total", "What job files want done at events.");
  const OnEventRunner::Totals& totals = edges.on_event;
  on_event.Add({{"what", "command"}, {"result", "done"}}, static_cast<double>(totals.commands));
  on_event.Add({{"what", "webhook"}, {"result", "done"}}, static_cast<double>(totals.webhooks));
  on_event.Add({{"what", "any"}, {"result", "failed"}}, static_cast<double>(totals.failed));
  on_event.Add({{"what", "any"}, {"result", "refused"}}, static_cast<double>(totals.refused));
  return out.Render();
}

std::string Metrics::ServiceDiscovery(const Controller& controller, const std::string& own_http,
                                      bool by_tls) {
  nlohmann::json groups = nlohmann::json::array();
  const auto add = [&](const std::string& target, nlohmann::json labels) {
    if (by_tls) labels["__scheme__"] = "https";
    groups.push_back({{"targets", {target}}, {"labels", std::move(labels)}});
  };
  add(own_http, {{"component", "coordinator"}});
  for (const NodeView& view : controller.Nodes()) {
    if (!view.connected || view.record->metrics_port == 0) continue;
    add(HostAndPort(view.record->address, view.record->metrics_port),
        {{"component", "worker"}, {"node", view.record->name.value}});
  }
  return groups.dump();
}

}  // namespace muster
