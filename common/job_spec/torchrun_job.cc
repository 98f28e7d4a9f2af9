#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/job_spec/environment_rules.h"
#include "common/job_spec/job_spec.h"
#include "common/job_spec/torchrun_flags.h"
#include "common/job_spec/torchrun_table.h"

namespace muster {
namespace {

constexpr int kMostRanks = 64;
constexpr int kMostRestarts = 999;  // restart.max_without_progress counts one more
constexpr std::size_t kMostNameBytes = 63;

std::optional<int> NumberOf(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Status Bad(const std::string& flag, const std::string& value, const std::string& expected) {
  return InvalidArgument("--" + flag + ": expected " + expected + ", got '" + value + "'");
}

struct NodeRange {
  int least = 1;
  int most = 1;
};

Result<NodeRange> ReadNodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto least = NumberOf(std::string_view(text).substr(0, colon));
  const auto most =
      colon == std::string::npos ? least : NumberOf(std::string_view(text).substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least || *most > kMaxClusterNodes) {
    return Bad("nnodes", text, "N or LEAST:MOST, 1 to " + std::to_string(kMaxClusterNodes));
  }
  return NodeRange{*least, *most};
}

struct Ranks {
  int per_node = 1;
  bool gpus = false;
};

Result<Ranks> ReadRanks(const std::string& text, const TorchrunSurroundings& with) {
  Ranks ranks{1, with.gpus > 0};
  if (text == "cpu" || (text == "auto" && with.gpus == 0)) {
    ranks.per_node = with.cpus;
    ranks.gpus = false;
  } else if (text == "gpu" || text == "auto") {
    if (with.gpus == 0) return Bad("nproc-per-node", text, "a machine with GPUs for that");
    ranks.per_node = with.gpus;
  } else if (const auto number = NumberOf(text)) {
    ranks.per_node = *number;
  } else {
    return Bad("nproc-per-node", text, "a number, auto, cpu or gpu");
  }
  if (ranks.per_node < 1 || ranks.per_node > kMostRanks) {
    return Bad("nproc-per-node", std::to_string(ranks.per_node),
               "1 to " + std::to_string(kMostRanks) + " ranks");
  }
  return ranks;
}

// What --redirects and --tee say of each local rank: "3", or "0:3,1:0".
Result<std::map<int, int>> ReadStreams(const TorchrunFlags& flags, const std::string& flag,
                                       int ranks) {
  const std::string& text = flags.at(flag);
  const auto bad = [&] { return Bad(flag, text, "0 or 3, or RANK:STREAMS,..., such as 0:3,1:0"); };
  std::map<int, int> streams;
  const auto add = [&](int rank, std::optional<int> value) {
    streams[rank] = value.value_or(-1);
    return value == 0 || value == 3;
  };
  if (const auto one = NumberOf(text); one == 1 || one == 2) {
    return InvalidArgument("--" + flag + " " + text +
                           ": Muster keeps both streams of a rank in one file; give 3 or 0");
  }
  if (text.find(':') == std::string::npos) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!add(rank, NumberOf(text))) return bad();
    }
    return streams;
  }
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find(',', from), text.size());
    const std::string_view part = std::string_view(text).substr(from, end - from);
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) return bad();
    const auto rank = NumberOf(part.substr(0, colon));
    if (!rank || !add(*rank, NumberOf(part.substr(colon + 1)))) return bad();
    from = end + 1;
  }
  return streams;
}

// Ranks whose streams go to a file alone stay off the console, and those that a filter leaves out.
Result<std::set<int>> ReadShown(const TorchrunFlags& flags, int ranks) {
  using Streams = std::map<int, int>;
  MUSTER_ASSIGN_OR_RETURN(Streams redirected, ReadStreams(flags, "redirects", ranks));
  MUSTER_ASSIGN_OR_RETURN(Streams teed, ReadStreams(flags, "tee", ranks));
  std::set<int> wanted;
  const std::string& filter = flags.at("local-ranks-filter");
  for (std::size_t from = 0; !filter.empty() && from <= filter.size();) {
    const std::size_t end = std::min(filter.find(',', from), filter.size());
    const auto rank = NumberOf(std::string_view(filter).substr(from, end - from));
    if (!rank) return Bad("local-ranks-filter", filter, "local ranks, such as 0,1");
    wanted.insert(*rank);
    from = end + 1;
  }
  std::set<int> shown;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool filtered = !filter.empty() && !wanted.contains(rank);
    if (!filtered && (redirected[rank] == 0 || teed[rank] == 3)) shown.insert(rank);
  }
  return shown;
}

