#include "trainer/supervise/supervisor_committer.h"

#include "trainer/supervise/supervisor.h"

namespace muster {
namespace {

class SupervisorCommitter final : public CheckpointCommitter {
 public:
  explicit SupervisorCommitter(Supervisor* supervisor) : supervisor_(supervisor) {}

  Status ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard) override {
    supervisor_->ShardWritten(checkpoint, shard);
    return OkStatus();
  }
  void Failed(const CheckpointManifest& checkpoint, int /*rank*/, const Status& reason) override {
    supervisor_->CheckpointFailed(checkpoint.generation, checkpoint.step, reason.message());
  }

 private:
  Supervisor* const supervisor_;
};

}  // namespace

std::unique_ptr<CheckpointCommitter> MakeSupervisorCommitter(Supervisor* supervisor) {
  return std::make_unique<SupervisorCommitter>(supervisor);
}

}  // namespace muster
