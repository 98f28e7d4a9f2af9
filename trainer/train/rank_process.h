// RankProcess: the process of a rank, which serves one generation after another.
//
// Owns what lives longer than a generation: the job, what was read for it, device and communicator,
// snapshot segments, the saver that may still write an earlier generation's shard. Everything else
// belongs to the Trainer of one generation. Without a guardian that assigns there is one
// generation, and a lost peer ends the process. With one, a rank that is called off, or that loses
// a peer, parks: it says what it has found, lets go of its Trainer, and waits for the next
// assignment. A process without an assignment is a standby and gets ready meanwhile.
//
// Main's thread; the guardian's park comes to the communicator on the supervisor's thread. Torch
// exceptions become a TrainStatus here.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/rank_env.h"
#include "trainer/core/train_status.h"
#include "trainer/inputs/train_inputs.h"
#include "trainer/ops/device_ops.h"
#include "trainer/report/line_writer.h"
#include "trainer/report/progress_reporter.h"
#include "trainer/state/checkpoint/shard_saver.h"
#include "trainer/supervise/rank_faults.h"
#include "trainer/supervise/supervisor.h"
#include "trainer/train/run_context.h"
#include "trainer/train/trainer.h"

namespace muster {

// What a rank computes on and talks through.
struct RankDevice {
  std::unique_ptr<DeviceOps> ops;
  std::unique_ptr<Communicator> communicator;  // not formed yet
  std::vector<std::string> notes;              // for people: what differs from the job file
};

// What a process works with; all of it outlives the RankProcess.
struct RankProcessParts {
  // Called for the first generation, and may change the job to what the device can do.
  std::function<Result<RankDevice>(const RankEnv& env, JobSpec* spec)> make_device;
  Supervisor& supervisor;
  ProgressReporter& progress;
  RankFaults& faults;
  const Clock& clock;
  std::FILE* out;  // rank 0's lines for people
  // For a trial (RunContext).
  bool exports = true;
  std::function<void(const StepMetrics&)> on_step = {};
};

class RankProcess {
 public:
  // `spec` has a train block.
  RankProcess(JobSpec spec, RankProcessParts parts);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Serves the one generation that the environment names. OK: done, or stopped as asked.
  TrainStatus RunOnce(RankEnv env);
  // Serves the guardian's assignments until one of them is done, stopped, or fails by this rank's
  // own fault.
  TrainStatus RunAssignments();

  // The generation that was served last; 0 where there was none.
  Generation generation() const { return env_.generation; }
  int rank() const { return env_.rank; }
  // Finished steps.
  Step step() const { return trainer_ ? trainer_->step() : 0; }

 private:
  void Say(const std::string& line);
  TrainStatus StandBy();
  TrainStatus TakeUp(Assignment assignment);
  void TakeSegments();
  // `assigned`, by a guardian: it counts the job's batch by the ranks of the job as submitted, and
  // takes snapshots, which the guardian holds.
  TrainStatus Serve(RankEnv env, bool assigned);
  void ReportDeviceMemory();
  TrainStatus MakeDevice();
  TrainStatus RunTrainer(bool assigned);
  void Park(const TrainStatus& failure);
  void CallOff(Generation through, const Status& reason);

  std::vector<UniqueFd> locks_;  // of the devices; outlive what uses these
  JobSpec spec_;
  RankProcessParts parts_;
  ProcessInputs inputs_;
  std::shared_ptr<ShardSaver> saver_;
  LineWriter lines_;
  RetainedMemory retained_;
  std::unique_ptr<DeviceOps> ops_;
  std::mutex communicator_mutex_;  // held to set the pointer, and by CallOff
  std::unique_ptr<Communicator> communicator_;
  RankEnv env_{.generation = 0};
  // Serves the current generation, or one that ended by this rank's own fault: then it is not taken
  // apart, since what it waits for may never come.
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace muster
