#include "trainer/comm/transport/nccl/nccl_lane.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

// NCCL has usually taken a call within microseconds; connecting takes a second.
constexpr Duration kFirstPause = std::chrono::microseconds(50);
constexpr Duration kLongestPause = std::chrono::milliseconds(2);

StatusCode CodeOf(NcclResult result) {
  switch (result) {
    // A socket or a transport broke: the peer, or the way to it, is gone.
    case NcclResult::kRemoteError:
    case NcclResult::kSystemError: return StatusCode::kUnavailable;
    case NcclResult::kInvalidArgument:
    case NcclResult::kInvalidUsage: return StatusCode::kInvalidArgument;
    default: return StatusCode::kInternal;
  }
}

std::string SecondsText(Duration d) {
  std::string text = std::to_string(ToSeconds(d));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

std::string CountsText(const CollectiveCell& counts) {
  return "enqueued " + std::to_string(counts.enqueued) + ", started " +
         std::to_string(counts.started) + ", completed " + std::to_string(counts.completed);
}

NcclLane::NcclLane(std::shared_ptr<const NcclTables> tables, std::shared_ptr<NcclFate> fate,
                   std::shared_ptr<CollectiveCell> counters, std::shared_ptr<CudaEvents> events,
                   Place place)
    : tables_(std::move(tables)),
      fate_(std::move(fate)),
      counters_(std::move(counters)),
      events_(std::move(events)),
      place_(std::move(place)) {}

NcclLane::~NcclLane() {
  // A communicator that could not be ended may still use them.
  if (comm_ != nullptr) return;
  for (void* const memory : {scratch_, word_}) {
    if (memory != nullptr) (void)tables_->cuda->Free(memory);
  }
  if (stream_ != nullptr) (void)tables_->cuda->StreamDestroy(stream_);
}

Status NcclLane::Init(const NcclUniqueId& id, Deadline deadline) {
  const CudaApi& cuda = *tables_->cuda;
  MUSTER_RETURN_IF_ERROR(CudaStatus(cuda, cuda.SetDevice(tables_->device), "choosing the device"));
  MUSTER_RETURN_IF_ERROR(CudaStatus(cuda, cuda.StreamCreate(&stream_), "a new stream"));
  if (place_.size == 1) return OkStatus();
  {
    std::lock_guard lock(calls_);
    MUSTER_RETURN_IF_ERROR(fate_->status());
    NcclConfig config;
    const NcclResult result =
        tables_->nccl.CommInitRankConfig(&comm_, place_.size, id, place_.rank, &config);
    if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
      return ErrorOf(result, "connecting the ranks");
    }
  }
  const Status status = AwaitReady(deadline);
  if (status.code() == StatusCode::kDeadlineExceeded) {
    return DeadlineExceeded("NCCL has not connected the " + std::to_string(place_.size) +
                            " ranks in time (" + place_.name + ")");
  }
  MUSTER_RETURN_IF_ERROR(status);
  std::lock_guard lock(calls_);
  ready_ = true;
  return OkStatus();
}

Status NcclLane::ErrorOf(NcclResult result, const char* what) {
  const char* const text = tables_->nccl.GetErrorString(result);
  const char* const detail = tables_->nccl.GetLastError(comm_);
  std::string message = std::string("NCCL: ") + what + " (" + place_.name +
                        "): " + (text == nullptr ? std::to_string(static_cast<int>(result)) : text);
  if (detail != nullptr && detail[0] != '\0') message += std::string(": ") + detail;
  return {CodeOf(result), message + "; " + CountsText(*counters_)};
}

Status NcclLane::AwaitReady(Deadline deadline) {
  Duration pause = kFirstPause;
  for (;;) {
    {
      std::lock_guard lock(calls_);
      MUSTER_RETURN_IF_ERROR(fate_->status());
      NcclResult error = NcclResult::kSuccess;
      const NcclResult result = tables_->nccl.CommGetAsyncError(comm_, &error);
      if (result != NcclResult::kSuccess) return ErrorOf(result, "asking for errors");
      if (error == NcclResult::kSuccess) return OkStatus();
      if (error != NcclResult::kInProgress) return ErrorOf(error, "a communicator failed");
    }
    if (deadline.Expired()) return DeadlineExceeded("NCCL did not take the operation in time");
    if (!fate_->Pause(pause)) return fate_->status();
    pause = std::min(2 * pause, kLongestPause);
  }
}

