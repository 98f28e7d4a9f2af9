// Trainer: one rank in one generation of a job, from forming the gang to the exported model.
//
// In this order: meet the other ranks and do a first collective (reported before anything is read,
// so that a launch is known to work within a second), read model and data unless the process has
// them, resume from the newest snapshot or committed checkpoint, train, save, export. Runs under a
// guardian, or alone under torchrun's or srun's environment.
//
// The ranks agree on an early stop before the first step and then by a vote that rides along in the
// step's last collective; all other decisions are functions of equal inputs. A loss or gradient
// norm that is not finite never reaches the optimizer: it ends the job, or the step is left out
// (NonFiniteGuard).
//
// Between steps it evaluates, where the job has rows for that. Early stops and best states are
// functions of the evaluations' numbers, which are equal on all ranks and part of the cursor.
//
// A generation that is called off ends Run with a failure of kind peer_lost at the next collective
// or step at the latest. The trainer holds what belongs to its generation and can be destroyed
// then; what serves the next one is in TrainerParts (RankProcess owns it).
//
// One object per generation, used by the main thread. Torch exceptions pass through; the caller
// turns them into a Failure (RankProcess does).
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/rank_env.h"
#include "trainer/core/failure.h"
#include "trainer/data/eval_loader.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/fsdp/retained_weights.h"
#include "trainer/inputs/train_inputs.h"
#include "trainer/report/line_writer.h"
#include "trainer/report/memory_report.h"
#include "trainer/report/profiler.h"
#include "trainer/report/progress_reporter.h"
#include "trainer/report/run_logs.h"
#include "trainer/report/throughput.h"
#include "trainer/state/checkpoint/checkpointer.h"
#include "trainer/supervise/rank_faults.h"
#include "trainer/supervise/supervisor.h"
#include "trainer/train/nonfinite_guard.h"
#include "trainer/train/nonfinite_origin.h"
#include "trainer/train/rank_snapshots.h"
#include "trainer/train/retained_segments.h"

namespace muster {

// What the trainer works with; all of it outlives the trainer.
struct TrainerParts {
  const JobSpec& spec;
  ProcessInputs& inputs;       // loaded or not
  Communicator& communicator;  // not formed yet
  DeviceOps& ops;
  std::shared_ptr<ShardSaver> saver;
  RetainedSegments* segments = nullptr;  // null: no guardian holds snapshots, so none are taken
  RetainedWeights* frozen = nullptr;     // null: no guardian holds frozen weights
  Supervisor& supervisor;
  ProgressReporter& progress;
  RankFaults& faults;
  const Clock& clock;
  std::FILE* out;       // rank 0's lines for people
  LineWriter& lines;    // of the log; rank 0
  bool exports = true;  // the trained model, at the end
  // Called on every rank, after each step; may be empty.
  std::function<void(const StepMetrics&)> on_step;
};

class Trainer {
 public:
  // `step_ranks`: the number of ranks that batch.accumulation counts for, whatever the gang's is.
  Trainer(RankEnv env, int step_ranks, TrainerParts parts);

  // Returns nothing when the job is done or stopped as asked.
  std::optional<Failure> Run();
  // Finished steps.
  Step step() const { return cursor_.step; }

