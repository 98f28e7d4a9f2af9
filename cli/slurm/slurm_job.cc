#include "cli/slurm/slurm_job.h"

#include <algorithm>
#include <utility>

#include "cli/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/submission.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRecord = 64 << 10;

// An object, or null for a file that is not there or is no object.
json ReadObject(const std::string& path) {
  const auto text = ReadFile(path, kMaxRecord);
  if (!text.ok()) return nullptr;
  json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return object.is_object() ? object : json(nullptr);
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t IntegerAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

bool IsMusters(const slurm::JobInfo& job) { return slurm::ParseComment(job.comment).has_value(); }

// Slurm answers the number of an array by all of its tasks, and that of a heterogeneous job by its
// components, of which the first is what the number names.
Result<const slurm::JobInfo*> OfNumber(const std::vector<slurm::JobInfo>& jobs,
                                       const slurm::JobRef& ref) {
  if (jobs.empty()) return nullptr;
  if (jobs.size() > 1 && !ref.is_task() && jobs.front().in_array()) {
    std::string tasks;
    for (const slurm::JobInfo& job : jobs) tasks += (tasks.empty() ? "" : ", ") + job.shown_id;
    return InvalidArgument("Slurm job " + ref.text() +
                           " is an array; select one of its tasks: " + tasks);
  }
  const auto same = std::find_if(jobs.begin(), jobs.end(), [&](const slurm::JobInfo& job) {
    return std::to_string(job.id) == ref.text() || job.shown_id == ref.text();
  });
  return same != jobs.end() ? &*same : &jobs.front();
}

// The newest one that muster submitted.
const slurm::JobInfo* NewestOf(const std::vector<slurm::JobInfo>& jobs) {
  const slurm::JobInfo* newest = nullptr;
  for (const slurm::JobInfo& job : jobs)
    if (IsMusters(job) && (newest == nullptr || newest->id < job.id)) newest = &job;
  return newest;
}

std::string DoneText(int exit_code) {
  switch (exit_code) {
    case kExitSuccess: return "succeeded";
    case kExitJobFailed: return "failed";
    case kExitJobCancelled: return "cancelled";
    case kExitJobSuspended: return "suspended";
    // The allocation's end, not the job's: docs/reference/exit-codes.md has the codes.
    default: return "ended with " + std::to_string(exit_code);
  }
}

}  // namespace

std::optional<SlurmLeader> ReadLeader(const std::string& state_dir) {
  const json object = ReadObject(state_dir + "/leader.json");
  if (object.is_null()) return std::nullopt;
  return SlurmLeader{.run = static_cast<int>(IntegerAt(object, "run")),
                     .epoch = static_cast<std::uint64_t>(IntegerAt(object, "epoch")),
                     .node = Text(object, "node"),
                     .grpc = Text(object, "grpc"),
                     .keys = Text(object, "keys")};
}

std::optional<SlurmOutcome> ReadOutcome(const std::string& state_dir) {
  const json object = ReadObject(state_dir + "/outcome.json");
  if (object.is_null()) return std::nullopt;
  return SlurmOutcome{.run = static_cast<int>(IntegerAt(object, "run")),
                      .exit_code = static_cast<int>(IntegerAt(object, "exit_code")),
                      .action = Text(object, "action"),
                      .reason = Text(object, "reason")};
}

SlurmJob WithState(slurm::JobInfo job, const std::string& state_dir) {
  SlurmJob found{.slurm = std::move(job), .state_dir = state_dir, .leader = {}, .outcome = {}};
  const auto comment = slurm::ParseComment(found.slurm.comment);
  if (found.state_dir.empty() && comment)
    found.state_dir = comment->state_prefix + std::to_string(found.slurm.id);
  if (found.state_dir.empty()) return found;
  found.leader = ReadLeader(found.state_dir);
  found.outcome = ReadOutcome(found.state_dir);
  return found;
}

