// Supervisor: the rank's side of the control socket to its guardian.
//
// Reports go out at once, in order, from any thread, each with the generation that it belongs to.
// A reader thread takes what the guardian says: assignments and segments wait until the trainer's
// thread asks for them, a park or a fault reaches its hook at once, a stop is a flag. What lies in
// the socket already is taken before the constructor returns. Without a guardian (plain torchrun or
// srun) every report is a no-op and no thread runs. A lost guardian ends the process: a rank that
// no guardian watches must not live on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/core/train_status.h"
#include "trainer/state/checkpoint/committer.h"
#include "trainer/state/checkpoint/resume_source.h"
#include "trainer/supervise/guardian_message.h"

namespace muster {

struct SupervisorHooks {
  // The guardian is gone; empty: the process ends at once with kExitFailure.
  std::function<void()> on_lost;
  // Cause this fault.
  std::function<void(std::string_view kind, std::string_view argument)> on_fault;
};

class Supervisor {
 public:
  // Generations up to this one are called off, with kCancelled and the reason.
  using ParkHook = std::function<void(Generation through, const Status& reason)>;

  // `control` invalid: no guardian. Hooks run on the reader thread, or within the constructor.
  explicit Supervisor(UniqueFd control, SupervisorHooks hooks = {});
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  bool attached() const { return attached_; }

  void Formed(Generation generation);
  void Resumed(Generation generation, Step step, ResumeSource from,
               const std::vector<RejectedCheckpoint>& rejected);
  void FirstStep(Generation generation, Step step);
  // The checkpoint may be of any generation: it may have been begun in an earlier one.
  void ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard);
  void CheckpointFailed(Generation generation, Step step, CheckpointTrouble kind,
                        const std::string& reason);
  void Error(Generation generation, const TrainStatus& failure, Step step);
  // `severity`: info or warning.
  void Note(Generation generation, std::string_view severity, std::string_view message);
  void Finished(Generation generation, Step step, const std::string& model_dir);
  void Parked(Generation generation, Step step);
  void StandbyReady();
  // Hold this segment, hold it no longer. The guardian gets a descriptor of its own.
  void HoldSegment(Generation generation, const std::string& name, int fd);
  void DropSegment(Generation generation, const std::string& name);
  // Those of the held segments with a part of the state that this generation goes on from: the
  // others are of no use any more.
  void Cut(Generation generation, const std::vector<std::string>& segments);

  // Waits for the guardian's next assignment; nothing: it asked for an orderly end instead.
  std::optional<Assignment> NextAssignment();
  bool has_assignment() const;
  // What the guardian has handed over since the last call.
  std::vector<HeldSegment> TakeSegments();

  // True once the guardian has asked for an early, orderly end of this generation. Ranks hear it at
  // different moments: the loop must agree on it with a collective before it acts.
  bool stop_requested(Generation generation) const {
    return stop_through_.load(std::memory_order_acquire) >= generation;
  }
  std::string stop_reason() const;

  // OK, or why this generation was called off.
  Status CalledOff(Generation generation) const;
  // The same, after it was called off or at the deadline.
  Status AwaitCalledOff(Generation generation, Deadline deadline);
  // Called from now on for each park, and at once if there was one. Empty: no hook is called
  // any more, and when it returns none is being called.
  void OnPark(ParkHook hook);

 private:
  void Send(const std::string& message, const std::vector<int>& fds = {});
  void ReadMessages();
  Status ReadMessage(Deadline deadline);
  void Handle(Assignment assignment);
  void Handle(HeldSegment segment);
  void Handle(const ParkRequest& park);
  void Handle(const StopRequest& stop);
  void Handle(const FaultRequest& fault);

  PacketSocket socket_;
  const bool attached_;
  const SupervisorHooks hooks_;
  std::mutex send_mutex_;  // keeps the order of reports equal to the order of calls
  std::atomic<bool> closing_ = false;
  std::atomic<Generation> stop_through_ = 0;

  std::mutex hook_mutex_;  // held while on_park_ runs; never taken with mutex_ held
  ParkHook on_park_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Assignment> assignments_;
  std::vector<HeldSegment> segments_;
  Generation newest_assigned_ = 0;  // 0: none yet, or the environment's
  bool waiting_ = false;            // in NextAssignment
  bool end_waiting_ = false;        // asked to end while it had no assignment
  Generation called_off_through_ = 0;
  Status called_off_;
  std::string stop_reason_;
  std::thread reader_;
};

// Each shard is reported over the control socket; the coordinator commits, and the worker writes
// the manifest. `supervisor` outlives the committer.
std::unique_ptr<CheckpointCommitter> MakeSupervisorCommitter(Supervisor* supervisor);

}  // namespace muster
