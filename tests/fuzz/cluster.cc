#include "tests/fuzz/cluster.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "common/wire/codec.h"
#include "coordinator/control/testing/control_harness.h"
#include "coordinator/service/conversions.h"
#include "coordinator/store/journal_format.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

ControllerOptions Options() {
  ControllerOptions options{.allow_faults = true};
  options.new_token = [] { return std::string(64, 'a'); };
  return options;
}

// What a coordinator has stored of a cluster, and what the nodes say when it starts again.
struct Stored {
  StoredState state;
  Now now;
  JobId job;
  Hello hellos[2];
};

Stored MakeStored() {
  const RunningJob cluster(TrainYaml(), Options());
  Stored stored{.state = cluster.stored(), .now = cluster.now(), .job = cluster.id, .hellos = {}};
  for (int i = 0; i < 2; ++i) {
    Hello& hello = stored.hellos[i];
    hello.protocol_version = kProtocolVersion;
    hello.min_protocol_version = kProtocolVersion;
    hello.version = "test";
    hello.node = NodeName{i == 0 ? "n1" : "n2"};
    hello.address = "127.0.0.1";
    hello.host_id = "host";
    hello.slots = 1;
    hello.instance = "first";
    hello.directory_id = "dir";
    hello.allows_faults = true;
    hello.hosted = {cluster.Hosted(hello.node.value, cluster.id, AttemptState::kRunning)};
  }
  return stored;
}

const Stored& TheStored() {
  static const Stored stored = MakeStored();
  return stored;
}

}  // namespace

Cluster::Cluster() : now_(TheStored().now), controller_(std::make_unique<Controller>(Options())) {
  Apply(controller_->Restore(TheStored().state, now_));
  SessionId session = 0;
  for (const Hello& hello : TheStored().hellos) Handle(WorkerHello{++session, hello});
}

Cluster::~Cluster() = default;

const JobId& Cluster::job() const { return TheStored().job; }

void Cluster::Handle(const Event& event) {
  Apply(controller_->Handle(event, now_));
  const Status invariants = controller_->CheckInvariants();
  Require(invariants.ok(), invariants.ToString());
}

void Cluster::Wait(Duration duration) {
  const TimePoint end = now_.mono + duration;
  int ticks = 0;
  for (auto due = controller_->NextDeadline(); due && *due <= end;
       due = controller_->NextDeadline()) {
    Require(++ticks < 10'000, "no deadline stays due for ever");
    const TimePoint next = std::max(*due, now_.mono);
    now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(next - now_.mono).count();
    now_.mono = next;
    Handle(Tick{});
  }
  now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(end - now_.mono).count();
  now_.mono = end;
}

void Cluster::ShowAll() const {
  for (const JobView& view : controller_->Jobs())
    ToProto(view, JobDetail::kFull, now_.mono).SerializeAsString();
  for (const NodeView& view : controller_->Nodes()) ToProto(view).SerializeAsString();
  for (const EventRecord& event : controller_->Events()) ToProto(event).SerializeAsString();
  ToProto(controller_->Queues()).SerializeAsString();
  ToProto(controller_->Users()).SerializeAsString();
}

void Cluster::Apply(const Effects& effects) const {
  std::string payload;
  for (const StoreOperation& operation : effects.store) AppendOperation(operation, &payload);
  Require(ForEachOperation(payload, [](const JournalOperation&) {}).ok(),
          "what is stored can be read again");
  for (const WorkerSend& send : effects.sends) {
    v1::CoordinatorMessage again;
    Require(again.ParseFromString(ToProto(send.message).SerializeAsString()),
            "what is sent can be read");
    const Result<CoordinatorMessage> understood = FromProto(again);
    // n1 may have made up the job that it is asked about.
    Require(understood.ok() || send.node.value == "n1", understood.status().ToString());
  }
}

}  // namespace muster::fuzz
