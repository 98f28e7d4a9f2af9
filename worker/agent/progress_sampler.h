// ProgressSampler: reads the ranks' progress pages and the state of their processes.
//
// Holds the pages of the newest generation of each job, and of a job that is gone for as long as a
// scraper needs to see its last values. A page is read after its rank is dead or stopped as before:
// it belongs to the guardian. Time is an argument; only the cost of sampling is measured here.
// Loop thread only.
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
#include "worker/agent/messages.h"

namespace muster::worker {

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
    std::vector<CollectiveCounts> collectives;
  };
  // What sampling has done and cost since the start.
  struct Totals {
    std::uint64_t pages = 0;
    double cpu_seconds = 0;
  };

  explicit ProgressSampler(ProcessReader read_process = &ReadProcess);

  // A page of a newer generation drops those of the older. `pid` is the rank's process; 0: not
  // known, and then its state is not told.
  Status AddPage(const JobId& job, const std::string& job_name, Generation generation, int rank,
                 pid_t pid, const UniqueFd& page);
  // Reads the page for the last time; the next Sample tells the job's progress at once.
  void EndRank(const JobId& job, int rank);
  // The job is over; its last values stay for a while.
  void EndJob(const JobId& job, TimePoint now);

  bool AnyRunning() const;
  // Reads all pages. A job with a running rank is told every `interval`, whether a value changed or
  // not: that nothing changes is what a hang looks like.
  std::vector<Progress> Sample(TimePoint now, Duration interval);
  // When to sample next: 20 times a second, down to once where that would cost more than a
  // twentieth of a processor.
  Duration NextSampleIn() const;
  // What the page of a rank said when it was read last; empty: it has none.
  std::optional<RankProgress> Last(const JobId& job, int rank) const;

  std::vector<Series> AllSeries(TimePoint now) const;
  const Totals& totals() const { return totals_; }

 private:
  struct Rank {
    std::unique_ptr<ProgressReader> reader;  // null once the rank ended
    pid_t pid = 0;
    std::uint64_t start_time = 0;  // of the process with this pid when it was seen first
    ProgressValues values;
    std::uint64_t stores = 0;
    std::vector<CollectiveCounts> collectives;
    std::string process_state;
    double cpu_seconds = 0;
  };
  struct Gang {
    std::string name;
    Generation generation = 0;
    std::map<int, Rank> ranks;
    bool urgent = false;
    TimePoint told_at;
    TimePoint forget_at = TimePoint::max();
  };

  static bool IsRunning(const Gang& gang);
  static RankProgress ToProgress(Generation generation, int number, const Rank& rank);
  void ReadPage(Rank& rank);
  void ReadProcessOf(Rank& rank);
  Progress Tell(const JobId& job, Gang& gang);

  const ProcessReader read_process_;
  std::map<JobId, Gang> gangs_;
  Totals totals_;
  Duration last_cost_{};
};

}  // namespace muster::worker
