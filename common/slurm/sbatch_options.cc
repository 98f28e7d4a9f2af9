#include "common/slurm/sbatch_options.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace muster::slurm {
namespace {

// sbatch(1): the long name of each letter.
constexpr std::array<std::pair<char, std::string_view>, 32> kLetters = {{
    {'A', "account"},       {'a', "array"},      {'B', "extra-node-info"},
    {'b', "begin"},         {'C', "constraint"}, {'c', "cpus-per-task"},
    {'D', "chdir"},         {'d', "dependency"}, {'e', "error"},
    {'F', "nodefile"},      {'G', "gpus"},       {'H', "hold"},
    {'I', "immediate"},     {'i', "input"},      {'J', "job-name"},
    {'k', "no-kill"},       {'L', "licenses"},   {'M', "clusters"},
    {'m', "distribution"},  {'N', "nodes"},      {'n', "ntasks"},
    {'O', "overcommit"},    {'o', "output"},     {'p', "partition"},
    {'Q', "quiet"},         {'q', "qos"},        {'S', "core-spec"},
    {'s', "oversubscribe"}, {'t', "time"},       {'W', "wait"},
    {'w', "nodelist"},      {'x', "exclude"},
}};

struct Refused {
  std::string_view name;
  std::string_view instead;
};

constexpr Refused kRefused[] = {
    {"array", "each task of an array is a job of its own; slurm/array.sbatch starts one per file"},
    {"comment", "muster keeps its key there, by which a submit is done once only"},
    {"job-name", "it is the job's own: --name, or name: in the job file"},
    {"ntasks",
     "each node gets one supervisor, which starts the ranks; resources.nodes says how "
     "many nodes"},
    {"ntasks-per-node",
     "each node gets one supervisor, which starts the ranks; "
     "resources.ranks_per_node says how many"},
    {"ntasks-per-gpu",
     "each node gets one supervisor, which starts the ranks; "
     "resources.ranks_per_node says how many"},
    {"gpus-per-task",
     "it splits a node's GPUs between tasks; resources.ranks_per_node becomes "
     "--gpus-per-node"},
    {"wrap", "the job file says what runs"},
    {"wait", "muster's own --wait also reports the job's result"},
    {"parsable", "-o json prints the job's id for programs"},
    {"test-only", "--dry-run shows the script; sbatch --test-only takes it"},
};

// The name in "[R|B:]SIGNAL[@SECONDS]", which sbatch(1) takes by name or number.
std::string SignalName(std::string_view value) {
  if (const std::size_t colon = value.find(':'); colon != std::string_view::npos)
    value.remove_prefix(colon + 1);
  std::string name(value.substr(0, value.find('@')));
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM})
    if (name == std::to_string(number)) return ::sigabbrev_np(number);
  return name;
}

Status CheckAllowed(const SbatchOption& option) {
  if (option.name == "signal") return CheckStopSignal(option.value.value_or(""));
  for (const Refused& refused : kRefused)
    if (option.name == refused.name && !(option.name == "ntasks-per-node" && option.value == "1"))
      return InvalidArgument("sbatch's --" + option.name +
                             " cannot be given here: " + std::string(refused.instead));
  return OkStatus();
}

Result<SbatchOption> ReadLong(std::string_view word) {
  word.remove_prefix(2);
  const std::size_t equals = word.find('=');
  SbatchOption option{std::string(word.substr(0, equals)), std::nullopt};
  if (equals != std::string_view::npos) option.value = word.substr(equals + 1);
  const bool name = !option.name.empty() && option.name.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
                                                "WXYZ0123456789-_") == std::string::npos;
  if (!name) return InvalidArgument("'--" + std::string(word) + "' is no option of sbatch");
  return option;
}

SbatchOption ReadShort(std::string_view word) {
  SbatchOption option{std::string(1, word[1]), std::nullopt};
  const auto known = std::find_if(kLetters.begin(), kLetters.end(),
                                  [word](const auto& letter) { return letter.first == word[1]; });
  if (known != kLetters.end()) option.name = known->second;
  if (word.size() > 2) option.value = word.substr(word[2] == '=' ? 3 : 2);
  return option;
}

bool ForStep(const SbatchOption& option) { return option.name.starts_with("container"); }

}  // namespace

Result<SbatchOptions> SbatchOptions::Parse(const std::vector<std::string>& words) {
  std::vector<SbatchOption> all;
  for (const std::string& word : words) {
    if (word.size() > 2 && word.starts_with("--")) {
      MUSTER_ASSIGN_OR_RETURN(SbatchOption option, ReadLong(word));
      all.push_back(std::move(option));
    } else if (word.size() > 1 && word[0] == '-' && word[1] != '-') {
      all.push_back(ReadShort(word));
    } else if (!all.empty() && !all.back().value) {
      all.back().value = word;
    } else {
      return InvalidArgument("'" + word +
                             "' is no option of sbatch; write muster slurm submit JOB.yaml [its "
                             "own options] [options of sbatch]");
    }
  }
  SbatchOptions options;
  for (SbatchOption& option : all) {
    MUSTER_RETURN_IF_ERROR(CheckAllowed(option));
    (ForStep(option) ? options.step_ : options.batch_).push_back(std::move(option));
  }
  return options;
}

bool SbatchOptions::Has(std::initializer_list<std::string_view> names) const {
  return std::any_of(batch_.begin(), batch_.end(), [names](const SbatchOption& option) {
    return std::find(names.begin(), names.end(), option.name) != names.end();
  });
}

std::optional<std::string> SbatchOptions::ValueOf(std::string_view name) const {
  std::optional<std::string> value;
  for (const SbatchOption& option : batch_)
    if (option.name == name) value = option.value;
  return value;
}

Status CheckStopSignal(std::string_view value) {
  const std::string name = SignalName(value);
  if (name == "USR1" || name == "USR2" || name == "TERM") return OkStatus();
  return InvalidArgument(
      "sbatch's --signal=" + std::string(value) +
      " cannot be given here: at USR1, USR2 and TERM the job is saved and stops, and any other "
      "signal ends it unsaved; write --signal=USR2@SECONDS, or muster's own --signal-lead SECONDS");
}

std::string ShellQuoted(std::string_view text) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

Result<std::string> Directive(const SbatchOption& option) {
  const std::string dashes = option.name.size() == 1 ? "-" : "--";
  const std::string head = "#SBATCH " + dashes + option.name;
  if (!option.value) return head;
  const std::string& value = *option.value;
  // An unknown letter's value stands apart.
  const std::string begin = head + (option.name.size() == 1 ? " " : "=");
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-[]*&|()";
  if (!value.empty() && value.find_first_not_of(kPlain) == std::string::npos) return begin + value;
  const bool control = std::any_of(value.begin(), value.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < ' '; });
  const bool apostrophe = value.find('\'') != std::string::npos;
  if (control || value.find('\\') != std::string::npos ||
      (apostrophe && value.find('"') != std::string::npos))
    return InvalidArgument("the value of --" + option.name +
                           " has line ends, backslashes or both kinds of quotes, which sbatch "
                           "would not read from its script");
  const char quote = apostrophe ? '"' : '\'';
  return begin + quote + value + quote;
}

}  // namespace muster::slurm
