#include "worker/agent/progress_sampler.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kSampleInterval{50};
constexpr std::chrono::milliseconds kLongestSampleInterval{1000};
// Sampling may take this share of a processor.
constexpr int kCostShare = 20;

// Not wall time: on an overloaded host sampling must not become rare because it had to wait.
Duration ThreadCpuTime() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

// The training figures of a page. A process that serves a new generation stores its first values of
// it once it has loaded its state; until then the values belong to the former generation.
void AddTraining(const ProgressValues& values, const RouterFigures& routers, RankProgress* out) {
  out->step = values.step;
  out->loss = values.loss;
  out->grad_norm = values.grad_norm;
  out->learning_rate = values.learning_rate;
  out->step_seconds = values.step_seconds;
  out->tokens_per_second = values.tokens_per_second;
  out->tokens = values.tokens;
  out->max_steps = values.max_steps;
  out->micro_batch = values.micro_batch;
  out->snapshot_step = values.snapshot_step;
  if (routers.experts == 0) return;
  out->routers = {.largest_share = routers.largest_share,
                  .smallest_share = routers.smallest_share,
                  .entropy = routers.entropy,
                  .idle = routers.idle};
}

}  // namespace

ProgressSampler::ProgressSampler(Duration keep, ProcessReader read_process)
    : keep_(keep), read_process_(std::move(read_process)) {}

Status ProgressSampler::AddPage(const JobId& job, const std::string& job_name,
                                Generation generation, int rank, pid_t pid, const UniqueFd& page,
                                TimePoint now) {
  MUSTER_ASSIGN_OR_RETURN(auto reader, ProgressReader::Map(page.get()));
  MUSTER_ASSIGN_OR_RETURN(auto figures, FiguresReader::Map(page.get()));
  Gang& gang = gangs_[job];
  if (gang.generation != generation) BeginGeneration(gang, generation, now + keep_);
  gang.name = job_name;
  gang.forget_at = TimePoint::max();
  gang.former.erase(rank);
  gang.gate.BeginRank(rank);
  Rank& entry = gang.ranks[rank];
  entry = Rank{.reader = std::move(reader), .pid = pid, .figures_reader = std::move(figures)};
  ReadProcessOf(entry);
  gang.counters.Take(rank, generation, {pid, entry.start_time});
  ReadPage(gang, rank, entry, now);
  return OkStatus();
}

void ProgressSampler::BeginGeneration(Gang& gang, Generation generation, TimePoint forget_at) {
  for (auto& [number, rank] : gang.ranks) {
    rank.reader.reset();
    rank.figures_reader.reset();
    rank.in_flight.clear();
    rank.forget_at = std::min(rank.forget_at, forget_at);
    gang.former[number] = {gang.generation, std::move(rank)};
  }
  gang.ranks.clear();
  gang.generation = generation;
  gang.gate = ProgressGate();
}

// A group that has operations under way and ends none hangs, or its operation takes long.
void ProgressSampler::ObserveInFlight(Rank& rank, TimePoint now) {
  std::map<std::string, InFlight> in_flight;
  for (const CollectiveCounts& counts : rank.collectives) {
    if (counts.enqueued <= counts.completed) continue;
    const auto before = rank.in_flight.find(counts.group);
    const bool same =
        before != rank.in_flight.end() && before->second.completed == counts.completed;
    in_flight[counts.group] = same ? before->second : InFlight{counts.completed, now};
  }
  rank.in_flight = std::move(in_flight);
}

void ProgressSampler::ReadPage(Gang& gang, int number, Rank& rank, TimePoint now) {
  if (!rank.reader) return;
  ++totals_.pages;
  rank.stores = rank.reader->stores();
  rank.collectives = rank.reader->ReadCollectives();
  // A rank that died within a store leaves no whole reading: the previous one stays.
  if (ProgressValues values; rank.reader->Read(&values)) rank.values = values;
  if (TrainingFigures figures; rank.figures_reader->Read(&figures)) rank.figures = figures;
  ObserveInFlight(rank, now);
  gang.counters.Update(number, rank.values, rank.figures);
}

void ProgressSampler::ReadProcessOf(Rank& rank) {
  if (rank.pid == 0) return;
  const auto info = read_process_(rank.pid);
  if (info.ok() && rank.start_time == 0) rank.start_time = info->start_time;
  // Another start time: the process is gone, and its pid was reused.
  const bool gone = !info.ok() || info->start_time != rank.start_time;
  rank.process_state = gone ? "" : std::string(1, info->state);
  if (!gone) rank.cpu_seconds = CpuSeconds(*info);
}

