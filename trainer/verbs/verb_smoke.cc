#include <ATen/Parallel.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/parse.h"
#include "trainer/plan/run_plan.h"
#include "trainer/train/rank_process.h"
#include "trainer/verbs/plan_inputs.h"
#include "trainer/verbs/rank_device.h"
#include "trainer/verbs/trial_folder.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 2;
constexpr double kMB = 1e6;

// What the steps of one rank have shown.
struct Trial {
  TrainStatus status;
  std::vector<StepMetrics> steps;
};

// One run of the job in this process. The second one must not meet a store of the first, so each
// has a port of its own, or where another process serves the store a generation of its own.
Trial Run(const JobSpec& spec, int number) {
  Trial trial;
  Result<RankEnv> env = ReadRankEnv(std::getenv);
  if (!env.ok()) {
    trial.status = FromInput(FailureKind::kConfig, env.status());
    return trial;
  }
  // Those of the job itself are no trial's.
  env->checkpoint_dir.clear();
  env->resume_file.clear();
  env->generation += number;
  if (!env->agent_store) env->master_port += number;
  RankFaults faults;
  Supervisor supervisor(UniqueFd(), {});
  Result<std::unique_ptr<ProgressWriter>> page = ProgressWriter::Private();
  if (!page.ok()) {
    trial.status = TrainStatus(FailureKind::kInternal, page.status());
    return trial;
  }
  ProgressReporter progress(*std::move(page), SystemClock());
  RankProcess process(
      spec, {.make_device = MakeRankDevice,
             .supervisor = supervisor,
             .progress = progress,
             .faults = faults,
             .clock = SystemClock(),
             .out = stderr,
             .exports = false,
             .on_step = [&trial](const StepMetrics& step) { trial.steps.push_back(step); }});
  trial.status = process.RunOnce(*std::move(env));
  if (trial.status.ok() && trial.steps.empty()) {
    trial.status =
        Internal("the trial has done no step; it found a checkpoint of the last one in " +
                 spec.train->output_dir);
  }
  return trial;
}

// The job's two first steps at its own peak rate, with a checkpoint at the end.
JobSpec FirstTrial(const JobSpec& job, const fs::path& folder) {
  JobSpec spec = job;
  TrainSpec& train = *spec.train;
  train.schedule = {.kind = "constant", .warmup_ratio = 0, .max_steps = kSteps};
  train.checkpoint = {.every = kSteps, .keep = 1};
  // One evaluation, at the end, which ends nothing.
  train.eval.every = kSteps;
  train.eval.at_start = false;
  train.eval.early_stop = {};
  train.profile = {};
  train.output_dir = (folder / "first").string();
  return spec;
}

// What that checkpoint holds, on the rows of the first step again.
JobSpec SecondTrial(const JobSpec& job, const fs::path& folder) {
  JobSpec spec = FirstTrial(job, folder);
  spec.train->schedule.max_steps = 1;
  spec.train->init_from = {.path = (folder / "first" / "checkpoints").string(), .optimizer = true};
  spec.train->output_dir = (folder / "second").string();
  return spec;
}

// Ranks of one host, or of hosts that share the directory, see each other's.
Status WriteLosses(const TrialFolder& folder, int rank, const Trial& trial) {
  nlohmann::json losses = nlohmann::json::array();
  for (const StepMetrics& step : trial.steps) losses.push_back(step.loss);
  return WriteFileAtomically(folder.LossesOf(rank).string(), losses.dump());
}

class Report {
 public:
  void Add(bool passed, const std::string& text) {
    std::printf("%s  %s\n", passed ? "ok    " : "FAILED", text.c_str());
    passed_ = passed_ && passed;
  }
  bool passed() const { return passed_; }

 private:
  bool passed_ = true;
};

std::string Number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void ReportLosses(const TrialFolder& folder, const Trial& first, const Trial& second, int world,
                  Report* report) {
  const double before = first.steps.front().loss, after = second.steps.front().loss;
  report->Add(std::isfinite(after) && after < before,
              "loss on the rows of the first step: " + Number("%.6f", before) +
                  ", after two steps " + Number("%.6f", after));
  int seen = 0, equal = 0;
  const auto own = ReadFile(folder.LossesOf(0).string());
  for (int rank = 0; rank < world; ++rank) {
    const auto losses = ReadFile(folder.LossesOf(rank).string());
    seen += losses.ok() ? 1 : 0;
    equal += losses.ok() && own.ok() && *losses == *own ? 1 : 0;
  }
  report->Add(seen == equal && seen > 0, "reduced loss equal on " + std::to_string(equal) + " of " +
                                             std::to_string(world) + " ranks (" +
                                             std::to_string(seen) + " could be asked)");
  report->Add(true, "checkpoint written, read back with its checksums, trained on");
}

