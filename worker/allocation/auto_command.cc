#include "worker/allocation/auto_command.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "common/command_line/finite_numbers.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/slurm/allocation.h"
#include "common/telemetry/log.h"
#include "worker/allocation/auto_start.h"
#include "worker/allocation/indexed_job.h"
#include "worker/allocation/slurm_scheduler.h"
#include "worker/allocation/supervisor.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kAddressLimit{60};

int Fail(const Status& status, int exit_code) {
  PrintError("muster-worker: " + status.message());
  return exit_code;
}

void AddOptions(CLI::App& app, AutoFlags* flags, bool* is_auto) {
  app.add_flag("--auto", *is_auto,
               "be one of the tasks of an srun step or the pods of an Indexed Job, one per node");
  app.add_option("--job", flags->job, "the job file")->envname("MUSTER_JOB");
  app.add_option("--set", flags->overrides, "key=value that overrides the job file's")
      ->allow_extra_args(false);
  app.add_option(
         "--interface", flags->interface,
         "Interface or network (10.1.0.0/16) between the nodes [default: that of the route to "
         "srun, or of the pod's name]")
      ->envname("MUSTER_INTERFACE");
  app.add_option(
         "--state", flags->state_dir,
         "Directory on a shared file system for files of all nodes [default: below the job's "
         "output]")
      ->envname("MUSTER_STATE");
  app.add_option(
         "--slots", flags->slots,
         "Slots per node; a slot holds one rank [default: one per GPU, else ranks_per_node]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--lease", flags->lease_seconds, "Seconds until a silent node is lost")
      ->check(CLI::Range(0.5, 600.0))
      ->capture_default_str();
  app.add_option(
         "--term-grace", flags->term_seconds,
         "Seconds after SIGTERM for the job to save its state [default: Slurm's KillWait less "
         "5, at most 25]")
      ->check(CLI::Range(1.0, 86400.0));
  app.add_option("--stop-lead", flags->stop_lead_seconds,
                 "Seconds before the allocation's end at which the job is saved and stopped "
                 "[default: twice the duration of a checkpoint, plus 60]")
      ->check(CLI::Range(1.0, 86400.0));
  app.add_option("--max-requeues", flags->max_requeues,
                 "Maximum number of requeues while work is left")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--node-timeout", flags->wait_seconds,
                 "Seconds that the job may wait for nodes before the allocation is released")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_option("--give-up", flags->give_up_seconds,
                 "Seconds without a node that can run a coordinator before the allocation is "
                 "requeued")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_option("--worker-arg", flags->worker_arguments, "Argument for the worker of each node")
      ->allow_extra_args(false);
  app.add_option("--log-level", flags->log_level, "Log level: trace, debug, info, warn, or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.set_version_flag("--version", VersionText("muster-worker"), "Print the version and exit");
}

// The number of words up to --; those after it are torchrun's and are kept in `flags`.
int TakeTorchrunWords(int argc, char** argv, AutoFlags* flags) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") != 0) continue;
    flags->torchrun.words.assign(argv + i + 1, argv + argc);
    flags->torchrun.environment = slurm::CurrentEnvironment();
    std::error_code error;
    flags->torchrun.directory = std::filesystem::current_path(error).string();
    return i;
  }
  return argc;
}

Status CheckJob(const AutoFlags& flags) {
  const bool torchrun = !flags.torchrun.words.empty();
  if (torchrun != flags.job.empty())
    return InvalidArgument(torchrun ? "--job and torchrun's arguments after -- exclude each other"
                                    : "expected --job FILE, or torchrun's arguments after --: "
                                      "muster-worker --auto -- --nproc-per-node 8 train.py");
  if (torchrun && flags.torchrun.directory.empty())
    return InvalidArgument("could not determine the current directory; pass --chdir=DIR to srun");
  return OkStatus();
}

// `scheduler` makes that of a run.
int RunTask(const AutoTask& task, const AutoFlags& flags, const std::string& binary_dir,
            const std::function<std::unique_ptr<Scheduler>(int run)>& scheduler) {
  InitLogging("supervisor " + task.node_name(), flags.log_level);
  auto options = PlanSupervisor(task, flags, binary_dir);
  if (!options.ok()) return Fail(options.status(), kExitBadData);
  if (options->ended) {
    Log().info("the job is over: {}/outcome.json has how it ended", options->shared_dir);
    return *options->ended;
  }
  auto of_run = scheduler(options->run);
  const auto exit_code = RunSupervisor(*std::move(options), std::move(of_run));
  if (!exit_code.ok()) return Fail(exit_code.status(), kExitConfig);
  return *exit_code;
}

int RunInIndexedJob(const slurm::Environment& environment, const AutoFlags& flags,
                    const std::string& binary_dir) {
  auto task = ReadIndexedJob(environment);
  if (!task.ok()) return Fail(task.status(), kExitConfig);
  if (flags.interface.empty()) {
    auto address = AwaitAddress(HostOf(*task, environment), kAddressLimit);
    if (!address.ok()) return Fail(address.status(), kExitConfig);
    task->own_address = *std::move(address);
  }
  return RunTask(*task, flags, binary_dir, MakeIndexedJobScheduler);
}

}  // namespace

bool WantsAuto(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    if (std::strcmp(argv[i], "--auto") == 0) return true;
  return false;
}

int RunAuto(int argc, char** argv, const std::string& binary_dir) {
  CLI::App app{
      "Supervise this node of a Slurm allocation, or this pod of a Kubernetes Indexed Job: srun "
      "muster-worker --auto --job FILE",
      "muster-worker --auto"};
  WriteHelpInWords(app);
  app.footer(
      "Instead of --job, pass torchrun's arguments after --: srun muster-worker --auto -- "
      "--nproc-per-node 8 train.py --lr 1e-4; muster run --help lists them.\n"
      "The exit code is the job's: 0, 10 (failed), 11 (cancelled), 12 (suspended), or 75 (work is "
      "left).");
  AutoFlags flags;
  bool is_auto = false;
  AddOptions(app, &flags, &is_auto);
  try {
    app.parse(TakeTorchrunWords(argc, argv, &flags), argv);
    CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadUsage;
  }
  if (const Status job = CheckJob(flags); !job.ok()) return Fail(job, kExitBadUsage);
  const slurm::Environment environment = slurm::CurrentEnvironment();
  if (!slurm::InAllocation(environment) && InIndexedJob(environment))
    return RunInIndexedJob(environment, flags, binary_dir);
  const auto allocation = slurm::ReadAllocation(environment);
  if (!allocation.ok()) return Fail(allocation.status(), kExitConfig);
  return RunTask(TaskOfSlurm(*allocation), flags, binary_dir,
                 [&](int) { return MakeSlurmScheduler(*allocation); });
}

}  // namespace muster::worker
