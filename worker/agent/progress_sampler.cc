#include "worker/agent/progress_sampler.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

// Several scrape intervals, so that the last values of a short job are seen.
constexpr std::chrono::seconds kKeepAfterEnd{60};
constexpr std::chrono::milliseconds kSampleInterval{50};
constexpr std::chrono::milliseconds kLongestSampleInterval{1000};
// Sampling may take one part in so many of a processor.
constexpr int kCostShare = 20;

// Not the wall's time: on an overloaded host sampling must not become rare because it had to wait.
Duration ThreadCpuTime() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

// What a page says of training. A process that serves a new generation stores its first values of
// it when it has loaded its state; until then those of the former one are no news of this one.
void AddTraining(const ProgressValues& values, RankProgress* out) {
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
}

}  // namespace

ProgressSampler::ProgressSampler(ProcessReader read_process)
    : read_process_(std::move(read_process)) {}

Status ProgressSampler::AddPage(const JobId& job, const std::string& job_name,
                                Generation generation, int rank, pid_t pid, const UniqueFd& page) {
  MUSTER_ASSIGN_OR_RETURN(auto reader, ProgressReader::Map(page.get()));
  Gang& gang = gangs_[job];
  if (gang.generation != generation) gang = Gang{};
  gang.name = job_name;
  gang.generation = generation;
  gang.forget_at = TimePoint::max();
  Rank& entry = gang.ranks[rank];
  entry = Rank{.reader = std::move(reader), .pid = pid};
  ReadPage(entry);
  ReadProcessOf(entry);
  return OkStatus();
}

void ProgressSampler::ReadPage(Rank& rank) {
  if (!rank.reader) return;
  ++totals_.pages;
  rank.stores = rank.reader->stores();
  rank.collectives = rank.reader->ReadCollectives();
  // A rank that died within a store leaves no whole reading: the one before stays.
  if (ProgressValues now; rank.reader->Read(&now)) rank.values = now;
}

void ProgressSampler::ReadProcessOf(Rank& rank) {
  if (rank.pid == 0) return;
  const auto info = read_process_(rank.pid);
  if (info.ok() && rank.start_time == 0) rank.start_time = info->start_time;
  // Another start time: the process is gone, and its number was given again.
  const bool gone = !info.ok() || info->start_time != rank.start_time;
  rank.process_state = gone ? "" : std::string(1, info->state);
  if (!gone) rank.cpu_seconds = CpuSeconds(*info);
}

void ProgressSampler::EndRank(const JobId& job, int rank) {
  const auto gang = gangs_.find(job);
  if (gang == gangs_.end()) return;
  const auto it = gang->second.ranks.find(rank);
  if (it == gang->second.ranks.end()) return;
  ReadPage(it->second);
  it->second.reader.reset();
  it->second.pid = 0;
  it->second.process_state.clear();
  gang->second.urgent = true;
}

void ProgressSampler::EndJob(const JobId& job, TimePoint now) {
  const auto gang = gangs_.find(job);
  if (gang != gangs_.end()) gang->second.forget_at = now + kKeepAfterEnd;
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
                   .phase = std::string(TrainPhaseName(values.phase)),
                   .rss_bytes = values.rss_bytes,
                   .stores = rank.stores,
                   .collectives = rank.collectives,
                   .busy_seconds = values.busy_seconds,
                   .wait_seconds = values.wait_seconds,
                   .steps_done = values.steps_done,
                   .process_state = rank.process_state,
                   .cpu_seconds = rank.cpu_seconds,
                   .phase_seconds = {values.phase_seconds.begin(), values.phase_seconds.end()}};
  if (values.generation == generation) AddTraining(values, &out);
  return out;
}

Progress ProgressSampler::Tell(const JobId& job, Gang& gang) {
  Progress progress{.job = job, .generation = gang.generation};
  for (auto& [number, rank] : gang.ranks) {
    ReadProcessOf(rank);
    progress.ranks.push_back(ToProgress(gang.generation, number, rank));
  }
  return progress;
}

std::vector<Progress> ProgressSampler::Sample(TimePoint now, Duration interval) {
  const Duration before = ThreadCpuTime();
  std::vector<Progress> news;
  std::erase_if(gangs_, [now](const auto& entry) { return now >= entry.second.forget_at; });
  for (auto& [job, gang] : gangs_) {
    for (auto& [number, rank] : gang.ranks) ReadPage(rank);
    const bool due = IsRunning(gang) && now - gang.told_at >= interval;
    if (!due && !gang.urgent) continue;
    news.push_back(Tell(job, gang));
    gang.urgent = false;
    gang.told_at = now;
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

std::vector<ProgressSampler::Series> ProgressSampler::AllSeries(TimePoint now) const {
  std::vector<Series> all;
  for (const auto& [job, gang] : gangs_) {
    if (now >= gang.forget_at) continue;
    for (const auto& [number, rank] : gang.ranks)
      all.push_back({job, gang.name, gang.generation, number, rank.values, rank.collectives});
  }
  return all;
}

}  // namespace muster::worker
