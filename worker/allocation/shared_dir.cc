#include "worker/allocation/shared_dir.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/files.h"

namespace muster::worker {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRecord = 64 << 10;

// An object, or nothing for a file that is not there or is no object.
std::optional<json> ReadObject(const std::string& path) {
  const auto text = ReadFile(path, kMaxRecord);
  if (!text.ok()) return std::nullopt;
  json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

// A value of the type of `fallback`, or that where the key is absent or of another type.
template <typename T>
T Get(const json& object, const char* key, const T& fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    return fallback;
  }
}

Member MemberOf(const json& object) {
  return {Get(object, "index", -1), Get(object, "node", std::string()),
          Get(object, "address", std::string())};
}

}  // namespace

Status SharedDir::Make() const {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir_, 0700));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(Logs(), 0700));
  return MakeDirectories(NodesDir(), 0700);
}

Status SharedDir::WriteMember(const Member& member) const {
  const json object = {{"index", member.index},
                       {"node", member.node},
                       {"address", member.address},
                       {"pid", ::getpid()}};
  return WriteFileAtomically(
      NodesDir() + "/" + std::to_string(run_) + "-" + std::to_string(member.index) + ".json",
      object.dump() + "\n", 0600);
}

std::vector<Member> SharedDir::ReadMembers() const {
  std::vector<Member> members;
  const std::string prefix = std::to_string(run_) + "-";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(NodesDir(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".json")) continue;
    const auto object = ReadObject(entry.path().string());
    if (!object) continue;
    Member member = MemberOf(*object);
    if (member.index >= 0 && !member.address.empty()) members.push_back(std::move(member));
  }
  return members;
}

Status SharedDir::WriteLeadership(const Leadership& leadership) const {
  const json object = {{"run", run_},
                       {"epoch", leadership.epoch},
                       {"index", leadership.leader.index},
                       {"node", leadership.leader.node},
                       {"address", leadership.leader.address},
                       {"grpc", leadership.grpc},
                       {"http", leadership.http}};
  return WriteFileAtomically(LeaderFile(), object.dump() + "\n", 0600);
}

std::optional<Leadership> SharedDir::ReadLeadership() const {
  const auto object = ReadObject(LeaderFile());
  if (!object || Get(*object, "run", -1) != run_) return std::nullopt;
  const auto epoch = static_cast<std::uint64_t>(std::max(Get(*object, "epoch", 0L), 0L));
  Leadership leadership{epoch, MemberOf(*object), Get(*object, "grpc", std::string()),
                        Get(*object, "http", std::string())};
  if (leadership.epoch == 0 || leadership.leader.index < 0) return std::nullopt;
  return leadership;
}

Status SharedDir::WriteEnding(const Ending& ending, const std::string& action) const {
  const json object = {{"run", run_},
                       {"exit_code", ending.exit_code},
                       {"action", action},
                       {"reason", ending.reason},
                       {"exclude", ending.exclude}};
  return WriteFileAtomically(OutcomeFile(), object.dump() + "\n", 0600);
}

std::optional<Ending> SharedDir::ReadEnding() const {
  const auto object = ReadObject(OutcomeFile());
  if (!object || Get(*object, "run", -1) != run_) return std::nullopt;
  return Ending{.exit_code = Get(*object, "exit_code", 1),
                .action = Get(*object, "action", std::string()) == "done" ? EndAction::kLeave
                                                                          : EndAction::kRequeue,
                .reason = Get(*object, "reason", std::string()),
                .exclude = Get(*object, "exclude", std::vector<std::string>())};
}

}  // namespace muster::worker