// Bytes that rank 0 has held at most in training; 0: not known.
double HeldBytes(const fs::path& folder) {
  const auto text = ReadFile((folder / "first" / "memory.json").string());
  if (!text.ok()) return 0;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  return json.is_discarded() ? 0 : json["ranks"][0]["train"]["peak"].get<double>();
}

void ReportAgainstPlan(const JobSpec& job, const std::string& file, const fs::path& folder,
                       const Trial& first, Report* report) {
  PlanQuestion question;
  question.hardware = ThisHost(job);
  question.job.train = *job.train;
  question.job.resources = job.resources;
  question.job.supervised = false;
  const std::string& named = job.train->model.path;
  const auto model = ReadShape(Below(job, file, named), named);
  if (model.ok()) question.job.model = *model;
  const Result<RunPlan> plan = model.ok() ? PlanRun(question) : Result<RunPlan>(model.status());
  if (!plan.ok()) return report->Add(false, "plan: " + plan.status().message());
  const double held = HeldBytes(folder);
  const double there = question.hardware.host_memory_bytes / job.resources.ranks_per_node;
  report->Add(there <= 0 || held < there,
              "memory of rank 0 on its host: " + Number("%.0f MB held, ", held / kMB) +
                  Number("%.0f MB planned, ", static_cast<double>(plan->memory.host_bytes) / kMB) +
                  Number("%.0f MB for each rank there", there / kMB));
  const double rate = first.steps.back().tokens_per_second / job.world_size();
  std::string speed = Number("%.0f tokens with a label per second and device", rate);
  if (job.resources.device == "cpu")
    speed += Number(", %.0f planned for rows of full length",
                    plan->time.tokens_per_second / job.world_size());
  report->Add(true, speed);
}

int Fail(const TrainStatus& failure, int rank) {
  std::fprintf(stderr, "muster-trainer smoke: rank %d: %s: %s\n", rank, failure.kind_name().data(),
               failure.message().c_str());
  return failure.exit_code();
}

// The environment's ranks are the job's for as long as the trial lasts.
Result<JobSpec> ReadTrialJob(const TrainOptions& options, const RankEnv& env) {
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, ReadTrainJob(options));
  spec.resources.ranks_per_node = env.local_world_size;
  spec.resources.nodes = std::max(1, env.world_size / env.local_world_size);
  return spec;
}

// Both runs, and rank 0's report of them.
int TryOut(const TrainOptions& options, const JobSpec& job, const RankEnv& env,
           const TrialFolder& folder) {
  const Trial first = Run(FirstTrial(job, folder.path()), 0);
  if (!first.status.ok()) return Fail(first.status, env.rank);
  const Status written = WriteLosses(folder, env.rank, first);
  if (!written.ok()) std::fprintf(stderr, "muster-trainer smoke: %s\n", written.message().c_str());
  const Trial second = Run(SecondTrial(job, folder.path()), 1);
  if (!second.status.ok()) return Fail(second.status, env.rank);
  Report report;
  if (env.rank == 0) {
    ReportLosses(folder, first, second, env.world_size, &report);
    ReportAgainstPlan(job, options.file, folder.path(), first, &report);
  }
  return report.passed() ? kExitOk : kExitFailure;
}

}  // namespace

int RunSmoke(const TrainOptions& options) {
  const Result<RankEnv> env = ReadRankEnv(std::getenv);
  if (!env.ok()) return Fail(FromInput(FailureKind::kConfig, env.status()), 0);
  const Result<JobSpec> job = ReadTrialJob(options, *env);
  if (!job.ok()) return Fail(FromInput(FailureKind::kConfig, job.status()), env->rank);
  at::set_num_threads(std::max(1, job->resources.cpus_per_rank));
  const fs::path output = fs::absolute(OutputDirectory(*job, {env->job_id}));
  const Result<TrialFolder> folder = TrialFolder::Take(output, env->rank, env->local_rank);
  if (!folder.ok()) return Fail(FromInput(FailureKind::kConfig, folder.status()), env->rank);
  const int code = TryOut(options, *job, *env, *folder);
  folder->Remove();
  return code;
}

}  // namespace muster
