#include "coordinator/detect/straggler_detector.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/control_pipe/progress_page.h"
#include "coordinator/detect/hang_culprit.h"

namespace muster {
namespace {

// Of `sorted` without the element at `left_out`; at least two elements.
double MedianWithout(const std::vector<double>& sorted, std::size_t left_out) {
  const std::size_t count = sorted.size() - 1;
  const auto at = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  return count % 2 == 1 ? at(count / 2) : (at(count / 2 - 1) + at(count / 2)) / 2;
}

double MedianOfOthers(const std::vector<double>& sorted, double own) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), own);
  return MedianWithout(sorted, static_cast<std::size_t>(found - sorted.begin()));
}

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 0.01 ? "%.2f ms" : "%.0f ms", seconds * 1000);
  return text;
}

}  // namespace

void StragglerDetector::Begin(std::vector<NodeName> nodes) {
  nodes_ = std::move(nodes);
  ranks_.assign(nodes_.size(), Rank{});
  full_ = 0;
}

std::vector<Straggler> StragglerDetector::Observe(const std::vector<RankProgress>& samples) {
  for (const RankProgress& sample : samples) {
    if (sample.rank < 0 || static_cast<std::size_t>(sample.rank) >= ranks_.size()) continue;
    Rank& rank = ranks_[static_cast<std::size_t>(sample.rank)];
    const bool was_full = StepsOf(rank) >= options_.window_steps;
    // Before its first steps there is nothing to compare, and a new process counts from zero.
    const bool begins = !rank.begin || sample.steps_done < rank.newest->steps_done;
    if (begins && sample.steps_done > 0) {
      rank = Rank{sample, sample, 0, false};
    } else if (!begins) {
      rank.newest = sample;
    }
    full_ += (StepsOf(rank) >= options_.window_steps) - was_full;
  }
  if (ranks_.size() < 2 || full_ < static_cast<int>(ranks_.size())) return {};
  return CloseWindow();
}

std::int64_t StragglerDetector::StepsOf(const Rank& rank) {
  return rank.begin ? rank.newest->steps_done - rank.begin->steps_done : 0;
}

double StragglerDetector::SecondsPerStep(const Rank& rank) {
  return (rank.newest->busy_seconds - rank.begin->busy_seconds) /
         static_cast<double>(StepsOf(rank));
}

std::vector<Straggler> StragglerDetector::CloseWindow() {
  std::vector<double> seconds;
  for (const Rank& rank : ranks_) seconds.push_back(SecondsPerStep(rank));
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  std::vector<Straggler> news;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const double others = MedianOfOthers(sorted, seconds[i]);
    if (others <= 0 || seconds[i] < options_.ratio * others) {
      rank.steps_behind = 0;
      rank.told = false;
      continue;
    }
    rank.steps_behind += StepsOf(rank);
    if (rank.steps_behind < options_.steps_before_verdict || std::exchange(rank.told, true))
      continue;
    news.push_back(Describe(static_cast<int>(i), seconds[i], others));
  }
  for (Rank& rank : ranks_) rank.begin = rank.newest;
  full_ = 0;
  std::sort(news.begin(), news.end(), [](const Straggler& a, const Straggler& b) {
    return a.seconds * b.others_seconds > b.seconds * a.others_seconds;
  });
  return news;
}

Straggler StragglerDetector::Describe(int rank, double seconds, double others_seconds) const {
  Straggler straggler{
      rank, nodes_[static_cast<std::size_t>(rank)], seconds, others_seconds, PhaseOfExcess(rank),
      {}};
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.2f", seconds / others_seconds);
  straggler.message = RankOnNode(rank, nodes_) + " holds the others up: its own work takes " +
                      ratio + " times as long as theirs (" + Milliseconds(seconds) + " a step, " +
                      Milliseconds(others_seconds) + " elsewhere)";
  if (!straggler.phase.empty()) straggler.message += ", most of it in phase " + straggler.phase;
  return straggler;
}

// The others wait for a straggler, so theirs are the longer waits; phases with its own excess show
// what it does for longer than they.
std::string StragglerDetector::PhaseOfExcess(int slow) const {
  double largest = 0;
  std::string phase;
  for (int p = 0; p < kTrainPhaseCount; ++p) {
    std::vector<double> seconds;
    for (const Rank& rank : ranks_) {
      const auto at = static_cast<std::size_t>(p);
      const bool known =
          at < rank.newest->phase_seconds.size() && at < rank.begin->phase_seconds.size();
      seconds.push_back(known ? (rank.newest->phase_seconds[at] - rank.begin->phase_seconds[at]) /
                                    static_cast<double>(StepsOf(rank))
                              : 0);
    }
    const double own = seconds[static_cast<std::size_t>(slow)];
    std::sort(seconds.begin(), seconds.end());
    const double excess = own - MedianOfOthers(seconds, own);
    if (excess <= largest) continue;
    largest = excess;
    phase = TrainPhaseName(static_cast<TrainPhase>(p));
  }
  return phase;
}

}  // namespace muster
