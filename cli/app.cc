#include "cli/app.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/exit_code.h"
#include "cli/base/output.h"
#include "cli/base/standard_output.h"
#include "cli/base/terminal.h"
#include "cli/completion.h"
#include "cli/login/login_certificate.h"
#include "cli/login/login_store.h"
#include "cli/slurm/allocation_access.h"
#include "cli/slurm/slurm_job.h"
#include "common/base/strings.h"
#include "common/base/text.h"
#include "common/command_line/finite_numbers.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"

namespace muster {
namespace verbs {

// verb.h
template <typename Verb>
void AddVerb(CommandLine& line);

template <typename... Verbs>
struct VerbList {
  static void AddTo(CommandLine line) { (AddVerb<Verbs>(line), ...); }
};

// The verbs, in the order of `muster --help`; each is a file of cli/commands.
// clang-format off
using TopVerbs = VerbList<
    struct Config,
    struct Plan,
    struct Submit,
    struct Attach,
    struct Wait,
    struct Logs,
    struct Events,
    struct Get,
    struct Describe,
    struct Explain,
    struct Goodput,
    struct Usage,
    struct Checkpoints,
    struct Cancel,
    struct Suspend,
    struct Resume,
    struct Update,
    struct Hold,
    struct Release,
    struct RunScript,
    struct Up,
    struct Down,
    struct Top,
    struct Page,
    struct Doctor,
    struct Demo,
    struct MigrateConfig,
    struct CompletionOf,
    struct Version,
    struct WhoAmI,
    struct LogIn,
    struct LogOut,
    struct Coordinators,
    struct Nodes,
    struct Drain,
    struct Undrain,
    struct Fault,
    struct Init,
    struct Backup,
    struct Restore>;
using StoreVerbs = VerbList<
    struct StoreCheck,
    struct StoreMigrate>;
using UpgradeVerbs = VerbList<
    struct UpgradePlanOf>;
using CertsVerbs = VerbList<
    struct CertsIssue,
    struct CertsJoinToken,
    struct CertsList,
    struct CertsRevoke>;
using QueuesVerbs = VerbList<
    struct QueuesCheck,
    struct QueuesApply,
    struct QueuesShow>;
using UsersVerbs = VerbList<
    struct UsersCheck,
    struct UsersApply,
    struct UsersShow>;
using AuditVerbs = VerbList<
    struct AuditTail,
    struct AuditExport,
    struct AuditVerify>;
using SecretVerbs = VerbList<
    struct SecretSet,
    struct SecretList,
    struct SecretRemove,
    struct SecretRotateKey>;
using ScheduleVerbs = VerbList<
    struct ScheduleExport,
    struct ScheduleReplay>;
using SlurmVerbs = VerbList<
    struct SlurmSubmit,
    struct SlurmRender,
    struct SlurmStatus,
    struct SlurmAttach,
    struct SlurmRequeue,
    struct SlurmPilots,
    struct SlurmDoctor,
    struct SlurmProbe>;
// clang-format on

}  // namespace verbs

namespace {

using verbs::CommandLine;
using verbs::Flag;
using verbs::Flags;
using verbs::GlobalOptions;
using verbs::Parsed;

void AddGlobals(Flags flags) {
  GlobalOptions& global = flags.global();
  flags.Add("--dir DIR", global.dir, "Cluster directory [default: ~/.local/state/muster/default]");
  const Flag coordinator =
      flags.Add("--coordinator IP:PORT|dnssrv+NAME[,...]", global.remote.address,
                "Coordinator on another machine, or several of which one leads, by address or SRV "
                "records (dnssrv+_muster._tcp.DOMAIN); requires --tls");
  const Flag tls = flags.Add("--tls DIR", global.remote.credentials_dir,
                             "Directory with your ca.pem, cert.pem, and key.pem");
  flags
      .Add("--slurm-job JOB", global.slurm_job,
           "Coordinator inside a Slurm allocation: job ID, job name, or the directory that the "
           "job's supervisors share")
      .Excludes(coordinator)
      .Excludes(tls);
  flags.Add("--as USER", global.as_user, "Act for this user, with that user's rights; for admins");
  flags.AddOutput("-o,--output");
  flags.Add("--no-color", global.no_color, "Disable colors; NO_COLOR does the same");
}

void AddVerbs(CLI::App& app, Parsed& parsed) {
  CommandLine line(app, parsed);
  verbs::TopVerbs::AddTo(line);
  verbs::QueuesVerbs::AddTo(line.Group("queues", "Show and change the cluster's queues"));
  verbs::UsersVerbs::AddTo(line.Group("users", "Show and change who may do what in the cluster"));
  verbs::SecretVerbs::AddTo(line.Group("secret", "Store values that only your jobs can read"));
  verbs::AuditVerbs::AddTo(line.Group("audit", "Read and verify the cluster's audit trail"));
  verbs::ScheduleVerbs::AddTo(
      line.Group("schedule", "Export what the scheduler is given, and replay what it planned"));
  verbs::SlurmVerbs::AddTo(line.Group("slurm", "Run jobs under Slurm, without a Muster cluster"));
  verbs::StoreVerbs::AddTo(line.Group("store", "Check and migrate the coordinator's stored state"));
  verbs::UpgradeVerbs::AddTo(line.Group("upgrade", "Plan the change to another version"));
  verbs::CertsVerbs::AddTo(line.Group("certs", "Manage the cluster's certificates"));
}

// The number of words before a "--" behind which all words are another program's. The parser
// would take them for the verb's positionals.
int CutAtDashes(const CLI::App& app, int argc, char** argv, Parsed& parsed) {
  const CLI::App* verb = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--" && verb->get_allow_extras()) {
      parsed.passed_on.assign(argv + i + 1, argv + argc);
      return i;
    }
    const auto next =
        verb->get_subcommands([&](const CLI::App* each) { return each->get_name() == word; });
    if (!next.empty()) verb = next.front();
  }
  return argc;
}

