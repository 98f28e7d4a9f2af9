// Options of sbatch that a user gave behind a job file: read as far as a script is made otherwise
// because of them, and passed on.
//
// Options that this does not know are passed on too: sites add their own by plug-ins. Pure
// functions; any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster::slurm {

struct SbatchOption {
  std::string name;  // long, without dashes: "partition" for -p; an unknown short one's letter
  std::optional<std::string> value;

  friend bool operator==(const SbatchOption&, const SbatchOption&) = default;
};

class SbatchOptions {
 public:
  // Words as on sbatch's command line: --name=value, --name value, --name, -Nvalue, -N value. A
  // word that does not begin with a dash is the value of the option before it.
  // kInvalidArgument for words that are no option, and for options that a job of one supervisor per
  // node cannot have, with what to do instead.
  static Result<SbatchOptions> Parse(const std::vector<std::string>& words);

  bool Has(std::initializer_list<std::string_view> names) const;
  std::optional<std::string> ValueOf(std::string_view name) const;  // the last one's

  // For the batch script's head, and for srun: a container is the supervisors' only, because what
  // runs in one cannot call srun.
  const std::vector<SbatchOption>& batch() const { return batch_; }
  const std::vector<SbatchOption>& step() const { return step_; }

 private:
  std::vector<SbatchOption> batch_;
  std::vector<SbatchOption> step_;
};

// Of --signal and SBATCH_SIGNAL: whether the job is saved at this signal, to its steps or, by B:,
// to its batch script. kInvalidArgument with what to write instead.
Status CheckStopSignal(std::string_view value);

// One word of a shell command, whatever it holds. Of text without NUL.
std::string ShellQuoted(std::string_view text);

// `#SBATCH --name=value`; kInvalidArgument for what such a line cannot hold: line ends, and both
// kinds of quotes at once.
Result<std::string> Directive(const SbatchOption& option);

}  // namespace muster::slurm
