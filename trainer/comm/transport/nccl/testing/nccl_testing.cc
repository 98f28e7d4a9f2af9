#include "trainer/comm/transport/nccl/testing/nccl_testing.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "trainer/comm/group/testing/collectives_testing.h"

namespace muster::testing {
namespace {

// Runs what it is given, in order.
class Stream {
 public:
  Stream() : thread_([this] { Run(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void Push(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

// One recording of an event: a later one does not change what waits for this.
struct Recording {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;

  void Reach() {
    std::lock_guard lock(mutex);
    reached = true;
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
  bool IsReached() {
    std::lock_guard lock(mutex);
    return reached;
  }
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Recording> last;

  std::shared_ptr<Recording> Last() {
    std::lock_guard lock(mutex);
    return last;
  }
};

Stream* Of(CudaStream stream) { return reinterpret_cast<Stream*>(stream); }
Event* Of(CudaEvent event) { return reinterpret_cast<Event*>(event); }

// The element as it is; Load takes the offset of collectives_testing.h off bytes.
double Raw(ElementType type, const void* data, std::size_t i) {
  return Load(type, data, i) + (type == ElementType::kUint8 ? 4 : 0);
}
void SetRaw(ElementType type, void* data, std::size_t i, double value) {
  Store(type, data, i, value - (type == ElementType::kUint8 ? 4 : 0));
}

void ConvertOnHost(const ConvertRows& rows) {
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      const auto from = static_cast<std::size_t>(r * rows.from_stride + c);
      const auto to = static_cast<std::size_t>(r * rows.to_stride + c);
      const double old = rows.add ? Raw(rows.to_type, rows.to, to) : 0;
      SetRaw(rows.to_type, rows.to, to, Raw(rows.from_type, rows.from, from) + old);
    }
  }
}

}  // namespace

SubstituteCuda::SubstituteCuda() : trainer_(reinterpret_cast<CudaStream>(new Stream)) {}
SubstituteCuda::~SubstituteCuda() { delete Of(trainer_); }

void SubstituteCuda::Enqueue(std::function<void()> work) { Of(trainer_)->Push(std::move(work)); }

void SubstituteCuda::Synchronize() {
  const auto recording = std::make_shared<Recording>();
  Enqueue([recording] { recording->Reach(); });
  recording->Wait();
}

void SubstituteCuda::MakeHostMemory(const void* memory) { host_memory_.insert(memory); }

void SubstituteCuda::AddStreams(CudaApi* api) {
  const auto ok = CudaResult::kSuccess;
  api->StreamCreate = [this, ok](CudaStream* stream) {
    *stream = reinterpret_cast<CudaStream>(new Stream);
    ++streams_;
    return ok;
  };
  api->StreamDestroy = [this, ok](CudaStream stream) {
    delete Of(stream);
    --streams_;
    return ok;
  };
  api->StreamWaitEvent = [ok](CudaStream stream, CudaEvent event) {
    if (auto recording = Of(event)->Last()) Of(stream)->Push([recording] { recording->Wait(); });
    return ok;
  };
}

void SubstituteCuda::AddEvents(CudaApi* api) {
  const auto ok = CudaResult::kSuccess;
  api->EventCreate = [this, ok](CudaEvent* event) {
    *event = reinterpret_cast<CudaEvent>(new Event);
    ++events_;
    return ok;
  };
  api->EventDestroy = [this, ok](CudaEvent event) {
    delete Of(event);
    --events_;
    return ok;
  };
  api->EventRecord = [ok](CudaEvent event, CudaStream stream) {
    auto recording = std::make_shared<Recording>();
    {
      std::lock_guard lock(Of(event)->mutex);
      Of(event)->last = recording;
    }
    Of(stream)->Push([recording] { recording->Reach(); });
    return ok;
  };
  api->EventQuery = [this, ok](CudaEvent event) {
    if (broken_) return CudaResult{700};
    const auto recording = Of(event)->Last();
    return recording == nullptr || recording->IsReached() ? ok : CudaResult::kNotReady;
  };
}

void SubstituteCuda::AddMemory(CudaApi* api) {
  const auto ok = CudaResult::kSuccess;
  api->Malloc = [this, ok](void** memory, std::size_t bytes) {
    *memory = std::calloc(1, bytes);
    ++allocations_;
    ++allocations_made_;
    largest_allocation_ = std::max(largest_allocation_.load(), bytes);
    return ok;
  };
  api->Free = [this, ok](void* memory) {
    std::free(memory);
    --allocations_;
    return ok;
  };
  api->HostMalloc = api->Malloc;
  api->HostFree = api->Free;
  api->IsHostMemory = [this](const void* memory) { return host_memory_.contains(memory); };
  api->Copy = [ok](void* to, const void* from, std::size_t bytes, CudaStream stream) {
    Of(stream)->Push([=] { std::memmove(to, from, bytes); });
    return ok;
  };
  api->Convert = [ok](const ConvertRows& rows, CudaStream stream) {
    Of(stream)->Push([rows] { ConvertOnHost(rows); });
    return ok;
  };
}

std::shared_ptr<const CudaApi> SubstituteCuda::Api() {
  auto api = std::make_shared<CudaApi>();
  api->SetDevice = [](int) { return CudaResult::kSuccess; };
  AddStreams(api.get());
  AddEvents(api.get());
  AddMemory(api.get());
  api->CurrentStream = [this] { return trainer_; };
  api->GetErrorString = [](CudaResult) { return "an illegal memory access was encountered"; };
  return api;
}

namespace {

enum class Kind { kAllGather, kReduceScatter, kAllReduce, kBroadcast };

struct Call {
  Kind kind = Kind::kAllGather;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  ElementType type = ElementType::kFloat32;
  NcclOp op = NcclOp::kSum;
  int root = 0;  // kBroadcast: whose data
};

// A send or a receive within a group of calls.
struct Transfer {
  bool sends = false;
  const void* from = nullptr;  // of a send; `to` of a receive
  void* to = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  NcclComm* comm = nullptr;
  CudaStream stream = nullptr;
};

ElementType TypeOf(NcclType type) {
  switch (type) {
    case NcclType::kUint8: return ElementType::kUint8;
    case NcclType::kInt64: return ElementType::kInt64;
    case NcclType::kFloat16: return ElementType::kFloat16;
    case NcclType::kFloat32: return ElementType::kFloat32;
    case NcclType::kFloat64: return ElementType::kFloat64;
    case NcclType::kBFloat16: return ElementType::kBFloat16;
  }
  return ElementType::kUint8;
}

// What all ranks gave to one operation.
using Parts = std::vector<std::vector<std::byte>>;

double Combine(NcclOp op, double a, double b) {
  if (op == NcclOp::kMin) return std::min(a, b);
  return op == NcclOp::kMax ? std::max(a, b) : a + b;
}

void Compute(const Call& call, const Parts& parts, std::size_t rank) {
  const std::size_t bytes = call.count * ElementSize(call.type);
  auto* const out = static_cast<std::byte*>(call.receive);
  if (call.kind == Kind::kAllGather) {
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (bytes > 0) std::memcpy(out + r * bytes, parts[r].data(), bytes);
    }
    return;
  }
  if (call.kind == Kind::kBroadcast) {
    if (bytes > 0) std::memcpy(out, parts[static_cast<std::size_t>(call.root)].data(), bytes);
    return;
  }
  const std::size_t first = call.kind == Kind::kReduceScatter ? rank * call.count : 0;
  for (std::size_t i = 0; i < call.count; ++i) {
    double value = Raw(call.type, parts[0].data(), first + i);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      value = Combine(call.op, value, Raw(call.type, parts[r].data(), first + i));
    }
    SetRaw(call.type, out, i, value);
  }
}

// The communicators that were made with one id.
struct Group {
  struct Meeting {
    Parts parts;
    int given = 0;
    int left = 0;
  };
  std::size_t size = 0;
  int joined = 0;
  std::vector<NcclComm*> members;
  std::map<std::uint64_t, Meeting> meetings;  // by the operation's number
  // What was sent and not received, by sender and receiver.
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> sent;
};

struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;   // in the group
  int owner = 0;  // the rank whose table it was made with
  std::uint64_t calls = 0;
  bool aborted = false;
  bool gone = false;
  NcclResult error = NcclResult::kSuccess;
  int polls = 0;  // that still say "in progress"
  bool inside = false;
};

Member* Of(NcclComm* comm) { return reinterpret_cast<Member*>(comm); }

}  // namespace

struct SubstituteNccl::State : std::enable_shared_from_this<SubstituteNccl::State> {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t ids = 0;
  std::map<std::uint64_t, std::shared_ptr<Group>> groups;
  std::vector<std::unique_ptr<Member>> communicators;  // also those that are gone
  std::vector<std::string> violations;
  int aborts = 0;
  int destroys = 0;
  bool connect_never = false;
  bool block_aborts = false;
  bool tell_peers = false;
  std::set<int> hanging;
  std::set<int> sticking;
  std::map<int, int> delays;