 private:
  std::optional<Failure> RunStages();
  std::optional<Failure> Start();
  std::optional<Failure> Finish();
  std::optional<Failure> Form();
  std::optional<Failure> LoadInputs();
  std::optional<Failure> LoadModelAndData();
  std::optional<Failure> AgreeOnModelAndData();
  std::optional<Failure> MakeEngine();
  std::optional<Failure> LoadState();
  std::optional<Failure> PlanSnapshots(FsdpOptions* options);
  void MakeCheckpointer();
  std::optional<Failure> LoadNewestState();
  std::optional<Failure> RestoreSnapshot(bool* restored);
  std::optional<Failure> LoadCheckpoint(Step above, bool* loaded);
  std::optional<Failure> BeginSnapshots();
  Status LoadFirstState();
  Status LoadModelWeights();
  Status LoadFirstAdapters();
  const SafetensorsModel* ModelFiles() const;
  std::optional<Failure> LoadFrozen();
  void ReportFrozen();
  Status WithOwnReason(const Status& loaded) const;
  std::optional<Failure> OpenMetrics();
  std::optional<Failure> AgreeOnStop();
  std::optional<Failure> CheckCalledOff() const;
  std::optional<Failure> RunSteps();
  std::optional<Failure> RunStep();
  std::optional<Failure> RunMicroBatches();
  std::optional<Failure> JudgeNonFinite(const StepNumbers& numbers);
  std::optional<Failure> FindNonFinite(NonFiniteStep* step, int* culprit);
  std::string OwnLoss();
  std::optional<Failure> RepeatForGradients(std::string* found);
  std::string DescribeMicroBatch(int number);
  void FinishStep(const StepNumbers& numbers, double lr, TimePoint begin);
  // No further step follows.
  bool Done() const { return cursor_.step >= max_steps_ || ended_early_; }
  bool EvaluationIsDue() const;
  std::optional<Failure> Evaluate();
  void LogEvaluation(const EvalNumbers& numbers, double seconds);
  void NoteEarlyEnd();
  std::optional<Failure> ShowSamples();
  std::optional<Failure> GoOnFrom(std::span<const SamplePrompt> prompts);
  void LogSample(const SamplePrompt& prompt, const std::vector<std::int32_t>& text, bool ended);
  std::optional<Failure> ForgetLostBest();
  void CountWrittenBest(EvalHistory* history);
  Result<std::vector<CheckpointManifest>> KnownManifests() const;
  Result<std::vector<CheckpointManifest>> AwaitBestManifest();
  Result<std::pair<Step, Generation>> AgreeOnBest();
  std::optional<Failure> TakeBest();
  void LogStep(const StepMetrics& metrics);
  // By the writer of lines, with a line for people.
  void WriteLog(std::function<Status(RunLogs&)> write, std::string line);
  void StopLogging(const std::string& reason);
  void FinishLog(Duration limit);
  void SealStep();
  std::optional<Failure> Save();
  std::optional<Failure> SaveIfDue();
  std::optional<Failure> SaveBest();
  void ReportSlowDisk();
  std::optional<Failure> SaveLast();
  // `on_moved`: more of the shard has reached its file.
  Status DrainSaves(const std::function<void()>& on_moved);
  // On all ranks, before a collective.
  std::optional<Failure> DrainSavesTogether();
  // Into the progress page: what has been written so far.
  void ReportSaves();
  void CountCollectiveError(const Failure& failure);
  std::optional<Failure> Export();
  std::optional<Failure> WaitForRoom();
  std::optional<Failure> ReportProfile();
  std::optional<Failure> ReportMemory();
  // To the guardian, and in rank 0's output.
  void Note(const char* severity, const std::string& message);
  void Print(std::string text);  // rank 0's, to people
  void NoteInputs();
  void ReportTransport();
  void NoteResume(const LoadOutcome& outcome);
  std::string LineForPeople(const StepMetrics& metrics);
  void PrintStart();
  void PrintThroughput();

  const JobSpec& spec() const { return parts_.spec; }
  const TrainSpec& train() const { return *parts_.spec.train; }
  const TrainInputs& inputs() const { return *parts_.inputs; }
  std::string ExportDirectory() const {
    return output_dir_ + (train().lora ? "/adapter" : "/model");
  }
  bool is_first() const { return env_.rank == 0; }
  bool stop_requested() const { return parts_.supervisor.stop_requested(env_.generation); }

  RankEnv env_;
  const int step_ranks_;
  const TrainerParts parts_;
  const std::string output_dir_;
  const std::string checkpoint_dir_;
  std::optional<BatchLoader> loader_;
  std::optional<EvalLoader> eval_loader_;  // nothing: the job evaluates on nothing
  std::optional<RankSnapshots> snapshots_;
  std::unique_ptr<FsdpEngine> engine_;
  std::unique_ptr<Checkpointer> checkpointer_;
  // Rank 0's, used by the writer of lines; null: not kept, or no longer.
  std::shared_ptr<RunLogs> logs_;
  Profiler profiler_;
  NonFiniteGuard nonfinite_;
  std::optional<Throughput> throughput_;  // rank 0's
  MemoryReport memory_;
  std::string untouched_source_;         // of the weights, until an update changes them
  std::optional<AdapterOrigin> origin_;  // of the trained tensors; nothing: they are the model
  std::optional<std::uint64_t> base_weights_;  // AgreeOnInputs'
  TrainCursor cursor_;
  Step max_steps_ = 0;
  Step first_step_ = 0;         // finished when this process began
  Step newest_checkpoint_ = 0;  // that was there to resume from
  Step saved_step_ = -1;        // of the last checkpoint
  ResumeSource resumed_from_ = ResumeSource::kStart;
  std::vector<RejectedCheckpoint> rejected_;
  Status none_usable_;  // there are checkpoints, and not one of them could be loaded
  bool stopping_ = false;
  bool ended_early_ = false;  // evaluations have found nothing better for long enough
  TimePoint line_time_;       // of the last line for people
  Step line_step_ = 0;
};

}  // namespace muster
