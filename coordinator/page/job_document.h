// JobDocument: one job's page: figures, curves, step times, ranks, attempts, checkpoints, events.
//
// Owned by PageFeeds while the job has viewers; pure, one thread. An update costs nothing while
// neither the job nor its history has changed, and otherwise about a microsecond for each rank.
// Bounded: kMaxAttempts and kMaxEvents, the newest ones, StepCurves::kMaxCells.
//
// Parts: "job", "spec", "attempt/N", "rank/N", "cell/N", "times", "checkpoints", "goodput",
// "event/SEQ".
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "coordinator/page/event_parts.h"
#include "coordinator/page/page_document.h"
#include "coordinator/page/page_json.h"

namespace muster {

class JobDocument final : public PageDocument {
 public:
  static constexpr std::size_t kMaxAttempts = 50;
  static constexpr std::size_t kMaxEvents = 200;

  explicit JobDocument(JobId job) : job_(std::move(job)), events_(job_, kMaxEvents) {}

  void Update(const Controller& controller, const Histories& histories, const Now& now) override;
  // For an archived job, which Update does not find.
  void Show(const JobView& view, const Now& now);

 private:
  void UpdateAttempts(const std::vector<AttemptRecord>& attempts);
  void UpdateRanks(const JobView& view);
  void UpdateCurves(const JobHistory& history);

  const JobId job_;
  bool begun_ = false;
  std::uint64_t version_ = 0;
  std::size_t oldest_attempt_ = 0;  // index of the first that is shown
  std::size_t attempts_ = 0;
  std::size_t ranks_ = 0;
  std::vector<CurveCell> cells_;  // as they are shown
  EventParts events_;
};

}  // namespace muster
