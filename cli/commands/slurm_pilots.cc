#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "common/base/files.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxStatus = 64 << 20;

std::string Word(const Json& pilot, const char* key) {
  const auto found = pilot.find(key);
  return found != pilot.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t Number(const Json& pilot, const char* key) {
  const auto found = pilot.find(key);
  return found != pilot.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : Printable(text); }

// What the coordinator has written, for a command's output: times as text.
Json Shown(const Json& status) {
  Json pilots = Json::array();
  for (const Json& pilot : status.value("pilots", Json::array())) {
    const std::int64_t ends = Number(pilot, "ends_unix_ms");
    const std::int64_t job = Number(pilot, "slurm_job_id");
    const std::string reason = Word(pilot, "reason");
    const std::string nodes = Word(pilot, "nodes");
    pilots.push_back({{"key", Word(pilot, "key")},
                      {"slurm_job_id", job == 0 ? Json(nullptr) : Json(job)},
                      {"state", Word(pilot, "state")},
                      {"reason", reason.empty() ? Json(nullptr) : Json(reason)},
                      {"nodes", nodes.empty() ? Json(nullptr) : Json(nodes)},
                      {"why", Word(pilot, "why")},
                      {"asked", IsoTime(Number(pilot, "asked_unix_ms"))},
                      {"ends", ends == 0 ? Json(nullptr) : Json(IsoTime(ends))}});
  }
  return {{"pilots", std::move(pilots)}, {"conditions", status.value("conditions", Json::array())}};
}

}  // namespace

CommandResult RunSlurmPilots(CommandContext& context) {
  const ClusterPaths& paths = context.client.paths();
  const auto text = ReadFile(paths.PilotsStatus(), kMaxStatus);
  Json status = {{"pilots", Json::array()}, {"conditions", Json::array()}};
  if (text.ok()) {
    status = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!status.is_object() || !status.value("pilots", Json()).is_array())
      return DataLoss(paths.PilotsStatus() + " is no status of pilots; is another program at it?");
  } else if (text.status().code() != StatusCode::kNotFound) {
    return text.status();
  }
  Terminal& terminal = context.terminal;
  if (PrintStructured(terminal.out, context.output, Shown(status), "key")) return kExitSuccess;
  Table table({"PILOT", "SLURM JOB", "STATE", "NODES", "ASKED", "ENDS", "WHY"});
  for (const Json& pilot : status.at("pilots")) {
    const std::int64_t ends = Number(pilot, "ends_unix_ms");
    const std::int64_t job = Number(pilot, "slurm_job_id");
    const std::string reason = Word(pilot, "reason");
    table.Add(
        {Word(pilot, "key"), job == 0 ? "-" : std::to_string(job), Word(pilot, "state"),
         OrDash(Word(pilot, "nodes")), LocalTime(Number(pilot, "asked_unix_ms")),
         ends == 0 ? "-" : LocalTime(ends),
         Printable(Word(pilot, "why")) + (reason.empty() ? "" : " (" + Printable(reason) + ")")});
  }
  table.Print(terminal.out, terminal.color);
  for (const Json& condition : status.value("conditions", Json::array()))
    if (condition.is_string()) terminal.out << Printable(condition.get<std::string>()) << "\n";
  return kExitSuccess;
}

}  // namespace muster
