#include "trainer/supervise/supervisor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

using nlohmann::json;

// Messages of other libraries can be long; a packet has a bound and the timeline needs the
// beginning.
constexpr std::size_t kMaxText = 4096;

std::string Clipped(std::string_view text) {
  return text.size() <= kMaxText ? std::string(text)
                                 : std::string(text.substr(0, kMaxText)) + "...";
}

std::string Message(const char* type, Generation generation, json fields = json::object()) {
  fields["type"] = type;
  fields["generation"] = generation;
  return fields.dump(-1, ' ', false, json::error_handler_t::replace);
}

const char* Name(ResumeSource source) {
  switch (source) {
    case ResumeSource::kStart: return "start";
    case ResumeSource::kCheckpoint: return "checkpoint";
    case ResumeSource::kSnapshot: return "snapshot";
  }
  return "";
}

void EndProcess() {
  std::fputs("the guardian of this rank is gone; ending\n", stderr);
  _exit(kExitFailure);
}

// What a disk has to do with a failure.
CheckpointTrouble DiskTrouble(const Status& status) {
  switch (status.error_number()) {
    case ENOSPC:
    case EDQUOT: return CheckpointTrouble::kDiskFull;
    case EROFS: return CheckpointTrouble::kReadOnly;
    case EIO: return CheckpointTrouble::kIoError;
    default: return CheckpointTrouble::kOther;
  }
}

class SupervisorCommitter final : public CheckpointCommitter {
 public:
  explicit SupervisorCommitter(Supervisor* supervisor) : supervisor_(supervisor) {}

  Status ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard) override {
    supervisor_->ShardWritten(checkpoint, shard);
    return OkStatus();
  }
  void Failed(const CheckpointManifest& checkpoint, int /*rank*/, const Status& reason) override {
    supervisor_->CheckpointFailed(checkpoint.generation, checkpoint.step, DiskTrouble(reason),
                                  reason.message());
  }

 private:
  Supervisor* const supervisor_;
};

}  // namespace

Supervisor::Supervisor(UniqueFd control, SupervisorHooks hooks)
    : socket_(std::move(control)), attached_(socket_.valid()), hooks_(std::move(hooks)) {
  if (!attached_) return;
  while (ReadMessage(Deadline::After(Duration::zero())).ok()) continue;
  reader_ = std::thread([this] { ReadMessages(); });
}

Supervisor::~Supervisor() {
  if (!attached_) return;
  closing_ = true;
  // Wakes the reader. What was sent stays readable for the guardian.
  ::shutdown(socket_.fd(), SHUT_RD);
  reader_.join();
}

void Supervisor::ReadMessages() {
  for (;;) {
    const Status read = ReadMessage(Deadline::After(std::chrono::hours(1)));
    if (closing_) return;
    if (read.ok() || read.code() == StatusCode::kDeadlineExceeded) continue;
    hooks_.on_lost ? hooks_.on_lost() : EndProcess();
    return;
  }
}

Status Supervisor::ReadMessage(Deadline deadline) {
  MUSTER_ASSIGN_OR_RETURN(Packet packet, socket_.Receive(deadline));
  std::optional<GuardianMessage> message = ParseGuardianMessage(std::move(packet));
  if (message) std::visit([this](auto& each) { Handle(std::move(each)); }, *message);
  return OkStatus();
}

void Supervisor::Handle(Assignment assignment) {
  std::lock_guard lock(mutex_);
  newest_assigned_ = assignment.generation;
  assignments_.push_back(std::move(assignment));
  changed_.notify_all();
}

void Supervisor::Handle(HeldSegment segment) {
  std::lock_guard lock(mutex_);
  segments_.push_back(std::move(segment));
}

void Supervisor::Handle(const ParkRequest& park) {
  {
    std::lock_guard lock(mutex_);
    if (park.generation <= called_off_through_) return;
    called_off_through_ = park.generation;
    called_off_ = Cancelled(park.reason.empty() ? "the generation was called off" : park.reason);
    changed_.notify_all();
  }
  std::lock_guard lock(hook_mutex_);
  if (on_park_) on_park_(park.generation, CalledOff(park.generation));
}

// It means the generation under way. A process that never had one has nothing else to stop, or got
// its only one from the environment.
void Supervisor::Handle(const StopRequest& stop) {
  std::lock_guard lock(mutex_);
  stop_reason_ = stop.reason;
  const bool idle = waiting_ && assignments_.empty();
  end_waiting_ = idle || newest_assigned_ == 0;
  if (!idle) {
    stop_through_.store(
        newest_assigned_ == 0 ? std::numeric_limits<Generation>::max() : newest_assigned_,
        std::memory_order_release);
  }
  changed_.notify_all();
}

void Supervisor::Handle(const FaultRequest& fault) {
  if (hooks_.on_fault) hooks_.on_fault(fault.kind, fault.argument);
}

