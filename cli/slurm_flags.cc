#include "cli/slurm_flags.h"

#include "common/slurm/allocation.h"

namespace muster {
namespace {

constexpr char kJobHelp[] =
    "The Slurm job's number (40_1 for a task of an array), or the job's name (the newest one)";

// The user's environment, as Slurm's commands would see it in a shell.
slurm::SlurmCommands Commands() { return slurm::SlurmCommands(slurm::CurrentEnvironment()); }

void AddOutput(CLI::App* command, std::string& output) {
  Flagged(command, "-o", output, "table, json, jsonl, yaml or name [table]", "MUSTER_OUTPUT")
      ->check(CLI::IsMember({"table", "wide", "json", "jsonl", "yaml", "name"}));
}

void AddScriptFlags(CLI::App* command, std::string& output, SlurmSubmitOptions& options) {
  AddOutput(command, output);
  command->add_option("FILE", options.file, "Job file; - for standard input")->required();
  Flagged(command, "--key", options.key,
          "Idempotence key: the same key, job file and options give the same job",
          "MUSTER_SLURM_SUBMIT_KEY");
  Flagged(command, "--name", options.name, "The job's name", "MUSTER_SLURM_SUBMIT_NAME");
  command
      ->add_option("--set", options.overrides,
                   "Override a key of the job file: --set train.optimizer.lr=1e-4")
      ->envname("MUSTER_SLURM_SUBMIT_SET")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Flagged(command, "--accelerate-config", options.accelerate_config,
          "A configuration of accelerate or DeepSpeed, for what the job file does not say",
          "MUSTER_SLURM_SUBMIT_ACCELERATE_CONFIG");
  Flagged(command, "--spares", options.spares, "Nodes held ready beside the job's [the file's]",
          "MUSTER_SLURM_SUBMIT_SPARES")
      ->check(CLI::Range(0, 1024));
  Flagged(command, "--worker", options.worker,
          "muster-worker as the nodes find it [beside this program, else in PATH]",
          "MUSTER_SLURM_SUBMIT_WORKER");
  command
      ->add_option("--worker-arg", options.worker_arguments,
                   "A further argument of muster-worker --auto, as --worker-arg=--interface=ib0")
      ->envname("MUSTER_SLURM_SUBMIT_WORKER_ARG")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Flagged(command, "--apptainer", options.apptainer_image,
          "Run in this image by apptainer (for pyxis give --container-image)",
          "MUSTER_SLURM_SUBMIT_APPTAINER");
  command
      ->add_option("--apptainer-arg", options.apptainer_options,
                   "A further argument of apptainer exec, as --apptainer-arg=--bind=/data")
      ->envname("MUSTER_SLURM_SUBMIT_APPTAINER_ARG")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Flagged(command, "--signal-lead", options.signal_lead_seconds,
          "Seconds before the end of the time at which Slurm says so [180]",
          "MUSTER_SLURM_SUBMIT_SIGNAL_LEAD")
      ->check(CLI::Range(60, 65535));
  Flagged(command, "--max-requeues", options.max_requeues,
          "How often the job may be requeued [100]", "MUSTER_SLURM_SUBMIT_MAX_REQUEUES")
      ->check(CLI::Range(0, 1000000));
  // What is none of these is sbatch's, so it must not be looked for among the global flags.
  command->fallthrough(false);
  command->allow_extras();
  command->footer(
      "All other options are passed on to sbatch: muster slurm submit job.yaml --partition=gpu "
      "-t 2:00:00. Write those that muster has too behind --, as -- --output=x.log.");
}

void AddSubmits(CLI::App& slurm, std::string& output, SlurmOptions& options, Command& chosen) {
  SlurmSubmitOptions& submit = options.submit;
  const auto run = [&options, &submit](const CLI::App* command) {
    return [&options, &submit, command](CommandContext& c) {
      submit.sbatch = command->remaining();
      submit.sbatch.insert(submit.sbatch.end(), options.behind_dashes.begin(),
                           options.behind_dashes.end());
      return RunSlurmSubmit(c, Commands(), submit);
    };
  };
  CLI::App* command = AddCommand(slurm, chosen, "submit", "Submit a job to Slurm, once", nullptr);
  command->callback([&chosen, run, command] { chosen = run(command); });
  AddScriptFlags(command, output, submit);
  Switch(command, "--dry-run", submit.render, "Print the batch script only",
         "MUSTER_SLURM_SUBMIT_DRY_RUN");
  CLI::Option* wait =
      Switch(command, "--wait", submit.wait, "Wait for the end; exit with the job's result",
             "MUSTER_SLURM_SUBMIT_WAIT");
  Switch(command, "--attach", submit.attach, "Follow the job as muster slurm attach does",
         "MUSTER_SLURM_SUBMIT_ATTACH")
      ->excludes(wait);

  CLI::App* render = AddCommand(slurm, chosen, "render",
                                "Print the batch script that submit would give to sbatch", nullptr);
  render->callback([&chosen, &submit, run, render] {
    submit.render = true;
    chosen = run(render);
  });
  AddScriptFlags(render, output, submit);
}

void AddJobs(CLI::App& slurm, SlurmOptions& options, Command& chosen) {
  CLI::App* status = AddCommand(
      slurm, chosen, "status", "Show what Slurm and the job's own coordinator say",
      [&options](CommandContext& c) { return RunSlurmStatus(c, Commands(), options.status); });
  status->add_option("JOB", options.status.job, kJobHelp);
  Flagged(status, "--state", options.status.state,
          "Where the supervisors' shared files are [as submitted]", "MUSTER_SLURM_STATUS_STATE");

  CLI::App* attach = AddCommand(
      slurm, chosen, "attach", "Follow a job's progress from the login node; Ctrl-C detaches",
      [&options](CommandContext& c) { return RunSlurmAttach(c, Commands(), options.attach); });
  attach->add_option("JOB", options.attach.job, kJobHelp)->required();
  Flagged(attach, "--state", options.attach.state,
          "Where the supervisors' shared files are [as submitted]", "MUSTER_SLURM_ATTACH_STATE");

  CLI::App* requeue = AddCommand(
      slurm, chosen, "requeue", "Save a job's state, stop it and queue it again",
      [&options](CommandContext& c) { return RunSlurmRequeue(c, Commands(), options.requeue); });
  requeue->add_option("JOB", options.requeue.job, kJobHelp)->required();
  Switch(requeue, "--now", options.requeue.now, "Without saving first", "MUSTER_SLURM_REQUEUE_NOW");
}

void AddPilots(CLI::App& slurm, Command& chosen) {
  AddCommand(slurm, chosen, "pilots", "Show the nodes that a coordinator has asked Slurm for",
             [](CommandContext& c) { return RunSlurmPilots(c); });
}

void AddDoctor(CLI::App& slurm, std::string& output, SlurmOptions& options, Command& chosen) {
  CLI::App* doctor = AddCommand(
      slurm, chosen, "doctor",
      "Tell what of this Slurm's settings and nodes helps or harms, and what to change", nullptr);
  doctor->callback([&chosen, &options, doctor] {
    chosen = [&options, doctor](CommandContext& c) {
      options.doctor.srun = doctor->remaining();
      options.doctor.srun.insert(options.doctor.srun.end(), options.behind_dashes.begin(),
                                 options.behind_dashes.end());
      return RunSlurmDoctor(c, Commands(), options.doctor);
    };
  });
  AddOutput(doctor, output);
  Flagged(doctor, "--nodes,-N", options.doctor.nodes,
          "Try so many nodes out by srun [those of the allocation that this runs in]",
          "MUSTER_SLURM_DOCTOR_NODES")
      ->check(CLI::Range(1, 4096));
  Flagged(doctor, "--shared", options.doctor.shared,
          "A directory that the nodes are to share [the current one]",
          "MUSTER_SLURM_DOCTOR_SHARED");
  Flagged(doctor, "--interface", options.doctor.interface,
          "The interface or network by which nodes are to reach each other, as of muster-worker "
          "--auto",
          "MUSTER_SLURM_DOCTOR_INTERFACE");
  doctor->fallthrough(false);
  doctor->allow_extras();
  doctor->footer(
      "All other options are passed on to srun, to try the nodes that jobs get: muster slurm "
      "doctor --nodes 2 --gpus-per-node=8");
  Flagged(doctor, "--partition", options.doctor.partition, "The job's partition [the default one]",
          "MUSTER_SLURM_DOCTOR_PARTITION");
  Flagged(doctor, "--checkpoint-seconds", options.doctor.checkpoint_seconds,
          "How long a checkpoint takes [not known]", "MUSTER_SLURM_DOCTOR_CHECKPOINT_SECONDS")
      ->check(CLI::Range(0.0, 86400.0));
  Flagged(doctor, "--signal-lead", options.doctor.signal_lead_seconds,
          "As of muster slurm submit [180]", "MUSTER_SLURM_DOCTOR_SIGNAL_LEAD")
      ->check(CLI::Range(60, 65535));
}

// Started by the doctor on each node; not for people.
void AddProbe(CLI::App& slurm, SlurmOptions& options, Command& chosen) {
  CLI::App* probe =
      AddCommand(slurm, chosen, "probe", "Find out about one node, for the doctor",
                 [&options](CommandContext& c) { return RunSlurmProbe(c, options.probe); });
  probe->add_option("--shared", options.probe.dir)->required();
  probe->add_option("--interface", options.probe.interface);
  probe->group("");
}

}  // namespace

void AddSlurmCommands(CLI::App& app, std::string& output, SlurmOptions& options, Command& chosen) {
  CLI::App* slurm =
      app.add_subcommand("slurm", "Run jobs under Slurm, without a cluster of one's own");
  slurm->require_subcommand(1);
  slurm->fallthrough();
  AddSubmits(*slurm, output, options, chosen);
  AddJobs(*slurm, options, chosen);
  AddPilots(*slurm, chosen);
  AddDoctor(*slurm, output, options, chosen);
  AddProbe(*slurm, options, chosen);
}

int TakeSbatchWords(int argc, char** argv, SlurmOptions& options) {
  bool slurm = false, submit = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--" && submit) {
      options.behind_dashes.assign(argv + i + 1, argv + argc);
      return i;
    }
    submit = submit || (slurm && (word == "submit" || word == "render" || word == "doctor"));
    slurm = slurm || word == "slurm";
  }
  return argc;
}

}  // namespace muster
