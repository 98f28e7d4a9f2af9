// The command line that verbs add themselves to: names, flags, help texts, MUSTER_* variables.
//
// With cli/{app,completion}.cc the only place that uses the parser (CLI11); verbs use these types.
// Values that flags are bound to outlive the parsing. Used while the program starts; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/client/command_context.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace muster::verbs {

// The flags that every verb accepts.
struct GlobalOptions {
  std::string dir;
  RemoteCoordinator remote;
  std::string as_user;
  std::string slurm_job;
  std::string output = "table";
  bool no_color = false;
};

using Command = std::function<CommandResult(CommandContext&)>;

// What a command line asks for. Filled while it is parsed.
struct Parsed {
  GlobalOptions global;
  Command command;                     // empty: help or an error has been printed
  int exit_code = 0;                   // without a command
  std::vector<std::string> passed_on;  // CommandContext's
};

inline constexpr char kJobHelp[] = "Job ID, unique prefix of an ID, or name (newest match)";

// A flag or positional that was added, for what limits it.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag Required();
  Flag Range(double low, double high);  // of a number, both inclusive
  Flag AtLeast(double low);
  Flag OneOf(const std::vector<std::string>& words);
  Flag Excludes(Flag other);
  // Another variable than MUSTER_<VERB>_<FLAG>; "" for none.
  Flag Variable(const std::string& name);

 private:
  CLI::Option* option_;
};

// The flags of one verb, or of the program. Each has a variable made of the verb's name and its
// own: --key of `submit` is MUSTER_SUBMIT_KEY.
class Flags {
 public:
  // `prefix`: "MUSTER_SUBMIT_".
  Flags(CLI::App& app, Parsed& parsed, std::string prefix)
      : app_(app), parsed_(parsed), prefix_(std::move(prefix)) {}

  // `spec` is the names and the value's placeholder as help shows them: "--timeout DURATION",
  // "-f,--follow" for a switch, "JOB" for a positional. A value that is neither empty nor 0 yet is
  // shown as the default. A list takes a flag several times, or several positionals.
  Flag Add(const std::string& spec, std::string& value, const std::string& help);
  Flag Add(const std::string& spec, bool& value, const std::string& help);
  Flag Add(const std::string& spec, int& value, const std::string& help);
  Flag Add(const std::string& spec, std::int64_t& value, const std::string& help);
  Flag Add(const std::string& spec, Duration& value, const std::string& help);
  Flag Add(const std::string& spec, std::optional<int>& value, const std::string& help);
  Flag Add(const std::string& spec, std::optional<std::int64_t>& value, const std::string& help);
  Flag Add(const std::string& spec, std::optional<double>& value, const std::string& help);
  Flag Add(const std::string& spec, std::optional<Duration>& value, const std::string& help);
  Flag Add(const std::string& spec, std::vector<std::string>& value, const std::string& help);
  // --NAME and --no-NAME; nothing when neither is given.
  Flag AddYesNo(const std::string& name, std::optional<bool>& value, const std::string& help);
  // The global -o, with `names` as its names.
  Flag AddOutput(const std::string& names);

  // The verb passes words on to another program: those that are no flag of its own, and those after
  // "--". Global flags then stand before the verb.
  void PassOnUnknown();
  // The same for all words from the first one on that is no flag of the verb.
  void PassOnRest();
  void SetFooter(const std::string& text);
  // Uses the variables of another verb: "SLURM_SUBMIT".
  void ShareVariables(const std::string& verb) { prefix_ = "MUSTER_" + verb + "_"; }
  void HideVerb();
  GlobalOptions& global() { return parsed_.global; }

 private:
  template <typename Value>
  Flag AddDuration(const std::string& spec, Value& value, const std::string& help);
  Flag Finish(CLI::Option* option, const std::string& spec);

  CLI::App& app_;
  Parsed& parsed_;
  std::string prefix_;
};

// The program, or a group of verbs of it such as `certs`.
class CommandLine {
 public:
  CommandLine(CLI::App& app, Parsed& parsed, std::string prefix = "MUSTER_")
      : app_(app), parsed_(parsed), prefix_(std::move(prefix)) {}

  // A verb; `run` becomes the command when the verb is given.
  Flags Add(const std::string& name, const std::string& summary, Command run);
  CommandLine Group(const std::string& name, const std::string& summary);

 private:
  CLI::App& app_;
  Parsed& parsed_;
  const std::string prefix_;
};

// "30d", "12h", "90m", "30s", "1.5s", "200ms"; a number alone is seconds.
Result<Duration> ParseDuration(const std::string& text);

// The field `by_seconds` of a request, in which 0 means no limit: "--by 0s" means at once.
inline double BySeconds(Duration by) { return std::max(ToSeconds(by), 0.001); }

}  // namespace muster::verbs
