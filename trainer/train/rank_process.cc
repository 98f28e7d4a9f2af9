#include "trainer/train/rank_process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "trainer/ops/device_memory.h"
#include "trainer/train/warm_up.h"

namespace muster {
namespace {

// The lines of a generation go into its own file.
void WriteTo(const UniqueFd& log) {
  // Who writes a line to a disk that does not answer has the stream, and is not waited for.
  if (::ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    ::funlockfile(stdout);
  }
  ::dup2(log.get(), STDOUT_FILENO);
  ::dup2(log.get(), STDERR_FILENO);
}

// Libraries read some of it from the process's own environment.
void PutIntoEnvironment(const Assignment& assignment) {
  for (const auto& [name, value] : assignment.environment) {
    const char* present = ::getenv(name.c_str());
    if (present == nullptr || value != present) ::setenv(name.c_str(), value.c_str(), 1);
  }
}

// A device that was opened stays the process's.
Status CheckSameGpu(const Assignment& assignment) {
  const char* const kVariable = "CUDA_VISIBLE_DEVICES";
  const auto given = assignment.environment.find(kVariable);
  const char* const present = ::getenv(kVariable);
  if (given == assignment.environment.end() || present == nullptr || given->second == present) {
    return OkStatus();
  }
  return FailedPrecondition("this process works on GPU " + std::string(present) +
                            " and was given a rank of GPU " + given->second);
}

Result<RankEnv> ReadAssignment(Assignment& assignment) {
  MUSTER_ASSIGN_OR_RETURN(RankEnv env, ReadRankEnv([&](const char* name) -> const char* {
                            const auto found = assignment.environment.find(name);
                            return found == assignment.environment.end() ? nullptr
                                                                         : found->second.c_str();
                          }));
  env.generation = assignment.generation;
  env.rendezvous_token = assignment.rendezvous_token;
  env.listen_fd = assignment.listen.valid() ? assignment.listen.release() : -1;
  return env;
}

}  // namespace

RankProcess::RankProcess(JobSpec spec, RankProcessParts parts)
    : spec_(std::move(spec)),
      parts_(std::move(parts)),
      inputs_(spec_, {.on_read = [this] { parts_.progress.Move(); },
                      .on_line = [this](const std::string& line) { Say(line); }}),
      saver_(std::make_shared<ShardSaver>()),
      // The guardian holds them for processes to come.
      retained_{.segments = {},
                .weights = RetainedWeights(
                    {.hold =
                         [this](const std::string& name, int file) {
                           parts_.supervisor.HoldSegment(env_.generation, name, file);
                         },
                     .drop =
                         [this](const std::string& name) {
                           parts_.supervisor.DropSegment(env_.generation, name);
                         }})} {
  parts_.supervisor.OnPark(
      [this](Generation through, const Status& reason) { CallOff(through, reason); });
}

// Said by whichever rank reads, because the others wait for it. By the writer of lines, since the
// log may lie on a disk that does not answer.
void RankProcess::Say(const std::string& line) { lines_.Print(parts_.out, line + "\n"); }

RankProcess::~RankProcess() { parts_.supervisor.OnPark({}); }

void RankProcess::CallOff(Generation through, const Status& reason) {
  saver_->CallOff(through);
  std::lock_guard lock(communicator_mutex_);
  if (communicator_) communicator_->AbortThrough(through, reason);
}

TrainStatus RankProcess::RunOnce(RankEnv env) { return Serve(std::move(env), /*assigned=*/false); }

TrainStatus RankProcess::RunAssignments() {
  if (!parts_.supervisor.has_assignment()) {
    if (auto status = StandBy(); !status.ok()) return status;
  }
  for (;;) {
    std::optional<Assignment> next = parts_.supervisor.NextAssignment();
    if (!next) return {};
    TrainStatus status = TakeUp(*std::move(next));
    if (status.ok() || status.kind() != FailureKind::kPeerLost) return status;
    Park(status);
  }
}

TrainStatus RankProcess::StandBy() {
  parts_.progress.EnterPhase(TrainPhase::kStandby);
  if (auto status = inputs_.Load(); !status.ok()) return status;
  try {
    WarmUp(spec_, *inputs_);
  } catch (const std::exception& error) {
    // It serves cold as well.
    std::fprintf(stderr, "muster-trainer: not warmed up: %s\n", error.what());
  }
  parts_.supervisor.StandbyReady();
  return {};
}

TrainStatus RankProcess::TakeUp(Assignment assignment) {
  if (assignment.log.valid()) WriteTo(assignment.log);
  env_.generation = assignment.generation;
  if (ops_ != nullptr && !ops_->is_host()) MUSTER_RETURN_IF_ERROR(CheckSameGpu(assignment));
  locks_ = std::move(assignment.locks);
  PutIntoEnvironment(assignment);
  MUSTER_ASSIGN_OR_RETURN(RankEnv env, FromInput(FailureKind::kConfig, ReadAssignment(assignment)));
  TakeSegments();
  return Serve(std::move(env), /*assigned=*/true);
}

void RankProcess::TakeSegments() {
  for (HeldSegment& held : parts_.supervisor.TakeSegments()) {
    if (RetainedWeights::IsName(held.name)) {
      retained_.weights.Add(std::move(held));
      continue;
    }
    const Status added = retained_.segments.Add(std::move(held));
    if (!added.ok()) parts_.supervisor.Note(env_.generation, "warning", added.message());
  }
}

TrainStatus RankProcess::Serve(RankEnv env, bool assigned) {
  env_ = std::move(env);
  try {
    if (auto status = MakeDevice(); !status.ok()) return status;
    return RunTrainer(assigned);
  } catch (const std::exception& error) {
    ReportDeviceMemory();
    return FromException(error.what());
  }
}

// An allocation that failed is in the allocator's counts, and no further step will report it.
void RankProcess::ReportDeviceMemory() {
  if (!ops_) return;
  parts_.progress.SetDeviceMemory(ReadDeviceMemory(ops_->device()));
  parts_.progress.Move();
}

TrainStatus RankProcess::MakeDevice() {
  if (ops_) return {};
  MUSTER_ASSIGN_OR_RETURN(RankDevice device,
                          FromInput(FailureKind::kConfig, parts_.make_device(env_, &spec_)));
  for (const std::string& note : device.notes) {
    parts_.supervisor.Note(env_.generation, "warning", note);
  }
  ops_ = std::move(device.ops);
  {
    std::lock_guard lock(communicator_mutex_);
    communicator_ = std::move(device.communicator);
  }
  // What was called off while there was no communicator is passed to it now.
  parts_.supervisor.OnPark(
      [this](Generation through, const Status& reason) { CallOff(through, reason); });
  return {};
}

TrainStatus RankProcess::RunTrainer(bool assigned) {
  trainer_ = std::make_unique<Trainer>(
      RunContext{.env = env_,
                 .step_ranks = assigned ? spec_.world_size() : env_.world_size,
                 .spec = spec_,
                 .inputs = inputs_,
                 .communicator = *communicator_,
                 .ops = *ops_,
                 .saver = saver_,
                 .retained = assigned ? &retained_ : nullptr,
                 .supervisor = parts_.supervisor,
                 .progress = parts_.progress,
                 .faults = parts_.faults,
                 .clock = parts_.clock,
                 .out = parts_.out,
                 .lines = lines_,
                 .exports = parts_.exports,
                 .on_step = parts_.on_step});
  return trainer_->Run();
}

// Peers that have not noticed wait for this rank: its communicator ends at once. What lies in
// memory ends before the rank says that it is out.
void RankProcess::Park(const TrainStatus& failure) {
  const Step step = this->step();
  if (parts_.supervisor.CalledOff(env_.generation).ok()) {
    parts_.supervisor.Error(env_.generation, failure, step);
  }
  lines_.Print(stderr, "muster-trainer: rank " + std::to_string(env_.rank) + ": generation " +
                           std::to_string(env_.generation) + " is over: " + failure.message() +
                           "\n");
  communicator_->Abort(failure.status());
  trainer_.reset();
  parts_.progress.EnterPhase(TrainPhase::kParked);
  parts_.supervisor.Parked(env_.generation, step);
}

}  // namespace muster
