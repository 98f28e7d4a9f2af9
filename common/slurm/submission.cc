#include "common/slurm/submission.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>

#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"

namespace muster::slurm {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Files {
 public:
  explicit Files(const std::string& dir) : dir_(dir) {}

  std::string Job() const { return dir_ + "/job.yaml"; }
  std::string Request() const { return dir_ + "/request.json"; }
  std::string Script() const { return dir_ + "/run.sbatch"; }
  std::string Record() const { return dir_ + "/submission.json"; }
  std::string Started() const { return dir_ + "/started"; }
  std::string Lock() const { return dir_ + "/lock"; }

 private:
  const std::string dir_;
};

Status MakePlaces(const SubmissionPlan& plan) {
  // The output is the user's to show; what is resolved may hold secrets (env:).
  MUSTER_RETURN_IF_ERROR(
      MakeDirectories(fs::path(plan.places.submission).parent_path().string(), 0755));
  return MakeDirectories(plan.places.submission, 0700);
}

Result<UniqueFd> TakeLock(const Files& files, const SubmissionPlan& plan) {
  const std::string path = files.Lock();
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  const auto locked = LockFile(fd.get(), plan.lock_timeout);
  if (!locked.ok())
    return locked.status().WithContext("cannot lock " + path +
                                       ", which needs a file system that is mounted with flock");
  if (!*locked)
    return Aborted("another submit of the job " + plan.name + " with the key " + plan.key +
                   " is at work; say it again when that has ended");
  return fd;
}

// Keeps what is said until Slurm may have the job, and compares what is said later.
Status KeepOrCompare(const std::string& path, const std::string& text, bool given,
                     const SubmissionPlan& plan) {
  if (!given) return WriteFileAtomically(path, text, 0600);
  const auto kept = ReadFile(path);
  if (kept.status().code() == StatusCode::kNotFound) return WriteFileAtomically(path, text, 0600);
  if (!kept.ok()) return kept.status();
  if (*kept == text) return OkStatus();
  return AlreadyExists("the key " + plan.key + " was used for another job " + plan.name + ": " +
                       path + " differs from what is submitted now; use another --key");
}

std::optional<std::uint64_t> NumberIn(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || number == 0) return std::nullopt;
  return number;
}

// What is written down of an earlier submit.
std::optional<std::uint64_t> Recorded(const Files& files) {
  if (const auto text = ReadFile(files.Record()); text.ok()) {
    const json record = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const auto id = record.is_object() ? record.find("slurm_job_id") : record.end();
    if (id != record.end() && id->is_number_unsigned()) return id->get<std::uint64_t>();
  }
  const auto started = ReadFile(files.Started());
  return started.ok() ? NumberIn(*started) : std::nullopt;
}

// What Slurm has of it.
Result<std::optional<std::uint64_t>> Listed(const SlurmCommands& commands,
                                            const SubmissionPlan& plan) {
  MUSTER_ASSIGN_OR_RETURN(const auto jobs, commands.List({.user = plan.user, .name = plan.name}));
  for (const JobInfo& job : jobs) {
    const auto comment = ParseComment(job.comment);
    if (comment && comment->key == plan.key && comment->state_prefix == plan.places.state_prefix)
      return std::optional(job.id);
  }
  return std::optional<std::uint64_t>();
}

Status Record(const Files& files, const SubmissionPlan& plan, std::uint64_t id) {
  const json record = {{"key", plan.key}, {"name", plan.name}, {"slurm_job_id", id}};
  return WriteFileAtomically(files.Record(), record.dump() + "\n", 0600);
}

// The environment's SBATCH_* would win over the script's lines, but not over the command line.
Result<std::uint64_t> GiveToSlurm(const SlurmCommands& commands, const Files& files,
                                  const SubmissionPlan& plan) {
  auto id = commands.Submit(
      files.Script(), {"--job-name=" + plan.name, "--comment=" + CommentOf(plan.key, plan.places)});
  if (id.ok()) return id;
  // The answer may have been lost after the job was taken.
  const auto found = Listed(commands, plan);
  if (found.ok() && *found) return **found;
  if (id.status().code() != StatusCode::kDeadlineExceeded) {
    // What Slurm has refused may be said otherwise.
    if (found.ok()) ::unlink(files.Script().c_str());
    return id;
  }
  return DeadlineExceeded(id.status().message() +
                          "; Slurm may have taken the job all the same: submit again with --key " +
                          plan.key + ", which never makes a second one");
}

}  // namespace

Result<SubmittedJob> SubmitOnce(const SlurmCommands& commands, const SubmissionPlan& plan) {
  MUSTER_RETURN_IF_ERROR(CheckKey(plan.key));
  MUSTER_RETURN_IF_ERROR(MakePlaces(plan));
  const Files files(plan.places.submission);
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, TakeLock(files, plan));
  const auto recorded = Recorded(files);
  std::error_code unknown;
  const bool given = recorded || fs::exists(files.Script(), unknown) || unknown;
  MUSTER_RETURN_IF_ERROR(KeepOrCompare(files.Job(), plan.yaml, given, plan));
  MUSTER_RETURN_IF_ERROR(KeepOrCompare(files.Request(), plan.request, given, plan));
  if (recorded) return SubmittedJob{*recorded, true};
  MUSTER_ASSIGN_OR_RETURN(const auto listed, Listed(commands, plan));
  if (listed) {
    MUSTER_RETURN_IF_ERROR(Record(files, plan, *listed));
    return SubmittedJob{*listed, true};
  }
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(files.Script(), plan.script, 0700));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t id, GiveToSlurm(commands, files, plan));
  MUSTER_RETURN_IF_ERROR(Record(files, plan, id));
  return SubmittedJob{id, false};
}

std::string CurrentUser() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(::getuid());
}

}  // namespace muster::slurm
