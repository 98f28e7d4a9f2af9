#include "trainer/comm/transport/nccl/nccl_gang.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

constexpr Duration kBusyPause = std::chrono::milliseconds(1);

}  // namespace

std::shared_ptr<NcclGang> NcclGang::Make(std::shared_ptr<const NcclTables> tables,
                                         ApartThreads* threads) {
  std::shared_ptr<NcclGang> gang(new NcclGang(std::move(tables), threads));
  threads->Run([gang] { gang->Watch(); });
  return gang;
}

NcclGang::NcclGang(std::shared_ptr<const NcclTables> tables, ApartThreads* threads)
    : tables_(std::move(tables)),
      threads_(threads),
      fate_(std::make_shared<NcclFate>()),
      events_(std::make_shared<CudaEvents>(tables_->cuda)),
      staging_(tables_->cuda, tables_->scratch_bytes) {}

void NcclGang::Fail(const Status& reason) {
  if (!fate_->Fail(reason)) return;
  meeting_.Cancel();
  threads_->Run([gang = shared_from_this()] { gang->AbortLanes(); });
}

Result<NcclLane*> NcclGang::OpenLane(NcclLane::Place place, const NcclUniqueId& id,
                                     std::shared_ptr<CollectiveCell> counters, Deadline deadline) {
  NcclLane* lane = nullptr;
  {
    // Known to a thread that aborts before it has a communicator, so that none is missed.
    std::lock_guard lock(mutex_);
    lanes_.push_back(
        std::make_unique<NcclLane>(tables_, fate_, std::move(counters), events_, std::move(place)));
    lane = lanes_.back().get();
  }
  if (const Status status = lane->Init(id, deadline); !status.ok()) {
    Fail(status);
    return fate_->status();
  }
  return lane;
}

void NcclGang::Wake() {
  woken_ = true;
  fate_->Notify();
}

Status NcclGang::OrderAfter(const NcclOperation& operation) {
  MUSTER_RETURN_IF_ERROR(fate_->status());
  const CudaApi& cuda = *tables_->cuda;
  const Status status =
      CudaStatus(cuda, cuda.StreamWaitEvent(cuda.CurrentStream(), operation.done.get()),
                 ("waiting for " + operation.name).c_str());
  if (!status.ok()) Fail(status);
  return status;
}

Status NcclGang::AwaitEnd(const NcclOperation& operation) {
  Wake();
  // Poll gives up an operation that runs too long; this deadline is for one that never begins.
  fate_->WaitFor([&operation] { return operation.completed.load(); },
                 Deadline::After(2 * operation.limit));
  if (operation.completed) return OkStatus();
  Fail(DeadlineExceeded(operation.name + " was not reached in time; " +
                        CountsText(*operation.counters)));
  return fate_->status();
}

void NcclGang::Leave() {
  const auto lanes = Lanes();
  const bool idle =
      std::all_of(lanes.begin(), lanes.end(), [](const NcclLane* lane) { return lane->idle(); });
  if (!fate_->Fail(Cancelled("the communicator was taken apart"))) return;
  threads_->Run(
      [gang = shared_from_this(), idle] { idle ? gang->LeaveLanes() : gang->AbortLanes(); });
}

bool NcclGang::AwaitLeft(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return ended_changed_.wait_until(lock, deadline.when(), [this] { return ended_; });
}

void NcclGang::Watch() {
  (void)tables_->cuda->SetDevice(tables_->device);
  while (fate_->status().ok()) {
    const bool busy = Poll(SystemClock().Now());
    fate_->WaitFor([this] { return woken_.exchange(false); },
                   Deadline::After(busy ? kBusyPause : tables_->idle_pause));
  }
}

bool NcclGang::Poll(TimePoint now) {
  bool busy = false;
  for (NcclLane* const lane : Lanes()) {
    NcclLane::Look look = lane->Poll(now);
    if (!look.error.ok()) {
      Fail(look.error);
      return false;
    }
    busy |= look.busy;
  }
  return busy;
}

std::vector<NcclLane*> NcclGang::Lanes() const {
  std::lock_guard lock(mutex_);
  std::vector<NcclLane*> lanes;
  for (const auto& lane : lanes_) lanes.push_back(lane.get());
  return lanes;
}

bool NcclGang::TakeAll(std::vector<NcclComm*>* comms) {
  const Deadline deadline = Deadline::After(tables_->end_timeout);
  for (NcclLane* const lane : Lanes()) {
    const std::optional<NcclComm*> comm = lane->Take(deadline);
    if (!comm) return false;
    if (*comm != nullptr) comms->push_back(*comm);
  }
  return true;
}

// In one group: NCCL waits for the kernels of a communicator, which may wait for another's.
bool NcclGang::AbortAll(const std::vector<NcclComm*>& comms) {
  if (comms.empty()) return true;
  const NcclApi& nccl = tables_->nccl;
  if (nccl.GroupStart() != NcclResult::kSuccess) return false;
  for (NcclComm* const comm : comms) (void)nccl.CommAbort(comm);
  const NcclResult result = nccl.GroupEnd();
  return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
}

void NcclGang::AbortLanes() {
  (void)tables_->cuda->SetDevice(tables_->device);
  std::vector<NcclComm*> comms;
  if (TakeAll(&comms) && AbortAll(comms)) SetEnded();
}

bool NcclGang::FinalizeAll(const std::vector<NcclComm*>& comms) {
  const NcclApi& nccl = tables_->nccl;
  const auto accepted = [](NcclResult result) {
    return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  };
  for (NcclComm* const comm : comms) {
    if (!accepted(nccl.CommFinalize(comm))) return false;
  }
  const Deadline deadline = Deadline::After(tables_->end_timeout);
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  for (NcclComm* const comm : comms) {
    NcclResult state = NcclResult::kInProgress;
    while (nccl.CommGetAsyncError(comm, &state) == NcclResult::kSuccess &&
           state == NcclResult::kInProgress && !deadline.Expired()) {
      never.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (state != NcclResult::kSuccess) return false;
  }
  return true;
}

void NcclGang::LeaveLanes() {
  (void)tables_->cuda->SetDevice(tables_->device);
  std::vector<NcclComm*> comms;
  if (!TakeAll(&comms)) return;
  if (FinalizeAll(comms)) {
    for (NcclComm* const comm : comms) (void)tables_->nccl.CommDestroy(comm);
    SetEnded();
  } else if (AbortAll(comms)) {
    SetEnded();
  }
}

void NcclGang::SetEnded() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
}

}  // namespace muster
