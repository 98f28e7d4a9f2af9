#include "worker/agent/job_records.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <sstream>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/locked_record.h"
#include "common/base/proc_reader.h"
#include "common/base/regular_file.h"
#include "common/base/replace_file.h"
#include "common/base/unique_fd.h"
#include "common/job_spec/parse.h"
#include "common/process/process_id.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/rank_environment.h"
#include "worker/guardian/protocol.h"
#include "worker/process/cgroup.h"
#include "worker/process/record_file.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kProofBudget{5};
constexpr int kProofPauseMillis = 5;

Result<Prepare> ParsePrepare(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Prepare prepare{.job = {json.at("job").get<std::string>()},
                    .job_name = json.at("name").get<std::string>(),
                    .generation = json.at("generation").get<Generation>(),
                    .output_dir = json.at("output_dir").get<std::string>(),
                    .hosts_master = json.at("hosts_master").get<bool>(),
                    .master_bind_address = json.at("master_bind_address").get<std::string>(),
                    .devices = json.value("devices", std::vector<std::string>()),
                    .account = json.value("account", std::string())};
    for (const Json& rank : json.at("ranks"))
      prepare.ranks.push_back({rank.at("rank").get<int>(), rank.at("local_rank").get<int>()});
    return prepare;
  } catch (const Json::exception& error) {
    return DataLoss(std::string("prepare.json: ") + error.what());
  }
}

// The file may be of another user, who may have put anything in its place.
Json GuardianRecord(const std::string& ranks_dir) {
  const std::string path = ranks_dir + "/" + kGuardianRecordName;
  const auto fd = OpenRegularFile(path, O_NOFOLLOW);
  if (!fd.ok()) return {};
  std::string text(4096, '\0');
  const ssize_t n = ::pread(fd->get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return Json::parse(text, nullptr, false);
}

// Nothing where the record has none, or something else.
template <std::integral T>
std::optional<T> IntegerInRecord(const Json& record, const char* key) {
  try {
    return IntegerOf<T>(record.at(key));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string TextInRecord(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

// Files that a restart of this program reads; a reboot ends what they describe, so there is no
// fsync.
Status WriteIfChanged(const std::string& path, const std::string& content) {
  if (const auto old = ReadRegularFile(path); old.ok() && *old == content) return OkStatus();
  return ReplaceFile(path, content);
}

void AppendCgroupMembers(const std::string& cgroup, std::vector<std::int64_t>* pids) {
  const auto text = ReadFile(cgroup + "/cgroup.procs");
  if (!text.ok()) return;
  std::istringstream lines(*text);
  for (std::int64_t pid; lines >> pid;)
    if (std::find(pids->begin(), pids->end(), pid) == pids->end()) pids->push_back(pid);
}

std::vector<RankExited> ReadExitRecords(const std::string& job_dir, const JobId& job,
                                        Generation generation) {
  std::vector<RankExited> exited;
  std::error_code ignored;
  const std::string prefix = "g" + std::to_string(generation) + "-rank-";
  for (const auto& entry : std::filesystem::directory_iterator(job_dir + "/exits", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".json")) continue;
    const auto text = ReadRegularFile(entry.path().string());
    if (!text.ok()) continue;
    const auto record = DecodeExitRecord(*text);
    if (!record.ok() || record->generation != generation) continue;
    exited.push_back({.job = job,
                      .generation = generation,
                      .rank = record->rank,
                      .end = record->end,
                      .log_tail = record->log_tail});
  }
  return exited;
}

}  // namespace

Status WriteJobRecord(const std::string& job_dir, const Prepare& prepare) {
  Json ranks = Json::array();
  for (const RankPlacement& placement : prepare.ranks)
    ranks.push_back({{"rank", placement.rank}, {"local_rank", placement.local_rank}});
  const Json json = {{"job", prepare.job.value},
                     {"name", prepare.job_name},
                     {"generation", prepare.generation},
                     {"output_dir", prepare.output_dir},
                     {"hosts_master", prepare.hosts_master},
                     {"master_bind_address", prepare.master_bind_address},
                     {"devices", prepare.devices},
                     {"account", prepare.account},
                     {"ranks", ranks}};
  MUSTER_RETURN_IF_ERROR(WriteSpec(job_dir, prepare));
  return WriteIfChanged(job_dir + "/prepare.json", json.dump() + "\n");
}

Status WriteSpec(const std::string& dir, const Prepare& prepare) {
  return WriteIfChanged(dir + "/spec.yaml", prepare.spec_yaml);
}

Status WriteResumeFile(const Launch& launch, const std::string& dir) {
  return ReplaceFile(ResumeFilePath(dir, launch.generation), ResumeJson(launch.job, launch.resume));
}

Result<JobRecord> ReadJobRecord(const std::string& job_dir, const std::string& ranks_dir) {
  JobRecord record;
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(job_dir + "/prepare.json"));
  MUSTER_ASSIGN_OR_RETURN(record.prepare, ParsePrepare(text));
  MUSTER_ASSIGN_OR_RETURN(record.prepare.spec_yaml, ReadFile(job_dir + "/spec.yaml"));
  MUSTER_ASSIGN_OR_RETURN(record.spec, ParseJobSpec(record.prepare.spec_yaml));
  record.launched = std::filesystem::exists(ResumeFilePath(job_dir, record.prepare.generation));
  record.guardian_alive = IsRecordLocked(ranks_dir + "/" + kGuardianRecordName);
  record.guardian_generation =
      IntegerInRecord<Generation>(GuardianRecord(ranks_dir), "generation").value_or(0);
  return record;
}

std::vector<std::string> ListJobs(const std::string& jobs_dir) {
  std::vector<std::string> jobs;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(jobs_dir, ignored))
    if (entry.is_directory(ignored)) jobs.push_back(entry.path().filename().string());
  return jobs;
}