Result<std::shared_ptr<NcclOperation>> NcclLane::Begin(std::string name) {
  const CudaApi& cuda = *tables_->cuda;
  auto operation = std::make_shared<NcclOperation>();
  operation->name = std::move(name);
  operation->limit = tables_->limit->get();
  operation->counters = counters_;
  MUSTER_ASSIGN_OR_RETURN(operation->ready, events_->Take());
  MUSTER_ASSIGN_OR_RETURN(operation->started, events_->Take());
  MUSTER_ASSIGN_OR_RETURN(operation->done, events_->Take());
  MUSTER_RETURN_IF_ERROR(CudaStatus(
      cuda, cuda.EventRecord(operation->ready.get(), cuda.CurrentStream()), "recording an event"));
  MUSTER_RETURN_IF_ERROR(CudaStatus(cuda, cuda.StreamWaitEvent(stream_, operation->ready.get()),
                                    "waiting for an event"));
  MUSTER_RETURN_IF_ERROR(
      CudaStatus(cuda, cuda.EventRecord(operation->started.get(), stream_), "recording an event"));
  return operation;
}

Status NcclLane::Call(const std::function<NcclResult(NcclComm*, CudaStream)>& call) {
  {
    std::lock_guard lock(calls_);
    MUSTER_RETURN_IF_ERROR(fate_->status());
    const NcclResult result = call(comm_, stream_);
    if (result == NcclResult::kSuccess) return OkStatus();
    if (result != NcclResult::kInProgress) return ErrorOf(result, "issuing an operation");
  }
  return AwaitReady(tables_->limit->deadline());
}

Status NcclLane::Finish(const std::shared_ptr<NcclOperation>& operation) {
  const CudaApi& cuda = *tables_->cuda;
  MUSTER_RETURN_IF_ERROR(
      CudaStatus(cuda, cuda.EventRecord(operation->done.get(), stream_), "recording an event"));
  std::lock_guard lock(queue_);
  under_way_.push_back(operation);
  return OkStatus();
}

NcclLane::Look NcclLane::LookAt(NcclOperation& operation, TimePoint now) {
  const CudaApi& cuda = *tables_->cuda;
  if (!operation.started_at) {
    const CudaResult result = cuda.EventQuery(operation.started.get());
    if (result == CudaResult::kNotReady) return {.busy = true};
    if (result != CudaResult::kSuccess) {
      return {CudaStatus(cuda, result, ("before " + operation.name).c_str())};
    }
    operation.started_at = now;
    counters_->started.fetch_add(1);
  }
  const CudaResult result = cuda.EventQuery(operation.done.get());
  if (result == CudaResult::kSuccess) {
    operation.completed = true;
    counters_->completed.fetch_add(1);
    return {};
  }
  if (result != CudaResult::kNotReady) {
    return {CudaStatus(cuda, result, ("in " + operation.name).c_str())};
  }
  if (now - *operation.started_at < operation.limit) return {.busy = true};
  return {DeadlineExceeded(operation.name + " has not ended " + SecondsText(operation.limit) +
                           " after its start (" + place_.name + ", rank " +
                           std::to_string(place_.rank) + " of " + std::to_string(place_.size) +
                           "); " + CountsText(*counters_))};
}

Status NcclLane::AsyncError() {
  // A call that is under way learns of its error itself.
  std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr || !ready_) return OkStatus();
  NcclResult error = NcclResult::kSuccess;
  const NcclResult result = tables_->nccl.CommGetAsyncError(comm_, &error);
  if (result != NcclResult::kSuccess) return ErrorOf(result, "asking for errors");
  if (error == NcclResult::kSuccess || error == NcclResult::kInProgress) return OkStatus();
  return ErrorOf(error, "a communicator failed");
}

NcclLane::Look NcclLane::Poll(TimePoint now) {
  // First, since an operation that a lost peer holds up has a better reason than its deadline.
  if (Status error = AsyncError(); !error.ok()) return {std::move(error)};
  bool ended = false;
  Look look;
  {
    std::lock_guard lock(queue_);
    while (!under_way_.empty()) {
      look = LookAt(*under_way_.front(), now);
      if (!look.error.ok() || look.busy) break;
      under_way_.pop_front();
      ended = true;
    }
  }
  if (ended) fate_->Notify();
  return look;
}

bool NcclLane::idle() const {
  std::lock_guard lock(queue_);
  return under_way_.empty();
}

std::optional<NcclComm*> NcclLane::Take(Deadline deadline) {
  // By the system's clock, since GCC's ThreadSanitizer does not know locks by the steady one.
  std::unique_lock lock(calls_, std::chrono::system_clock::now() + deadline.Remaining());
  if (!lock.owns_lock()) return std::nullopt;
  return std::exchange(comm_, nullptr);
}

Result<void*> NcclLane::Scratch() { return AllocateOnce(&scratch_, tables_->scratch_bytes); }

Result<void*> NcclLane::Word() { return AllocateOnce(&word_, 256); }

Result<void*> NcclLane::AllocateOnce(void** memory, std::size_t bytes) {
  if (*memory == nullptr) {
    const CudaApi& cuda = *tables_->cuda;
    MUSTER_RETURN_IF_ERROR(CudaStatus(cuda, cuda.Malloc(memory, bytes), "memory of a lane"));
  }
  return *memory;
}

}  // namespace muster
