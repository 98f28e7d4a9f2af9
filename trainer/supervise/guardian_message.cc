#include "trainer/supervise/guardian_message.h"

#include <cstdint>
#include <utility>

#include "common/base/json.h"

namespace muster {
namespace {

using nlohmann::json;

std::string Text(const json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Generation GenerationOf(const json& message) {
  const auto found = message.find("generation");
  return found != message.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::optional<GuardianMessage> ParseAssignment(const json& message, std::vector<UniqueFd> fds) {
  Assignment assignment{.generation = GenerationOf(message)};
  assignment.rendezvous_token = Text(message, "rendezvous_token");
  if (assignment.generation <= 0) return std::nullopt;
  if (const auto list = message.find("environment"); list != message.end() && list->is_array()) {
    for (const json& each : *list) {
      if (!each.is_string()) return std::nullopt;
      const std::string text = each.get<std::string>();
      const std::size_t equals = text.find('=');
      if (equals == std::string::npos) return std::nullopt;
      assignment.environment[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  const auto names = message.find("descriptors");
  const std::size_t count = names == message.end() ? 0 : names->size();
  if (count != fds.size()) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    if ((*names)[i] == "log") assignment.log = std::move(fds[i]);
    if ((*names)[i] == "listen") assignment.listen = std::move(fds[i]);
    if ((*names)[i] == "lock") assignment.locks.push_back(std::move(fds[i]));
  }
  return assignment;
}

}  // namespace

std::optional<GuardianMessage> ParseGuardianMessage(Packet packet) {
  const json message = json::parse(packet.data, nullptr, false);
  if (!message.is_object()) return std::nullopt;
  const std::string type = Text(message, "type");
  if (type == "assign") return ParseAssignment(message, std::move(packet.fds));
  if (type == "park") return ParkRequest{GenerationOf(message), Text(message, "reason")};
  if (type == "stop") return StopRequest{Text(message, "reason")};
  if (type == "fault") return FaultRequest{Text(message, "kind"), Text(message, "argument")};
  if (type == "segment" && packet.fds.size() == 1) {
    return HeldSegment{Text(message, "name"), std::move(packet.fds.front())};
  }
  return std::nullopt;
}

}  // namespace muster