// Messages to the coordinator carry nothing else.
void CheckIsUtf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string valid = ValidUtf8(argv[i]); valid != argv[i])
      throw CLI::ValidationError("'" + valid + "'", "is not UTF-8");
}

// The global flags among the words say which coordinator is asked.
Parsed ParseUnfinished(const CLI::App& app, std::vector<std::string> words) {
  Parsed parsed;
  if (words.empty()) words.emplace_back();
  const Completion completion = CompletionAt(app, words);
  parsed.command = [completion](CommandContext& context) {
    return PrintCompletion(context, completion);
  };
  CLI::App globals;
  globals.set_help_flag();
  globals.allow_extras();
  AddGlobals(Flags(globals, parsed, "MUSTER_"));
  // A flag without its value is an error, and what is before it counts.
  do {
    words.pop_back();
    try {
      globals.parse(std::vector<std::string>(words.rbegin(), words.rend()));
      break;
    } catch (const CLI::ParseError&) {
    }
  } while (!words.empty());
  return parsed;
}

// Absolute, so that daemons and messages can carry it anywhere.
std::string ClusterDirectory(const std::string& given) {
  namespace fs = std::filesystem;
  fs::path dir = given;
  if (given.empty()) {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    const fs::path base =
        state && *state ? fs::path(state) : fs::path(home ? home : "/tmp") / ".local" / "state";
    dir = base / "muster" / "default";
  }
  std::string path = fs::absolute(dir).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

OutputFormat FormatOf(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kOutputFormats); ++i)
    if (kOutputFormats[i] == name) return static_cast<OutputFormat>(i);
  return OutputFormat::kTable;
}

Terminal FindTerminal(const GlobalOptions& global) {
  Terminal terminal{std::cout, std::cerr};
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = !term || std::string_view(term) == "dumb";
  terminal.out_is_tty = ::isatty(STDOUT_FILENO) == 1 && !dumb;
  terminal.err_is_tty = ::isatty(STDERR_FILENO) == 1 && !dumb;
  terminal.color = terminal.out_is_tty && !global.no_color && (!no_color || *no_color == '\0');
  const int shown_on = terminal.out_is_tty ? STDOUT_FILENO : STDERR_FILENO;
  if (const auto size = FindTerminalSize(shown_on)) terminal.columns = size->columns;
  return terminal;
}

