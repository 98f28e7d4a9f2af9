#include "coordinator/pilots/pilot_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/security/enrolment.h"
#include "common/security/issued_register.h"
#include "common/security/join_token.h"
#include "common/security/private_files.h"
#include "common/security/revocation.h"
#include "common/slurm/submission.h"
#include "coordinator/pilots/pilot_script.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Duration kTokenLifetime = std::chrono::minutes(10);
constexpr std::size_t kKeptDirectories = 100;
// Certificates count in seconds.
constexpr std::int64_t kClockGrainMs = 1000;

json ReadJson(const std::string& path) {
  const auto text = ReadFile(path, 1 << 20);
  if (!text.ok()) return nullptr;
  json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return object.is_object() ? object : json(nullptr);
}

template <typename T>
void Get(const json& object, const char* key, T* out) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  // The coordinator wrote it; edits by hand are overwritten.
  try {
    found->get_to(*out);
  } catch (const json::exception&) {
  }
}

std::string RequestText(const PilotRecord& record) {
  return json{{"pilot", record.key},
              {"why", record.why},
              {"exclude", record.exclude},
              {"asked_unix_ms", record.asked_unix_ms}}
             .dump(1) +
         "\n";
}

std::uint64_t JobIdIn(const std::string& dir) {
  std::uint64_t id = 0;
  if (const json record = ReadJson(dir + "/submission.json"); !record.is_null())
    Get(record, "slurm_job_id", &id);
  if (id != 0) return id;
  const auto started = ReadFile(dir + "/started", 64);
  if (started.ok()) std::from_chars(started->data(), started->data() + started->size(), id);
  return id;
}

PilotRecord RecordOf(const std::string& dir, const json& request) {
  PilotRecord record;
  Get(request, "pilot", &record.key);
  Get(request, "why", &record.why);
  Get(request, "exclude", &record.exclude);
  Get(request, "asked_unix_ms", &record.asked_unix_ms);
  record.slurm_job_id = JobIdIn(dir);
  const json end = ReadJson(dir + "/end.json");
  if (end.is_null()) return record;
  Get(end, "cancelled", &record.cancelled);
  Get(end, "bad_nodes", &record.bad_nodes);
  Get(end, "cancelled_unix_ms", &record.cancelled_unix_ms);
  Get(end, "ended", &record.ended);
  return record;
}

}  // namespace

Status PilotFiles::Open(const std::string& pool) {
  pool_ = pool;
  MUSTER_RETURN_IF_ERROR(MakeDirectories(fs::path(pool).parent_path().string()));
  return MakePrivateDirectory(pool);
}

Result<std::vector<PilotRecord>> PilotFiles::Load() const {
  std::vector<PilotRecord> records;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(pool_, error)) {
    std::error_code ignored;
    if (!entry.is_directory(ignored)) continue;
    const std::string dir = entry.path().string();
    const json request = ReadJson(dir + "/job.yaml");
    if (request.is_null()) {
      fs::remove_all(entry.path(), ignored);
      continue;
    }
    PilotRecord record = RecordOf(dir, request);
    if (record.key == entry.path().filename().string()) records.push_back(std::move(record));
  }
  if (error) return Unavailable("the pilots' directory " + pool_ + ": " + error.message());
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.asked_unix_ms < b.asked_unix_ms; });
  return records;
}

Result<std::uint64_t> PilotFiles::Submit(const PilotRecord& record, const PoolConfig& config,
                                         const std::string& coordinator) const {
  MUSTER_ASSIGN_OR_RETURN(
      std::string script,
      RenderPilotScript(config, {record.key, pool_, coordinator, record.exclude}));
  const slurm::SubmissionPlan plan{.name = kPilotJobName,
                                   .key = record.key,
                                   .user = user_,
                                   .yaml = RequestText(record),
                                   .request = "{}\n",
                                   .script = std::move(script),
                                   .places = PilotPlaces(pool_, record.key)};
  MUSTER_RETURN_IF_ERROR(MakeDirectories(Dir(record.key) + "/tokens", 0700));
  MUSTER_ASSIGN_OR_RETURN(const slurm::SubmittedJob job, slurm::SubmitOnce(commands_, plan));
  return job.slurm_job_id;
}

