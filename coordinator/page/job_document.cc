#include "coordinator/page/job_document.h"

#include <algorithm>
#include <string>
#include <utility>

namespace muster {

void JobDocument::Update(const Controller& controller, const Histories& histories, const Now& now) {
  events_.Update(controller.Events(), parts_);
  // With every step both the version and the history change.
  if (const JobHistory* history = histories.Find(job_); history != nullptr) UpdateCurves(*history);
  if (const Result<JobView> view = controller.FindJob(job_.value); view.ok()) Show(*view, now);
}

void JobDocument::Show(const JobView& view, const Now& now) {
  parts_.Set("goodput", GoodputPart(view.goodput(now.mono)));
  if (begun_ && version_ == view.version) return;
  if (!begun_) parts_.Set("spec", JsonText(view.record->spec_yaml));
  begun_ = true;
  version_ = view.version;
  parts_.Set("job", JobPart(view));
  parts_.Set("checkpoints", CheckpointsPart(*view.checkpoints));
  UpdateAttempts(*view.attempts);
  UpdateRanks(view);
}

void JobDocument::UpdateAttempts(const std::vector<AttemptRecord>& attempts) {
  const std::size_t first = attempts.size() - std::min(attempts.size(), kMaxAttempts);
  const auto key = [&](std::size_t i) {
    return "attempt/" + std::to_string(attempts[i].generation);
  };
  for (; oldest_attempt_ < first && oldest_attempt_ < attempts_; ++oldest_attempt_)
    parts_.Remove(key(oldest_attempt_));
  oldest_attempt_ = first;
  attempts_ = attempts.size();
  for (std::size_t i = first; i < attempts.size(); ++i)
    parts_.Set(key(i), AttemptPart(attempts[i]));
}

void JobDocument::UpdateRanks(const JobView& view) {
  const std::vector<RankRecord>& ranks = view.ranks();
  std::vector<const RankProgress*> progress(ranks.size());
  for (const RankProgress& each : *view.progress) {
    if (each.rank >= 0 && static_cast<std::size_t>(each.rank) < progress.size())
      progress[static_cast<std::size_t>(each.rank)] = &each;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i)
    parts_.Set("rank/" + std::to_string(i), RankPart(ranks[i], progress[i]));
  for (std::size_t i = ranks.size(); i < ranks_; ++i) parts_.Remove("rank/" + std::to_string(i));
  ranks_ = ranks.size();
}

void JobDocument::UpdateCurves(const JobHistory& history) {
  const std::vector<CurveCell>& now = history.curves.cells();
  if (now == cells_) return;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (i < cells_.size() && cells_[i] == now[i]) continue;
    parts_.Set("cell/" + std::to_string(i), CellPart(now[i]));
  }
  for (std::size_t i = now.size(); i < cells_.size(); ++i)
    parts_.Remove("cell/" + std::to_string(i));
  cells_ = now;
  parts_.Set("times", TimesPart(history.times));
}

}  // namespace muster