// Accepted flags that mean nothing here, and refused ones. A flag with its default says nothing.
Status CheckTreatments(const TorchrunFlags& flags, std::vector<std::string>* notes) {
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    const std::string name(flag.name);
    const std::string& value = flags.at(name);
    if (value == (flag.has_value ? flag.otherwise : "0")) continue;
    const std::string said =
        "--" + name + (flag.has_value ? " " + value : "") + ": " + std::string(flag.why);
    if (flag.treatment == TorchrunTreatment::kRefused) return InvalidArgument(said);
    if (flag.treatment == TorchrunTreatment::kNoted) notes->push_back(said);
  }
  const auto rank = NumberOf(flags.at("node-rank"));
  if (!rank) return Bad("node-rank", flags.at("node-rank"), "a number");
  if (*rank != 0) {
    return InvalidArgument("--node-rank " + flags.at("node-rank") +
                           ": one call starts the ranks of all nodes; run it once, with --nnodes "
                           "and without --node-rank");
  }
  return OkStatus();
}

// The run's id, where the caller gave one that means something.
bool IsNamed(const TorchrunFlags& flags) {
  const std::string& id = flags.at("rdzv-id");
  return !id.empty() && id != "none" && !flags.on("standalone");
}

// A name of a job: the run's id where it is one, else the script's.
std::string NameOf(const TorchrunFlags& flags) {
  std::string name =
      IsNamed(flags) ? flags.at("rdzv-id") : std::filesystem::path(flags.script).stem().string();
  for (char& c : name) {
    const bool fits =
        std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    if (!fits) c = '-';
  }
  name.resize(std::min(name.size(), kMostNameBytes));
  const std::size_t first = name.find_first_not_of("-._");
  return first == std::string::npos ? "run" : name.substr(first);
}

Result<std::vector<std::string>> CommandOf(const TorchrunFlags& flags,
                                           const TorchrunSurroundings& with) {
  std::vector<std::string> command;
  if (!flags.on("no-python") || flags.on("run-path")) {
    const auto python = with.environment.find("PYTHON_EXEC");
    command = {python == with.environment.end() ? with.python : python->second, "-u"};
    if (flags.on("module") && !flags.on("run-path")) command.push_back("-m");
  } else if (flags.on("module")) {
    return InvalidArgument("--no-python and --module exclude each other: a module needs Python");
  }
  command.push_back(flags.script);
  command.insert(command.end(), flags.script_arguments.begin(), flags.script_arguments.end());
  return command;
}

// The caller's variables, but those that Muster sets, and those that are true of him alone.
std::map<std::string, std::string> EnvironmentOf(const TorchrunFlags& flags,
                                                 const TorchrunSurroundings& with,
                                                 std::vector<std::string>* notes) {
  std::map<std::string, std::string> environment;
  std::string dropped;
  for (const auto& [name, value] : with.environment) {
    const bool elastic = name.starts_with("TORCHELASTIC_");
    if (elastic) dropped += (dropped.empty() ? "" : ", ") + name;
    const bool other = elastic || IsOfOneTask(name) || name.starts_with("PET_") ||
                       !IsVariableName(name) || !WhyReserved(name).empty();
    if (!other) environment[name] = value;
  }
  if (!dropped.empty())
    notes->push_back(dropped + ": left out, since Muster sets each rank's own" +
                     (IsNamed(flags) ? "" : "; --rdzv-id gives TORCHELASTIC_RUN_ID"));
  // What scripts name their checkpoints by stays the same when the run is submitted again.
  if (IsNamed(flags)) environment["TORCHELASTIC_RUN_ID"] = flags.at("rdzv-id");
  environment.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");  // as torchrun sets it
  return environment;
}

// Threads of a rank: as the caller has set it, else one where a node has several ranks.
Result<int> ThreadsOf(const TorchrunSurroundings& with, int ranks) {
  const auto given = with.environment.find("OMP_NUM_THREADS");
  if (given == with.environment.end()) return ranks > 1 ? 1 : std::clamp(with.cpus, 1, 1024);
  const auto threads = NumberOf(given->second);
  if (!threads || *threads < 1 || *threads > 1024) {
    return InvalidArgument("OMP_NUM_THREADS: expected 1 to 1024, got '" + given->second + "'");
  }
  return *threads;
}

