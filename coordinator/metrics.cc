#include "coordinator/metrics.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>
#include <variant>

#include "common/base/version.h"
#include "common/control_pipe/progress_page.h"
#include "common/telemetry/metrics.h"
#include "coordinator/job_metrics.h"
#include "coordinator/queue_metrics.h"

namespace muster {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kRecoveryBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1,
                                                     3,     10,    30,   100,  300, 1000};
const Histogram::BucketBoundaries kCommitBounds = {0.01, 0.03, 0.1, 0.3, 1,   3,
                                                   10,   30,   100, 300, 1000};
const Histogram::BucketBoundaries kQueueBounds = {0.01, 0.1, 1, 10, 60, 600, 3600, 36000};

// The stages of StageSeconds, and the total.
constexpr const char* kStages[] = {"detect", "abort", "reform", "load", "first_step", "total"};

Family<Counter>& MakeCounters(Registry* registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

Family<Histogram>& MakeHistograms(Registry* registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

prometheus::Labels RestartLabels(Tier tier, CauseKind cause) {
  return {{"tier", std::string(Name(tier))}, {"cause", std::string(Name(cause))}};
}

// The tiers that are observed.
const char* ScrubName(ScrubOutcome outcome) {
  if (outcome == ScrubOutcome::kWhole) return "whole";
  return outcome == ScrubOutcome::kDamaged ? "damaged" : "unreadable";
}

std::string OutcomeName(const RunEndedObserved& ended) {
  return ended.out_of_time ? "time_limit" : std::string(Name(ended.state));
}

// Causes after which nothing is started again.
bool EndsARun(CauseKind cause) {
  return cause == CauseKind::kNone || cause == CauseKind::kFinished ||
         cause == CauseKind::kCancelled;
}

}  // namespace

Metrics::Metrics(Duration keep)
    : keep_(keep),
      restarts_(MakeCounters(
          &counted_, "muster_restarts_total",
          "Attempts after a failure, by what brought them up and why the one before ended.")),
      recovery_(
          MakeHistograms(&counted_, "muster_recovery_duration_seconds",
                         "From a fault until training again, by stage and tier, as in describe.")),
      queue_wait_(MakeHistograms(&counted_, "muster_queue_wait_seconds",
                                 "From submission to the first placement.")
                      .Add({}, kQueueBounds)),
      commit_(MakeHistograms(&counted_, "muster_checkpoint_duration_seconds",
                             "Time of a checkpoint's phases. commit: from the first shard that was "
                             "reported until the checkpoint counts.")
                  .Add({{"phase", "commit"}}, kCommitBounds)),
      lost_steps_(MakeCounters(&counted_, "muster_lost_steps_total",
                               "Finished steps that had to be done again.")
                      .Add({})),
      stale_messages_(MakeCounters(&counted_, "muster_stale_messages_total",
                                   "Messages of an older generation that were refused.")
                          .Add({})),
      hangs_(MakeCounters(&counted_, "muster_nccl_hangs_total",
                          "Gangs that stood still, by the culprit's phase, or stopped.")),
      stragglers_(MakeCounters(&counted_, "muster_stragglers_total",
                               "Ranks that were named because they hold the others up.")
                      .Add({})),
      faults_(MakeCounters(&counted_, "muster_injected_faults_total",
                           "Faults that were caused on request.")
                  .Add({})),
      checkpoint_failures_(MakeCounters(&counted_, "muster_checkpoint_failures_total",
                                        "Shards that a rank could not write.")),
      scrubs_(MakeCounters(&counted_, "muster_checkpoint_scrubs_total",
                           "Committed checkpoints that were read again, by what was found, the "
                           "first time included.")),
      runs_ended_(MakeCounters(
          &counted_, "muster_jobs_ended_total",
          "Jobs that have ended, by how; a time limit that is reached is no failure here.")) {
  for (int i = 0; i < kTierCount; ++i) {
    const auto tier = static_cast<Tier>(i);
    for (const char* stage : kStages) Recovery(tier, stage);
    for (int j = 0; j < kCauseKindCount; ++j)
      if (const auto cause = static_cast<CauseKind>(j); !EndsARun(cause))
        restarts_.Add(RestartLabels(tier, cause));
  }
  for (int phase = 0; phase < kTrainPhaseCount; ++phase)
    hangs_.Add({{"suspect", std::string(TrainPhaseName(static_cast<TrainPhase>(phase)))}});
  for (const char* suspect : {"stopped", "unknown"}) hangs_.Add({{"suspect", suspect}});
  for (const std::string_view reason : kCheckpointTroubles)
    checkpoint_failures_.Add({{"reason", std::string(reason)}});
  for (const auto outcome :
       {ScrubOutcome::kWhole, ScrubOutcome::kDamaged, ScrubOutcome::kUnreadable})
    scrubs_.Add({{"result", ScrubName(outcome)}});
  for (const RunEndedObserved& ended :
       {RunEndedObserved{JobState::kSucceeded}, RunEndedObserved{JobState::kFailed},
        RunEndedObserved{JobState::kFailed, /*out_of_time=*/true},
        RunEndedObserved{JobState::kCancelled}})
    runs_ended_.Add({{"outcome", OutcomeName(ended)}});
}

// The metric with these labels, made by the first call.
Histogram& Metrics::Recovery(Tier tier, const char* stage) {
  return recovery_.Add({{"tier", std::string(Name(tier))}, {"stage", stage}}, kRecoveryBounds);
}

void Metrics::Observe(const Observation& observation) {
  if (const auto* wait = std::get_if<QueueWaitObserved>(&observation)) {
    queue_wait_.Observe(wait->seconds);
  } else if (const auto* restart = std::get_if<RestartObserved>(&observation)) {
    restarts_.Add(RestartLabels(restart->tier, restart->cause)).Increment();
  } else if (const auto* recovery = std::get_if<RecoveryObserved>(&observation)) {
    ObserveRecovery(*recovery);
  } else if (const auto* lost = std::get_if<LostStepsObserved>(&observation)) {
    lost_steps_.Increment(static_cast<double>(std::max<std::int64_t>(0, lost->steps)));
  } else if (std::holds_alternative<StaleMessageObserved>(observation)) {
    stale_messages_.Increment();
  } else if (const auto* hang = std::get_if<HangObserved>(&observation)) {
    hangs_.Add({{"suspect", std::string(hang->suspect)}}).Increment();
  } else if (std::holds_alternative<StragglerObserved>(observation)) {
    stragglers_.Increment();
  } else if (std::holds_alternative<FaultObserved>(observation)) {
    faults_.Increment();
  } else if (const auto* failure = std::get_if<CheckpointFailureObserved>(&observation)) {
    checkpoint_failures_.Add({{"reason", std::string(Name(failure->kind))}}).Increment();
  } else if (const auto* commit = std::get_if<CheckpointCommittedObserved>(&observation)) {
    commit_.Observe(commit->seconds);
  } else if (const auto* scrub = std::get_if<ScrubObserved>(&observation)) {
    scrubs_.Add({{"result", ScrubName(scrub->outcome)}}).Increment();
  } else if (const auto* ended = std::get_if<RunEndedObserved>(&observation)) {
    runs_ended_.Add({{"outcome", OutcomeName(*ended)}}).Increment();
  }
}

void Metrics::ObserveRecovery(const RecoveryObserved& recovery) {
  const StageSeconds& s = recovery.seconds;
  const double stages[] = {s.detect, s.abort,      s.reform,
                           s.load,   s.first_step, recovery.total_seconds};
  static_assert(std::size(stages) == std::size(kStages));
  for (std::size_t i = 0; i < std::size(stages); ++i)
    if (stages[i] >= 0) Recovery(recovery.tier, kStages[i]).Observe(stages[i]);
}

void Metrics::AddJobs(const Controller& controller, const Now& now, MetricFamilies& out) {
  const std::map<JobId, double> before = std::exchange(elapsed_, {});
  for (const JobView& view : controller.Jobs()) {
    if (!IsShown(view, now.unix_ms, keep_)) continue;
    const auto shown = before.find(view.record->id);
    double& elapsed = elapsed_[view.record->id];
    if (shown != before.end()) elapsed = shown->second;
    AddJobMetrics(view, now, &elapsed, &out);
  }
  AddClusterGoodput(controller.ClusterGoodput(now.mono, /*stored=*/true), &out);
}

namespace {

void AddGpus(const NodeView& view, MetricFamilies& out) {
  const std::string& name = view.record->name.value;
  out.Gauge("muster_node_gpus",
            "GPUs that jobs can get, of nodes with GPUs alone; shares of one count as one each.")
      .Add({{"node", name}}, std::popcount(view.allocatable));
  out.Gauge("muster_node_gpus_allocated", "GPUs that a job has, or that its processes may use.")
      .Add({{"node", name}}, static_cast<double>(UseOf(view).devices.size()));
  const std::size_t reported = view.record->inventory.devices.size();
  out.Gauge("muster_node_gpus_unusable", "GPUs that no job gets, because they are broken.")
      .Add({{"node", name}}, static_cast<double>(reported) - std::popcount(view.allocatable));
}

}  // namespace

void Metrics::AddNodes(const Controller& controller, TimePoint now, MetricFamilies& out) const {
  auto& state =
      out.Gauge("muster_node_state", "1 for the state that a node is in, 0 for the others.");
  auto& slots = out.Gauge("muster_node_slots", "Slots that a node offers.");
  auto& used = out.Gauge("muster_node_slots_used", "Slots in use or leaked.");
  auto& drain = out.Gauge(
      "muster_node_drain_requested",
      "1 for a node that is being emptied and must be left alone, also while it is lost.");
  for (const NodeView& view : controller.Nodes()) {
    const std::string& name = view.record->name.value;
    for (int i = 1; i <= kNodeStateCount; ++i) {
      const auto candidate = static_cast<NodeState>(i);
      state.Add({{"node", name}, {"state", Name(candidate)}},
                candidate == view.record->state ? 1 : 0);
    }
    slots.Add({{"node", name}}, view.record->slots);
    used.Add({{"node", name}}, view.slots_used);
    if (!view.record->inventory.devices.empty()) AddGpus(view, out);
    drain.Add({{"node", name}}, view.record->drain_reason.empty() ? 0 : 1);
    if (view.record->drain_by_unix_ms > 0)
      out.Gauge("muster_node_leave_timestamp_seconds",
                "When a node must be empty, in Unix time: a drain's --by, a notice of its "
                "surroundings; only where that was reported.")
          .Add({{"node", name}}, static_cast<double>(view.record->drain_by_unix_ms) / 1000);
    // A lost node is no longer waited for.
    const NodeState of_node = view.record->state;
    if (view.heard_at == TimePoint() || of_node == NodeState::kLost ||
        of_node == NodeState::kDrained)
      continue;
    out.Gauge("muster_worker_heartbeat_age_seconds",
              "Seconds since the last message of a node's worker; gone when the node is lost.")
        .Add({{"node", name}}, ToSeconds(now - view.heard_at));
  }
}

void Metrics::AddEdges(const EdgeFigures& edges, MetricFamilies& out) const {
  out.Gauge("muster_stop_grace_seconds", "That a job is given to save its state and stop.")
      .Add({}, ToSeconds(kStopGrace));
  out.Gauge("muster_worker_streams", "Open streams of workers.")
      .Add({}, static_cast<double>(edges.worker_streams));
  out.Gauge("muster_watchers", "Open watches of clients.")
      .Add({}, static_cast<double>(edges.watchers));
  out.Gauge("muster_pending_requests", "Requests that wait for their commit.")
      .Add({}, static_cast<double>(edges.pending_requests));
  out.Counter("muster_refused_requests_total", "Requests refused because a queue was full.")
      .Add({}, static_cast<double>(edges.refused_requests));
  out.Counter("muster_log_lines_dropped_total",
              "Lines of the log that standard error did not take; the log says where.")
      .Add({}, static_cast<double>(edges.dropped_log_lines));
  if (edges.certificate_not_after_ms > 0)
    out.Gauge("muster_certificate_expiry_timestamp_seconds",
              "When the certificate in use expires, in Unix time.")
        .Add({}, static_cast<double>(edges.certificate_not_after_ms) / 1000);
  auto& pilots = out.Gauge("muster_pilots", "Pilot jobs that have not ended, by state.");
  for (const auto& [state, count] : edges.pilots) pilots.Add({{"state", state}}, count);
  auto& on_event = out.Counter("muster_on_event_total",
                               "Webhooks of job files, by result; refused: too many waited.");
  const OnEventRunner::Totals& totals = edges.on_event;
  on_event.Add({{"result", "done"}}, static_cast<double>(totals.done));
  on_event.Add({{"result", "failed"}}, static_cast<double>(totals.failed));
  on_event.Add({{"result", "refused"}}, static_cast<double>(totals.refused));
}

std::string Metrics::Render(const Controller& controller, const EdgeFigures& edges,
                            const Now& now) {
  MetricFamilies out;
  out.Gauge("muster_build_info", "Always 1; the labels say which build this is.")
      .Add({{"version", kVersion}, {"component", "coordinator"}}, 1);
  out.Gauge("muster_coordinator_leads", "1: this coordinator leads; 0: it stands by.").Add({}, 1);
  AddJobs(controller, now, out);
  AddQueueMetrics(controller.Queues(), &out);
  AddQueueUsage(controller.UsageTotals(now), &out);
  AddNodes(controller, now.mono, out);
  out.Gauge("muster_jobs_pending",
            "Jobs that wait for a gang; not those that are held or begin later.")
      .Add({}, controller.PendingJobs());
  out.Append(counted_);
  AddEdges(edges, out);
  return out.Render();
}

}  // namespace muster
