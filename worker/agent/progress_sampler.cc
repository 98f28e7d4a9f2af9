#include "worker/agent/progress_sampler.h"

#include <utility>

namespace muster::worker {
namespace {

// Several scrape intervals, so that the last values of a short job are seen.
constexpr std::chrono::seconds kKeepAfterEnd{60};

RankProgress ToProgress(int rank, const ProgressValues& values) {
  return {.rank = rank,
          .step = values.step,
          .phase = std::string(TrainPhaseName(values.phase)),
          .loss = values.loss,
          .grad_norm = values.grad_norm,
          .learning_rate = values.learning_rate,
          .step_seconds = values.step_seconds,
          .tokens_per_second = values.tokens_per_second,
          .tokens = values.tokens,
          .max_steps = values.max_steps,
          .rss_bytes = values.rss_bytes};
}

}  // namespace

Status ProgressSampler::AddPage(const JobId& job, const std::string& job_name,
                                Generation generation, int rank, const UniqueFd& page) {
  MUSTER_ASSIGN_OR_RETURN(auto reader, ProgressReader::Map(page.get()));
  Gang& gang = gangs_[job];
  if (gang.generation != generation) gang = Gang{};
  gang.name = job_name;
  gang.generation = generation;
  gang.forget_at = TimePoint::max();
  gang.ranks[rank].reader = std::move(reader);
  return OkStatus();
}

void ProgressSampler::Read(Gang& gang, Rank& rank) {
  ProgressValues now;
  if (!rank.reader || !rank.reader->Read(&now)) return;
  const bool same = now.step == rank.values.step && now.phase == rank.values.phase &&
                    now.max_steps == rank.values.max_steps &&
                    now.rss_bytes == rank.values.rss_bytes;
  if (!same) gang.changed = true;
  rank.values = now;
}

void ProgressSampler::EndRank(const JobId& job, int rank) {
  const auto gang = gangs_.find(job);
  if (gang == gangs_.end()) return;
  const auto it = gang->second.ranks.find(rank);
  if (it == gang->second.ranks.end()) return;
  Read(gang->second, it->second);
  it->second.reader.reset();
  gang->second.urgent = true;
}

void ProgressSampler::EndJob(const JobId& job, TimePoint now) {
  const auto gang = gangs_.find(job);
  if (gang != gangs_.end()) gang->second.forget_at = now + kKeepAfterEnd;
}

bool ProgressSampler::AnyRunning() const {
  for (const auto& [job, gang] : gangs_)
    for (const auto& [rank, entry] : gang.ranks)
      if (entry.reader) return true;
  return false;
}

std::vector<Progress> ProgressSampler::Sample(TimePoint now, Duration interval) {
  std::vector<Progress> news;
  std::erase_if(gangs_, [now](const auto& entry) { return now >= entry.second.forget_at; });
  for (auto& [job, gang] : gangs_) {
    for (auto& [rank, entry] : gang.ranks) Read(gang, entry);
    if (!gang.changed || (!gang.urgent && now - gang.told_at < interval)) continue;
    Progress progress{.job = job, .generation = gang.generation};
    for (const auto& [rank, entry] : gang.ranks)
      progress.ranks.push_back(ToProgress(rank, entry.values));
    news.push_back(std::move(progress));
    gang.changed = false;
    gang.urgent = false;
    gang.told_at = now;
  }
  return news;
}

std::vector<ProgressSampler::Series> ProgressSampler::AllSeries(TimePoint now) const {
  std::vector<Series> all;
  for (const auto& [job, gang] : gangs_) {
    if (now >= gang.forget_at) continue;
    for (const auto& [rank, entry] : gang.ranks)
      all.push_back({job, gang.name, gang.generation, rank, entry.values});
  }
  return all;
}

}  // namespace muster::worker