void EmitList(YAML::Emitter& yaml, const std::vector<std::string>& texts) {
  yaml << YAML::Flow << YAML::BeginSeq;
  for (const std::string& text : texts) yaml << YAML::DoubleQuoted << text;
  yaml << YAML::EndSeq;
}

}  // namespace

Result<TorchrunJob> JobFromTorchrun(const TorchrunFlags& flags, const TorchrunSurroundings& with) {
  TorchrunJob job;
  MUSTER_RETURN_IF_ERROR(CheckTreatments(flags, &job.notes));
  MUSTER_ASSIGN_OR_RETURN(const NodeRange nodes, ReadNodes(flags.at("nnodes")));
  MUSTER_ASSIGN_OR_RETURN(const Ranks ranks, ReadRanks(flags.at("nproc-per-node"), with));
  job.standalone = flags.on("standalone");
  if (job.standalone && nodes.most > 1) {
    return InvalidArgument(
        "--standalone with --nnodes " + flags.at("nnodes") +
        ": a cluster of its own has one node, this machine; for one node leave --nnodes out, for "
        "several leave --standalone out and name the cluster: muster run --dir DIR --nnodes " +
        flags.at("nnodes") + " ...");
  }
  job.nodes = with.nodes > 0 ? std::clamp(with.nodes, nodes.least, nodes.most) : nodes.most;
  job.ranks_per_node = ranks.per_node;
  if (nodes.least < nodes.most) {
    job.notes.push_back("--nnodes " + flags.at("nnodes") + ": it runs on " +
                        std::to_string(job.nodes) +
                        " nodes, and waits for as many after a fault; a command's ranks cannot "
                        "be formed again with another number");
  }
  const auto restarts = NumberOf(flags.at("max-restarts"));
  if (!restarts || *restarts < 0 || *restarts > kMostRestarts) {
    return Bad("max-restarts", flags.at("max-restarts"), "0 to " + std::to_string(kMostRestarts));
  }
  MUSTER_ASSIGN_OR_RETURN(job.shown, ReadShown(flags, ranks.per_node));
  MUSTER_ASSIGN_OR_RETURN(const int threads, ThreadsOf(with, ranks.per_node));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> command, CommandOf(flags, with));
  job.log_dir = flags.at("log-dir");

  YAML::Emitter yaml;
  yaml << YAML::BeginMap << YAML::Key << "name" << YAML::Value << YAML::DoubleQuoted
       << NameOf(flags);
  yaml << YAML::Key << "resources" << YAML::Value << YAML::BeginMap;
  yaml << YAML::Key << "nodes" << YAML::Value << job.nodes;
  yaml << YAML::Key << "ranks_per_node" << YAML::Value << job.ranks_per_node;
  yaml << YAML::Key << "device" << YAML::Value << (ranks.gpus ? "cuda" : "cpu");
  if (ranks.gpus) {
    // Under torchrun a rank sees all GPUs, and may use more than one.
    yaml << YAML::Key << "visible_gpus" << YAML::Value << "node";
    yaml << YAML::Key << "gpus_per_rank" << YAML::Value << std::max(1, with.gpus / ranks.per_node);
  }
  yaml << YAML::Key << "cpus_per_rank" << YAML::Value << threads << YAML::EndMap;
  yaml << YAML::Key << "restart" << YAML::Value << YAML::BeginMap;
  yaml << YAML::Key << "max_without_progress" << YAML::Value << *restarts + 1 << YAML::EndMap;
  yaml << YAML::Key << "env" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, value] : EnvironmentOf(flags, with, &job.notes)) {
    yaml << YAML::Key << YAML::DoubleQuoted << name << YAML::Value << YAML::DoubleQuoted << value;
  }
  yaml << YAML::EndMap;
  yaml << YAML::Key << "workdir" << YAML::Value << YAML::DoubleQuoted << with.directory;
  yaml << YAML::Key << "command" << YAML::Value;
  EmitList(yaml, command);
  yaml << YAML::Key << "rendezvous" << YAML::Value << "agent" << YAML::EndMap;
  job.yaml = std::string(yaml.c_str()) + "\n";
  return job;
}

}  // namespace muster