std::optional<Assignment> Supervisor::NextAssignment() {
  std::unique_lock lock(mutex_);
  waiting_ = true;
  changed_.wait(lock, [&] { return !assignments_.empty() || end_waiting_; });
  waiting_ = false;
  if (assignments_.empty()) return std::nullopt;
  Assignment next = std::move(assignments_.front());
  assignments_.pop_front();
  return next;
}

bool Supervisor::has_assignment() const {
  std::lock_guard lock(mutex_);
  return !assignments_.empty();
}

std::vector<HeldSegment> Supervisor::TakeSegments() {
  std::lock_guard lock(mutex_);
  return std::exchange(segments_, {});
}

std::string Supervisor::stop_reason() const {
  std::lock_guard lock(mutex_);
  return stop_reason_;
}

Status Supervisor::CalledOff(Generation generation) const {
  std::lock_guard lock(mutex_);
  return generation <= called_off_through_ ? called_off_ : OkStatus();
}

Status Supervisor::AwaitCalledOff(Generation generation, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool called_off = changed_.wait_for(lock, deadline.Remaining(),
                                            [&] { return generation <= called_off_through_; });
  return called_off ? called_off_ : OkStatus();
}

void Supervisor::OnPark(ParkHook hook) {
  std::lock_guard lock(hook_mutex_);
  on_park_ = std::move(hook);
  if (!on_park_) return;
  Generation through = 0;
  {
    std::lock_guard inner(mutex_);
    through = called_off_through_;
  }
  if (through > 0) on_park_(through, CalledOff(through));
}

// A report that cannot be sent is not this rank's problem: the guardian is gone, and the reader
// ends the process.
void Supervisor::Send(const std::string& message, const std::vector<int>& fds) {
  if (!attached_) return;
  std::lock_guard lock(send_mutex_);
  (void)socket_.Send(message, fds, Deadline::After(std::chrono::seconds(5)));
}

void Supervisor::Formed(Generation generation) { Send(Message("formed", generation)); }

void Supervisor::Resumed(Generation generation, Step step, ResumeSource from,
                         const std::vector<RejectedCheckpoint>& rejected) {
  json list = json::array();
  for (const RejectedCheckpoint& each : rejected) {
    list.push_back({{"directory", each.directory}, {"reason", Clipped(each.reason)}});
  }
  Send(Message("resumed", generation,
               {{"step", step}, {"from", Name(from)}, {"rejected", std::move(list)}}));
}

void Supervisor::FirstStep(Generation generation, Step step) {
  Send(Message("first_step", generation, {{"step", step}}));
}

void Supervisor::ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard) {
  json fields = {{"step", checkpoint.step},
                 {"directory", checkpoint.directory},
                 {"shard",
                  {{"rank", shard.rank},
                   {"file", shard.file},
                   {"bytes", shard.bytes},
                   {"checksum", shard.checksum}}}};
  if (checkpoint.eval_loss) fields["eval_loss"] = *checkpoint.eval_loss;
  Send(Message("shard_written", checkpoint.generation, std::move(fields)));
}

void Supervisor::CheckpointFailed(Generation generation, Step step, CheckpointTrouble kind,
                                  const std::string& reason) {
  Send(Message("checkpoint_failed", generation,
               {{"step", step}, {"kind", Name(kind)}, {"reason", Clipped(reason)}}));
}

void Supervisor::Error(Generation generation, const TrainStatus& failure, Step step) {
  json fields = {
      {"kind", failure.kind_name()}, {"message", Clipped(failure.message())}, {"step", step}};
  if (failure.symptom()) fields["symptom"] = true;
  Send(Message("error", generation, std::move(fields)));
}

void Supervisor::Note(Generation generation, std::string_view severity, std::string_view message) {
  Send(Message("note", generation, {{"severity", severity}, {"message", Clipped(message)}}));
}

void Supervisor::Finished(Generation generation, Step step, const std::string& model_dir) {
  Send(Message("finished", generation, {{"step", step}, {"model_dir", model_dir}}));
}

void Supervisor::Parked(Generation generation, Step step) {
  Send(Message("parked", generation, {{"step", step}}));
}

void Supervisor::StandbyReady() { Send(Message("standby_ready", 0)); }

void Supervisor::HoldSegment(Generation generation, const std::string& name, int fd) {
  Send(Message("segment", generation, {{"name", name}}), {fd});
}

void Supervisor::Cut(Generation generation, const std::vector<std::string>& segments) {
  Send(Message("cut", generation, {{"segments", segments}}));
}

void Supervisor::DropSegment(Generation generation, const std::string& name) {
  Send(Message("drop_segment", generation, {{"name", name}}));
}

std::unique_ptr<CheckpointCommitter> MakeSupervisorCommitter(Supervisor* supervisor) {
  return std::make_unique<SupervisorCommitter>(supervisor);
}

}  // namespace muster
