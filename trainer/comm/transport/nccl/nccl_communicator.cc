#include "trainer/comm/transport/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace muster {

NcclCommunicator::NcclCommunicator(std::shared_ptr<const NcclTables> tables,
                                   std::shared_ptr<NcclMonitor> monitor)
    : tables_(std::move(tables)),
      monitor_(std::move(monitor)),
      staging_(tables_->cuda, tables_->scratch_bytes),
      progress_(std::make_shared<CollectiveCell>()) {}

NcclCommunicator::~NcclCommunicator() {
  if (!is_group_) (void)Disband();
  RetireCell(*progress_);
}

std::shared_ptr<NcclGang> NcclCommunicator::gang() const {
  std::lock_guard lock(mutex_);
  return gang_;
}

Status NcclCommunicator::Disband() {
  const std::shared_ptr<NcclGang> old = gang();
  gathers_ = nullptr;
  reductions_ = nullptr;
  splits_.clear();
  if (old == nullptr) return OkStatus();
  if (!old->End(Deadline::After(2 * tables_->end_timeout))) {
    return FailedPrecondition(
        "NCCL's communicators of the generation before could not be ended: ncclCommAbort does not "
        "return; this process must be replaced");
  }
  old->meeting().Close();
  std::lock_guard lock(mutex_);
  gang_.reset();
  return OkStatus();
}

Status NcclCommunicator::Form(Rendezvous rendezvous, Deadline deadline) {
  if (is_group_) return FailedPrecondition("a group of ranks is formed by another Split");
  MUSTER_RETURN_IF_ERROR(Disband());
  const int size = rendezvous.world_size;
  if (size < 1 || rendezvous.rank < 0 || rendezvous.rank >= size) {
    return InvalidArgument("rank " + std::to_string(rendezvous.rank) + " of " +
                           std::to_string(size) + " is not a place in a gang");
  }
  int version = 0;
  if (tables_->nccl.GetVersion(&version) != NcclResult::kSuccess) {
    return Internal("NCCL does not tell its version");
  }
  if (formed_once_ && size > 1 && !NcclCanFormAgain(version)) {
    return FailedPrecondition("NCCL " + NcclVersionText(version) +
                              " crashes when a process forms a second gang; use 2.28.9 or newer, "
                              "or a new process");
  }
  MUSTER_RETURN_IF_ERROR(BeginForm(rendezvous.generation));
  CountAs("world");
  rank_ = rendezvous.rank;
  size_ = size;
  Status status = Meet(std::move(rendezvous), deadline);
  if (!status.ok()) {
    gang()->Fail(status);
    gathers_ = nullptr;
    reductions_ = nullptr;
    return gang()->status();
  }
  return OkStatus();
}

Status NcclCommunicator::BeginForm(Generation generation) {
  std::lock_guard lock(mutex_);
  if (generation <= called_off_) return called_off_reason_;
  generation_ = generation;
  gang_ = NcclGang::Make(tables_, monitor_.get());
  formed_once_ = true;
  return OkStatus();
}

void NcclCommunicator::CountAs(const std::string& cell) {
  RetireCell(*progress_);
  std::lock_guard lock(mutex_);
  progress_.reset();
  progress_ = ClaimCell(page_, cell);
}

Status NcclCommunicator::Meet(Rendezvous rendezvous, Deadline deadline) {
  const std::string generation = std::to_string(rendezvous.generation);
  key_prefix_ = "muster/" + generation + "/nccl/";
  if (size_ > 1) {
    MUSTER_RETURN_IF_ERROR(gang_->meeting().Open(std::move(rendezvous), deadline));
  }
  return OpenLanes("generation " + generation, /*leader=*/0, deadline);
}

Status NcclCommunicator::OpenLanes(const std::string& name, int leader, Deadline deadline) {
  for (const bool gathers : {true, false}) {
    const std::string what = gathers ? "gathers" : "reductions";
    NcclUniqueId id;
    if (size_ > 1) {
      MUSTER_ASSIGN_OR_RETURN(id, ExchangeId(key_prefix_ + what, leader, deadline));
    }
    MUSTER_ASSIGN_OR_RETURN(
        (gathers ? gathers_ : reductions_),
        gang_->OpenLane({what + " of " + name, rank_, size_}, id, progress_, deadline));
  }
  return OkStatus();
}