void ProgressSampler::EndRank(const JobId& job, int rank, TimePoint now) {
  const auto gang = gangs_.find(job);
  if (gang == gangs_.end()) return;
  const auto it = gang->second.ranks.find(rank);
  if (it == gang->second.ranks.end()) return;
  ReadPage(gang->second, rank, it->second, now);
  gang->second.counters.End(rank);
  it->second.reader.reset();
  it->second.figures_reader.reset();
  it->second.in_flight.clear();
  it->second.forget_at = now + keep_;
  it->second.pid = 0;
  it->second.process_state.clear();
  gang->second.gate.EndRank(rank);
}

void ProgressSampler::EndJob(const JobId& job, TimePoint now) {
  const auto gang = gangs_.find(job);
  if (gang != gangs_.end()) gang->second.forget_at = now + keep_;
}

bool ProgressSampler::IsRunning(const Gang& gang) {
  return std::any_of(gang.ranks.begin(), gang.ranks.end(),
                     [](const auto& entry) { return entry.second.reader != nullptr; });
}

bool ProgressSampler::AnyRunning() const {
  return std::any_of(gangs_.begin(), gangs_.end(),
                     [](const auto& entry) { return IsRunning(entry.second); });
}

RankProgress ProgressSampler::ToProgress(Generation generation, int number, const Rank& rank) {
  const ProgressValues& values = rank.values;
  RankProgress out{.rank = number,
                   .phase = values.phase,
                   .rss_bytes = values.rss_bytes,
                   .stores = rank.stores,
                   .collectives = rank.collectives,
                   .busy_seconds = values.busy_seconds,
                   .wait_seconds = values.wait_seconds,
                   .steps_done = values.steps_done,
                   .process_state = rank.process_state,
                   .cpu_seconds = rank.cpu_seconds,
                   .phase_seconds = {values.phase_seconds.begin(), values.phase_seconds.end()},
                   .device_bytes = rank.figures.device.reserved,
                   .device_capacity_bytes = rank.figures.device.capacity};
  if (values.generation == generation) AddTraining(values, rank.figures.routers, &out);
  return out;
}

std::vector<RankProgress> ProgressSampler::SampleRanks(Gang& gang, TimePoint now) {
  std::vector<RankProgress> samples;
  for (auto& [number, rank] : gang.ranks) {
    ReadPage(gang, number, rank, now);
    ReadProcessOf(rank);
    samples.push_back(ToProgress(gang.generation, number, rank));
  }
  return samples;
}

std::vector<Progress> ProgressSampler::Sample(TimePoint now, Duration interval) {
  const Duration before = ThreadCpuTime();
  std::vector<Progress> news;
  std::erase_if(gangs_, [now](const auto& entry) { return now >= entry.second.forget_at; });
  for (auto& [job, gang] : gangs_) {
    std::vector<RankProgress> samples = SampleRanks(gang, now);
    if (!gang.gate.Observe(&samples, now, interval)) continue;
    news.push_back({.job = job, .generation = gang.generation, .ranks = std::move(samples)});
  }
  last_cost_ = ThreadCpuTime() - before;
  totals_.cpu_seconds += ToSeconds(last_cost_);
  return news;
}

Duration ProgressSampler::NextSampleIn() const {
  return std::clamp<Duration>(last_cost_ * kCostShare, kSampleInterval, kLongestSampleInterval);
}

std::optional<RankProgress> ProgressSampler::Last(const JobId& job, int rank) const {
  const auto gang = gangs_.find(job);
  if (gang == gangs_.end()) return std::nullopt;
  const auto it = gang->second.ranks.find(rank);
  if (it == gang->second.ranks.end()) return std::nullopt;
  return ToProgress(gang->second.generation, rank, it->second);
}

ProgressSampler::Series ProgressSampler::ToSeries(const JobId& job, const Gang& gang, int number,
                                                  Generation generation, const Rank& rank,
                                                  TimePoint now) {
  Series series{.job = job,
                .job_name = gang.name,
                .generation = generation,
                .rank = number,
                .values = rank.values,
                .figures = rank.figures,
                .collectives = rank.collectives,
                .totals = gang.counters.Total(number)};
  for (const auto& [group, in_flight] : rank.in_flight)
    series.inflight_seconds = std::max(series.inflight_seconds, ToSeconds(now - in_flight.since));
  return series;
}

std::vector<ProgressSampler::Series> ProgressSampler::AllSeries(TimePoint now) const {
  std::vector<Series> all;
  for (const auto& [job, gang] : gangs_) {
    if (now >= gang.forget_at) continue;
    for (const auto& [number, rank] : gang.ranks)
      if (now < rank.forget_at)
        all.push_back(ToSeries(job, gang, number, gang.generation, rank, now));
    for (const auto& [number, former] : gang.former)
      if (now < former.rank.forget_at)
        all.push_back(ToSeries(job, gang, number, former.generation, former.rank, now));
  }
  return all;
}

}  // namespace muster::worker
