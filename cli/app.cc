#include "cli/app.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/job_questions.h"
#include "cli/security_flags.h"
#include "cli/slurm/allocation_access.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm_flags.h"
#include "cli/terminal_size.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/job_spec/torchrun_table.h"
#include "common/slurm/allocation.h"

namespace muster {
namespace {

struct GlobalOptions {
  std::string dir;
  RemoteCoordinator remote;
  std::string slurm_job;
  std::string output = "table";
  bool no_color = false;
};

// What the command line asks for: filled while it is parsed, run afterwards.
struct Invocation {
  GlobalOptions global;
  Command command;

  UpOptions up;
  DownOptions down;
  std::string down_timeout = "10s";
  ConfigOptions config;
  SubmitOptions submit;
  bool submit_wait = false;
  bool submit_attach = false;
  AttachOptions attach;
  WaitOptions wait;
  std::string wait_timeout;
  GetOptions get;
  GoodputOptions goodput;
  std::string describe_job;
  LogsOptions logs;
  CancelOptions cancel;
  SuspendOptions suspend;
  std::string suspend_by;
  std::string resume_job;
  RunOptions run;
  CheckpointsOptions checkpoints;
  EventsOptions events;
  NodesOptions nodes;
  DrainOptions drain;
  std::string drain_by;
  std::string undrain_node;
  FaultOptions fault;
  TopOptions top;
  std::string top_interval = "1s";
  SlurmOptions slurm;
  SecurityOptions security;
};

constexpr char kJobHelp[] = "The job's id, a unique prefix of it, or its name (the newest one)";

CLI::App* Add(CLI::App& app, Invocation& call, const std::string& name, const std::string& help,
              Command command) {
  return AddCommand(app, call.command, name, help, std::move(command));
}

void AddGlobals(CLI::App& app, GlobalOptions& global) {
  Flagged(&app, "--dir", global.dir, "The cluster's directory [~/.local/state/muster/default]",
          "MUSTER_DIR");
  CLI::Option* coordinator =
      Flagged(&app, "--coordinator", global.remote.address,
              "A coordinator on another machine, IP:PORT; needs --tls", "MUSTER_COORDINATOR");
  CLI::Option* tls =
      Flagged(&app, "--tls", global.remote.credentials_dir,
              "Directory with your credentials (ca.pem, cert.pem, key.pem)", "MUSTER_TLS");
  Flagged(
      &app, "--slurm-job", global.slurm_job,
      "The coordinator within this Slurm job's allocation: its number or name, or the directory "
      "that its supervisors share",
      "MUSTER_SLURM_JOB")
      ->excludes(coordinator)
      ->excludes(tls);
  Flagged(&app, "-o,--output", global.output, "table, wide, json, jsonl, yaml or name [table]",
          "MUSTER_OUTPUT")
      ->check(CLI::IsMember({"table", "wide", "json", "jsonl", "yaml", "name"}));
  Switch(&app, "--no-color", global.no_color, "No colours (also NO_COLOR)", "MUSTER_NO_COLOR");
}

// `up` and `down` are of this machine, and the daemons that `up` starts would take the variables
// up.
Status CheckLocal(const GlobalOptions& global) {
  if (!global.slurm_job.empty())
    return InvalidArgument(
        "a local cluster is not within an allocation; leave out --slurm-job (unset "
        "MUSTER_SLURM_JOB)");
  if (global.remote.address.empty() && global.remote.credentials_dir.empty()) return OkStatus();
  return InvalidArgument(
      "a local cluster has its coordinator on this machine; leave out --coordinator and --tls "
      "(unset MUSTER_COORDINATOR MUSTER_TLS)");
}

void AddClusterCommands(CLI::App& app, Invocation& call) {
  CLI::App* up = Add(app, call, "up", "Start a local cluster, or bring back what is missing of it",
                     [&call](CommandContext& c) -> CommandResult {
                       MUSTER_RETURN_IF_ERROR(CheckLocal(call.global));
                       return RunUp(c, call.up);
                     });
  Flagged(up, "--nodes", call.up.nodes, "Number of nodes [as before, or 1]", "MUSTER_UP_NODES")
      ->check(CLI::Range(1, 64));
  Flagged(up, "--slots", call.up.slots, "Ranks that a node may hold [its CPUs]", "MUSTER_UP_SLOTS")
      ->check(CLI::Range(1, 1024));
  Flagged(up, "--listen", call.up.listen, "Coordinator's address, 127.0.0.1:PORT or unix:PATH",
          "MUSTER_UP_LISTEN");
  Flagged(up, "--http", call.up.http, "Address of /metrics, 127.0.0.1:PORT", "MUSTER_UP_HTTP");
  Flagged(up, "--webhook-hosts", call.up.webhook_hosts,
          "Hosts that job files may have events posted to, HOST[:PORT],... [none]",
          "MUSTER_WEBHOOK_HOSTS");
  YesNo(up, "netns", call.up.netns,
        "Each node in a network namespace of its own; needs root [as before, or no]",
        "MUSTER_UP_NETNS");
  YesNo(up, "allow-faults", call.up.allow_faults,
        "Let muster fault cause faults [as before, or no]", "MUSTER_UP_ALLOW_FAULTS");
  Flagged(up, "--failure-domains", call.up.failure_domains,
          "Spread the nodes over so many failure domains [as before, or none]",
          "MUSTER_UP_FAILURE_DOMAINS")
      ->check(CLI::Range(1, 64));
  Flagged(up, "--log-level", call.up.log_level, "debug, info, warn or error", "MUSTER_LOG_LEVEL");

  CLI::App* down =
      Add(app, call, "down", "End the local cluster; its jobs go on at the next up",
          [&call](CommandContext& c) -> CommandResult {
            MUSTER_RETURN_IF_ERROR(CheckLocal(call.global));
            MUSTER_ASSIGN_OR_RETURN(call.down.timeout, ParseDuration(call.down_timeout));
            return RunDown(c, call.down);
          });
  Flagged(down, "--timeout", call.down_timeout, "Time to end before SIGKILL [10s]",
          "MUSTER_DOWN_TIMEOUT");
  CLI::App* top =
      Add(app, call, "top", "Watch the cluster, or one job, in the terminal; 'q' ends it",
          [&call](CommandContext& c) -> CommandResult {
            MUSTER_ASSIGN_OR_RETURN(call.top.interval, ParseDuration(call.top_interval));
            return RunTop(c, call.top);
          });
  top->add_option("JOB", call.top.job, kJobHelp);
  Flagged(top, "--interval", call.top_interval, "Between two looks, at least 0.1s [1s]",
          "MUSTER_TOP_INTERVAL");
  Switch(top, "--once", call.top.once, "Print one picture", "MUSTER_TOP_ONCE");
  Add(app, call, "page", "Show the address of the status page, for a browser",
      [](CommandContext& c) { return RunPage(c); });
  Add(app, call, "version", "Show the versions of muster and of the coordinator",
      [](CommandContext& c) { return RunVersion(c); });
}

void AddNodeCommands(CLI::App& app, Invocation& call) {
  CLI::App* nodes = Add(app, call, "nodes", "List the nodes",
                        [&call](CommandContext& c) { return RunNodes(c, call.nodes); });
  nodes->add_option("NODE", call.nodes.nodes, "These nodes alone [all]");
  Switch(
      nodes, "--report", call.nodes.report,
      "Show what nodes say of their addresses, networks and GPUs, problems first, each line once "
      "with the nodes that say it",
      "MUSTER_NODES_REPORT");

  CLI::App* drain =
      Add(app, call, "drain", "Place nothing more on a node; its jobs save their state and move",
          [&call](CommandContext& c) -> CommandResult {
            if (!call.drain_by.empty()) {
              MUSTER_ASSIGN_OR_RETURN(call.drain.by, ParseDuration(call.drain_by));
            }
            return RunDrain(c, call.drain);
          });
  drain->add_option("NODE", call.drain.node, "The node's name")->required();
  Flagged(drain, "--by", call.drain_by, "End what still runs after, such as 90s or 10m [no limit]",
          "MUSTER_DRAIN_BY");
  Flagged(drain, "--reason", call.drain.reason, "Why, for the nodes' list", "MUSTER_DRAIN_REASON");
  Switch(drain, "--wait", call.drain.wait, "Wait until nothing is left on it", "MUSTER_DRAIN_WAIT");

  CLI::App* undrain = Add(app, call, "undrain", "Use a drained or quarantined node again",
                          [&call](CommandContext& c) { return RunUndrain(c, call.undrain_node); });
  undrain->add_option("NODE", call.undrain_node, "The node's name")->required();

  CLI::App* fault =
      Add(app, call, "fault", "Cause a fault on purpose (of a cluster with --allow-faults)",
          [&call](CommandContext& c) { return RunFault(c, call.fault); });
  fault->add_option("JOB", call.fault.job, kJobHelp);
  Flagged(fault, "--rank", call.fault.rank, "Which of its ranks [0]", "MUSTER_FAULT_RANK")
      ->check(CLI::NonNegativeNumber);
  Flagged(fault, "--node", call.fault.node, "A node, instead of a job's rank", "MUSTER_FAULT_NODE");
  Flagged(fault, "--kind", call.fault.kind,
          "Of a rank: kill, stop, cont, hang-data, hang-collective, nan, oom, slow=30%, exit=3; of "
          "a node: kill-node, stop-worker, link-down, link-up",
          "MUSTER_FAULT_KIND")
      ->required();
}

void AddSubmit(CLI::App& app, Invocation& call) {
  CLI::App* submit = Add(app, call, "submit", "Submit a job", [&call](CommandContext& c) {
    if (call.submit_wait) call.submit.follow = SubmitFollow::kWait;
    if (call.submit_attach) call.submit.follow = SubmitFollow::kAttach;
    return RunSubmit(c, call.submit);
  });
  submit->add_option("FILE", call.submit.file, "Job file; - for standard input")->required();
  Flagged(submit, "--key", call.submit.key,
          "Idempotence key: the same key and job file give the same job", "MUSTER_SUBMIT_KEY");
  submit
      ->add_option("--set", call.submit.overrides,
                   "Override a key of the job file: --set train.optimizer.lr=1e-4")
      ->envname("MUSTER_SUBMIT_SET")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Flagged(submit, "--accelerate-config", call.submit.accelerate_config,
          "A configuration of accelerate or DeepSpeed, for what the job file does not say",
          "MUSTER_SUBMIT_ACCELERATE_CONFIG");
  Flagged(submit, "--name", call.submit.name, "The job's name", "MUSTER_SUBMIT_NAME");
  Flagged(submit, "--priority", call.submit.priority, "0 to 100; higher is placed first",
          "MUSTER_SUBMIT_PRIORITY");
  CLI::Option* wait =
      Switch(submit, "--wait", call.submit_wait,
             "Show progress until the end; exit with the job's result", "MUSTER_SUBMIT_WAIT");
  Switch(submit, "--attach", call.submit_attach, "Follow the job as attach does",
         "MUSTER_SUBMIT_ATTACH")
      ->excludes(wait);
}

// A flag for each question, so that scripts need not answer any.
void AddConfig(CLI::App& app, Invocation& call) {
  CLI::App* config =
      Add(app, call, "config", "Ask what to train and write a job file",
          [&call](CommandContext& c) { return RunConfig(c, call.config, std::cin); });
  config->add_option("FILE", call.config.file, "Job file to write [job.yaml]");
  Switch(config, "-y,--yes", call.config.yes, "Ask nothing; take the defaults for the rest",
         "MUSTER_CONFIG_YES");
  for (const Question& question : Questions()) {
    std::string variable = "MUSTER_CONFIG_" + question.key;
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    Flagged(config, "--" + question.key, call.config.given[question.key], question.text, variable);
  }
}

void AddFollowing(CLI::App& app, Invocation& call) {
  CLI::App* attach = Add(app, call, "attach", "Follow a job's progress; Ctrl-C detaches",
                         [&call](CommandContext& c) { return RunAttach(c, call.attach); });
  attach->add_option("JOB", call.attach.job, kJobHelp)->required();

  CLI::App* wait =
      Add(app, call, "wait", "Wait for a job's end; exit with its result",
          [&call](CommandContext& c) -> CommandResult {
            if (!call.wait_timeout.empty()) {
              MUSTER_ASSIGN_OR_RETURN(call.wait.timeout, ParseDuration(call.wait_timeout));
            }
            return RunWait(c, call.wait);
          });
  wait->add_option("JOB", call.wait.job, kJobHelp)->required();
  Flagged(wait, "--timeout", call.wait_timeout, "Give up after, such as 90s or 10m (exit code 7)",
          "MUSTER_WAIT_TIMEOUT");

  CLI::App* logs = Add(app, call, "logs", "Show the ranks' logs",
                       [&call](CommandContext& c) { return RunLogs(c, call.logs); });
  logs->add_option("JOB", call.logs.job, kJobHelp)->required();
  Flagged(logs, "--rank", call.logs.rank, "Only this rank", "MUSTER_LOGS_RANK");
  Flagged(logs, "--generation", call.logs.generation, "Of this attempt [the newest]",
          "MUSTER_LOGS_GENERATION");
  Flagged(logs, "--tail", call.logs.tail, "Only the last lines of each rank", "MUSTER_LOGS_TAIL");
  Switch(logs, "-f,--follow", call.logs.follow, "Go on as lines are written", "MUSTER_LOGS_FOLLOW");

  CLI::App* events = Add(app, call, "events", "Show what happened, to a job or to the cluster",
                         [&call](CommandContext& c) { return RunEvents(c, call.events); });
  events->add_option("JOB", call.events.job, kJobHelp);
  Switch(events, "-f,--follow", call.events.follow, "Go on as events come", "MUSTER_EVENTS_FOLLOW");
}

void AddJobCommands(CLI::App& app, Invocation& call) {
  CLI::App* get = Add(app, call, "get", "List jobs, or show one",
                      [&call](CommandContext& c) { return RunGet(c, call.get); });
  get->add_option("JOB", call.get.job, kJobHelp);
  Switch(get, "--all", call.get.all, "Also jobs that ended more than a day ago", "MUSTER_GET_ALL");

  CLI::App* describe =
      Add(app, call, "describe", "Tell a job's timeline: attempts, causes, recoveries",
          [&call](CommandContext& c) { return RunDescribe(c, call.describe_job); });
  describe->add_option("JOB", call.describe_job, kJobHelp)->required();

  CLI::App* goodput =
      Add(app, call, "goodput", "Show what the time of jobs and of all slots went to",
          [&call](CommandContext& c) { return RunGoodput(c, call.goodput); });
  goodput->add_option("JOB", call.goodput.jobs, "These jobs alone [all, and the cluster]");
  Switch(goodput, "--all", call.goodput.all, "Also jobs that ended more than a day ago",
         "MUSTER_GOODPUT_ALL");

  CLI::App* checkpoints =
      Add(app, call, "checkpoints", "List a job's committed checkpoints",
          [&call](CommandContext& c) { return RunCheckpoints(c, call.checkpoints); });
  checkpoints->add_option("JOB", call.checkpoints.job, kJobHelp)->required();
  Switch(checkpoints, "--verify", call.checkpoints.verify,
         "Have them all read again first, and wait for it", "MUSTER_CHECKPOINTS_VERIFY");

  CLI::App* cancel = Add(app, call, "cancel", "Cancel a job",
                         [&call](CommandContext& c) { return RunCancel(c, call.cancel); });
  cancel->add_option("JOB", call.cancel.job, kJobHelp)->required();
  Flagged(cancel, "--reason", call.cancel.reason, "Why, for the job's timeline",
          "MUSTER_CANCEL_REASON");
}

void AddSuspend(CLI::App& app, Invocation& call) {
  CLI::App* suspend =
      Add(app, call, "suspend", "Have a job save its state and set it aside until resume",
          [&call](CommandContext& c) -> CommandResult {
            if (!call.suspend_by.empty()) {
              MUSTER_ASSIGN_OR_RETURN(call.suspend.by, ParseDuration(call.suspend_by));
            }
            return RunSuspend(c, call.suspend);
          });
  suspend->add_option("JOB", call.suspend.job, kJobHelp)->required();
  Flagged(suspend, "--by", call.suspend_by,
          "End ranks that have not saved after, such as 90s or 10m [no limit]",
          "MUSTER_SUSPEND_BY");
  Flagged(suspend, "--reason", call.suspend.reason, "Why, for the job's timeline",
          "MUSTER_SUSPEND_REASON");
  Switch(suspend, "--wait", call.suspend.wait, "Wait until nothing of it runs any more",
         "MUSTER_SUSPEND_WAIT");

  CLI::App* resume =
      Add(app, call, "resume", "Let a suspended job go on from its newest checkpoint",
          [&call](CommandContext& c) { return RunResume(c, call.resume_job); });
  resume->add_option("JOB", call.resume_job, kJobHelp)->required();
}

// What is not ours is torchrun's, and what stands behind the script is the script's: so our own
// flags come first, and nothing falls through to them from there.
void AddRun(CLI::App& app, Invocation& call) {
  CLI::App* run = Add(app, call, "run",
                      "Run a script as torchrun does: run [--dir DIR] TORCHRUN-FLAGS SCRIPT ARGS",
                      [&call](CommandContext& c) { return RunTorchrun(c, call.run); });
  run->fallthrough(false);
  run->prefix_command();
  run->add_option("--dir", call.global.dir, "The cluster's directory");
  run->add_flag("--print-job", call.run.print_job, "Print the job file, and run nothing");
  run->footer(TorchrunHelp());
  run->parse_complete_callback([&call, run] { call.run.arguments = run->remaining(); });
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

int Run(Invocation& call, Interrupt& interrupt) {
  Terminal terminal = FindTerminal(call.global);
  const std::string dir = ClusterDirectory(call.global.dir);
  const GlobalOptions& global = call.global;
  const auto client =
      global.slurm_job.empty()
          ? std::make_unique<ClusterClient>(dir, interrupt, global.remote)
          : std::make_unique<ClusterClient>(
                dir, interrupt,
                CoordinatorOfSlurmJob(slurm::SlurmCommands(slurm::CurrentEnvironment()),
                                      CurrentUser(), global.slurm_job));
  CommandContext context{*client, terminal, FormatOf(call.global.output)};
  const CommandResult result = call.command(context);
  terminal.out.flush();
  if (result.ok() && *result == kExitSuccess && !terminal.out) {
    terminal.err << "muster: the output could not be written\n";
    return kExitError;
  }
  if (result.ok()) return *result;
  if (interrupt.requested()) {
    terminal.err << "muster: interrupted\n";
    return kExitInterrupted;
  }
  terminal.err << "muster: " << result.status().message() << "\n";
  return ExitCodeOf(result.status());
}

}  // namespace

Result<Duration> ParseDuration(const std::string& text) {
  double amount = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), amount);
  const std::string_view unit(end.ptr,
                              static_cast<std::size_t>(text.data() + text.size() - end.ptr));
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "ms"              ? 0.001
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                       : unit == "d"               ? 24 * 3600
                                                   : -1;
  if (end.ec != std::errc() || scale < 0 || !(amount >= 0) || amount * scale > 1e9)
    return InvalidArgument("'" + text + "' is no duration; write it as 90s, 10m, 2h or 30d");
  return FromSeconds(amount * scale);
}

