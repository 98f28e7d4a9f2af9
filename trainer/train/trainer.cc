#include "trainer/train/trainer.h"

#include <utility>

#include "trainer/comm/long_work.h"
#include "trainer/train/evaluation.h"
#include "trainer/train/export.h"

namespace muster {

Trainer::Trainer(RunContext run) : run_(std::move(run)), started_(run_) {}

TrainStatus Trainer::Run() {
  TrainStatus status = RunStages();
  // One that was called off found no error.
  const StatusCode code = status.status().code();
  if (code != StatusCode::kCancelled && !status.ok() && status.kind() == FailureKind::kPeerLost) {
    run_.progress.CountCollectiveError(
        code == StatusCode::kUnavailable ? CollectiveError::kPeerLost : CollectiveError::kTimeout);
  }
  // Recovery waits for the log of a generation that is over.
  started_.log.Finish(TrainingLog::kLineTimeout);
  run_.lines.Await(Deadline::After(TrainingLog::kLineTimeout));
  return status;
}

TrainStatus Trainer::RunStages() {
  if (auto status = Start(run_, &started_); !status.ok()) return status;
  started_.memory.Enter(MemoryStage::kTrain);
  loop_.emplace(run_, started_);
  if (auto status = loop_->Run(); !status.ok()) return status;
  return Finish();
}

TrainStatus Trainer::Finish() {
  const OperationLimit::AtLeast patient(run_.communicator.limit(), LongWork::kLimit);
  MUSTER_RETURN_IF_ERROR(loop_->SaveLast());
  MUSTER_RETURN_IF_ERROR(ReportMemory(run_, &started_));
  std::string directory;
  if (!loop_->stopping() && run_.exports) {
    MUSTER_ASSIGN_OR_RETURN(directory, ExportState());
  }
  // A checkpoint that cannot be kept is no reason to throw the trained model away.
  const Status drained = loop_->DrainSaves();
  if (drained.code() == StatusCode::kCancelled) return drained;
  if (!drained.ok()) run_.Note("warning", drained.ToString());
  started_.log.Finish(TrainingLog::kEndTimeout);
  const std::string throughput = loop_->ThroughputSummary();
  if (!throughput.empty()) run_.Print("trained at " + throughput + "\n");
  if (!loop_->stopping()) {
    run_.supervisor.Finished(run_.env.generation, step(), directory);
  }
  run_.progress.EnterPhase(TrainPhase::kDone);
  return {};
}

TrainResult<std::string> Trainer::ExportState() {
  const EvalHistory& found = loop_->cursor().evaluations;
  if (run_.train().output_export == ExportedState::kBest && found.best_step != step()) {
    // Where that fails the best one may be there all the same.
    MUSTER_RETURN_IF_ERROR(loop_->DrainSavesTogether());
    if (auto status = TakeBest(run_, *started_.engine, found); !status.ok()) return status;
  }
  started_.memory.Enter(MemoryStage::kExport);
  MUSTER_ASSIGN_OR_RETURN(std::string directory, Export(run_, *started_.engine, started_.origin));
  MUSTER_RETURN_IF_ERROR(ReportMemory(run_, &started_));
  return directory;
}

}  // namespace muster
