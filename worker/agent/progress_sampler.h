// ProgressSampler: reads the ranks' progress pages and tells what changed.
//
// Holds the pages of the newest generation of each job, and of a job that is gone for as long as a
// scraper needs to see its last values. Time is an argument. Loop thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/control_pipe/progress_page.h"
#include "worker/agent/messages.h"

namespace muster::worker {

class ProgressSampler {
 public:
  // One rank's series on /metrics.
  struct Series {
    JobId job;
    std::string job_name;
    Generation generation = 0;
    int rank = 0;
    ProgressValues values;
  };

  // A page of a newer generation drops those of the older.
  Status AddPage(const JobId& job, const std::string& job_name, Generation generation, int rank,
                 const UniqueFd& page);
  // Reads the page for the last time; the next Sample tells the job's progress at once.
  void EndRank(const JobId& job, int rank);
  // The job is over; its last values stay for a while.
  void EndJob(const JobId& job, TimePoint now);

  bool AnyRunning() const;
  // Reads all pages. A job is told when a value changed and at least `interval` has passed since
  // it was told before.
  std::vector<Progress> Sample(TimePoint now, Duration interval);
  std::vector<Series> AllSeries(TimePoint now) const;

 private:
  struct Rank {
    std::unique_ptr<ProgressReader> reader;  // null once the rank ended
    ProgressValues values;
  };
  struct Gang {
    std::string name;
    Generation generation = 0;
    std::map<int, Rank> ranks;
    bool changed = false;
    bool urgent = false;
    TimePoint told_at;
    TimePoint forget_at = TimePoint::max();
  };

  static void Read(Gang& gang, Rank& rank);

  std::map<JobId, Gang> gangs_;
};

}  // namespace muster::worker
