#include "coordinator/job_metrics.h"

#include <algorithm>
#include <chrono>

#include "common/job_spec/job_spec.h"
#include "coordinator/detect/straggler_detector.h"

namespace muster {
namespace {

void AddState(const JobView& view, MetricFamilies* out) {
  const JobRecord& record = *view.record;
  auto& state =
      out->Gauge("muster_job_state", "1 for the state that a job is in, 0 for the others.");
  const MetricLabels labels = {{"job_id", record.id.value}, {"name", record.name}};
  for (int i = 1; i <= kJobStateCount; ++i) {
    const auto candidate = static_cast<JobState>(i);
    state.Add(labels.With("state", Name(candidate)), candidate == record.state ? 1 : 0);
  }
  MetricLabels info = labels.With("attempt", std::to_string(record.generation))
                          .With("world_size", std::to_string(record.world_size));
  if (view.spec != nullptr) info = info.With("device", view.spec->resources.device);
  out->Gauge("muster_job_info", "Always 1; the labels say what a job is, for joins.").Add(info, 1);
  out->Counter("muster_job_restarts_total", "Attempts of a job after its first.")
      .Add({{"job_id", record.id.value}}, record.restarts);
  if (record.promise.start_unix_ms > 0)
    out->Gauge("muster_job_planned_start_timestamp_seconds",
               "When a job that waits starts at the latest, in Unix time; only if that is planned.")
        .Add({{"job_id", record.id.value}},
             static_cast<double>(record.promise.start_unix_ms) / 1000);
}

void AddTraining(const MetricLabels& job, const JobView& view, MetricFamilies* out) {
  // A job that has ended or is suspended makes none, and a command reports nothing.
  const JobRecord& record = *view.record;
  const bool trains = view.spec != nullptr && view.spec->train && !IsTerminal(record.state);
  if (trains && record.suspended_unix_ms == 0 && record.progress_unix_ms > 0)
    out->Gauge("muster_job_last_progress_timestamp_seconds",
               "When a train job finished its newest step, or was placed from the queue after it; "
               "also while it recovers.")
        .Add(job, static_cast<double>(record.progress_unix_ms) / 1000);
  if (record.max_steps > 0)
    out->Gauge("muster_job_max_steps", "Steps after which a job is done.")
        .Add(job, static_cast<double>(record.max_steps));
  if (view.eta_seconds >= 0)
    out->Gauge("muster_job_eta_seconds", "Until a job is done, at its present pace.")
        .Add(job, view.eta_seconds);
  if (record.step <= 0) return;
  out->Gauge("muster_train_loss", "Loss of the newest finished step, as the coordinator knows it.")
      .Add(job, record.loss);
  out->Gauge("muster_train_last_step", "Newest finished step, as the coordinator knows it.")
      .Add(job, static_cast<double>(record.step));
  out->Gauge("muster_train_tokens_per_second",
             "Tokens a second of the whole job, as the coordinator knows it.")
      .Add(job, view.tokens_per_second);
}

void AddStraggler(const MetricLabels& job, const JobView& view, MetricFamilies* out) {
  if (view.straggler == nullptr) return;
  out->Gauge("muster_job_straggler_ratio",
             "The worst rank that holds its job up: its own work over the others' median; only "
             "while the coordinator's verdict holds.")
      .Add(job.With("rank", std::to_string(view.straggler->rank))
               .With("node", view.straggler->node.value),
           view.straggler->ratio());
}

void AddCheckpoints(const MetricLabels& job, const JobView& view, MetricFamilies* out) {
  if (view.spec != nullptr && view.spec->train)
    out->Gauge("muster_job_checkpoint_every_steps", "train.checkpoint.every of a job.")
        .Add(job, static_cast<double>(view.spec->train->checkpoint.every));
  if (view.record->checkpoint_seconds > 0)
    out->Gauge("muster_job_checkpoint_seconds",
               "Recent time from ordering a checkpoint to its commit.")
        .Add(job, view.record->checkpoint_seconds);
  if (view.checkpoints->empty()) return;
  const auto damaged = std::count_if(view.checkpoints->begin(), view.checkpoints->end(),
                                     [](const CheckpointRecord& c) { return !c.refused.empty(); });
  out->Gauge("muster_checkpoints_damaged",
             "Committed checkpoints that are not resumed from: damaged, or refused by a trainer.")
      .Add(job, static_cast<double>(damaged));
  if (view.record->committed_step == 0) return;
  out->Gauge("muster_checkpoint_last_success_step", "Step of the newest committed checkpoint.")
      .Add(job, static_cast<double>(view.record->committed_step));
  out->Gauge("muster_checkpoint_last_success_timestamp_seconds",
             "When the newest checkpoint was committed.")
      .Add(job, static_cast<double>(view.checkpoints->back().committed_unix_ms) / 1000);
}

void AddGoodput(const MetricLabels& job, const Goodput& goodput, MetricFamilies* out) {
  auto& seconds = out->Counter("muster_job_goodput_seconds_total",
                               "Seconds of a job's ranks, by what they were used for.");
  for (const TimeShare& share : goodput.Shares())
    seconds.Add(job.With("state", share.state), share.seconds);
  if (goodput.ratio() >= 0)
    out->Gauge("muster_job_goodput_ratio",
               "Step's share of all states but queue; falls while a job recovers.")
        .Add(job, goodput.ratio());
}

void AddTime(const MetricLabels& job, const JobView& view, std::int64_t now_unix_ms,
             double* elapsed, MetricFamilies* out) {
  const JobRecord& record = *view.record;
  if (record.started_unix_ms == 0) return;
  const std::int64_t end = record.ended_unix_ms > 0       ? record.ended_unix_ms
                           : record.suspended_unix_ms > 0 ? record.suspended_unix_ms
                                                          : now_unix_ms;
  const std::int64_t millis = end - record.started_unix_ms - record.suspended_ms;
  *elapsed = std::max(*elapsed, static_cast<double>(millis) / 1000);
  out->Counter("muster_job_elapsed_seconds_total",
               "Since a job's first launch, suspensions off; stands still where the clock of the "
               "day is set back.")
      .Add(job, *elapsed);
  if (record.stop_by_unix_ms > 0 && !IsTerminal(record.state))
    out->Gauge(
           "muster_job_stop_by_timestamp_seconds",
           "When a job that is suspended (only with --by) or preempted must be gone, in Unix time.")
        .Add(job, static_cast<double>(record.stop_by_unix_ms) / 1000);
  const std::int64_t limit = record.time_limit_seconds;
  if (limit > 0 && record.suspended_unix_ms == 0 && !IsTerminal(record.state))
    out->Gauge("muster_job_time_limit_timestamp_seconds",
               "When a job is out of time, in Unix time; only with a limit.")
        .Add(job, static_cast<double>(record.started_unix_ms + record.suspended_ms) / 1000 +
                      static_cast<double>(limit));
}

}  // namespace

bool IsShown(const JobView& view, std::int64_t now_unix_ms, Duration keep) {
  const std::int64_t kept = std::chrono::duration_cast<std::chrono::milliseconds>(keep).count();
  return !IsTerminal(view.record->state) || view.record->ended_unix_ms + kept > now_unix_ms;
}

void AddJobMetrics(const JobView& view, const Now& now, double* elapsed, MetricFamilies* out) {
  const MetricLabels job = {{"job_id", view.record->id.value}};
  AddState(view, out);
  AddTraining(job, view, out);
  AddStraggler(job, view, out);
  AddCheckpoints(job, view, out);
  AddTime(job, view, now.unix_ms, elapsed, out);
  AddGoodput(job, view.stored_goodput(now.mono), out);
}

void AddClusterGoodput(const Goodput& goodput, MetricFamilies* out) {
  auto& seconds = out->Counter("muster_cluster_goodput_seconds_total",
                               "Seconds of the ranks of all jobs that ever were, and of slots "
                               "without a rank (idle), by what they were used for.");
  for (const TimeShare& share : goodput.Shares())
    seconds.Add({{"state", share.state}}, share.seconds);
}

}  // namespace muster