  // Every call on a communicator passes here.
  class Entry {
   public:
    Entry(State& state, NcclComm* comm, const char* what) : state_(state), comm_(Of(comm)) {
      std::lock_guard lock(state.mutex);
      if (comm_->gone) state.violations.push_back(std::string(what) + " after the end");
      if (comm_->inside) state.violations.push_back(std::string(what) + " beside another call");
      comm_->inside = true;
    }
    ~Entry() {
      std::lock_guard lock(state_.mutex);
      comm_->inside = false;
    }

   private:
    State& state_;
    Member* const comm_;
  };

  NcclResult Init(int owner, NcclComm** comm, int ranks, const NcclUniqueId& id, int rank) {
    std::lock_guard lock(mutex);
    std::uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof(number));
    auto& group = groups[number];
    if (group == nullptr) group = std::make_shared<Group>();
    group->size = static_cast<std::size_t>(ranks);
    ++group->joined;
    auto made = std::make_unique<Member>();
    made->group = group;
    made->rank = rank;
    made->owner = owner;
    *comm = reinterpret_cast<NcclComm*>(made.get());
    group->members.push_back(*comm);
    communicators.push_back(std::move(made));
    return NcclResult::kInProgress;
  }

  NcclResult AsyncError(NcclComm* comm) {
    const Entry entry(*this, comm, "CommGetAsyncError");
    std::lock_guard lock(mutex);
    Member& c = *Of(comm);
    if (c.error != NcclResult::kSuccess) return c.error;
    if (connect_never || c.group->joined < static_cast<int>(c.group->size)) {
      return NcclResult::kInProgress;
    }
    if (c.polls == 0) return NcclResult::kSuccess;
    if (c.polls > 0) --c.polls;
    return NcclResult::kInProgress;
  }

