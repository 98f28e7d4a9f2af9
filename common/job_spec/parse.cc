#include "common/job_spec/parse.h"

#include <filesystem>

#include "common/base/ids.h"
#include "common/job_spec/container_block.h"
#include "common/job_spec/environment_rules.h"
#include "common/job_spec/http_url.h"
#include "common/job_spec/job_times.h"
#include "common/job_spec/resources_block.h"
#include "common/job_spec/train_block.h"
#include "common/job_spec/yaml_reader.h"
#include "common/job_spec/yaml_text.h"

namespace muster {
namespace {

constexpr int kMaxKeys = 4096;

void ReadOnEvent(MapReader& file, OnEventSpec* out) {
  auto map = file.Map("on_event");
  if (!map) return;
  map->TextList("kinds", &out->kinds);
  map->Text("webhook", &out->webhook);
  if (map->Has("command")) {
    map->Error("command",
               "the coordinator runs no commands of job files; give a webhook, or pipe 'muster "
               "events JOB -f -o jsonl' into a program of yours where you run it");
  } else if (out->webhook.empty()) {
    map->Require("webhook", "give the URL that gets the events, http[s]://HOST[:PORT]/PATH");
  } else if (const auto url = ParseHttpUrl(out->webhook); !url.ok()) {
    map->Error("webhook", url.status().message());
  }
  if (out->kinds.empty())
    map->Require("kinds", "name the kinds of events, for example [recovered, failed]");
  map->Finish();
}

// A command's processes say nothing of themselves, so none can be kept and no state is known of
// them.
void CheckCommand(MapReader& file, const JobSpec& spec) {
  CheckResources(file, spec);
  if (spec.train || spec.command.empty()) return;
  if (spec.min_nodes() < spec.resources.nodes)
    file.Error("resources",
               "min_nodes below nodes needs a train job: a command's ranks cannot be "
               "formed again with another number");
}

void ReadEnvironment(MapReader& file, std::map<std::string, std::string>* out, SpecErrors* errors) {
  for (const MapReader::Entry& entry : file.TextMap("env")) {
    const std::string key = "env." + entry.name;
    if (!IsVariableName(entry.name)) {
      errors->Add(entry.line, key, "is no name of an environment variable");
    } else if (const std::string why = WhyReserved(entry.name); !why.empty()) {
      errors->Add(entry.line, key, why);
    } else {
      (*out)[entry.name] = entry.text;
    }
  }
}

constexpr std::size_t kMaxSecrets = 64;

void ReadSecret(MapReader& map, JobSpec* out) {
  SecretUse use;
  map.Require("name", "the name by which 'muster secret set' stored it");
  map.Text("name", &use.name);
  if (map.Has("name") && !FollowsNameRule(use.name)) map.Error("name", std::string(kNameRule));
  use.as_file = map.Has("file");
  const std::string key = use.as_file ? "file" : "env";
  map.Text("file", &use.variable);
  map.Text("env", &use.variable);
  if (map.Has("env") == use.as_file)
    map.Error(key, "give either env or file: the variable that has the value, or a file's path");
  else if (!IsVariableName(use.variable))
    map.Error(key, "is no name of an environment variable");
  else if (const std::string why = WhyReserved(use.variable); !why.empty())
    map.Error(key, why);
  else if (out->env.contains(use.variable) ||
           std::ranges::find(out->secrets, use.variable, &SecretUse::variable) !=
               out->secrets.end())
    map.Error(key, use.variable + " is set twice");
  map.Finish();
  out->secrets.push_back(std::move(use));
}

void ReadSecrets(MapReader& file, JobSpec* out, SpecErrors* errors) {
  const auto list = file.Node("secrets");
  if (!list || list->IsNull()) return;
  if (!list->IsSequence())
    return file.Error("secrets", "expected a list such as [{name: hf, env: HF_TOKEN}]");
  if (list->size() > kMaxSecrets)
    return file.Error("secrets", "there may be " + std::to_string(kMaxSecrets) + " of them");
  for (std::size_t i = 0; i < list->size() && errors->ok(); ++i) {
    MapReader map = file.MapWithin("secrets", (*list)[i], i);
    if (errors->ok()) ReadSecret(map, out);
  }
}

void ReadCommand(MapReader& file, JobSpec* out) {
  file.TextList("command", &out->command);
  if (file.Has("command") && (out->command.empty() || out->command[0].empty()))
    file.Error("command", "expected a program and its arguments, such as [python, train.py]");
  std::string rendezvous = "agent";
  file.Choice("rendezvous", {{"agent", "rank0"}, {}}, &rendezvous);
  out->rendezvous = rendezvous == "rank0" ? RendezvousKind::kRank0 : RendezvousKind::kAgent;
  if (file.Has("rendezvous") && !file.Has("command"))
    file.Error("rendezvous", "is only for command jobs; leave it out");
}

void ReadName(MapReader& file, const std::string& key, std::string* out) {
  file.Text(key, out);
  if (!out->empty() && !FollowsJobNameRule(*out))
    file.Error(key, "expected " + std::string(kJobNameRule) + ", got '" + out->substr(0, 80) + "'");
}

// When the job is placed, and before which others.
void ReadScheduling(MapReader& file, JobSpec* out) {
  int priority = -1;
  file.Integer("priority", {0, kMaxPriority}, &priority);
  if (priority >= 0) out->priority = priority;
  ReadName(file, "queue", &out->queue);
  ReadName(file, "class", &out->priority_class);
  file.Text("begin", &out->begin);
  // Whether it is a time at all: which one, is resolved when the job is submitted.
  if (const auto begin = ResolveBegin(out->begin, 0); !out->begin.empty() && !begin.ok())
    file.Error("begin", begin.status().message());
  file.Boolean("hold", &out->hold);
  file.Boolean("preemptible", &out->preemptible);
  if (out->preemptible && out->resources.spares > 0)
    file.Error("preemptible",
               "such a job gives way itself and has no spares; leave one of both out");
}

void ReadJob(MapReader& file, JobSpec* out, SpecErrors* errors) {
  file.Require("name", "give the job a name such as name: llama-chat");
  ReadName(file, "name", &out->name);
  ReadResources(file, &out->resources);
  ReadScheduling(file, out);
  if (auto map = file.Map("restart")) {
    map->Integer("max_without_progress", {0, 1000}, &out->restart.max_without_progress);
    map->Boolean("in_place", &out->restart.in_place);
    map->Integer("standbys", {0, 64}, &out->restart.standbys);
    map->Finish();
  }
  ReadOnEvent(file, &out->on_event);
  ReadEnvironment(file, &out->env, errors);
  ReadSecrets(file, out, errors);
  file.Text("workdir", &out->workdir);
  ReadContainer(file, &out->container);
  if (file.Has("train") && file.Has("command"))
    file.Error("command", "give either train or command, not both");
  else if (!file.Has("train") && !file.Has("command"))
    file.Require("train", "give train (the built-in trainer) or command (a program of yours)");
  if (auto map = file.Map("train")) ReadTrainBlock(*map, out->resources, &out->train.emplace());
  ReadCommand(file, out);
  CheckCommand(file, *out);
  file.Finish();
}

}  // namespace

bool FollowsJobNameRule(std::string_view name) {
  return FollowsNameRule(name) && name.front() != '-';
}

Result<JobSpec> ParseJobSpec(std::string_view yaml, std::string_view file,
                             std::set<std::string>* keys) {
  const std::string name(file);
  try {
    MUSTER_ASSIGN_OR_RETURN(const YAML::Node document,
                            LoadYaml(yaml, name, {"job file", kMaxKeys}));
    if (document.IsNull())
      return InvalidArgument(name + ":1: the job file is empty; docs/job-file.md shows one");
    if (!document.IsMap())
      return InvalidArgument(name + ":1: expected a map of keys such as name: and train:");
    SpecErrors errors(name, keys);
    MapReader reader(&errors, document, "");
    JobSpec spec;
    ReadJob(reader, &spec, &errors);
    MUSTER_RETURN_IF_ERROR(errors.status());
    return spec;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(name + ":" + std::to_string(line) + ": is no valid YAML: " + error.msg);
  }
}

std::string OutputDirectory(const JobSpec& spec, const JobId& job) {
  const std::filesystem::path directory =
      spec.train ? spec.train->output_dir : "muster-" + spec.name + "-" + job.value;
  std::string path = (std::filesystem::path(spec.workdir) / directory).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace muster
