#include "trainer/comm/transport/nccl/nccl_rendezvous.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "trainer/comm/transport/nccl/nccl_transport.h"

namespace muster {
namespace {

class NcclRendezvous final : public RendezvousStore {
 public:
  explicit NcclRendezvous(std::shared_ptr<const NcclTables> tables)
      : tables_(std::move(tables)), threads_(tables_->leave_timeout) {}
  ~NcclRendezvous() override {
    Close();
    (void)AwaitLeft();
  }

  Status Open(Rendezvous rendezvous, Deadline deadline) override {
    if (!AwaitLeft()) {
      return FailedPrecondition(
          "NCCL's communicators of the generation before could not be ended: ncclCommAbort does "
          "not return; this process must be replaced");
    }
    if (tables_->nccl.GetVersion(&version_) != NcclResult::kSuccess) {
      return Internal("NCCL does not tell its version");
    }
    if (gang_ != nullptr && rendezvous.world_size > 1 && !NcclCanFormAgain(version_)) {
      return FailedPrecondition("NCCL " + NcclVersionText(version_) +
                                " crashes when a process forms a second gang; use 2.28.9 or "
                                "newer, or a new process");
    }
    std::shared_ptr<NcclGang> before;
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return *cancelled_;
      before = std::exchange(gang_, NcclGang::Make(tables_, &threads_));
    }
    before.reset();  // its memory, while Cancel need not wait
    if (rendezvous.world_size == 1) return OkStatus();
    return gang_->meeting().Open(std::move(rendezvous), deadline);
  }

  void Close() override {
    if (gang_ == nullptr) return;
    gang_->Leave();
    gang_->meeting().Close();
  }

  Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                          std::shared_ptr<CollectiveCell> counters,
                                          Deadline deadline) override {
    const auto ids = ExchangeIds(group, deadline);
    if (!ids.ok()) {
      gang_->Fail(ids.status());
      return gang_->status();
    }
    return std::shared_ptr<Transport>(
        std::make_shared<NcclTransport>(tables_, gang_, std::move(counters), group, *ids));
  }

  void Cancel(const Status& reason) override {
    std::lock_guard lock(mutex_);
    cancelled_ = reason;
    if (gang_ != nullptr) gang_->Fail(reason);
  }

  void Rearm() override {
    std::lock_guard lock(mutex_);
    cancelled_.reset();
  }

  OperationLimit& limit() override { return *tables_->limit; }

 private:
  // Whether the gang before is gone.
  bool AwaitLeft() {
    return gang_ == nullptr || gang_->AwaitLeft(Deadline::After(2 * tables_->end_timeout));
  }

  // With the ids goes the first rank's version of NCCL, since releases do not mix.
  Result<NcclTransport::Ids> ExchangeIds(const Group& group, Deadline deadline) {
    MUSTER_RETURN_IF_ERROR(gang_->status());
    NcclTransport::Ids ids;
    if (group.size == 1) return ids;
    const std::string key = "muster/" + std::to_string(group.generation) + "/nccl/" + group.name;
    const std::string version = NcclVersionText(version_);
    if (group.rank == 0) {
      for (NcclUniqueId& id : ids) {
        const NcclResult result = tables_->nccl.GetUniqueId(&id);
        if (result == NcclResult::kSuccess) continue;
        return Internal(std::string("NCCL makes no unique id: ") +
                        tables_->nccl.GetErrorString(result));
      }
      const std::string bytes(reinterpret_cast<const char*>(ids.data()), sizeof(ids));
      MUSTER_RETURN_IF_ERROR(gang_->meeting().Publish(key, bytes + version));
      return ids;
    }
    MUSTER_ASSIGN_OR_RETURN(const std::string value, gang_->meeting().Await(key, 0, deadline));
    if (value.size() <= sizeof(ids)) return Internal("the store holds broken NCCL ids");
    std::memcpy(ids.data(), value.data(), sizeof(ids));
    const std::string leaders = value.substr(sizeof(ids));
    if (leaders == version) return ids;
    return FailedPrecondition("rank " + std::to_string(group.rank) + " has NCCL " + version +
                              ", the first rank has " + leaders +
                              ": install the same release on all nodes");
  }

  const std::shared_ptr<const NcclTables> tables_;
  int version_ = 0;  // of NCCL
  ApartThreads threads_;
  std::mutex mutex_;
  std::shared_ptr<NcclGang> gang_;  // the last one; written by the trainer's thread, under mutex_
  std::optional<Status> cancelled_;
};

}  // namespace

std::shared_ptr<RendezvousStore> MakeNcclRendezvous(std::shared_ptr<const NcclTables> tables) {
  return std::make_shared<NcclRendezvous>(std::move(tables));
}

}  // namespace muster
