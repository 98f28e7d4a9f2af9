// completion: the functions by which shells complete command lines of this program.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {
namespace {

// They ask `muster complete` (cli/completion.h), whose failure means: complete names of files.
constexpr char kBash[] = R"(# bash completion of muster
_muster() {
  local found line
  COMPREPLY=()
  if ! found=$("$1" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); then
    compopt -o default
    return
  fi
  while IFS=$'\t' read -r line _; do
    [[ -z $line ]] || COMPREPLY+=("$line")
  done <<<"$found"
}
complete -F _muster muster
)";

constexpr char kZsh[] = R"(#compdef muster
_muster() {
  local found
  local -a lines
  if ! found=$("$words[1]" complete "${(@Q)words[2,CURRENT]}" 2>/dev/null); then
    _files
    return
  fi
  [[ -n $found ]] || return 1
  lines=("${(@f)found}")
  lines=("${(@)lines//:/\\:}")
  lines=("${(@)lines/$'\t'/:}")
  _describe -V muster lines
}
if [[ $funcstack[1] == _muster ]]; then
  _muster "$@"
else
  compdef _muster muster
fi
)";

constexpr char kFish[] = R"(# fish completion of muster
function __muster_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --cut-at-cursor --current-token)
    $words[1] complete $words[2..] "$current" 2>/dev/null
    or __fish_complete_path "$current"
end
complete --command muster --no-files --keep-order --arguments '(__muster_complete)'
)";

}  // namespace

struct CompletionOf {
  static constexpr char kName[] = "completion";
  static constexpr char kSummary[] = "Print the completion function of a shell";

  std::string shell;

  void AddFlags(Flags& flags) {
    flags.Add("SHELL", shell, "Shell: bash, zsh, or fish")
        .Required()
        .OneOf({"bash", "zsh", "fish"});
    flags.SetFooter(
        "For this session: source <(muster completion bash), or muster completion fish | source.\n"
        "Packages install it.");
  }

  CommandResult Run(CommandContext& context) const {
    context.terminal.out << (shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
    return kExitSuccess;
  }
};

template void AddVerb<CompletionOf>(CommandLine& line);

}  // namespace muster::verbs
