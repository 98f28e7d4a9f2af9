#include "worker/agent/guardian_mirror.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/agent/trainer_report.h"

namespace muster::worker {
namespace {

// The bounds of the guardian's ReportLog would be too small for all ranks together.
constexpr std::size_t kMaxReports = 4096;

// Returns whether it was not there yet.
template <typename Entry>
bool AddRank(Entry entry, std::vector<Entry>* entries) {
  if (HasRank(*entries, entry.rank)) return false;
  entries->push_back(std::move(entry));
  return true;
}

}  // namespace

void GuardianMirror::Apply(const GuardianHello& hello, Effects*) {
  replay = HostedGeneration{.job = hosted.job,
                            .generation = std::max(hello.generation, hosted.generation)};
}

void GuardianMirror::Apply(const GuardianRankStarted& started, Effects* effects) {
  HostedGeneration& to = Reported();
  if (started.generation != to.generation) return;
  const RankStarted message{
      .job = to.job, .generation = started.generation, .rank = started.rank, .pid = started.pid};
  to.launched = true;
  if (AddRank(message, &to.started) && !replay) effects->push_back(SendToCoordinator{message});
}

void GuardianMirror::Apply(const GuardianRankExited& exited, Effects* effects) {
  HostedGeneration& to = Reported();
  if (exited.generation != to.generation) return;
  const RankExited message{.job = to.job,
                           .generation = exited.generation,
                           .rank = exited.rank,
                           .end = exited.end,
                           .age_seconds = exited.age_seconds,
                           .log_tail = exited.log_tail};
  to.launched = true;
  if (!AddRank(message, &to.exited) || replay) return;
  effects->push_back(LogNote{DescribeGeneration(to.job, exited.generation) + ": rank " +
                             std::to_string(exited.rank) +
                             " ended: " + DescribeExit(exited.end.exit)});
  effects->push_back(SendToCoordinator{message});
}

void GuardianMirror::Apply(const GuardianReport& report, Effects* effects) {
  HostedGeneration& to = Reported();
  if (report.generation != to.generation) return;
  const Result<TrainerReport> message =
      ParseTrainerReport(to.job, report.generation, report.rank, report.json);
  if (!message.ok()) {
    effects->push_back(LogNote{DescribeGeneration(to.job, report.generation) + ", rank " +
                               std::to_string(report.rank) + ": " + message.status().message()});
    return;
  }
  if (to.reports.size() >= kMaxReports) to.reports.erase(to.reports.begin());
  to.reports.push_back(*message);
  if (!replay) effects->push_back(SendToCoordinator{*message});
}

void GuardianMirror::SendNews(const HostedGeneration& replayed, Effects* effects) const {
  for (const RankStarted& started : replayed.started)
    if (!HasRank(hosted.started, started.rank)) effects->push_back(SendToCoordinator{started});
  for (const TrainerReport& report : replayed.reports)
    if (std::ranges::find(hosted.reports, report) == hosted.reports.end())
      effects->push_back(SendToCoordinator{report});
  for (const RankExited& exited : replayed.exited)
    if (!HasRank(hosted.exited, exited.rank)) effects->push_back(SendToCoordinator{exited});
}

}  // namespace muster::worker