int RunApp(int argc, char** argv, Interrupt& interrupt) {
  CLI::App app("muster launches, supervises and finishes fine-tuning jobs.");
  app.name("muster");
  WriteHelpInWords(app);
  app.set_version_flag("--version", VersionText("muster"), "Print the version and end");
  app.require_subcommand(0, 1);  // none is answered below, with more help than CLI11's
  app.footer("Every flag has a variable: --dir is MUSTER_DIR, submit --key is MUSTER_SUBMIT_KEY.");
  Invocation call;
  AddGlobals(app, call.global);
  AddConfig(app, call);
  AddSubmit(app, call);
  AddFollowing(app, call);
  AddJobCommands(app, call);
  AddSuspend(app, call);
  AddRun(app, call);
  AddClusterCommands(app, call);
  AddNodeCommands(app, call);
  AddSlurmCommands(app, call.global.output, call.slurm, call.command);
  AddSecurityCommands(app, call.security, call.command);
  try {
    app.parse(TakeSbatchWords(argc, argv, call.slurm), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitSuccess : kExitBadUsage;
  }
  if (!call.command) {
    std::cerr << app.help();
    return kExitBadUsage;
  }
  try {
    return Run(call, interrupt);
  } catch (const std::exception& error) {
    std::cerr << "muster: internal error: " << error.what() << "\n";
    return kExitError;
  }
}

}  // namespace muster
