#include <filesystem>
#include <ostream>
#include <set>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_questions.h"
#include "common/base/files.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

Status RefuseToOverwrite(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return OkStatus();
  return AlreadyExists(file + " exists and is not overwritten; name another file");
}

}  // namespace

CommandResult RunConfig(CommandContext& context, const ConfigOptions& options, std::istream& in) {
  MUSTER_RETURN_IF_ERROR(RefuseToOverwrite(options.file));
  JobAnswers answers;
  std::set<std::string> given;
  for (const auto& [key, text] : options.given) {
    if (text.empty()) continue;
    const Status set = SetAnswer(key, text, &answers);
    if (!set.ok()) return InvalidArgument("--" + key + ": " + set.message());
    given.insert(key);
  }
  Terminal& terminal = context.terminal;
  // Questions are no result.
  if (!options.yes) {
    MUSTER_RETURN_IF_ERROR(AskQuestions(in, terminal.err, given, &answers));
  }
  const std::string text = JobText(answers);
  const auto parsed = ParseJobSpec(text, options.file);
  if (!parsed.ok()) return parsed.status();
  MUSTER_RETURN_IF_ERROR(RefuseToOverwrite(options.file));
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(options.file, text));
  terminal.out << options.file << " is written. Next:\n";
  for (const std::string& command : NextCommands(answers, options.file))
    terminal.out << "  " << command << "\n";
  return kExitSuccess;
}

}  // namespace muster