// `by_login` is set once a call goes to the coordinator of a login.
std::unique_ptr<ClusterClient> MakeClient(const GlobalOptions& global, Interrupt& interrupt,
                                          bool* by_login) {
  std::string dir = ClusterDirectory(global.dir);
  if (global.slurm_job.empty()) {
    auto client = std::make_unique<ClusterClient>(std::move(dir), interrupt, global.remote);
    const Result<LoginStore> logins = LoginStore::OfUser();
    const bool chosen = !global.dir.empty() || !global.remote.credentials_dir.empty();
    if (!chosen && logins.ok())
      client->OtherwiseUse([logins = *logins, &interrupt, by_login, list = global.remote.address] {
        auto found = CoordinatorOfLogin(logins, interrupt);
        *by_login = found.ok();
        if (found.ok() && !list.empty()) found->address = list;
        return found;
      });
    return client;
  }
  return std::make_unique<ClusterClient>(
      std::move(dir), interrupt,
      CoordinatorOfSlurmJob(UserSlurmCommands(), CurrentUser(), global.slurm_job));
}

int RunCommand(const Parsed& parsed, Interrupt& interrupt) {
  Terminal terminal = FindTerminal(parsed.global);
  bool by_login = false;
  const auto client = MakeClient(parsed.global, interrupt, &by_login);
  client->ActFor(parsed.global.as_user);
  CommandContext context{
      *client,  terminal, FormatOf(parsed.global.output), parsed.passed_on, parsed.global.slurm_job,
      &by_login};
  const CommandResult result = parsed.command(context);
  terminal.out.flush();
  if (result.ok()) return *result;
  if (interrupt.requested()) {
    terminal.err << "muster: interrupted\n";
    return kExitInterrupted;
  }
  terminal.err << "muster: " << result.status().message() << "\n";
  return ExitCodeOf(result.status());
}

// What is wrong if a word stands where a verb was expected; nothing: it is something else.
std::optional<std::string> UnknownVerb(const CLI::App& app) {
  const CLI::App* group = &app;
  std::string path = app.get_name();
  while (!group->get_subcommands().empty()) {
    group = group->get_subcommands().front();
    path += " " + group->get_name();
  }
  std::vector<std::string> verbs;
  for (const CLI::App* verb : group->get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  if (verbs.empty() || words.empty() || words.front().starts_with('-')) return std::nullopt;
  const std::optional<std::string> meant = NearestWord(words.front(), verbs);
  return "'" + Printable(words.front()) + "' is no command of " + path +
         (meant ? "; did you mean '" + *meant + "'?" : "") + "\n  next: " + path + " --help";
}

}  // namespace

Parsed ParseCommandLine(int argc, char** argv) {
  CLI::App app("Launch, supervise, and finish fine-tuning jobs.", "muster");
  WriteHelpInWords(app);
  app.set_version_flag("--version", VersionText("muster"), "Print the version and exit");
  app.require_subcommand(0, 1);  // a command line without a verb gets the whole help below
  app.footer(
      "Flags can be set by environment variables, except those of `muster run`: --dir is "
      "MUSTER_DIR, and --key of `muster submit` is MUSTER_SUBMIT_KEY.");
  Parsed parsed;
  AddGlobals(Flags(app, parsed, "MUSTER_"));
  AddVerbs(app, parsed);
  try {
    CheckIsUtf8(argc, argv);
    if (argc > 1 && std::string_view(argv[1]) == kCompleteVerb)
      return ParseUnfinished(app, {argv + 2, argv + argc});
    app.parse(CutAtDashes(app, argc, argv, parsed), argv);
    CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    parsed.command = nullptr;
    if (const std::optional<std::string> unknown = UnknownVerb(app);
        unknown && error.get_exit_code() != 0) {
      std::cerr << "muster: " << *unknown << "\n";
      parsed.exit_code = kExitBadUsage;
      return parsed;
    }
    parsed.exit_code = app.exit(error) == 0 ? kExitSuccess : kExitBadUsage;
    return parsed;
  }
  if (!parsed.command) {
    std::cerr << app.help();
    parsed.exit_code = kExitBadUsage;
  }
  return parsed;
}

int RunApp(int argc, char** argv, Interrupt& interrupt) {
  StandardOutput output(std::cout);
  try {
    const Parsed parsed = ParseCommandLine(argc, argv);
    const int code = parsed.command ? RunCommand(parsed, interrupt) : parsed.exit_code;
    const std::string not_written = output.Finish();
    if (code != kExitSuccess || not_written.empty()) return code;
    std::cerr << "muster: " << not_written << "\n";
    return kExitError;
  } catch (const std::exception& error) {
    std::cerr << "muster: internal error: " << error.what() << "\n";
    return kExitError;
  }
}

}  // namespace muster