// The first rank makes the id; with it goes its version of NCCL, since releases do not mix.
Result<NcclUniqueId> NcclCommunicator::ExchangeId(const std::string& key, int leader,
                                                  Deadline deadline) {
  int version = 0;
  if (tables_->nccl.GetVersion(&version) != NcclResult::kSuccess) {
    return Internal("NCCL does not tell its version");
  }
  NcclUniqueId id;
  if (rank_ == 0) {
    const NcclResult result = tables_->nccl.GetUniqueId(&id);
    if (result != NcclResult::kSuccess) {
      return Internal(std::string("NCCL makes no unique id: ") +
                      tables_->nccl.GetErrorString(result));
    }
    MUSTER_RETURN_IF_ERROR(gang_->meeting().Publish(
        key, std::string(id.internal, sizeof(id.internal)) + std::to_string(version)));
    return id;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string value, gang_->meeting().Await(key, leader, deadline));
  if (value.size() <= sizeof(id.internal)) return Internal("the store holds a broken NCCL id");
  std::memcpy(id.internal, value.data(), sizeof(id.internal));
  MUSTER_RETURN_IF_ERROR(CheckLeadersVersion(value.substr(sizeof(id.internal)), version));
  return id;
}

Status NcclCommunicator::CheckLeadersVersion(const std::string& text, int own_version) const {
  if (text == std::to_string(own_version)) return OkStatus();
  return FailedPrecondition("rank " + std::to_string(rank_) + " has NCCL " +
                            NcclVersionText(own_version) + ", the first rank has " +
                            NcclVersionText(std::atoi(text.c_str())) +
                            ": install the same release on all nodes");
}

void NcclCommunicator::Abort(const Status& reason) {
  if (const auto current = gang()) current->Fail(reason);
}

void NcclCommunicator::AbortThrough(Generation generation, const Status& reason) {
  std::shared_ptr<NcclGang> reached;
  {
    std::lock_guard lock(mutex_);
    if (generation > called_off_) {
      called_off_ = generation;
      called_off_reason_ = reason;
    }
    if (is_group_ || generation >= generation_) reached = gang_;
  }
  if (reached) reached->Fail(reason);
}

Result<std::unique_ptr<SharedRegion>> NcclCommunicator::Share(RegionKind, std::size_t, int) {
  return Unimplemented("ranks on GPUs share no memory");
}

Result<std::unique_ptr<Communicator>> NcclCommunicator::Split(const std::string& name,
                                                              const std::vector<int>& members,
                                                              Deadline deadline) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  if (self == members.end()) {
    return InvalidArgument("rank " + std::to_string(rank_) + " is not in the group '" + name + "'");
  }
  if (gang_ == nullptr) return FailedPrecondition("the communicator has not been formed");
  MUSTER_RETURN_IF_ERROR(gang_->status());
  std::string key = key_prefix_ + "group/" + name;
  for (const int member : members) key += "/" + std::to_string(member);
  auto group = std::make_unique<NcclCommunicator>(tables_, monitor_);
  group->is_group_ = true;
  group->rank_ = static_cast<int>(self - members.begin());
  group->size_ = static_cast<int>(members.size());
  group->key_prefix_ = key + "/" + std::to_string(++splits_[key]) + "/";
  group->gang_ = gang_;
  group->page_ = page_;
  group->CountAs(name);
  const Status status = group->OpenLanes("group '" + name + "'", members.front(), deadline);
  if (!status.ok()) {
    Abort(status);
    return gang()->status();
  }
  return std::unique_ptr<Communicator>(std::move(group));
}

std::string NcclCommunicator::Describe() const {
  int version = 0;
  if (size_ == 1 || tables_->nccl.GetVersion(&version) != NcclResult::kSuccess) return "one GPU";
  return "NCCL " + NcclVersionText(version) + ", non-blocking, one communicator for gathers and " +
         "one for reductions";
}

}  // namespace muster
