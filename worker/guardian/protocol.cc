#include "worker/guardian/protocol.h"

#include <type_traits>

#include "common/base/json.h"
#include "common/base/json_integer.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// Log lines and error texts may contain bytes that are not UTF-8; they are replaced, not refused.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ToJson(const GuardianPrepare& m) {
  return {{"type", "prepare"},
          {"generation", m.generation},
          {"master", static_cast<int>(m.master)},
          {"bind_address", m.bind_address},
          {"spare", m.spare},
          {"devices", m.devices},
          {"memory_limit_bytes", m.memory_limit_bytes}};
}

Json ToJson(const GuardianLaunch& m) {
  return {{"type", "launch"},
          {"generation", m.generation},
          {"rank", m.rank},
          {"argv", m.argv},
          {"environment", m.environment},
          {"working_directory", m.working_directory},
          {"log_path", m.log_path},
          {"control", m.control},
          {"listen", m.listen},
          {"node_ranks", m.node_ranks},
          {"cpus", m.cpus},
          {"memory_node", m.memory_node},
          {"rendezvous_token", m.rendezvous_token},
          {"devices", m.devices}};
}

Json ToJson(const GuardianAbort& m) {
  return {{"type", "abort"},
          {"generation", m.generation},
          {"grace_seconds", m.grace_seconds},
          {"reason", m.reason},
          {"park_seconds", m.park_seconds},
          {"kill_ranks", m.kill_ranks},
          {"next_master", static_cast<int>(m.next_master)},
          {"next_bind_address", m.next_bind_address}};
}

Json ToJson(const GuardianStandby& m) {
  return {{"type", "standby"},
          {"count", m.count},
          {"at_once", m.at_once},
          {"first", m.first},
          {"launch", ToJson(m.launch)}};
}

Json ToJson(const GuardianStop& m) {
  return {{"type", "stop"}, {"generation", m.generation}, {"reason", m.reason}};
}

Json ToJson(const GuardianFault& m) {
  return {{"type", "fault"},
          {"generation", m.generation},
          {"rank", m.rank},
          {"kind", m.kind},
          {"argument", m.argument}};
}

Json ToJson(const GuardianHold& m) { return {{"type", "hold"}, {"name", m.name}}; }

Json ToJson(const GuardianSecrets&) { return {{"type", "secrets"}}; }

Json ToJson(const GuardianPing&) { return {{"type", "ping"}}; }

Json ToJson(const GuardianRelease&) { return {{"type", "release"}}; }

Json ToJson(const GuardianHello& m) {
  return {{"type", "hello"},
          {"pid", m.pid},
          {"job", m.job},
          {"generation", m.generation},
          {"answers_pings", m.answers_pings},
          {"min_packets", m.packets.min},
          {"packets", m.packets.max}};
}

Json ToJson(const GuardianPrepared& m) {
  return {{"type", "prepared"},
          {"generation", m.generation},
          {"error", m.error},
          {"master_port", m.master_port}};
}

Json ToJson(const GuardianRankStarted& m) {
  return {{"type", "rank_started"}, {"generation", m.generation}, {"rank", m.rank}, {"pid", m.pid}};
}

Json ToJson(const GuardianRankExited& m) {
  return {{"type", "rank_exited"},
          {"generation", m.generation},
          {"rank", m.rank},
          {"exit_code", m.end.exit.exit_code},
          {"signal", m.end.exit.signal},
          {"age_seconds", m.age_seconds},
          {"log_tail", m.log_tail},
          {"node_stopped", m.end.node_stopped},
          {"ended", m.end.ended},
          {"out_of_memory", m.end.out_of_memory},
          {"asked_to_stop", m.end.asked_to_stop}};
}

Json ToJson(const GuardianReport& m) {
  return {{"type", "report"}, {"generation", m.generation}, {"rank", m.rank}, {"json", m.json}};
}

Json ToJson(const GuardianQuiesced& m) {
  return {{"type", "quiesced"},
          {"generation", m.generation},
          {"unkillable_pids", m.unkillable_pids},
          {"parked_ranks", m.parked_ranks},
          {"standbys", m.standbys},
          {"next_master_port", m.next_master_port}};
}

