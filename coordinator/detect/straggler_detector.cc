#include "coordinator/detect/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/control_pipe/progress_page.h"

namespace muster {
namespace {

// A window holds this many steps of every rank or lasts this long, whichever is more.
constexpr std::int64_t kWindowSteps = 5;
constexpr double kWindowSeconds = 0.08;
// Ratios of a rank's work to the others' median. From kBehind on, a window is evidence; the
// evidence of kFarBehind is the unit. A straggler loses evidence only below kKeepsUp.
constexpr double kBehind = 1.1;
constexpr double kKeepsUp = 1.05;
constexpr double kFarBehind = 1.3;
constexpr double kFullEvidence = 5;
// A long window weighs at most as much as this many steps: two such windows name a rank, one does
// not.
constexpr double kLongestWindow = kFullEvidence / 2;
constexpr double kMostFullEvidence = 16 * kFullEvidence;

// The median of `sorted` without the element at `left_out`; at least two elements.
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

std::string NameOf(const Straggler& straggler) {
  return "rank " + std::to_string(straggler.rank) + " on " + straggler.node.value;
}

}  // namespace

std::string NamedText(const Straggler& straggler) {
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.2f", straggler.ratio());
  std::string text = NameOf(straggler) + " holds the others up: its own work takes " + ratio +
                     " times as long as theirs (" + Milliseconds(straggler.seconds) + " a step, " +
                     Milliseconds(straggler.others_seconds) + " elsewhere)";
  if (!straggler.phase.empty()) text += ", most of it in phase " + straggler.phase;
  return text;
}

std::string ClearedText(const Straggler& straggler) {
  return NameOf(straggler) + " no longer holds the others up";
}

void StragglerDetector::Begin(std::vector<NodeName> nodes) {
  nodes_ = std::move(nodes);
  ranks_.assign(nodes_.size(), Rank{});
  full_ = 0;
  full_evidence_ = kFullEvidence;
}

StragglerNews StragglerDetector::Observe(const std::vector<RankProgress>& samples) {
  for (const RankProgress& sample : samples) {
    if (sample.rank < 0 || static_cast<std::size_t>(sample.rank) >= ranks_.size()) continue;
    Rank& rank = ranks_[static_cast<std::size_t>(sample.rank)];
    const bool was_full = FillsWindow(rank);
    // Before its first steps there is nothing to compare, and a new process counts from zero.
    const bool begins = !rank.begin || sample.steps_done < rank.newest->steps_done;
    if (begins && sample.steps_done > 0) {
      rank = Rank{.begin = sample, .newest = sample};
    } else if (!begins) {
      rank.newest = sample;
    }
    full_ += FillsWindow(rank) - was_full;
  }
  if (ranks_.size() < 2 || full_ < static_cast<int>(ranks_.size())) return {};
  return CloseWindow();
}

const Straggler* StragglerDetector::worst() const {
  const Straggler* worst = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.named && (worst == nullptr || rank.named->ratio() > worst->ratio()))
      worst = &*rank.named;
  }
  return worst;
}

std::int64_t StragglerDetector::StepsOf(const Rank& rank) {
  return rank.begin ? rank.newest->steps_done - rank.begin->steps_done : 0;
}

bool StragglerDetector::FillsWindow(const Rank& rank) {
  if (StepsOf(rank) < kWindowSteps) return false;
  const auto seconds = [](const RankProgress& page) {
    return page.busy_seconds + page.wait_seconds;
  };
  return seconds(*rank.newest) - seconds(*rank.begin) >= kWindowSeconds;
}

double StragglerDetector::SecondsPerStep(const Rank& rank) {
  return (rank.newest->busy_seconds - rank.begin->busy_seconds) /
         static_cast<double>(StepsOf(rank));
}

void StragglerDetector::Weigh(double seconds, double others_seconds, Rank* rank) const {
  if (seconds <= 0 || others_seconds <= 0) return;
  const double none = rank->named ? kKeepsUp : kBehind;
  const double weight = std::clamp(
      static_cast<double>(StepsOf(*rank)) / static_cast<double>(kWindowSteps), 1.0, kLongestWindow);
  const double evidence =
      weight *
      std::min(std::log(seconds / others_seconds / none) / std::log(kFarBehind / kBehind), 1.0);
  if (rank->evidence <= 0) {
    if (evidence <= 0) return;
    rank->evidence = 0;
    rank->windows = 0;
  }
  rank->evidence = std::min(rank->evidence + evidence, full_evidence_);
  const auto before = static_cast<double>(rank->windows++);
  const auto mean = [&](double old, double now) { return (old * before + now) / (before + 1); };
  rank->seconds = mean(rank->seconds, seconds);
  rank->others_seconds = mean(rank->others_seconds, others_seconds);
}

void StragglerDetector::Judge(int number, StragglerNews* news) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  if (rank.named && rank.evidence <= 0) {
    news->cleared.push_back(*std::exchange(rank.named, std::nullopt));
    full_evidence_ = std::min(2 * full_evidence_, kMostFullEvidence);
  } else if (rank.named) {
    rank.named->seconds = rank.seconds;
    rank.named->others_seconds = rank.others_seconds;
  } else if (rank.evidence >= full_evidence_) {
    rank.named = Straggler{number, nodes_[static_cast<std::size_t>(number)], rank.seconds,
                           rank.others_seconds, PhaseOfExcess(number)};
    news->named.push_back(*rank.named);
  }
}

StragglerNews StragglerDetector::CloseWindow() {
  std::vector<double> seconds;
  for (const Rank& rank : ranks_) seconds.push_back(SecondsPerStep(rank));
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  StragglerNews news;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Weigh(seconds[i], MedianOfOthers(sorted, seconds[i]), &ranks_[i]);
    Judge(static_cast<int>(i), &news);
  }
  for (Rank& rank : ranks_) rank.begin = rank.newest;
  full_ = 0;
  std::sort(news.named.begin(), news.named.end(),
            [](const Straggler& a, const Straggler& b) { return a.ratio() > b.ratio(); });
  return news;
}

// The others wait for a straggler, so their waits are the longer ones. Phases in which the
// straggler's own time exceeds theirs show its extra work.
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
