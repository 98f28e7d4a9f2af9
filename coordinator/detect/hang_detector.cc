#include "coordinator/detect/hang_detector.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "coordinator/detect/hang_culprit.h"

namespace muster {
namespace {

constexpr std::size_t kRanksInFacts = 8;
// Reports of one quiet rank differ this much in when it last moved: their transit times differ.
constexpr std::chrono::milliseconds kSameMovement{50};
// Far more than any standstill that a verdict waits for.
constexpr double kLongestQuiet = 1e9;

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string Where(const RankProgress& rank, const std::vector<NodeName>& nodes) {
  std::string text = RankOnNode(rank.rank, nodes) + ": step " + std::to_string(rank.step);
  if (rank.phase) text.append(", ").append(TrainPhaseName(*rank.phase));
  if (!rank.process_state.empty()) text += ", process state " + rank.process_state;
  const std::string collective = DescribeLastCollective(rank);
  return collective.empty() ? text : text + ", " + collective;
}

}  // namespace

void StepTimes::Add(double seconds, std::int64_t count) {
  for (count = std::min<std::int64_t>(count, kKept); count > 0; --count) {
    newest_.push_back(seconds);
    if (newest_.size() > kKept) newest_.pop_front();
  }
}

double StepTimes::Percentile99() const {
  if (newest_.empty()) return 0;
  std::vector<double> sorted(newest_.begin(), newest_.end());
  // By nearest rank: the largest of fewer than a hundred.
  const auto at = static_cast<std::ptrdiff_t>((sorted.size() * 99 + 99) / 100) - 1;
  std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
  return sorted[static_cast<std::size_t>(at)];
}

void HangDetector::Begin(std::vector<NodeName> nodes, TimePoint now) {
  if (steps_.size() >= static_cast<std::size_t>(options_.trusted_steps)) {
    former_percentile_ = steps_.Percentile99();
  }
  nodes_ = std::move(nodes);
  ranks_.assign(nodes_.size(), Rank{});
  steps_ = StepTimes();
  slowest_step_ = 0;
  learned_from_ = 0;
  moved_at_ = now;
  ++standstill_;
  sampled_ = 0;
  ended_ = 0;
  told_ = false;
  limit_.reset();
  evaluating_since_.reset();
}

std::optional<HangVerdict> HangDetector::Observe(const std::vector<RankProgress>& samples,
                                                 TimePoint now) {
  for (const RankProgress& sample : samples) {
    if (sample.rank < 0 || static_cast<std::size_t>(sample.rank) >= ranks_.size()) continue;
    Rank& rank = ranks_[static_cast<std::size_t>(sample.rank)];
    if (rank.ended) continue;
    const Quiet quiet = QuietOf(rank, sample, now);
    ObserveMovement(now - quiet.lasted);
    if (sample.process_state != rank.newest.process_state) limit_.reset();
    if (sample.phase == TrainPhase::kEvaluating && !evaluating_since_) evaluating_since_ = now;
    Learn(rank, sample);
    CountSamples(rank, quiet, now);
    rank.newest = sample;
    rank.seen = true;
  }
  LearnEvaluation(now);
  if (told_ || ended_ == static_cast<int>(ranks_.size()) || !EveryRankSampled()) return {};
  const double quiet = ToSeconds(now - moved_at_);
  if (quiet < options_.floor_seconds) return {};
  if (!limit_) limit_ = Limit();
  if (quiet < *limit_) return {};
  told_ = true;
  return Judge(quiet, *limit_);
}

void HangDetector::RankEnded(int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) return;
  Rank& entry = ranks_[static_cast<std::size_t>(rank)];
  if (std::exchange(entry.ended, true)) return;
  if (entry.standstill == standstill_) --sampled_;
  ++ended_;
  limit_.reset();
  while (learned_from_ < std::ssize(ranks_) &&
         ranks_[static_cast<std::size_t>(learned_from_)].ended)
    ++learned_from_;
}

HangDetector::Quiet HangDetector::QuietOf(Rank& rank, const RankProgress& sample, TimePoint now) {
  if (!rank.seen || HasMoved(rank.newest, sample)) {
    rank.moved_at = now;
    rank.samples = 0;
  }
  ++rank.samples;
  if (sample.quiet_samples == 0) return {now - rank.moved_at, rank.samples};
  const double seconds = std::isfinite(sample.quiet_seconds) ? sample.quiet_seconds : 0;
  return {FromSeconds(std::clamp(seconds, 0.0, kLongestQuiet)), sample.quiet_samples};
}

void HangDetector::ObserveMovement(TimePoint moved_at) {
  if (moved_at > moved_at_ + kSameMovement) {
    ++standstill_;
    sampled_ = 0;
    told_ = false;
    limit_.reset();
  }
  moved_at_ = std::max(moved_at_, moved_at);
}

