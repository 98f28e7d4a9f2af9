// Implements the part of fields.h that makes a command job of Determined's experiment.
#include <algorithm>

#include "cli/migrate/fields.h"

namespace muster::migrate {
namespace {

constexpr std::string_view kLauncher = "determined.launch.";

bool NeedsShell(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    return word.find_first_of("|&;<>$`*") != std::string::npos;
  });
}

// The program behind Determined's launcher, whose work Muster does.
void ComposeCommand(Fields& f) {
  std::vector<std::string> words = f.List("entrypoint_list");
  const Entry* entry = f.document().Find("entrypoint");
  if (entry == nullptr) return f.Refuse("entrypoint", "there is no command to run");
  words = entry->elements;
  if (words.empty()) {
    const auto command = FindCommand(entry->text, [](const auto&) { return true; });
    if (command) words = command->words;
  }
  const auto launcher = std::ranges::find_if(
      words, [](const std::string& word) { return word.starts_with(kLauncher); });
  if (launcher != words.end()) {
    const std::string kind = launcher->substr(kLauncher.size());
    if (kind != "torch_distributed" && kind != "deepspeed")
      return f.Refuse("entrypoint",
                      "of Determined's launchers torch_distributed and deepspeed can be replaced");
    words.erase(words.begin(), launcher + 1);
    if (!words.empty() && words.front() == "--") words.erase(words.begin());
    if (!words.empty() && words.front().starts_with('-'))
      return f.Refuse("entrypoint",
                      "the launcher has flags; leave them out: Muster starts the ranks");
    if (kind == "deepspeed")
      f.Remark(
          "command: each rank has torchrun's environment; a script calls "
          "deepspeed.init_distributed() as before");
  } else if (words.size() == 1 && words.front().find(':') != std::string::npos) {
    return f.Refuse("entrypoint", "is a Trial class, which only Determined runs; give a command");
  }
  if (words.empty()) return f.Refuse("entrypoint", "there is no command to run");
  if (NeedsShell(words)) words = {"sh", "-c", entry->text};
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + Quoted(word);
  f.Set("command", "[" + list + "]", {"entrypoint"});
}

// Lists "NAME=VALUE", or maps of them for each kind of device.
void ComposeEnvironment(Fields& f) {
  for (const Entry& entry : f.document().entries) {
    if (!entry.key.starts_with("environment.environment_variables")) continue;
    for (const std::string& each : entry.elements) {
      const std::size_t equals = each.find('=');
      if (equals == std::string::npos) continue;
      f.SetText("env." + each.substr(0, equals), each.substr(equals + 1), {"variables"});
    }
  }
  const auto section = f.document().sections.find("hyperparameters");
  if (section == f.document().sections.end()) return;
  f.SetText("env.HPARAMS", section->second, {"hyperparameters"});
  f.Remark(
      "env.HPARAMS: the hyperparameters in YAML. A script that asks determined.get_cluster_info() "
      "for them reads "
      "this variable instead, as it does for rank and size (RANK, WORLD_SIZE); checkpoints go to "
      "MUSTER_CHECKPOINT_DIR");
  for (const Entry& entry : f.document().entries) {
    const bool searches = entry.key.starts_with("hyperparameters.") &&
                          entry.key.ends_with(".type") && entry.text != "const" &&
                          f.document().Has(entry.key.substr(0, entry.key.size() - 5) + ".vals");
    const bool range = entry.key.starts_with("hyperparameters.") && entry.key.ends_with(".minval");
    if (searches || range)
      return f.Refuse("hyperparameters",
                      "a range is searched; give each trial its values, one job each");
  }
}

}  // namespace

void ComposeExperiment(Fields& f) {
  f.SetText("name", JobName(f.GetOr("name", ""), "experiment"), {"name"});
  const double slots = f.Number("slots").value_or(1);
  const double of_node = std::min(slots, f.Number("slots_per_node").value_or(8));
  if (slots < 1 || of_node < 1 || static_cast<int>(slots) % static_cast<int>(of_node) != 0)
    return f.Refuse("slots", "expected a whole number of nodes' slots, 8 each, or fewer than 8");
  f.Set("resources.nodes", std::to_string(static_cast<int>(slots / of_node)), {"slots"});
  f.Set("resources.ranks_per_node", std::to_string(static_cast<int>(of_node)),
        {"slots", "slots_per_node"});
  f.Set("resources.device", "cuda");
  if (slots > 8) f.Remark("resources: nodes are taken to have 8 slots");
  if (const auto restarts = f.Number("max_restarts"))
    f.Set("restart.max_without_progress", std::to_string(static_cast<int>(*restarts) + 1),
          {"max_restarts"});
  ComposeCommand(f);
  ComposeEnvironment(f);
  f.Explain("searcher", "one trial is one job");
}

}  // namespace muster::migrate
