// What `muster top` knows: the newest answers of the coordinator, and what it has kept of earlier
// ones.
//
// Pure values; time is an argument. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top/series.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// Of one job, as seen since `top` began, and before from its metrics file where that can be read.
struct JobHistory {
  Series loss;
  Series step_seconds;
  Series memory;  // bytes of all ranks' processes
  std::int64_t step = -1;
  std::int64_t step_since_unix_ms = 0;  // when it was first seen at this step
};

struct TopModel {
  std::string cluster;
  std::int64_t now_unix_ms = 0;
  v1::ListJobsResponse jobs;
  v1::ListNodesResponse nodes;
  std::optional<v1::Job> open;                  // whose page is shown, or the only one that runs
  std::vector<v1::Event> events;                // of it, newest last
  std::map<std::string, JobHistory> histories;  // by job id
  std::string lost;                             // why there is no answer; empty: there is
  std::int64_t lost_since_unix_ms = 0;

  // Takes an answer over; forgets what it kept of jobs that are no longer listed.
  void SetJobs(v1::ListJobsResponse answer, std::int64_t now);
  void SetOpen(v1::Job answer, std::int64_t now);
};

// Appends what a run's metrics.jsonl (its text, or a part of it) says; what is not a whole line of
// it is left out.
void AddMetricsFile(std::string_view text, JobHistory* history);

struct TopProblem {
  // The worst first.
  enum class Kind {
    kNoAnswer,
    kFailed,
    kNotFinite,
    kRecovering,
    kNoProgress,
    kNodeLost,
    kNodeNotice,
    kWaiting,
  };
  Kind kind;
  std::string text;     // a sentence without its full stop
  std::string command;  // to type next
};
// Sorted, worst first.
std::vector<TopProblem> FindProblems(const TopModel& model);

}  // namespace muster
