// config: asks what to train and writes a job file.

#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_questions.h"
#include "common/base/files.h"
#include "common/job_spec/parse.h"

namespace muster::verbs {
namespace {

Status RefuseToOverwrite(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return OkStatus();
  return AlreadyExists(file + " already exists; choose another file");
}

}  // namespace

struct Config {
  static constexpr char kName[] = "config";
  static constexpr char kSummary[] = "Ask what to train and write a job file";

  std::string file = "job.yaml";
  bool yes = false;
  std::map<std::string, std::string> answers;  // by the key of a question; "": not given

  // A flag for each question, so that a script can answer all of them.
  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "Job file to write");
    flags.Add("-y,--yes", yes, "Do not ask; use the defaults for what is not given");
    for (const Question& question : Questions())
      flags.Add("--" + question.key + " " + question.placeholder, answers[question.key],
                question.text + " [default: " + AnswerOf({}, question.key) + "]");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_RETURN_IF_ERROR(RefuseToOverwrite(file));
    JobAnswers job;
    std::set<std::string> given;
    for (const auto& [key, text] : answers) {
      if (text.empty()) continue;
      const Status set = SetAnswer(key, text, &job);
      if (!set.ok()) return InvalidArgument("--" + key + ": " + set.message());
      given.insert(key);
    }
    Terminal& terminal = context.terminal;
    if (!yes) {
      MUSTER_RETURN_IF_ERROR(AskQuestions(std::cin, terminal.err, given, &job));
    }
    const std::string text = JobText(job);
    const auto parsed = ParseJobSpec(text, file);
    if (!parsed.ok()) return parsed.status();
    MUSTER_RETURN_IF_ERROR(RefuseToOverwrite(file));
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(file, text));
    terminal.out << "wrote " << file << ". Next:\n";
    for (const std::string& command : NextCommands(job, file))
      terminal.out << "  " << command << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<Config>(CommandLine& line);

}  // namespace muster::verbs