Json ToJson(const GuardianSegment& m) {
  return {{"type", "segment"}, {"name", m.name}, {"dropped", m.dropped}};
}

Json ToJson(const GuardianSynced&) { return {{"type", "synced"}}; }

Json ToJson(const GuardianAlive&) { return {{"type", "alive"}}; }

Json ToJson(const GuardianRefused& m) {
  return {{"type", "refused"},
          {"generation", m.generation},
          {"newest", m.newest},
          {"message", m.message}};
}

template <typename T>
T Get(const Json& json, const char* key) {
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>) {
    return IntegerOf<T>(json.at(key));
  } else {
    return json.at(key).get<T>();
  }
}

// As many as the coordinator takes of ranks of a node, or of processes: a Hello with more is
// refused, and with it the node.
constexpr std::size_t kMaxIntegers = 4096;

template <typename T>
std::vector<T> Integers(const Json& json, const char* key, bool required = true) {
  std::vector<T> integers;
  if (!required && !json.contains(key)) return integers;
  const Json& list = json.at(key);
  if (list.size() > kMaxIntegers)
    throw Json::other_error::create(502, std::string(key) + " is too long", &list);
  for (const Json& each : list) integers.push_back(IntegerOf<T>(each));
  return integers;
}

GuardianLaunch LaunchFromJson(const Json& j) {
  return {.generation = Get<Generation>(j, "generation"),
          .rank = Get<int>(j, "rank"),
          .argv = Get<std::vector<std::string>>(j, "argv"),
          .environment = Get<std::vector<std::string>>(j, "environment"),
          .working_directory = Get<std::string>(j, "working_directory"),
          .log_path = Get<std::string>(j, "log_path"),
          .control = Get<bool>(j, "control"),
          .listen = Get<bool>(j, "listen"),
          .node_ranks = Integers<int>(j, "node_ranks"),
          .cpus = Integers<int>(j, "cpus", /*required=*/false),
          .memory_node = IntegerOr(j, "memory_node", -1),
          .rendezvous_token = j.value("rendezvous_token", ""),
          .devices = j.value("devices", std::vector<std::string>())};
}

// The id of an exception.
constexpr int kUnknownType = 500;

GuardianCommand CommandFromJson(const Json& j) {
  const auto type = Get<std::string>(j, "type");
  if (type == "release") return GuardianRelease{};
  if (type == "ping") return GuardianPing{};
  if (type == "secrets") return GuardianSecrets{};
  if (type == "hold") return GuardianHold{Get<std::string>(j, "name")};
  if (type == "launch") return LaunchFromJson(j);
  if (type == "standby")
    return GuardianStandby{.count = Get<int>(j, "count"),
                           .at_once = Get<bool>(j, "at_once"),
                           .first = IntegerOr(j, "first", 0),
                           .launch = LaunchFromJson(j.at("launch"))};
  const auto generation = [&j] { return Get<Generation>(j, "generation"); };
  if (type == "prepare")
    return GuardianPrepare{
        .generation = generation(),
        .master = static_cast<MasterSocket>(Get<int>(j, "master")),
        .bind_address = Get<std::string>(j, "bind_address"),
        .spare = Get<bool>(j, "spare"),
        .devices = j.value("devices", std::vector<std::string>()),
        .memory_limit_bytes = IntegerOr(j, "memory_limit_bytes", std::uint64_t{0})};
  if (type == "abort")
    return GuardianAbort{.generation = generation(),
                         .grace_seconds = Get<double>(j, "grace_seconds"),
                         .reason = Get<std::string>(j, "reason"),
                         .park_seconds = j.value("park_seconds", 0.0),
                         .kill_ranks = Integers<int>(j, "kill_ranks", /*required=*/false),
                         .next_master = static_cast<MasterSocket>(IntegerOr(j, "next_master", 0)),
                         .next_bind_address = j.value("next_bind_address", "")};
  if (type == "stop") return GuardianStop{generation(), Get<std::string>(j, "reason")};
  if (type == "fault")
    return GuardianFault{generation(), Get<int>(j, "rank"), Get<std::string>(j, "kind"),
                         Get<std::string>(j, "argument")};
  throw Json::other_error::create(kUnknownType, "unknown command '" + type + "'", &j);
}

