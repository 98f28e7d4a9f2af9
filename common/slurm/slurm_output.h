// What Slurm's commands print, to values.
//
// Only formats that have been the same from Slurm 20.02 to 25.05 are read: squeue by explicit
// fields, `scontrol -o` and `scontrol show config` by their keys, `sbatch --parsable`. JSON would
// be nicer, but its schema changes with each release, and 22.05's scontrol has none.
//
// Pure functions; any thread. Warnings that a command wrote between its lines are passed over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/job_ref.h"

namespace muster::slurm {

// squeue's -o: fields with this between them, which no name has; times in UTC (slurm_commands.h).
inline constexpr char kFieldSeparator = '\x1f';
std::string JobListFormat();

struct JobInfo {
  std::uint64_t id = 0;  // of an array's task its own
  std::string shown_id;  // "42", "40_1", "40+0"
  std::string name;
  std::string user;
  std::string state;   // in Slurm's words, RUNNING
  std::string reason;  // why it waits; empty: none
  std::string nodes;   // a host list; empty: none yet
  int node_count = 0;
  std::string batch_host;                          // empty: not started
  std::optional<std::int64_t> start_unix_seconds;  // planned ones too
  std::optional<std::int64_t> end_unix_seconds;    // the latest that it may have
  std::string comment;

  // For Slurm's commands. The tasks of an array that still wait are one entry, "40_[2-5]", which
  // only the array's number names.
  JobRef ref() const { return JobRef::Parse(shown_id).value_or(JobRef(id)); }
  bool in_array() const { return shown_id.find('_') != std::string::npos; }

  friend bool operator==(const JobInfo&, const JobInfo&) = default;
};

// Of `squeue -h -o JobListFormat()`.
std::vector<JobInfo> ParseJobList(std::string_view output);

// Whether nothing will run of it any more; such a job is still listed for some minutes. A job that
// is requeued is PENDING or REQUEUED, which are not final.
bool IsFinalState(std::string_view state);

struct JobDetails {
  std::uint64_t id = 0;
  std::string name;
  std::string state;
  int restarts = 0;
  bool may_requeue = false;  // a batch job whose user and site allow it
  std::string batch_host;    // empty: none
  std::string nodes;
  std::string excluded;    // a host list
  bool exclusive = false;  // no other job shares its nodes
  std::optional<std::int64_t> end_unix_seconds;
  std::optional<std::int64_t> time_limit_seconds;  // nothing: none

  friend bool operator==(const JobDetails&, const JobDetails&) = default;
};

// Of `scontrol show job -o ID`.
Result<JobDetails> ParseJobDetails(std::string_view output);

using Settings = std::map<std::string, std::string>;

// The output of `scontrol show config`: "KillWait  = 30 sec" by its key. Where a key is there
// twice, the first.
Settings ParseConfig(std::string_view output);

// Of `scontrol show partition -o`: one line of KEY=VALUE each, by its partition's name.
std::map<std::string, Settings> ParsePartitions(std::string_view output);

// Of `sbatch --parsable`: "42" or "42;cluster".
Result<std::uint64_t> ParseSubmitted(std::string_view output);

// "2026-11-22T22:50:00" in UTC; nothing for N/A, Unknown, NONE and what is no time.
std::optional<std::int64_t> ParseTime(std::string_view text);

// "30 sec", "300", "30:00" (minutes), "1:30:00", "2-00:00:00" in seconds; nothing for UNLIMITED,
// INFINITE, NONE and what is no span. Without a unit or colon it is seconds.
std::optional<std::int64_t> ParseSpan(std::string_view text);

struct SlurmVersion {
  int year = 0;
  int month = 0;

  friend auto operator<=>(const SlurmVersion&, const SlurmVersion&) = default;
};

// Of "22.05.8" and "slurm-wlm 22.05.8".
std::optional<SlurmVersion> ParseVersion(std::string_view text);

// The seconds of KillWait (from SIGTERM to SIGKILL) in which a job may save its state: after them
// its end has to be reported, and programs have to end.
double TermGraceSeconds(std::int64_t kill_wait_seconds);
// Supervisors take no more than this, unless --term-grace says otherwise, and as much where
// KillWait is not known.
inline constexpr double kMostTermGraceSeconds = 25;

// What a command that failed said, as a status: kUnavailable where the controller did not answer,
// kNotFound for an unknown job, kPermissionDenied, kDeadlineExceeded for an answer that may have
// been lost on the way, kFailedPrecondition for the rest.
Status CommandFailure(const std::string& command, const std::string& output);

}  // namespace muster::slurm
