#include "trainer/train/run_context.h"

#include <filesystem>
#include <utility>

#include "common/job_spec/parse.h"

namespace muster {

std::string RunContext::output_dir() const {
  return std::filesystem::absolute(OutputDirectory(spec, {env.job_id})).string();
}

std::string RunContext::checkpoint_dir() const {
  return env.checkpoint_dir.empty() ? output_dir() + "/checkpoints" : env.checkpoint_dir;
}

void RunContext::Note(const char* severity, const std::string& message) const {
  supervisor.Note(env.generation, severity, message);
  Print(std::string(severity) + ": " + message + "\n");
}

// By the writer of lines, because the log may lie on a disk that does not answer, and the holder of
// the stream would then be waited for.
void RunContext::Print(std::string text) const {
  if (is_first()) lines.Print(out, std::move(text));
}

}  // namespace muster