  // Called in order by the communicator's stream.
  void RunOnStream(Member& c, std::uint64_t number, const Call& call) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return c.aborted || !hanging.contains(c.owner); });
    if (c.aborted) return;
    const auto bytes = [&] {
      const std::size_t elements =
          call.kind == Kind::kReduceScatter ? call.count * c.group->size : call.count;
      return elements * ElementSize(call.type);
    }();
    Group::Meeting& meeting = c.group->meetings[number];
    meeting.parts.resize(c.group->size);
    const auto* const from = static_cast<const std::byte*>(call.send);
    meeting.parts[static_cast<std::size_t>(c.rank)].assign(from, from + bytes);
    ++meeting.given;
    changed.notify_all();
    const int all = static_cast<int>(c.group->size);
    changed.wait(lock, [&] { return c.aborted || meeting.given == all; });
    if (c.aborted) return;
    Compute(call, meeting.parts, static_cast<std::size_t>(c.rank));
    if (++meeting.left == all) c.group->meetings.erase(number);
  }

  // The same for the sends and receives of one group of calls: each receive waits for its sender
  // alone.
  void RunTransfers(Member& c, const std::vector<Transfer>& transfers) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return c.aborted || !hanging.contains(c.owner); });
    for (const Transfer& each : transfers) {
      if (c.aborted || !each.sends) continue;
      const auto* const from = static_cast<const std::byte*>(each.from);
      c.group->sent[{c.rank, each.peer}].emplace_back(from, from + each.bytes);
    }
    changed.notify_all();
    for (const Transfer& each : transfers) {
      if (each.sends) continue;
      auto& waiting = c.group->sent[{each.peer, c.rank}];
      changed.wait(lock, [&] { return c.aborted || !waiting.empty(); });
      if (c.aborted) return;
      if (waiting.front().size() != each.bytes) violations.push_back("a receive of another size");
      const std::size_t bytes = std::min(waiting.front().size(), each.bytes);
      if (bytes > 0) std::memcpy(each.to, waiting.front().data(), bytes);
      waiting.pop_front();
    }
  }

  NcclResult IssueTransfers(std::vector<Transfer> transfers) {
    NcclComm* const comm = transfers.front().comm;
    const CudaStream stream = transfers.front().stream;
    return Issue(comm, stream, [moved = std::move(transfers)](State& state, Member& c) {
      state.RunTransfers(c, moved);
    });
  }

  NcclResult Issue(NcclComm* comm, CudaStream stream, const Call& call) {
    std::uint64_t number = 0;
    {
      std::lock_guard lock(mutex);
      number = Of(comm)->calls++;
    }
    return Issue(comm, stream,
                 [number, call](State& state, Member& c) { state.RunOnStream(c, number, call); });
  }

  NcclResult Issue(NcclComm* comm, CudaStream stream, std::function<void(State&, Member&)> run) {
    const Entry entry(*this, comm, "a collective");
    std::unique_lock lock(mutex);
    Member& c = *Of(comm);
    if (c.error != NcclResult::kSuccess) return c.error;
    const auto delay = delays.find(c.owner);
    if (delay != delays.end()) c.polls = delay->second;
    if (sticking.contains(c.owner)) c.polls = -1;
    const bool in_progress = c.polls != 0;
    lock.unlock();
    Of(stream)->Push([self = shared_from_this(), &c, run = std::move(run)] { run(*self, c); });
    return in_progress ? NcclResult::kInProgress : NcclResult::kSuccess;
  }

  NcclResult Abort(NcclComm* comm, int depth) {
    const Entry entry(*this, comm, "CommAbort");
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !block_aborts; });
    Member& c = *Of(comm);
    if (depth == 0) violations.push_back("CommAbort outside of a group");
    c.aborted = c.gone = true;
    ++aborts;
    if (tell_peers) {
      for (NcclComm* const member : c.group->members) {
        if (!Of(member)->aborted) Of(member)->error = NcclResult::kRemoteError;
      }
    }
    changed.notify_all();
    return NcclResult::kSuccess;
  }

  NcclResult Destroy(NcclComm* comm) {
    const Entry entry(*this, comm, "CommDestroy");
    std::lock_guard lock(mutex);
    Of(comm)->gone = true;
    ++destroys;
    return NcclResult::kSuccess;
  }
};

