// The data of `muster top`: the newest answers of the coordinator, and a history of earlier ones.
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
#include "common/problems/problems.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// One job, as seen since `top` began, and before from its metrics file where that can be read.
struct JobHistory {
  Series loss;
  Series step_seconds;
  Series memory;  // bytes, of the rank with most
  std::int64_t step = -1;
  std::int64_t step_since_unix_ms = 0;  // when it was first seen at this step, or to run again
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::int64_t state_since_unix_ms = 0;  // from the attempts; until then since it was first seen
  std::string cause;                     // why its newest attempt that is over ended
  // The newest full answer; top reads one job per refresh.
  std::optional<v1::Job> detail;
};

// The memory that a rank trains in: its GPU's, else that of its process.
std::uint64_t TrainingMemoryBytes(const v1::RankProgress& rank);

struct TopModel {
  std::string cluster;
  std::int64_t now_unix_ms = 0;
  v1::ListJobsResponse jobs;
  v1::ListNodesResponse nodes;
  v1::ShowQueuesResponse queues;
  std::optional<v1::Job> open;                  // whose page is shown, or the only one that runs
  std::vector<v1::Event> events;                // of it, newest last
  std::map<std::string, JobHistory> histories;  // by job id
  std::string lost;                             // why there is no answer; empty: there is
  std::string lost_next;                        // what to type then
  std::int64_t lost_since_unix_ms = 0;

  // Stores an answer; drops the history of jobs that are no longer listed.
  void SetJobs(v1::ListJobsResponse answer, std::int64_t now);
  void SetOpen(v1::Job answer, std::int64_t now);
  // The ranks, attempts and checkpoints of a job that has not ended, which a list of jobs lacks.
  void SetDetail(v1::Job answer, std::int64_t now);
  // The job to read in detail next, after `last` in the order of ids: one per refresh, however many
  // there are. Empty: no job is under way.
  std::string NextForDetail(const std::string& last) const;
  // An error message; the text after "next: " is the command to type.
  void SetLost(std::string_view message, std::int64_t now);
};

// Appends what a run's metrics.jsonl (its text, or a part of it) says; what is not a whole line of
// it is left out.
void AddMetricsFile(std::string_view text, JobHistory* history);

// Sorted, worst first; printable.
std::vector<Problem> FindProblems(const TopModel& model);

}  // namespace muster
