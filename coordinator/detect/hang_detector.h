// HangDetector: whether a gang has come to a standstill, and which rank caused it.
//
// It receives the workers' reports of their ranks' progress pages. It gives a verdict once nothing
// has changed on any rank for longer than this job's own steps explain (docs/recovery.md, "Hang").
// Workers sample more often than they report, so a report contains since when its rank has been
// quiet and how many samples have shown that. Silence is not evidence: time counts only with
// samples of every rank that show a standstill, so a frozen machine, a broken link or an overloaded
// coordinator gives no verdict.
//
// One per job, owned by the job's entry in the controller; one thread. Pure: time is an argument.
// For jobs whose ranks store into a page; without a first store there is no verdict. Needs no
// timer, because without a sample there is nothing to decide.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/control_pipe/progress_page.h"
#include "common/wire/messages.h"

namespace muster {

struct HangOptions {
  // A little less than the documented 3 s and factor of three, so that the verdict exists by then.
  double floor_seconds = 2.8;  // never sooner
  double factor = 2.9;         // of the 99th percentile of the steps
  // Until `trusted_steps` are known: a multiple of the slowest step seen, including the warm-up.
  double factor_untrusted = 10;
  int trusted_steps = 20;
  int warm_up_steps = 2;  // of a process: they build what later ones use, and do not count
  int min_samples = 30;   // of each rank, that show the standstill
  // Phases that are quiet for long, and the first step of a process.
  double long_phase_seconds = 600;
  double evaluation_factor = 10;  // of the last evaluation's duration, if there was one
};

struct HangVerdict {
  std::vector<int> ranks;          // the culprits by rank; never empty
  std::string what;                // "no progress for 3.1 s"
  std::string reason;              // a sentence without its full stop
  std::vector<std::string> facts;  // where each rank is, the limit
  double quiet_seconds = 0;        // since something moved last
};

// The newest durations of a job's steps, and their usual value.
class StepTimes {
 public:
  void Add(double seconds, std::int64_t count = 1);
  std::size_t size() const { return newest_.size(); }
  double Percentile99() const;  // 0 for none

 private:
  static constexpr std::size_t kKept = 512;
  std::deque<double> newest_;
};

class HangDetector {
 public:
  explicit HangDetector(HangOptions options = {}) : options_(options) {}

  // A new gang, its nodes by rank. The durations of the job's steps remain valid until the new gang
  // has enough of its own.
  void Begin(std::vector<NodeName> nodes, TimePoint now);

  // A worker's report at `now`; ranks out of range are ignored. Each standstill has one verdict.
  std::optional<HangVerdict> Observe(const std::vector<RankProgress>& ranks, TimePoint now);

  // The process of this rank has ended: no progress is expected of it.
  void RankEnded(int rank);

  // How long a standstill may last in ordinary phases, in seconds.
  double OrdinaryLimit() const;

 private:
  struct Rank {
    bool seen = false;
    bool ended = false;
    std::uint64_t standstill = 0;  // the one in which it was sampled often enough
    TimePoint moved_at;            // if its worker does not report it: as far as reports show
    std::uint64_t samples = 0;     // since then
    RankProgress newest;
  };

  // How long a rank has been quiet, and how many samples have shown it.
  struct Quiet {
    Duration lasted{};
    std::uint64_t samples = 0;
  };

  static Quiet QuietOf(Rank& rank, const RankProgress& sample, TimePoint now);
  void ObserveMovement(TimePoint moved_at);
  void CountSamples(Rank& rank, const Quiet& quiet, TimePoint now);
  void Learn(const Rank& rank, const RankProgress& sample);
  void LearnEvaluation(TimePoint now);
  bool EveryRankSampled() const { return sampled_ + ended_ == static_cast<int>(ranks_.size()); }
  double LimitOf(const RankProgress& rank, double ordinary) const;
  double Limit() const;
  HangVerdict Judge(double quiet_seconds, double limit_seconds) const;

  HangOptions options_;
  std::vector<NodeName> nodes_;
  std::vector<Rank> ranks_;
  StepTimes steps_;
  double former_percentile_ = 0;     // of the gangs before
  double slowest_step_ = 0;          // of this gang
  std::ptrdiff_t learned_from_ = 0;  // the first rank that lives
  TimePoint moved_at_;               // when a rank moved last
  std::uint64_t standstill_ = 0;     // rises with every movement
  int sampled_ = 0;                  // ranks with enough samples of this standstill
  int ended_ = 0;
  bool told_ = false;
  std::optional<double> limit_;  // of this standstill, once it was requested
  std::optional<TimePoint> evaluating_since_;
  double evaluation_seconds_ = 0;  // of the last one; 0: none yet
};

}  // namespace muster