SubstituteNccl::SubstituteNccl() : state_(std::make_shared<State>()) {}
SubstituteNccl::~SubstituteNccl() { BlockAborts(false); }

// Sends and receives of a group are kept until its end; together they are one operation.
void SubstituteNccl::AddSendReceive(NcclApi* api) const {
  // One per thread, as in NCCL; one per table would do for a rank.
  static thread_local int depth = 0;
  static thread_local std::vector<Transfer> grouped;
  const std::shared_ptr<State> state = state_;
  const auto keep = [](Transfer transfer) {
    if (depth == 0) return NcclResult::kInvalidUsage;
    grouped.push_back(transfer);
    return NcclResult::kSuccess;
  };
  api->GroupStart = [=] {
    ++depth;
    return NcclResult::kSuccess;
  };
  api->GroupEnd = [=] {
    if (--depth > 0 || grouped.empty()) return NcclResult::kSuccess;
    return state->IssueTransfers(std::exchange(grouped, {}));
  };
  api->CommAbort = [=](NcclComm* comm) { return state->Abort(comm, depth); };
  api->Send = [=](const void* send, std::size_t count, NcclType type, int peer, NcclComm* comm,
                  CudaStream stream) {
    return keep({true, send, nullptr, count * ElementSize(TypeOf(type)), peer, comm, stream});
  };
  api->Recv = [=](void* receive, std::size_t count, NcclType type, int peer, NcclComm* comm,
                  CudaStream stream) {
    return keep({false, nullptr, receive, count * ElementSize(TypeOf(type)), peer, comm, stream});
  };
}

