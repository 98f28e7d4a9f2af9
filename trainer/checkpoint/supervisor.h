// Supervisor: the rank's side of the control socket to its guardian.
//
// Reports go out at once, in order, from any thread; a reader thread takes "stop" messages. Without
// a guardian (plain torchrun or srun) every report is a no-op and no thread runs. A lost guardian
// ends the process: a rank that nobody watches must not live on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muster {

// A checkpoint that was tried and not used.
struct RejectedCheckpoint {
  std::string directory;
  std::string reason;
};

class Supervisor {
 public:
  // `control` invalid: no guardian. `on_lost` runs on the reader thread when the guardian is gone;
  // empty: the process ends at once with kExitFailure.
  explicit Supervisor(UniqueFd control, std::function<void()> on_lost = {});
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  bool attached() const { return attached_; }

  void Formed();
  void Resumed(Step step, const std::vector<RejectedCheckpoint>& rejected);
  void FirstStep(Step step);
  void ShardWritten(Step step, const std::string& directory, const ShardRecord& shard);
  void CheckpointFailed(Step step, const std::string& reason);
  // `kind`: peer_lost, config, data, model, nonfinite, io, out_of_memory, internal.
  void Error(std::string_view kind, std::string_view message, Step step);
  // `severity`: info or warning.
  void Note(std::string_view severity, std::string_view message);
  void Finished(Step step, const std::string& model_dir);

  // True once the guardian has asked for an early, orderly end. Ranks hear it at different moments:
  // the loop must agree on it with a collective before it acts.
  bool stop_requested() const { return stop_requested_.load(std::memory_order_acquire); }
  std::string stop_reason() const;

 private:
  void Send(const std::string& message);
  void ReadMessages();
  void HandleMessage(std::string_view message);

  PacketSocket socket_;
  const bool attached_;
  const std::function<void()> on_lost_;
  std::mutex send_mutex_;  // keeps the order of reports equal to the order of calls
  std::atomic<bool> closing_ = false;
  std::atomic<bool> stop_requested_ = false;
  mutable std::mutex reason_mutex_;
  std::string stop_reason_;
  std::thread reader_;
};

}  // namespace muster
