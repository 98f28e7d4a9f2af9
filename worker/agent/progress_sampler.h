// ProgressSampler: reads the ranks' progress pages and the state of their processes.
//
// Holds the pages of the newest generation of each job, and keeps ended ranks for as long as a
// scraper needs to read their last values; counters of ranks are kept until the job is gone
// (rank_counters.h). A page can be read after its rank has died or stopped: it belongs to the
// guardian. Time is an argument; only the cost of sampling is measured here. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/proc_reader.h"
#include "common/control_pipe/progress_page.h"
#include "common/control_pipe/training_figures.h"
#include "common/wire/messages.h"
#include "worker/agent/progress_gate.h"
#include "worker/agent/rank_counters.h"

namespace muster::worker {

// Prometheus' usual interval of 15 s.
inline constexpr std::chrono::seconds kThreeScrapes{45};

class ProgressSampler {
 public:
  using ProcessReader = std::function<Result<ProcessInfo>(pid_t)>;

  // One rank's series on /metrics.
  struct Series {
    JobId job;
    std::string job_name;
    Generation generation = 0;
    int rank = 0;
    ProgressValues values;
    TrainingFigures figures;
    std::vector<CollectiveCounts> collectives;
    RankTotals totals;            // of all its processes on this node
    double inflight_seconds = 0;  // since a collective ended while one is under way; 0: none is
  };
  // What sampling has done and cost since the start.
  struct Totals {
    std::uint64_t pages = 0;
    double cpu_seconds = 0;
  };

  // Ended ranks are shown for `keep` longer: three scrapes.
  explicit ProgressSampler(Duration keep = kThreeScrapes,
                           ProcessReader read_process = &ReadProcess);

  // A page of a newer generation drops those of the older. `pid` is the rank's process; 0: unknown,
  // and then its state is not reported.
  Status AddPage(const JobId& job, const std::string& job_name, Generation generation, int rank,
                 pid_t pid, const UniqueFd& page, TimePoint now);
  // Reads the page for the last time; the next Sample returns the job's progress.
  void EndRank(const JobId& job, int rank, TimePoint now);
  // The job is over; its last values stay for a while.
  void EndJob(const JobId& job, TimePoint now);

  bool AnyRunning() const;
  // Reads all pages and processes; returns what is to be sent now (ProgressGate). For a job with a
  // running rank that is every `interval`, whether a value changed or not.
  std::vector<Progress> Sample(TimePoint now, Duration interval);
  // When to sample next: 20 times a second, down to once where that would cost more than a
  // twentieth of a processor.
  Duration NextSampleIn() const;
  // The values of a rank's page at its last reading; empty: it has none.
  std::optional<RankProgress> Last(const JobId& job, int rank) const;

  std::vector<Series> AllSeries(TimePoint now) const;
  const Totals& totals() const { return totals_; }

 private:
  struct InFlight {
    std::uint64_t completed = 0;
    TimePoint since;  // when that was seen first
  };
  struct Rank {
    std::unique_ptr<ProgressReader> reader;  // null once the rank ended
    pid_t pid = 0;
    std::uint64_t start_time = 0;  // of the process with this pid when it was seen first
    ProgressValues values;
    TrainingFigures figures;
    std::uint64_t stores = 0;
    std::vector<CollectiveCounts> collectives;
    std::map<std::string, InFlight> in_flight;  // by group, while operations are under way
    std::string process_state;
    double cpu_seconds = 0;
    TimePoint forget_at = TimePoint::max();  // on /metrics
    std::unique_ptr<FiguresReader> figures_reader;
  };
  // Ranks of the previous generation that this node does not have in this one.
  struct FormerRank {
    Generation generation = 0;
    Rank rank;
  };
  struct Gang {
    std::string name;
    Generation generation = 0;
    std::map<int, Rank> ranks;
    std::map<int, FormerRank> former;
    RankCounters counters;
    ProgressGate gate;
    TimePoint forget_at = TimePoint::max();
  };

  static bool IsRunning(const Gang& gang);
  static RankProgress ToProgress(Generation generation, int number, const Rank& rank);
  static void BeginGeneration(Gang& gang, Generation generation, TimePoint forget_at);
  static void ObserveInFlight(Rank& rank, TimePoint now);
  static Series ToSeries(const JobId& job, const Gang& gang, int number, Generation generation,
                         const Rank& rank, TimePoint now);
  void ReadPage(Gang& gang, int number, Rank& rank, TimePoint now);
  void ReadProcessOf(Rank& rank);
  std::vector<RankProgress> SampleRanks(Gang& gang, TimePoint now);

  const Duration keep_;
  const ProcessReader read_process_;
  std::map<JobId, Gang> gangs_;
  Totals totals_;
  Duration last_cost_{};
};

}  // namespace muster::worker
