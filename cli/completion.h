// What may stand at the cursor of a command line that is being written, for the functions that
// `muster completion` gives shells. They call
//
//   muster complete WORD... CURRENT
//
// with the words behind `muster`, the one at the cursor last. It prints a candidate per line, a tab
// and what it is; names of files are the shell's to find when it ends with kExitError.
//
// One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/client/command_context.h"

namespace muster {

inline constexpr char kCompleteVerb[] = "complete";

struct Candidate {
  std::string word;
  std::string what;
};

struct Completion {
  enum class Of { kWords, kJobs, kNodes, kFiles };
  Of of = Of::kWords;
  std::vector<Candidate> words;
  std::string before;  // "--node=", which stands in the same word
  std::string begun;   // what the candidates begin with
};

// Pure. `words` has one at least.
Completion CompletionAt(const CLI::App& app, const std::vector<std::string>& words);

// Jobs and nodes are the coordinator's, which is asked for a second at most. Without an answer
// there are none, and no message, which would stand in the line that is being written.
CommandResult PrintCompletion(CommandContext& context, Completion completion);

}  // namespace muster