Result<SlurmJob> FindSlurmJob(const slurm::SlurmCommands& commands, const std::string& user,
                              const std::string& job, const std::string& state_dir) {
  const auto ref = slurm::JobRef::Parse(job);
  slurm::JobQuery query;
  if (ref)
    query.id = ref;
  else
    query = {.id = {}, .user = user, .name = job};
  const auto jobs = commands.List(query);
  // Without Slurm's commands a state directory still shows the outcome.
  const bool gone = jobs.status().code() == StatusCode::kNotFound;
  const bool usable =
      gone || (jobs.status().code() == StatusCode::kUnimplemented && !state_dir.empty());
  if (!jobs.ok() && !usable) return jobs.status();
  const slurm::JobInfo* found = nullptr;
  if (jobs.ok() && ref) {
    MUSTER_ASSIGN_OR_RETURN(found, OfNumber(*jobs, *ref));
  } else if (jobs.ok()) {
    found = NewestOf(*jobs);
  }
  if (found != nullptr) return WithState(*found, state_dir);
  if (!state_dir.empty()) return WithState({}, state_dir);
  return NotFound("Slurm has no job " + job + (ref ? "" : " that muster submitted for " + user) +
                  "; Slurm forgets a job some minutes after its end. Its files are in its output "
                  "directory; to show its end: --state DIR");
}

Result<std::vector<SlurmJob>> ListSlurmJobs(const slurm::SlurmCommands& commands,
                                            const std::string& user) {
  MUSTER_ASSIGN_OR_RETURN(auto jobs, commands.List({.id = {}, .user = user, .name = ""}));
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::vector<SlurmJob> found;
  for (slurm::JobInfo& job : jobs)
    if (IsMusters(job)) found.push_back(WithState(std::move(job), ""));
  return found;
}

Result<std::string> StateDirOf(const slurm::SlurmCommands& commands, const std::string& user,
                               const std::string& job) {
  MUSTER_ASSIGN_OR_RETURN(SlurmJob found, FindSlurmJob(commands, user, job, ""));
  if (!found.state_dir.empty()) return std::move(found.state_dir);
  return FailedPrecondition("Slurm job " + job +
                            " was not submitted by muster slurm submit, so the directory that its "
                            "supervisors share is unknown; pass its path (the job's output "
                            "directory with /slurm-" +
                            std::to_string(found.slurm.id) + ", or the value of --state)");
}

std::string OutcomeText(const SlurmJob& job) {
  if (!job.outcome) return "";
  const SlurmOutcome& outcome = *job.outcome;
  std::string end;
  if (outcome.action == "done") {
    end = DoneText(outcome.exit_code);
  } else if (slurm::IsFinalState(job.slurm.state)) {
    end = "Slurm reports " + job.slurm.state;
  } else if (outcome.action == "requeued") {
    end = "requeued";
  } else {
    end = outcome.action == "left" ? "left to Slurm" : "to be requeued";
  }
  return outcome.reason.empty() ? end : end + ": " + outcome.reason;
}

std::optional<int> EndOf(const SlurmJob& job) {
  const bool listed = job.slurm.id != 0;
  // An outcome of an earlier run may lie there while the job waits or runs again.
  if (listed && !slurm::IsFinalState(job.slurm.state) && job.slurm.state != "COMPLETING")
    return std::nullopt;
  if (job.outcome && job.outcome->action == "done") return job.outcome->exit_code;
  if (listed && job.slurm.state == "COMPLETING") return std::nullopt;
  if (listed && job.slurm.state == "CANCELLED") return kExitJobCancelled;
  // It ended before the supervisors could record how, or Slurm has forgotten it.
  return kExitJobFailed;
}

std::string CurrentUser() { return slurm::CurrentUser(); }

slurm::SlurmCommands UserSlurmCommands() {
  return slurm::SlurmCommands(slurm::CurrentEnvironment());
}

}  // namespace muster
