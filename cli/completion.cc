#include "cli/completion.h"

#include <algorithm>
#include <set>

#include "cli/base/exit_code.h"
#include "cli/jobs/job_json.h"
#include "common/command_line/help_words.h"

namespace muster {
namespace {

constexpr Duration kLimit = std::chrono::seconds(1);
constexpr int kNewestJobs = 500;

// The verb that the words before the cursor have named, and what of it they have given.
struct Cursor {
  const CLI::App* verb;
  int positionals = 0;
  const CLI::Option* flag = nullptr;  // whose value comes next
  bool only_positionals = false;      // behind "--"
};

// The verb and the group and program above it, as far as it takes their flags.
std::vector<const CLI::App*> Owners(const CLI::App* verb) {
  std::vector<const CLI::App*> owners = {verb};
  while (verb->get_fallthrough() && verb->get_parent() != nullptr)
    owners.push_back(verb = verb->get_parent());
  return owners;
}

const CLI::Option* FindFlag(const CLI::App* verb, const std::string& name) {
  for (const CLI::App* owner : Owners(verb))
    if (const CLI::Option* flag = owner->get_option_no_throw(name)) return flag;
  return nullptr;
}

bool TakesValue(const CLI::Option& flag) { return flag.get_items_expected_min() > 0; }

const CLI::App* FindVerb(const Cursor& at, const std::string& word) {
  if (at.positionals > 0 || at.only_positionals) return nullptr;
  const auto found =
      at.verb->get_subcommands([&word](const CLI::App* each) { return each->get_name() == word; });
  return found.empty() ? nullptr : found.front();
}

void Pass(Cursor& at, const std::string& word) {
  if (at.flag != nullptr) {
    if (word != "=") at.flag = nullptr;  // bash makes three words of --node=n7
  } else if (at.only_positionals || !word.starts_with('-') || word == "-") {
    if (const CLI::App* verb = FindVerb(at, word))
      at.verb = verb;
    else
      ++at.positionals;
  } else if (word == "--") {
    at.only_positionals = true;
  } else if (word.find('=') == std::string::npos) {
    const CLI::Option* flag = FindFlag(at.verb, word);
    if (flag != nullptr && TakesValue(*flag)) at.flag = flag;
  }
}

const CLI::Option* PositionalAt(const Cursor& at) {
  int index = 0;
  const CLI::Option* last = nullptr;
  for (const CLI::Option* option : at.verb->get_options()) {
    if (!option->get_positional()) continue;
    if (index++ == at.positionals) return option;
    last = option;
  }
  const bool repeats =
      last != nullptr && last->get_expected_max() == CLI::detail::expected_max_vector_size;
  return repeats ? last : nullptr;
}

// What is accepted for a flag or positional, by its placeholder in help.
void AddValues(const CLI::Option& option, bool of_slurm, Completion& completion) {
  std::string placeholder =
      option.get_positional() ? option.get_single_name() : option.get_option_text();
  placeholder = placeholder.substr(0, placeholder.find(' '));
  for (const std::string& word : AcceptedWords(option)) completion.words.push_back({word, ""});
  if (placeholder == "NODE") completion.of = Completion::Of::kNodes;
  if (placeholder == "FILE" || placeholder == "DIR") completion.of = Completion::Of::kFiles;
  // Slurm's jobs have ids of its own.
  if (placeholder == "JOB" && option.get_positional() && !of_slurm)
    completion.of = Completion::Of::kJobs;
}

void AddFlags(const CLI::App* verb, Completion& completion) {
  for (const CLI::App* owner : Owners(verb))
    for (const CLI::Option* option : owner->get_options()) {
      if (!option->nonpositional() || option->get_group().empty()) continue;
      for (const std::string& name : option->get_lnames())
        completion.words.push_back({"--" + name, option->get_description()});
    }
}

void AddVerbs(const CLI::App* verb, Completion& completion) {
  for (const CLI::App* each : verb->get_subcommands([](const CLI::App*) { return true; }))
    if (!each->get_group().empty())
      completion.words.push_back({each->get_name(), each->get_description()});
}

bool IsOfSlurm(const CLI::App* verb) {
  return verb->get_parent() != nullptr && verb->get_parent()->get_name() == "slurm";
}

std::vector<Candidate> Jobs(ClusterClient& client) {
  const auto jobs = client.ListJobs(false, kNewestJobs);
  std::vector<Candidate> found;
  if (!jobs.ok()) return found;
  std::set<std::string> names;
  for (auto job = jobs->jobs().rbegin(); job != jobs->jobs().rend(); ++job) {
    const std::string state = StateWord(job->state());
    found.push_back({job->id(), Printable(job->name()) + ", " + state});
    // A name means the newest job of that name.
    if (names.insert(job->name()).second) found.push_back({job->name(), job->id() + ", " + state});
  }
  return found;
}

std::vector<Candidate> Nodes(ClusterClient& client) {
  const auto nodes = client.ListNodes();
  std::vector<Candidate> found;
  if (!nodes.ok()) return found;
  for (const v1::Node& node : nodes->nodes())
    found.push_back({node.name(), StateWord(node.state())});
  return found;
}

}  // namespace

Completion CompletionAt(const CLI::App& app, const std::vector<std::string>& words) {
  Cursor at{&app};
  std::for_each(words.begin(), words.end() - 1, [&at](const std::string& word) { Pass(at, word); });
  Completion completion;
  completion.begun = words.back();
  const CLI::Option* option = at.flag;
  if (option != nullptr && completion.begun == "=") {
    completion.begun.clear();
  } else if (option == nullptr && completion.begun.starts_with('-') && !at.only_positionals) {
    const std::size_t value = completion.begun.find('=') + 1;
    if (value == 0) {
      AddFlags(at.verb, completion);
      return completion;
    }
    option = FindFlag(at.verb, completion.begun.substr(0, value - 1));
    completion.before = completion.begun.substr(0, value);
    completion.begun.erase(0, value);
  } else if (option == nullptr) {
    if (at.positionals == 0) AddVerbs(at.verb, completion);
    option = PositionalAt(at);
    // The script of `muster run`, and what is its own.
    if (option == nullptr && (at.verb->get_allow_extras() || at.verb->get_prefix_command()))
      completion.of = Completion::Of::kFiles;
  }
  if (option != nullptr) AddValues(*option, IsOfSlurm(at.verb), completion);
  return completion;
}

CommandResult PrintCompletion(CommandContext& context, Completion completion) {
  using Of = Completion::Of;
  if (completion.of == Of::kFiles) return kExitError;
  context.client.LimitCalls(kLimit);
  // A call would wait for a coordinator that is starting.
  if (completion.of != Of::kWords && context.client.FindEndpoint().ok())
    completion.words = completion.of == Of::kJobs ? Jobs(context.client) : Nodes(context.client);
  for (const Candidate& each : completion.words)
    if (each.word.starts_with(completion.begun))
      context.terminal.out << completion.before << each.word << "\t" << each.what << "\n";
  return kExitSuccess;
}

}  // namespace muster