Status PilotFiles::WriteEnd(const PilotRecord& record) const {
  const json end = {{"cancelled", record.cancelled},
                    {"bad_nodes", record.bad_nodes},
                    {"cancelled_unix_ms", record.cancelled_unix_ms},
                    {"ended", record.ended}};
  return WriteFileAtomically(Dir(record.key) + "/end.json", end.dump(1) + "\n", 0600);
}

Status PilotFiles::Cancel(const PilotRecord& record) const {
  MUSTER_RETURN_IF_ERROR(WriteEnd(record));
  return record.slurm_job_id == 0 ? OkStatus() : commands_.Cancel(record.slurm_job_id);
}

Result<std::vector<slurm::JobInfo>> PilotFiles::List() const {
  MUSTER_ASSIGN_OR_RETURN(std::vector<slurm::JobInfo> jobs,
                          commands_.List({.id = {}, .user = user_, .name = kPilotJobName}));
  // Another coordinator of the same user has other pilots.
  std::erase_if(jobs, [this](const slurm::JobInfo& job) {
    const auto comment = slurm::ParseComment(job.comment);
    return !comment || comment->state_prefix != pool_ + "/";
  });
  return jobs;
}

Status PilotFiles::GiveToken(const std::string& key, const std::string& node,
                             const std::string& join_address, std::int64_t now_ms) const {
  MUSTER_ASSIGN_OR_RETURN(const Enrolment enrolment, Enrolment::Open(security_dir_));
  MUSTER_ASSIGN_OR_RETURN(const std::string token,
                          enrolment.MakeToken(node, kTokenLifetime, now_ms));
  return WriteFileAtomically(Dir(key) + "/tokens/" + node,
                             InvitationText({.token = token, .join_address = join_address}) + "\n",
                             0600);
}

Status PilotFiles::RevokeSince(const std::string& node, const PilotRecord& record,
                               std::int64_t now_ms) const {
  const SecurityPaths paths{security_dir_};
  MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
  for (const CertificateInfo& certificate : issued) {
    const bool its = certificate.identity.role == Role::kNode &&
                     certificate.identity.name == node &&
                     certificate.issued_ms >= record.asked_unix_ms - kClockGrainMs;
    if (!its || certificate.not_after_ms <= now_ms) continue;
    MUSTER_RETURN_IF_ERROR(Revoke(paths.RevokedCertificates(),
                                  {.serial = certificate.serial,
                                   .identity = IdentityUri(certificate.identity),
                                   .revoked_ms = now_ms,
                                   .reason = "the pilot job " + record.key + " has ended"}));
  }
  return OkStatus();
}

Status PilotFiles::End(const PilotRecord& record, const std::vector<std::string>& nodes,
                       std::int64_t now_ms) const {
  std::error_code ignored;
  fs::remove_all(Dir(record.key) + "/tokens", ignored);
  Status worst;
  for (const std::string& node : nodes)
    if (Status status = RevokeSince(node, record, now_ms); !status.ok()) worst = std::move(status);
  MUSTER_RETURN_IF_ERROR(worst);
  if (!fs::exists(Dir(record.key), ignored)) return OkStatus();  // it was not submitted
  MUSTER_RETURN_IF_ERROR(WriteEnd(record));
  RemoveOldest();
  return OkStatus();
}

void PilotFiles::RemoveOldest() const {
  auto records = Load();
  if (!records.ok()) return;
  std::erase_if(*records, [](const PilotRecord& record) { return record.ended.empty(); });
  std::error_code ignored;
  for (std::size_t n = 0; n + kKeptDirectories < records->size(); ++n)
    fs::remove_all(Dir((*records)[n].key), ignored);
}

bool PilotFiles::HasStarted(const std::string& key) const {
  std::error_code ignored;
  return fs::exists(Dir(key) + "/started", ignored);
}

Status PilotFiles::Renew(std::int64_t now_ms) const {
  return WriteFileAtomically(pool_ + "/alive", std::to_string(now_ms) + "\n", 0600);
}

}  // namespace muster