std::string ResumeJson(const JobId& job, const std::vector<CheckpointInfo>& checkpoints) {
  Json list = Json::array();
  for (const CheckpointInfo& checkpoint : checkpoints)
    list.push_back(Json::parse(ManifestJson(job, checkpoint)));
  return list.dump(1) + "\n";
}

std::optional<ProcessId> GuardianOf(const std::string& ranks_dir) {
  const Json record = GuardianRecord(ranks_dir);
  const auto pid = IntegerInRecord<pid_t>(record, "pid");
  const auto start_time = IntegerInRecord<std::uint64_t>(record, "start_time");
  if (!pid || *pid <= 0 || !start_time) return std::nullopt;
  return ProcessId{*pid, *start_time};
}

Status KillGuardian(const std::string& ranks_dir) {
  const std::optional<ProcessId> guardian = GuardianOf(ranks_dir);
  if (!guardian) return NotFound("the guardian has no record");
  if (SignalProcess(*guardian, SIGKILL)) return OkStatus();
  return NotFound("the guardian, pid " + std::to_string(guardian->pid) + ", has ended");
}

std::vector<std::int64_t> PidsOf(const std::vector<ProcessInfo>& processes) {
  std::vector<std::int64_t> pids;
  for (const ProcessInfo& process : processes) pids.push_back(process.pid);
  return pids;
}

std::vector<std::int64_t> EndedOf(const std::vector<ProcessInfo>& processes) {
  std::vector<std::int64_t> ended;
  for (const ProcessInfo& process : processes) {
    const auto now = ReadProcess(process.pid);
    const bool is_there = now.ok() ? now->id() == process.id() && now->runs()
                                   : now.status().code() != StatusCode::kNotFound;
    if (!is_there) ended.push_back(process.pid);
  }
  return ended;
}

void AddStoppedRanks(const std::string& job_dir, Generation generation,
                     std::vector<RankExited>* exited) {
  const auto text = ReadFile(job_dir + "/prepare.json");
  const auto prepare = text.ok() ? ParsePrepare(*text) : text.status();
  if (!prepare.ok() || prepare->generation != generation) return;
  for (const RankPlacement& placement : prepare->ranks) {
    const auto same = [&](const RankExited& known) { return known.rank == placement.rank; };
    if (std::any_of(exited->begin(), exited->end(), same)) continue;
    exited->push_back({.job = prepare->job,
                       .generation = generation,
                       .rank = placement.rank,
                       .end = {.exit = {.signal = SIGKILL}, .node_stopped = true},
                       .log_tail = {"muster: its node was taken down"}});
  }
}

TerminationProof ProveTerminated(const std::string& ranks_dir, const JobId& job,
                                 Generation generation) {
  TerminationProof proof;
  const std::string cgroup = TextInRecord(GuardianRecord(ranks_dir), "cgroup");
  const std::string mark = "TORCHELASTIC_ERROR_FILE=" + ranks_dir + "/";
  const Deadline deadline = Deadline::After(kProofBudget);
  for (;;) {
    const bool cgroup_gone = EndAbandonedCgroup(cgroup).ok();
    const std::vector<ProcessId> left = ProcessesWithEnvironment(mark);
    for (const ProcessId& id : left) SignalProcess(id, SIGKILL);
    if (left.empty() && cgroup_gone) break;
    if (deadline.Expired()) {
      std::vector<std::int64_t> pids;
      for (const ProcessId& id : left) pids.push_back(id.pid);
      if (!cgroup_gone) AppendCgroupMembers(cgroup, &pids);
      for (const std::int64_t pid : pids)
        if (const auto info = ReadProcess(static_cast<pid_t>(pid)); info.ok())
          proof.unkillable.push_back(*info);
      break;
    }
    ::poll(nullptr, 0, kProofPauseMillis);
  }
  proof.exited = ReadExitRecords(ranks_dir, job, generation);
  proof.stopped = std::filesystem::exists(ranks_dir + "/" + StoppedRecordName(generation));
  if (proof.stopped) AddStoppedRanks(ranks_dir, generation, &proof.exited);
  return proof;
}

}  // namespace muster::worker