// A rank that has been quiet for longer than the gang was sampled was quiet before the standstill
// too: these samples are no evidence.
void HangDetector::CountSamples(Rank& rank, const Quiet& quiet, TimePoint now) {
  if (rank.standstill == standstill_) return;
  const double part =
      quiet.lasted > now - moved_at_ ? ToSeconds(now - moved_at_) / ToSeconds(quiet.lasted) : 1;
  if (static_cast<double>(quiet.samples) * part < options_.min_samples) return;
  rank.standstill = standstill_;
  ++sampled_;
}

// Durations of steps are taken once, so from one rank. From several steps in a report, the slowest
// and the newest are known, and the mean of the others by their sum.
void HangDetector::Learn(const Rank& rank, const RankProgress& sample) {
  if (&rank - ranks_.data() != learned_from_) return;
  const RankProgress& before = rank.newest;
  const std::int64_t steps = rank.seen ? sample.steps_done - before.steps_done : 1;
  if (sample.steps_done == 0 || steps == 0) return;
  if (!std::isfinite(sample.step_seconds) || sample.step_seconds <= 0) return;
  const double slowest = std::isfinite(sample.slowest_step_seconds)
                             ? std::max(sample.step_seconds, sample.slowest_step_seconds)
                             : sample.step_seconds;
  slowest_step_ = std::max(slowest_step_, slowest);
  const std::int64_t after_warm_up = sample.steps_done - options_.warm_up_steps;
  if (steps <= 1 || after_warm_up < steps) {  // the slowest may be one of the warm-up
    steps_.Add(sample.step_seconds, std::min(std::max<std::int64_t>(steps, 1), after_warm_up));
    return;
  }
  const double sum =
      sample.busy_seconds + sample.wait_seconds - before.busy_seconds - before.wait_seconds;
  const double mean = (sum - slowest) / static_cast<double>(steps - 1);
  steps_.Add(mean > 0 && mean < slowest ? mean : sample.step_seconds, steps - 1);
  steps_.Add(slowest);
}

void HangDetector::LearnEvaluation(TimePoint now) {
  if (!evaluating_since_) return;
  const bool still = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.ended && rank.newest.phase == TrainPhase::kEvaluating;
  });
  if (still) return;
  evaluation_seconds_ = ToSeconds(now - *evaluating_since_);
  evaluating_since_.reset();
}

double HangDetector::OrdinaryLimit() const {
  double limit = 0;
  if (steps_.size() >= static_cast<std::size_t>(options_.trusted_steps)) {
    limit = options_.factor * steps_.Percentile99();
  } else if (former_percentile_ > 0) {
    limit = options_.factor * std::max(former_percentile_, slowest_step_);
  } else {
    limit = options_.factor_untrusted * slowest_step_;
  }
  return std::max(options_.floor_seconds, limit);
}

double HangDetector::LimitOf(const RankProgress& rank, double ordinary) const {
  if (rank.phase == TrainPhase::kEvaluating && evaluation_seconds_ > 0) {
    return std::max(ordinary, options_.evaluation_factor * evaluation_seconds_);
  }
  if (rank.phase && IsWithinStep(*rank.phase) && rank.steps_done > 0) return ordinary;
  return std::max(ordinary, options_.long_phase_seconds);
}

// One rank in a long phase excuses all that wait for it; a stopped process is never excused.
double HangDetector::Limit() const {
  const double ordinary = OrdinaryLimit();
  for (const Rank& rank : ranks_) {
    if (!rank.ended && rank.newest.process_state == "T") return ordinary;
  }
  double limit = ordinary;
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    // It may be another program, or still on its way to its first store.
    if (rank.newest.stores == 0) return HUGE_VAL;
    limit = std::max(limit, LimitOf(rank.newest, ordinary));
  }
  return limit;
}

HangVerdict HangDetector::Judge(double quiet_seconds, double limit_seconds) const {
  std::vector<RankProgress> living;
  for (const Rank& rank : ranks_) {
    if (!rank.ended) living.push_back(rank.newest);
  }
  HangCulprits culprits = FindCulprits(living, nodes_);
  HangVerdict verdict{std::move(culprits.ranks),
                      "no progress for " + Seconds(quiet_seconds),
                      std::move(culprits.reason),
                      {},
                      quiet_seconds};
  std::string learned = std::to_string(steps_.size()) + " steps of this attempt";
  if (steps_.size() > 0) learned += ", 99 % of them within " + Seconds(steps_.Percentile99());
  verdict.facts.push_back("limit " + Seconds(limit_seconds) + ", learned from " + learned);
  for (std::size_t i = 0; i < living.size() && i < kRanksInFacts; ++i) {
    verdict.facts.push_back(Where(living[i], nodes_));
  }
  return verdict;
}

}  // namespace muster
