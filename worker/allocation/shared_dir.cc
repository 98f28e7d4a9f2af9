#include "worker/allocation/shared_dir.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"
#include "worker/allocation/json_record.h"

namespace muster::worker {
namespace {

using nlohmann::json;

Member MemberOf(const json& object) {
  return {ValueOf(object, "index", -1), ValueOf(object, "node", std::string()),
          ValueOf(object, "address", std::string()), ValueOf(object, "worker", true)};
}

const char* ActionOf(const Outcome& outcome) {
  if (outcome.ending.action != EndAction::kRequeue) return "done";
  if (outcome.requeued) return "requeued";
  return outcome.closed && !outcome.left_to_script ? "left" : "requeue";
}

}  // namespace

Status SharedDir::Make() const {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir_, 0700));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(Logs(), 0700));
  return MakeDirectories(NodesDir(), 0700);
}

Status SharedDir::Claim() {
  MUSTER_ASSIGN_OR_RETURN(self_.life, ClaimDirectory(dir_, self_));
  return OkStatus();
}

bool SharedDir::IsSuperseded() const {
  const auto owner = ReadOwner(dir_);
  return owner && *owner != self_ &&
         (JudgeOwner(owner, self_) == worker::Claim::kLater || owner->life > self_.life);
}

Status SharedDir::CheckOwned() const {
  if (!IsSuperseded()) return OkStatus();
  return FailedPrecondition("a later run of this job, or another step, has " + dir_);
}

bool SharedDir::IsOwn(const nlohmann::json& object) const {
  return ValueOf(object, "run", -1) == self_.run &&
         ValueOf(object, "step", std::string()) == self_.step;
}

Status SharedDir::WriteMember(const Member& member) const {
  const json object = {{"step", self_.step},         {"run", self_.run},
                       {"index", member.index},      {"node", member.node},
                       {"address", member.address},  {"pid", ::getpid()},
                       {"worker", member.has_worker}};
  return WriteFileAtomically(
      NodesDir() + "/" + std::to_string(self_.run) + "-" + std::to_string(member.index) + ".json",
      object.dump() + "\n", 0600);
}

std::vector<Member> SharedDir::ReadMembers() const {
  std::vector<Member> members;
  const std::string prefix = std::to_string(self_.run) + "-";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(NodesDir(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".json")) continue;
    const auto object = ReadRecord(entry.path().string());
    if (!object || !IsOwn(*object)) continue;
    Member member = MemberOf(*object);
    if (member.index >= 0 && !member.address.empty()) members.push_back(std::move(member));
  }
  return members;
}

Status SharedDir::WriteLeadership(const LeaderRecord& record) const {
  MUSTER_RETURN_IF_ERROR(CheckOwned());
  const Leadership& leadership = record.leadership;
  const json object = {{"step", self_.step},
                       {"run", self_.run},
                       {"epoch", leadership.epoch},
                       {"index", leadership.leader.index},
                       {"node", leadership.leader.node},
                       {"address", leadership.leader.address},
                       {"worker", leadership.leader.has_worker},
                       {"grpc", leadership.grpc},
                       {"http", leadership.http},
                       {"keys", Security().substr(dir_.size() + 1)},
                       {"beat", record.heartbeat}};
  return WriteFileAtomically(LeaderFile(), object.dump() + "\n", 0600);
}

std::optional<LeaderRecord> SharedDir::ReadLeadership() const {
  const auto object = ReadRecord(LeaderFile());
  if (!object || !IsOwn(*object)) return std::nullopt;
  const auto epoch = static_cast<std::uint64_t>(std::max(ValueOf(*object, "epoch", 0L), 0L));
  Leadership leadership{epoch, MemberOf(*object), ValueOf(*object, "grpc", std::string()),
                        ValueOf(*object, "http", std::string())};
  if (leadership.epoch == 0 || leadership.leader.index < 0) return std::nullopt;
  return LeaderRecord{std::move(leadership), ValueOf(*object, "beat", std::uint64_t{0})};
}

Status SharedDir::WriteOutcome(const Outcome& outcome) const {
  MUSTER_RETURN_IF_ERROR(CheckOwned());
  const Ending& ending = outcome.ending;
  const json object = {
      {"step", self_.step},          {"run", self_.run},        {"exit_code", ending.exit_code},
      {"action", ActionOf(outcome)}, {"reason", ending.reason}, {"exclude", ending.exclude},
      {"closed", outcome.closed}};
  return WriteFileAtomically(OutcomeFile(), object.dump() + "\n", 0600);
}

std::optional<Outcome> SharedDir::ReadOutcome() const {
  const auto object = ReadRecord(OutcomeFile());
  if (!object || !IsOwn(*object)) return std::nullopt;
  const bool done = ValueOf(*object, "action", std::string()) == "done";
  return Outcome{.ending = {.exit_code = ValueOf(*object, "exit_code", 1),
                            .action = done ? EndAction::kLeave : EndAction::kRequeue,
                            .reason = ValueOf(*object, "reason", std::string()),
                            .exclude = ValueOf(*object, "exclude", std::vector<std::string>())},
                 .closed = ValueOf(*object, "closed", false)};
}

RunProgress SharedDir::ReadProgress() const {
  const auto object = ReadRecord(ProgressFile());
  if (!object || ValueOf(*object, "life", 0) != self_.life) return {};
  const RunProgress found{.run = ValueOf(*object, "run", -1),
                          .step = ValueOf(*object, "step", std::int64_t{-1}),
                          .checkpoint = ValueOf(*object, "checkpoint", std::int64_t{-1}),
                          .in_vain = ValueOf(*object, "in_vain", -1)};
  const bool sound = found.run >= 0 && found.run < self_.run && found.step >= 0 &&
                     found.checkpoint >= 0 && found.in_vain >= 0;
  return sound ? found : RunProgress{};
}

Status SharedDir::WriteProgress(const RunProgress& progress) const {
  MUSTER_RETURN_IF_ERROR(CheckOwned());
  const json object = {{"life", self_.life},
                       {"run", progress.run},
                       {"step", progress.step},
                       {"checkpoint", progress.checkpoint},
                       {"in_vain", progress.in_vain}};
  return WriteFileAtomically(ProgressFile(), object.dump() + "\n", 0600);
}

void SharedDir::RemoveOldKeys() const {
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
    const std::string path = entry.path().string();
    // One that is being made has a dot after its name.
    if (path.starts_with(dir_ + "/security-") && path != Security() &&
        !path.starts_with(Security() + "."))
      old.push_back(entry.path());
  }
  for (const auto& path : old) std::filesystem::remove_all(path, error);
}

}  // namespace muster::worker
