// slurm pilots: the Slurm jobs that a coordinator submitted to get nodes.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/files.h"

namespace muster::verbs {
namespace {

constexpr std::int64_t kMaxStatus = 64 << 20;

std::string TextAt(const Json& pilot, const char* key) {
  const auto found = pilot.find(key);
  return found != pilot.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t NumberAt(const Json& pilot, const char* key) {
  const auto found = pilot.find(key);
  return found != pilot.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// The coordinator's status file as the verb prints it: times as text.
Json PilotsJson(const Json& status) {
  Json pilots = Json::array();
  for (const Json& pilot : status.value("pilots", Json::array())) {
    const std::int64_t job = NumberAt(pilot, "slurm_job_id");
    pilots.push_back({{"key", TextAt(pilot, "key")},
                      {"slurm_job_id", job == 0 ? Json(nullptr) : Json(job)},
                      {"state", TextAt(pilot, "state")},
                      {"reason", TextOrNull(TextAt(pilot, "reason"))},
                      {"nodes", TextOrNull(TextAt(pilot, "nodes"))},
                      {"why", TextAt(pilot, "why")},
                      {"asked", IsoTime(NumberAt(pilot, "asked_unix_ms"))},
                      {"ends", TimeOrNull(NumberAt(pilot, "ends_unix_ms"))}});
  }
  return {{"pilots", std::move(pilots)}, {"conditions", status.value("conditions", Json::array())}};
}

}  // namespace

struct SlurmPilots {
  static constexpr char kName[] = "pilots";
  static constexpr char kSummary[] = "List the nodes that a coordinator requested from Slurm";

  void AddFlags(Flags&) {}

  // Reads the file that the coordinator in --dir writes.
  CommandResult Run(CommandContext& context) const {
    const ClusterPaths& paths = context.client.paths();
    const auto text = ReadFile(paths.PilotsStatus(), kMaxStatus);
    Json status = {{"pilots", Json::array()}, {"conditions", Json::array()}};
    if (text.ok()) {
      status = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
      if (!status.is_object() || !status.value("pilots", Json()).is_array())
        return DataLoss(paths.PilotsStatus() +
                        " is not a pilot status file; another program may have written it");
    } else if (text.status().code() != StatusCode::kNotFound) {
      return text.status();
    }
    Terminal& terminal = context.terminal;
    if (PrintStructured(terminal.out, context.output, PilotsJson(status), "key"))
      return kExitSuccess;
    Table table({"PILOT", "SLURM JOB", "STATE", "NODES", "ASKED", "ENDS", "WHY"});
    for (const Json& pilot : status.at("pilots")) {
      const std::int64_t job = NumberAt(pilot, "slurm_job_id");
      const std::string reason = TextAt(pilot, "reason");
      table.Add({TextAt(pilot, "key"), job == 0 ? "-" : std::to_string(job), TextAt(pilot, "state"),
                 OrDash(Printable(TextAt(pilot, "nodes"))),
                 LocalTime(NumberAt(pilot, "asked_unix_ms")),
                 LocalTime(NumberAt(pilot, "ends_unix_ms")),
                 Printable(TextAt(pilot, "why")) +
                     (reason.empty() ? "" : " (" + Printable(reason) + ")")});
    }
    table.Print(terminal.out, terminal.color);
    for (const Json& condition : status.value("conditions", Json::array()))
      if (condition.is_string()) terminal.out << Printable(condition.get<std::string>()) << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<SlurmPilots>(CommandLine& line);

}  // namespace muster::verbs