GuardianRankExited ExitedFromJson(const Json& j) {
  return {.generation = Get<Generation>(j, "generation"),
          .rank = Get<int>(j, "rank"),
          .end = {.exit = {.exit_code = Get<int>(j, "exit_code"), .signal = Get<int>(j, "signal")},
                  .node_stopped = j.value("node_stopped", false),
                  .ended = j.value("ended", false),
                  .out_of_memory = j.value("out_of_memory", false),
                  .asked_to_stop = j.value("asked_to_stop", false)},
          .age_seconds = Get<double>(j, "age_seconds"),
          .log_tail = Get<std::vector<std::string>>(j, "log_tail")};
}

GuardianEvent EventFromJson(const Json& j) {
  const auto type = Get<std::string>(j, "type");
  if (type == "synced") return GuardianSynced{};
  if (type == "alive") return GuardianAlive{};
  if (type == "segment")
    return GuardianSegment{Get<std::string>(j, "name"), Get<bool>(j, "dropped")};
  const auto generation = [&j] { return Get<Generation>(j, "generation"); };
  if (type == "hello")
    return GuardianHello{Get<std::int64_t>(j, "pid"),
                         Get<std::string>(j, "job"),
                         generation(),
                         j.value("answers_pings", false),
                         {IntegerOr(j, "min_packets", kFirstPackets.min),
                          IntegerOr(j, "packets", kFirstPackets.max)}};
  if (type == "prepared")
    return GuardianPrepared{generation(), Get<std::string>(j, "error"), Get<int>(j, "master_port")};
  if (type == "rank_started")
    return GuardianRankStarted{generation(), Get<int>(j, "rank"), Get<std::int64_t>(j, "pid")};
  if (type == "rank_exited") return ExitedFromJson(j);
  if (type == "report")
    return GuardianReport{generation(), Get<int>(j, "rank"), Get<std::string>(j, "json")};
  if (type == "quiesced")
    return GuardianQuiesced{generation(), Integers<std::int64_t>(j, "unkillable_pids"),
                            Integers<int>(j, "parked_ranks", /*required=*/false),
                            IntegerOr(j, "standbys", 0), IntegerOr(j, "next_master_port", 0)};
  if (type == "refused")
    return GuardianRefused{generation(), Get<Generation>(j, "newest"),
                           Get<std::string>(j, "message")};
  throw Json::other_error::create(kUnknownType, "unknown event '" + type + "'", &j);
}

// JSON exceptions end here.
template <typename Value, typename Convert>
Result<Value> Parse(std::string_view text, const char* what, Convert convert) {
  try {
    return Value(convert(Json::parse(text)));
  } catch (const Json::exception& error) {
    if (error.id == kUnknownType) return Unimplemented(std::string(what) + ": " + error.what());
    return InvalidArgument(std::string(what) + ": " + error.what());
  }
}

}  // namespace

std::string Encode(const GuardianCommand& command) {
  return std::visit([](const auto& m) { return Dump(ToJson(m)); }, command);
}

std::string Encode(const GuardianEvent& event) {
  return std::visit([](const auto& m) { return Dump(ToJson(m)); }, event);
}

Result<GuardianCommand> DecodeGuardianCommand(std::string_view packet) {
  return Parse<GuardianCommand>(packet, "a command to the guardian", CommandFromJson);
}

Result<GuardianEvent> DecodeGuardianEvent(std::string_view packet) {
  return Parse<GuardianEvent>(packet, "an event of the guardian", EventFromJson);
}

std::string ExitRecordName(Generation generation, int rank) {
  return "exits/g" + std::to_string(generation) + "-rank-" + std::to_string(rank) + ".json";
}

std::string StoppedRecordName(Generation generation) {
  return "exits/g" + std::to_string(generation) + "-stopped";
}

std::string EncodeExitRecord(const GuardianRankExited& exited) { return Dump(ToJson(exited)); }

Result<GuardianRankExited> DecodeExitRecord(std::string_view text) {
  return Parse<GuardianRankExited>(text, "an exit record", ExitedFromJson);
}

}  // namespace muster
