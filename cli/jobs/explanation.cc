#include "cli/jobs/explanation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "cli/base/exit_code.h"
#include "cli/jobs/job_json.h"
#include "common/base/byte_size.h"
#include "common/base/strings.h"
#include "common/base/wall_time.h"
#include "common/job_spec/job_times.h"
#include "common/resources/lack_words.h"

namespace muster {
namespace {

// --- JSON ---

Json NumberOrNull(std::int64_t number) { return number == 0 ? Json(nullptr) : Json(number); }

Json Names(const auto& names) {
  Json json = Json::array();
  for (const std::string& name : names) json.push_back(name);
  return json;
}

Json CauseJson(const v1::WaitCause& cause) {
  Json json = {{"code", cause.code()}};
  const auto add = [&json](const char* key, const Json& value) {
    if (!value.is_null()) json[key] = value;
  };
  add("nodes", NumberOrNull(cause.nodes()));
  add("lack", TextOrNull(cause.lack()));
  add("state", TextOrNull(cause.state()));
  if (!cause.names().empty()) json["names"] = Names(cause.names());
  add("job", TextOrNull(cause.job()));
  add("at", TimeOrNull(cause.at_unix_ms()));
  add("text", TextOrNull(cause.text()));
  if (cause.queue().empty()) return json;
  json["queue"] = cause.queue();
  json["used"] = AmountsJson(cause.used());
  json["wanted"] = AmountsJson(cause.wanted());
  json["ceiling"] = CeilingJson(cause.ceiling());
  if (!cause.of_user()) return json;
  json["user"] = TextOrNull(cause.user());
  json["used"]["running"] = cause.used().jobs();
  json["ceiling"]["running"] = NumberOrNull(cause.ceiling().jobs());
  return json;
}

Json DelaysJson(const auto& delays) {
  Json json = Json::array();
  for (const v1::PromiseDelay& delay : delays)
    json.push_back({{"job", delay.job()},
                    {"name", delay.name()},
                    {"promised", TimeOrNull(delay.promised_unix_ms())},
                    {"later", TimeOrNull(delay.later_unix_ms())},
                    {"cause", delay.cause()}});
  return json;
}

bool IsNamed(const v1::AdmittingChange& change) { return !change.names().empty(); }

Json ChangeJson(const v1::AdmittingChange& change) {
  Json json = {{"key", change.key()}};
  if (change.key() == "class" || change.key() == "queue") {
    json["value"] = IsNamed(change) ? Json(change.names(0)) : Json(nullptr);
  } else if (IsNamed(change)) {
    json["without"] = Names(change.names());
  } else {
    json["from"] = NumberOrNull(change.from());
    json["value"] = NumberOrNull(change.value());
  }
  json["delays"] = DelaysJson(change.delays());
  json["start_at"] = TimeOrNull(change.start_unix_ms());
  json["victims"] = Json::array();
  for (const v1::Victim& victim : change.victims())
    json["victims"].push_back({{"job", victim.job()},
                               {"name", victim.name()},
                               {"nodes", NumberOrNull(victim.nodes())},
                               {"cost", victim.cost()},
                               {"cause", victim.cause()}});
  return json;
}

// --- text ---

std::string Counted(std::int64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

std::string JobText(const std::string& id, const std::string& name) {
  return "job " + id + (name.empty() ? "" : " (" + Printable(name) + ")");
}

std::string AmountText(const v1::Amounts& amounts, bool gpus) {
  return gpus ? Counted(amounts.gpus(), "GPU", "GPUs") : Counted(amounts.slots(), "slot", "slots");
}

// As the coordinator says it (coordinator/scheduler/wait_reason.h).
std::string UserQuotaText(const v1::WaitCause& cause, bool gpus, bool slots) {
  const v1::Ceiling& ceiling = cause.ceiling();
  const auto has = [](int used, const std::string& most) {
    return std::to_string(used) + " of the " + most;
  };
  return (cause.user().empty() ? "its owner" : cause.user()) + " has " +
         (gpus ? has(cause.used().gpus(), Counted(ceiling.gpus(), "GPU", "GPUs"))
          : slots
              ? has(cause.used().slots(), Counted(ceiling.slots(), "slot", "slots"))
              : has(cause.used().jobs(), Counted(ceiling.jobs(), "running job", "running jobs"))) +
         " that one user may have in queue " + cause.queue();
}

std::string QuotaText(const v1::WaitCause& cause) {
  const v1::Ceiling& ceiling = cause.ceiling();
  const auto is_over = [](bool has, int used, int wanted, int most) {
    return has && wanted > 0 && used + wanted > most;
  };
  const bool gpus =
      is_over(ceiling.has_gpus(), cause.used().gpus(), cause.wanted().gpus(), ceiling.gpus());
  const bool slots =
      is_over(ceiling.has_slots(), cause.used().slots(), cause.wanted().slots(), ceiling.slots());
  if (cause.of_user()) return UserQuotaText(cause, gpus, slots);
  return "queue " + cause.queue() + " has " + AmountText(cause.used(), gpus) + " of " +
         std::to_string(gpus ? ceiling.gpus() : ceiling.slots()) +
         " that its ceiling allows, and " + AmountText(cause.wanted(), gpus) +
         " more would exceed it";
}

std::string KeptFor(const v1::WaitCause& cause) {
  return cause.job().empty() ? std::string("jobs") : JobText(cause.job(), cause.job_name());
}

std::string CauseText(const v1::WaitCause& cause) {
  const std::string& code = cause.code();
  const std::string at = cause.at_unix_ms() == 0 ? "" : UtcTime(cause.at_unix_ms());
  const std::string nodes = Counted(cause.nodes(), "node", "nodes");
  const bool one = cause.nodes() == 1;
  if (code == "held")
    return cause.text().empty() ? "held until it is released"
                                : "held until it is released: " + Printable(cause.text());
  if (code == "begin") return "not placed before " + at;
  if (code == "suspended") return "suspended until it is resumed";
  if (code == "backoff") return "tried again at " + at + ", after a failure without progress";
  if (code == "quota") return QuotaText(cause);
  if (code == "no_nodes") return "no node is ready";
  if (code == "topology") return "at most " + nodes + " with room in one place";
  if (code == "excluded") return nodes + (one ? " is" : " are") + " excluded";
  if (code == "unsuited" || code == "occupied")
    return nodes + (one ? " has " : " have ") +
           std::string(LackWords(cause.lack(), code == "occupied"));
  if (code == "reserved")
    return nodes + (one ? " is" : " are") + " kept for " + KeptFor(cause) +
           (at.empty() ? "" : ", which starts at " + at);
  if (code == "time_limit")
    return nodes + (one ? " has" : " have") + " room until " + KeptFor(cause) + " starts" +
           (at.empty() ? "" : " at " + at) + ", which the time limit reaches beyond";
  if (code == "reclaim")
    return JobText(cause.job(), cause.job_name()) +
           (at.empty() ? " would give way" : " gives way") + " to it" +
           (cause.nodes() > 0 ? " with " + nodes : "") +
           (cause.text().empty() ? "" : ", at a cost of " + cause.text()) +
           (at.empty() ? "" : ", and has stopped at " + at + " at the latest");
  const std::string names =
      Join(std::vector<std::string>(cause.names().begin(), cause.names().end()));
  if (code == "elsewhere") return names + ": " + Printable(cause.text());
  if (code == "lent")
    return "its shared spare " + names + " is lent" +
           (cause.job().empty() ? "" : " to " + JobText(cause.job(), cause.job_name())) +
           ", and is given back now";
  if (code == "health")
    return nodes + " that could hold a part of it " + (one ? "is " : "are ") + cause.state() +
           ": " + names + (cause.nodes() > cause.names_size() ? ", ..." : "");
  return code;
}

std::string BlockerText(const v1::Blocker& blocker) {
  const std::string job = JobText(blocker.job(), blocker.name());
  const std::string nodes = Counted(blocker.nodes(), "node", "nodes");
  const std::int64_t at = blocker.at_unix_ms();
  if (blocker.waits())
    return job + ": " + nodes + " kept for it" + (at == 0 ? "" : ", starts at " + UtcTime(at));
  const std::string has = blocker.in_queue() ? "has a part of the queue" : "has " + nodes;
  if (at == 0) return job + ": " + has + ", without a known end";
  return job + ": " + has + " until " + UtcTime(at) +
         (blocker.predicted() ? ", predicted by its steps, which is no promise" : " at the latest");
}

std::string DelayText(const v1::PromiseDelay& delay) {
  return "delays " + JobText(delay.job(), delay.name()) + ": from " +
         UtcTime(delay.promised_unix_ms()) + " to " +
         (delay.later_unix_ms() == 0 ? std::string("no planned start")
                                     : UtcTime(delay.later_unix_ms()));
}

// "resources.nodes: 1, now 2".
std::string ChangeText(const v1::AdmittingChange& change) {
  static const std::map<std::string, std::string_view> kPaths = {
      {"class", "class"},
      {"queue", "queue"},
      {"gpu_kind", "resources.gpu.kind"},
      {"gpu_memory", "resources.gpu.memory"},
      {"topology", "resources.topology.required"}};
  const std::string& key = change.key();
  const auto path = kPaths.find(key);
  const std::string name = path == kPaths.end() ? "resources." + key : std::string(path->second);
  const std::vector<std::string> names(change.names().begin(), change.names().end());
  if (key == "class" || key == "queue") return name + ": " + Join(names);
  if (key == "topology") return name + ": false, now in one " + Join(names);
  if (key == "gpu_kind") return name + ": any, now " + Join(names);
  if (key == "gpu_memory") return name + ": any, now >=" + FormatByteSize(change.from());
  if (key == "labels" || key == "exclude") return name + ": without " + Join(names);
  const auto value = [&key](std::int64_t number) {
    if (key == "time_limit") return LimitText(number);
    return key == "memory_per_rank" ? FormatByteSize(number) : std::to_string(number);
  };
  return name + ": " + value(change.value()) + ", now " + value(change.from());
}

std::string VictimText(const v1::Victim& victim) {
  return JobText(victim.job(), victim.name()) + " would give way to it" +
         (victim.nodes() > 0 ? " with " + Counted(victim.nodes(), "node", "nodes") : "") +
         ", at a cost of " + std::to_string(std::llround(victim.cost())) + " rank-seconds";
}

// Changes with which it starts at once, or when others have given way.
std::string ChangesText(const v1::ExplainJobResponse& answer, bool at_once) {
  std::string out;
  for (const v1::AdmittingChange& change : answer.changes()) {
    if (change.victims().empty() != at_once) continue;
    out += "  " + ChangeText(change) + "\n";
    for (const v1::Victim& victim : change.victims()) out += "    " + VictimText(victim) + "\n";
    if (change.start_unix_ms() != 0)
      out += "    starts at " + UtcTime(change.start_unix_ms()) + " at the latest\n";
    for (const v1::PromiseDelay& delay : change.delays()) out += "    " + DelayText(delay) + "\n";
  }
  return out;
}

std::string Lines(const auto& items, const auto& text) {
  std::string out;
  for (const auto& item : items) out += "  " + text(item) + "\n";
  return out;
}

// Whatever ends on the nodes that are ready, they cannot hold it.
bool IsWithoutNodes(const v1::ExplainJobResponse& answer) {
  int suited = answer.nodes_ready();
  for (const v1::WaitCause& cause : answer.causes())
    if (cause.code() == "unsuited" || cause.code() == "excluded") suited -= cause.nodes();
  return suited < answer.nodes_needed() || answer.blockers().empty();
}

std::string StartText(const v1::ExplainJobResponse& answer) {
  if (answer.promised_unix_ms() != 0)
    return "starts at " + UtcTime(answer.promised_unix_ms()) + " at the latest";
  if (!answer.collects().empty())
    return "collects what becomes free on " +
           Join(std::vector<std::string>(answer.collects().begin(), answer.collects().end())) +
           ", and starts when it has all; when is not known";
  if (answer.behind_planned())
    return "no start is predicted: it is behind the jobs whose starts are planned";
  if (std::ranges::find(answer.causes(), "lent", &v1::WaitCause::code) != answer.causes().end())
    return "starts as soon as it has its spare back";
  if (IsWithoutNodes(answer))
    return "no start is predicted: the nodes that are ready now cannot hold it";
  return "no start is predicted: no end of what it waits for is known";
}

// Everything below the first line.
std::string WaitText(const v1::ExplainJobResponse& answer) {
  std::string out;
  if (answer.waits() || !answer.causes().empty()) out += "\nWhy it waits\n";
  if (answer.waits())
    out += "  it needs " + Counted(answer.nodes_needed(), "node", "nodes") + "; of " +
           Counted(answer.nodes_ready(), "ready node ", "ready nodes ") +
           std::to_string(answer.nodes_with_room()) +
           (answer.nodes_with_room() == 1 ? " has" : " have") + " room now\n";
  out += Lines(answer.causes(), CauseText);
  if (!answer.blockers().empty()) {
    out += "\nJobs before it\n" + Lines(answer.blockers(), BlockerText);
    if (answer.more_blockers() > 0)
      out += "  and " + std::to_string(answer.more_blockers()) + " more\n";
  }
  if (!answer.pilots().empty())
    out += "\nPilot jobs that were requested for it\n" +
           Lines(answer.pilots(), [](const std::string& name) { return name; });
  if (!answer.waits()) return out;
  const std::string at_once = ChangesText(answer, /*at_once=*/true);
  const std::string reclaiming = ChangesText(answer, /*at_once=*/false);
  out += at_once.empty() ? "\nNo change of a single key would start it now\n"
                         : "\nIt would start now with one of\n" + at_once;
  if (!reclaiming.empty()) out += "\nOthers would give way to it with one of\n" + reclaiming;
  return out;
}

}  // namespace

Json ExplanationJson(const v1::ExplainJobResponse& answer) {
  const v1::Job& job = answer.job();
  const bool promised = answer.promised_unix_ms() != 0;
  const std::string start = answer.starts_now()          ? "now"
                            : promised                   ? "promised"
                            : !answer.collects().empty() ? "collects"
                            : answer.waits()             ? "unknown"
                                                         : "";
  Json json = {{"id", TextOrNull(job.id())},
               {"name", TextOrNull(job.name())},
               {"state", answer.has_job() ? Json(StateWord(job.state())) : Json(nullptr)},
               {"reason", TextOrNull(job.reason())},
               {"index", answer.index()},
               {"start", TextOrNull(start)},
               {"start_at", TimeOrNull(answer.promised_unix_ms())},
               {"nodes", Names(answer.starts_now() ? answer.nodes() : answer.collects())},
               {"nodes_needed", answer.nodes_needed()},
               {"nodes_ready", answer.nodes_ready()},
               {"nodes_with_room", answer.nodes_with_room()},
               {"causes", Json::array()},
               {"blockers", Json::array()},
               {"more_blockers", answer.more_blockers()},
               {"changes", Json::array()},
               {"delays", DelaysJson(answer.delays())},
               {"pilots", Names(answer.pilots())}};
  for (const v1::WaitCause& cause : answer.causes()) json["causes"].push_back(CauseJson(cause));
  for (const v1::Blocker& blocker : answer.blockers())
    json["blockers"].push_back({{"job", blocker.job()},
                                {"name", blocker.name()},
                                {"nodes", blocker.nodes()},
                                {"in_queue", blocker.in_queue()},
                                {"waits", blocker.waits()},
                                {"at", TimeOrNull(blocker.at_unix_ms())},
                                {"predicted", blocker.predicted()}});
  for (const v1::AdmittingChange& change : answer.changes())
    json["changes"].push_back(ChangeJson(change));
  return json;
}

std::string ExplanationText(const v1::ExplainJobResponse& answer) {
  const v1::Job& job = answer.job();
  std::string out =
      "Job " + job.id() + "  " + Printable(job.name()) + "  " + StateWord(job.state()) + "\n";
  if (answer.waits()) {
    out += "  " + (answer.starts_now() ? "is about to start" : StartText(answer)) + "\n";
  } else if (!job.reason().empty()) {
    out += "  " + Printable(job.reason()) + "\n";
  } else if (job.ended_unix_ms() != 0) {
    out += "  ended at " + UtcTime(job.ended_unix_ms()) + "\n";
  } else if (job.started_unix_ms() != 0) {
    out += "  has run since " + UtcTime(job.started_unix_ms()) + "\n";
  }
  return answer.starts_now() ? out : out + WaitText(answer);
}

std::string PlacementText(const v1::ExplainJobResponse& answer) {
  std::string out;
  if (answer.starts_now())
    out = "would start now on " +
          Join(std::vector<std::string>(answer.nodes().begin(), answer.nodes().end())) + "\n";
  else if (answer.waits())
    out = "would wait; " + StartText(answer) + "\n" + WaitText(answer);
  else
    out = "would not be placed now\n" + WaitText(answer);
  for (const v1::PromiseDelay& delay : answer.delays()) out += DelayText(delay) + "\n";
  return out;
}

}  // namespace muster