void SubstituteNccl::AddCollectives(NcclApi* api) const {
  const std::shared_ptr<State> state = state_;
  api->AllGather = [=](const void* send, void* receive, std::size_t count, NcclType type,
                       NcclComm* comm, CudaStream stream) {
    return state->Issue(comm, stream, {Kind::kAllGather, send, receive, count, TypeOf(type)});
  };
  api->ReduceScatter = [=](const void* send, void* receive, std::size_t count, NcclType type,
                           NcclOp op, NcclComm* comm, CudaStream stream) {
    return state->Issue(comm, stream,
                        {Kind::kReduceScatter, send, receive, count, TypeOf(type), op});
  };
  api->AllReduce = [=](const void* send, void* receive, std::size_t count, NcclType type, NcclOp op,
                       NcclComm* comm, CudaStream stream) {
    return state->Issue(comm, stream, {Kind::kAllReduce, send, receive, count, TypeOf(type), op});
  };
  api->Broadcast = [=](const void* send, void* receive, std::size_t count, NcclType type, int root,
                       NcclComm* comm, CudaStream stream) {
    return state->Issue(comm, stream,
                        {Kind::kBroadcast, send, receive, count, TypeOf(type), NcclOp::kSum, root});
  };
}

NcclApi SubstituteNccl::Api(int rank, int version) {
  NcclApi api;
  const auto ok = NcclResult::kSuccess;
  const std::shared_ptr<State> state = state_;
  api.GetVersion = [=](int* out) {
    *out = version;
    return ok;
  };
  api.GetUniqueId = [=](NcclUniqueId* id) {
    std::lock_guard lock(state->mutex);
    const std::uint64_t number = ++state->ids;
    std::memcpy(id->internal, &number, sizeof(number));
    return ok;
  };
  api.CommInitRankConfig = [=](NcclComm** comm, int ranks, NcclUniqueId id, int place,
                               NcclConfig* config) {
    if (config->blocking != 0) return NcclResult::kInvalidArgument;
    return state->Init(rank, comm, ranks, id, place);
  };
  api.CommGetAsyncError = [=](NcclComm* comm, NcclResult* error) {
    *error = state->AsyncError(comm);
    return ok;
  };
  api.CommFinalize = [=](NcclComm* comm) {
    const State::Entry entry(*state, comm, "CommFinalize");
    return ok;
  };
  api.CommDestroy = [=](NcclComm* comm) { return state->Destroy(comm); };
  AddCollectives(&api);
  AddSendReceive(&api);
  api.GetErrorString = [](NcclResult result) {
    return result == NcclResult::kRemoteError ? "remote process exited or there was a network error"
                                              : "unhandled system error";
  };
  api.GetLastError = [](NcclComm*) { return ""; };
  return api;
}

void SubstituteNccl::ConnectNever(bool never) {
  std::lock_guard lock(state_->mutex);
  state_->connect_never = never;
}

void SubstituteNccl::FailRank(int rank, NcclResult error) {
  std::lock_guard lock(state_->mutex);
  for (const auto& c : state_->communicators) {
    if (c->owner == rank) c->error = error;
  }
}

void SubstituteNccl::HangRank(int rank) {
  std::lock_guard lock(state_->mutex);
  state_->hanging.insert(rank);
}

void SubstituteNccl::DelayCalls(int rank, int polls) {
  std::lock_guard lock(state_->mutex);
  state_->delays[rank] = polls;
}

void SubstituteNccl::StickCalls(int rank) {
  std::lock_guard lock(state_->mutex);
  state_->sticking.insert(rank);
}

void SubstituteNccl::BlockAborts(bool block) {
  {
    std::lock_guard lock(state_->mutex);
    state_->block_aborts = block;
  }
  state_->changed.notify_all();
}

void SubstituteNccl::NotifyPeersOfAborts() {
  std::lock_guard lock(state_->mutex);
  state_->tell_peers = true;
}

int SubstituteNccl::aborts() const {
  std::lock_guard lock(state_->mutex);
  return state_->aborts;
}

int SubstituteNccl::destroys() const {
  std::lock_guard lock(state_->mutex);
  return state_->destroys;
}

int SubstituteNccl::open_communicators() const {
  std::lock_guard lock(state_->mutex);
  int open = 0;
  for (const auto& c : state_->communicators) open += c->gone ? 0 : 1;
  return open;
}

std::vector<std::string> SubstituteNccl::violations() const {
  std::lock_guard lock(state_->mutex);
  return state_->violations;
}

}  // namespace muster::testing
